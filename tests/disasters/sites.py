"""A broker that meets disasters: its journals, of whichever kind, what is done to them, and the
commands that an operator gives."""

from __future__ import annotations

import base64
import os
import random
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dev.services import start
from dev.services.versitygw import Versitygw
from tests.crash.test_processes_kill import children_of, is_gone
from tests.disasters.processes import Command
from tests.disasters.store_proxy import StoreProxy
from tests.object_store import changed_environment
from tests.patience import until

SEGMENT_BYTES = 1 << 18
SNAPSHOT_ENTRIES = 200
LEASE_MS = 500
DRAFT = ".draft"
OURS = ("Traceback (most recent call last)", "InternalError", "an error of ours", "in the broker;")
"""What no log and no refusal says."""
NONE: Mapping[str, object] = MappingProxyType({})
EXIT_STATUSES = range(2, 9)
"""Those that have a meaning; 1 is anything else."""


class Ground:
    """What disasters have in common that come one after the other: an object store, and the way to
    it."""

    def __init__(self) -> None:
        self._store = start("versitygw")
        assert isinstance(self._store, Versitygw)
        self.proxy = StoreProxy(self._store.port)
        self.environment = self._store.environment | {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.proxy.port}"
        }

    def close(self) -> None:
        self.proxy.close()
        self._store.stop()

    def new_bucket(self, name: str) -> Path:
        """The directory of a bucket that is made now."""
        path = self._store.folder / "buckets" / name
        path.mkdir()
        return path

    @contextmanager
    def known(self) -> Iterator[None]:
        """This process finds the store."""
        with changed_environment(self.environment):
            yield


class Place:
    """Where one disaster happens.

    Args:
        root: an empty directory.
    """

    def __init__(self, ground: Ground, root: Path) -> None:
        self.ground, self.root = ground, root
        self.commands: list[Command] = []
        self._buckets: list[Path] = []

    def bucket(self, name: str) -> Path:
        """The directory of a new bucket, which is called like that, and something."""
        path = self.ground.new_bucket(f"{name}-{os.urandom(6).hex()}")
        self._buckets.append(path)
        return path

    def key(self, name: str) -> str:
        """A new master key, as settings name it."""
        path = self.root / name
        path.touch(mode=0o600)
        path.write_text(base64.b64encode(os.urandom(32)).decode())
        return f"file:{path}"

    def command(
        self, *arguments: str, settings: Mapping[str, object] = NONE, log: str = ""
    ) -> Command:
        """Give a command; it may still run."""
        own = {f"DEJAQ_{name.upper()}": str(value) for name, value in settings.items()}
        said = self.root / (log or f"command-{len(self.commands)}.log")
        environment = os.environ | self.ground.environment | own
        command = Command(list(arguments), environment, said)
        self.commands.append(command)
        return command

    def done(self, *arguments: str, **given: Any) -> Command:
        """Give a command, and wait for its end."""
        command = self.command(*arguments, **given)
        assert command.status() is not None, f"{arguments} goes on and on"
        return command

    def close(self) -> None:
        for command in self.commands:
            if not command.has_ended:
                command.send(signal.SIGCONT)
                command.kill()
        for path in self._buckets:
            shutil.rmtree(path, ignore_errors=True)

    def faults(self) -> list[str]:
        """What commands have said that nobody should read."""
        lines = []
        for path in sorted(self.root.glob("*.log")):
            text = path.read_text(errors="replace")
            for mark in OURS:
                at = text.find(mark)
                if at >= 0:
                    lines.append(f"{path.name}: {text[max(0, at - 300) : at + 1_500]}")
                    break
        return lines


def check_named(command: Command) -> str:
    """What a command says that it refuses, which has to have a name."""
    status, said = command.status(), command.said
    what = f"{' '.join(command.arguments)}: {status}: {said[-1_500:]}"
    assert status in EXIT_STATUSES, what
    assert "error: " in said, what
    assert not any(mark in said for mark in OURS), what
    return said


