"""What a broker's journal stands on, with its files on lossy disks: to have the power cut."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from dejaqueue.cli.ports import free_port
from dejaqueue.cluster.jetstream_settings import Node, journal_url, settings_text
from dev.services.nats import Nats
from dev.services.postgresql import Postgresql
from dev.services.service import Service, is_listening
from tests.crash.broker_process import BrokerProcess
from tests.crash.lossy_mount import LossyMount
from tests.patience import PATIENCE_SECONDS

SMALL = {
    # So that segments roll, snapshots are taken and rows are copied all the time.
    "journal__segment_bytes": 1 << 18,
    "journal__snapshot_entries": 150,
    "journal__reserve_bytes": 0,
}


class Engine(ABC):
    """A broker, what its journal stands on, and their disks.

    Args:
        journaled: whether disks keep names as the file systems of Linux do, see volatile.py.

    Attributes:
        cuts: what was cut, in words.
    """

    def __init__(self, place: Path, chance: random.Random, *, journaled: bool) -> None:
        self._place, self._chance, self._journaled = place, chance, journaled
        self.disks: list[LossyMount] = []
        self.cuts: list[str] = []
        self.broker: BrokerProcess

    def add_disk(self, name: str) -> LossyMount:
        """A disk that is new."""
        (self._place / name).mkdir()
        disk = LossyMount(self._place / name)
        disk.mount(journaled=self._journaled)
        self.disks.append(disk)
        return disk

    @abstractmethod
    def begin(self) -> None:
        """Start everything on new disks."""

    @abstractmethod
    def cut(self) -> None:
        """Cut the power of somebody, and start them again."""

    @abstractmethod
    def cut_all(self, share: float) -> None:
        """Cut the power of all, and start them again."""

    @abstractmethod
    def end(self) -> None:
        """Stop everything."""

    def ask_all(self, command: str) -> None:
        """Tell all disks."""
        for disk in self.disks:
            answer = disk.ask(command)
            assert answer == "done", answer

    def darken(self, disk: LossyMount, share: float | None = None) -> None:
        """Cut the power of a disk; what does not reach it is the seed's choice."""
        disk.ask(f"sector {self._chance.choice((512, 4096))}")
        if share is None:
            share = self._chance.choice((0.0, 0.5, 0.9))
        disk.cut_power(self._chance.randrange(1 << 30), share)

    def lighten(self, disk: LossyMount) -> None:
        """The disk is there again, with what it has."""
        disk.close()
        disk.mount(journaled=self._journaled)


class OneMachine(Engine):
    """Broker and engine on one machine with one disk: both lose power at one instant."""

    server: Service | None = None

    @abstractmethod
    def url(self, disk: LossyMount) -> str | Path:
        """What the broker is given."""

    def begin(self) -> None:
        """See Engine.begin."""
        disk = self.add_disk("machine")
        more = {} if isinstance(self, OnSegments) else {"journal__mirror": disk.at / "mirror"}
        log = self._place / "broker.log"
        self.broker = BrokerProcess(self.url(disk), log, **SMALL, **more)
        self.broker.start()

    def cut(self) -> None:
        """See Engine.cut."""
        self._cut(None)

    def cut_all(self, share: float) -> None:
        """See Engine.cut_all."""
        self._cut(share)

    def _cut(self, share: float | None) -> None:
        disk = self.disks[0]
        # Nothing more is computed, said or written: then the disk may take its time.
        os.kill(self.broker.pid, signal.SIGSTOP)
        if self.server is not None:
            self.server.pause()
        self.darken(disk, share)
        self.cuts.append("machine")
        self.broker.kill()
        if self.server is not None:
            self.server.kill()
        self.lighten(disk)
        if self.server is not None:
            self.server.start()
        self.broker.start()

    def end(self) -> None:
        """See Engine.end."""
        with contextlib.suppress(AttributeError):
            self.broker.kill()
        if self.server is not None:
            self.server.stop()
        for disk in self.disks:
            disk.close()


class OnSegments(OneMachine):
    """DejaQ's own files."""

    def url(self, disk: LossyMount) -> Path:
        """See OneMachine.url."""
        return disk.at / "data"


class OnSqlite(OneMachine):
    """SQLite, in the broker's process."""

    def url(self, disk: LossyMount) -> str:
        """See OneMachine.url."""
        return f"sqlite:///{disk.at}/journal.db"


class OnServer(OneMachine):
    """A server that keeps its files in `content` of its folder."""

    service: type[Service]
    settings: dict[str, str] = {}  # noqa: RUF012  read only

    def url(self, disk: LossyMount) -> str:
        """See OneMachine.url."""
        self.server = put_on(self.service(**self.settings), disk)
        self.server.start()
        disk.ask("settle")  # an installation is synced once; here that would only take time
        return self.server.url