class Site:
    """A broker.

    Args:
        kind: of its journals, one of plan.KINDS.
        settings: besides those that say where they are.

    Attributes:
        url: where its journals are, as `dejaq` is told.
    """

    def __init__(self, place: Place, name: str, kind: str, settings: Mapping[str, object]) -> None:
        self.place, self.name, self.kind = place, name, kind
        self.settings = {
            "journal__segment_bytes": SEGMENT_BYTES,
            "journal__snapshot_entries": SNAPSHOT_ENTRIES,
            **settings,
        }
        if kind == "divided":
            self.settings["server__processes"] = 2
        self._broker: Command | None = None
        self._children: list[int] = []
        self.address, self._port = "", 0
        self.root = place.bucket("queues") if kind == "bucket" else place.root / name
        if kind == "sqlite":
            self.root.mkdir()
        self.url = {
            "sqlite": f"sqlite:///{self.root}/journal.sqlite",
            "bucket": f"s3://{self.root.name}/dejaq?between_ms=2",
        }.get(kind, str(self.root))

    # --- its life -----------------------------------------------------------------------------

    def start(self, **more: object) -> Command:
        """Start it, on the port that it had; returns when it serves, or has ended."""
        arguments = ("serve", "--json", "--data", self.url, "--port", str(self._port))
        broker = self.place.command(
            *arguments, "--http-port", "0", settings=self.settings | more, log=f"{self.name}.log"
        )
        where = broker.listens()
        self._broker = broker
        if where:
            self.address = where["url"]
            self._port = int(self.address.rpartition(":")[2])
            self._children = children_of(broker.pid) if self.kind == "divided" else []
        return broker

    def serves(self) -> None:
        """Start it, which must succeed."""
        broker = self.start()
        assert not broker.has_ended, f"{self.name} does not start: {broker.said[-1_500:]}"

    def refuses_to_start(self, **more: object) -> str:
        """Start it, which is refused; why."""
        broker = self.start(**more)
        if not broker.has_ended:
            self.kill()
            raise AssertionError(f"{self.name} starts")
        self._broker = None
        return check_named(broker)

    def kill(self) -> None:
        """SIGKILL; twice is fine."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.kill()
            until(lambda: all(is_gone(child) for child in self._children), "its children end")

    def kill_at_once(self) -> None:
        """SIGKILL, and wait for nothing."""
        broker = self._broker
        if broker is not None:
            broker.send(signal.SIGKILL)

    def stop(self) -> None:
        """In good order."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.send(signal.SIGTERM)
            status = broker.status()
            assert status == 0, f"{self.name} stopped with {status}: {broker.said[-1_500:]}"

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._broker is not None
        for pid in (self._broker.pid, *self._children):
            os.kill(pid, number)

    # --- what is done to its journals ---------------------------------------------------------

    def lose(self) -> None:
        """All of its journals are gone."""
        shutil.rmtree(self.root)
        if self.kind == "bucket":
            self.root.mkdir()

    def copy_aside(self) -> Path:
        """A copy of its journals; it is stopped."""
        copy = self.place.root / f"{self.name}-older"
        shutil.copytree(self.root, copy)
        return copy

    def put_copy(self, copy: Path) -> None:
        """An older copy takes the place of its journals."""
        shutil.rmtree(self.root)
        shutil.copytree(copy, self.root)

    def rot(self, draw: random.Random) -> Path:
        """A bit of one of its files is another one; which file."""
        path = some_file(self.root, draw)
        flip(path, draw)
        return path


def some_file(root: Path, draw: random.Random) -> Path:
    """A file with something in it. One that a killed process was writing has no name yet."""
    there = (one for one in sorted(root.rglob("*")) if DRAFT not in one.name)
    files = [one for one in there if one.is_file() and one.stat().st_size]
    return draw.choice(files)


def flip(path: Path, draw: random.Random) -> None:
    """A bit of a file is another one."""
    with path.open("r+b") as file:
        at = draw.randrange(path.stat().st_size)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << draw.randrange(8)]))