class OnPostgresql(OnServer):
    """PostgreSQL, as its packages set it; checkpoints are made often, to be cut too."""

    service = Postgresql
    settings = {"checkpoint_timeout": "30s", "max_wal_size": "64MB"}  # noqa: RUF012


class OnJetStream(OnServer):
    """One JetStream server."""

    service = Nats


def put_on(server: Service, disk: LossyMount) -> Service:
    """Have a server that was not started keep its files on a disk."""
    content = disk.at / "content"
    content.mkdir(mode=0o700)
    server.own(content)
    (server.folder / "content").symlink_to(content)
    return server


class NatsNode(Nats):
    """One server of three, set as DejaQ sets those beside its brokers."""

    def __init__(self, node: Node, nodes: Sequence[Node]) -> None:
        super().__init__()
        self.node, self._nodes = node, nodes
        self.port = node.client_port

    def prepare(self) -> None:
        """See Service.prepare."""
        store = self.folder / "content"
        (self.folder / "server.conf").write_text(settings_text(self.node, self._nodes, store, ""))

    def is_ready(self) -> bool:
        """It listens; whether the cluster has a leader depends on the others."""
        return is_listening(self.port)

    def is_well(self) -> bool:
        """It has all its streams."""
        return super().is_ready()


class OnThree(Engine):
    """Three JetStream servers with a disk each, three copies; the broker on a fourth machine."""

    def begin(self) -> None:
        """See Engine.begin."""
        nodes = [Node(name, "127.0.0.1", free_port(), free_port()) for name in "abc"]
        self._servers = [NatsNode(node, nodes) for node in nodes]
        for server in self._servers:
            put_on(server, self.add_disk(server.node.name))
            server.start()
        self._wait_until_well()
        url = journal_url(nodes, nodes[0], 3, "")
        mirror = {"journal__mirror": self.add_disk("broker").at / "mirror"}
        self.broker = BrokerProcess(url, self._place / "broker.log", **SMALL, **mirror)
        self.broker.start()

    def _wait_until_well(self) -> None:
        for _ in range(int(PATIENCE_SECONDS * 5)):
            if all(one.is_well() for one in self._servers):
                return
            threading.Event().wait(0.2)
        raise AssertionError("\n".join(one.log_text()[-2_000:] for one in self._servers))

    def cut(self) -> None:
        """See Engine.cut. The broker loses power with all servers, or now and then with some."""
        count = self._chance.choice((1, 2, 3, 3))
        places = sorted(self._chance.sample(range(3), count))
        self._cut(places, None, with_broker=count == 3 or self._chance.random() < 0.3)

    def cut_all(self, share: float) -> None:
        """See Engine.cut_all."""
        self._cut([0, 1, 2], share, with_broker=True)

    def _cut(self, places: list[int], share: float | None, *, with_broker: bool) -> None:
        if with_broker:
            os.kill(self.broker.pid, signal.SIGSTOP)
        for place in places:
            self._servers[place].pause()
        cut = [*places, *([3] if with_broker else [])]
        for place in cut:
            self.darken(self.disks[place], share)
        self.cuts.append(f"{len(places)} of 3{', broker' if with_broker else ''}")
        if with_broker:
            self.broker.kill()
        for place in places:
            self._servers[place].kill()
        for place in cut:
            self.lighten(self.disks[place])
        for place in places:
            self._servers[place].start()
        self._wait_until_well()
        if with_broker:
            self.broker.start()

    def end(self) -> None:
        """See Engine.end."""
        with contextlib.suppress(AttributeError):
            self.broker.kill()
        for server in getattr(self, "_servers", []):
            server.stop()
        for disk in self.disks:
            disk.close()


ENGINES: dict[str, type[Engine]] = {
    "segment": OnSegments,
    "sqlite": OnSqlite,
    "postgresql": OnPostgresql,
    "jetstream": OnJetStream,
    "jetstream3": OnThree,
}
SERVICES: dict[str, type[Service]] = {
    "postgresql": Postgresql,
    "jetstream": Nats,
    "jetstream3": Nats,
}


@contextlib.contextmanager
def engine_on(
    name: str, place: Path, chance: random.Random, *, journaled: bool = True
) -> Iterator[Engine]:
    """An engine that runs, in a directory that other users may enter."""
    place.chmod(0o711)
    engine = ENGINES[name](place, chance, journaled=journaled)
    try:
        engine.begin()
        yield engine
    finally:
        engine.end()
