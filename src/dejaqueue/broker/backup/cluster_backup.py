"""A backup of a cluster: one broker takes it, all of them hold, stop and copy what they serve.

Room: broker. On the thread of a backup of the broker that takes it.
Holds: while partitions were noted the workers of all brokers stood still, and what was noted is of
the slots' only owner, from before it was noted until it was copied: if a slot moved meanwhile, a
broker died or a topic came into use, all of it is done again; the manifest is stored last.
See: part.py, what each broker does; cut.py; docs/adr/0075-a-backup-of-a-cluster-is-one-cut.md.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.manifest import Manifest, PartitionCopy, Piece
from dejaqueue.broker.backup.part import BackupParts, PartPort
from dejaqueue.broker.topic.cluster_port import BackupTurns, Owners
from dejaqueue.broker.topic.peers import BACKUP, Peers
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.clock import Wake
from dejaqueue.errors import DejaQError, InternalError, Refused, Unavailable

AGAIN_SECONDS_MAX: Final = 90.0
"""So long a backup is tried again that something came between: longer than a lease, or a start."""
AGAIN_US: Final = 500_000
LOOK_US: Final = 50_000
CUTS: Final = 5
"""A topic that comes into use between two steps makes another cut necessary."""
ANSWER_SECONDS_MAX: Final = 8.0
"""More than a broker waits for another one (flight/peers.py)."""

Answer = dict[str, Any]
log = logging.getLogger("dejaqueue.backup")


class AskerPort(PartPort, Protocol):
    """A broker, as the backup of its cluster sees it."""

    @property
    def peers(self) -> Peers | None: ...  # noqa: D102


class ClusterCut(NamedTuple):
    """What the brokers noted.

    Attributes:
        at_ms, pause_us, catalogue: as of Cut.
    """

    at_ms: int
    pause_us: int
    catalogue: CatalogueState


class Order(NamedTuple):
    """What a backup is made of, and where it goes.

    Attributes:
        url: the archive's, as it was given: other brokers open it.
        store: of which store of journals it is.
        parent: the backup before, "" = none.
        replaces: store again what is there.
    """

    url: str
    store: str
    parent: str
    replaces: bool


class ClusterCopy(NamedTuple):
    """What the brokers copied.

    Attributes:
        partitions: those whose topics were there at the cut.
        data_keys: numbers of the keys that it was encrypted with.
        chains: to which the brokers archive what they get; "" = one of them to none.
        logs: of each log, behind which position all is that is not in the backup.
    """

    partitions: tuple[PartitionCopy, ...]
    new_bytes: int
    data_keys: set[int]
    chains: frozenset[str] = frozenset()
    logs: Mapping[str, int] = MappingProxyType({})


class ClusterBackup:
    """Takes one backup of a cluster.

    Args:
        parts: the part of this broker.
        keep: keeps the turn; called now and then; raises when another broker has it.
        say: called with what is to be told of the progress.
    """

    def __init__(
        self,
        broker: AskerPort,
        turns: BackupTurns,
        parts: BackupParts,
        keep: Callable[[], None],
        say: Callable[[Answer], None],
    ) -> None:
        self._broker, self._turns, self._parts = broker, turns, parts
        self._keep, self._say = keep, say
        self._wake = Wake()
        self._until_us = 0
        self._name = ""
        self._urls: dict[str, str] = {}

    def taken(
        self, archive: Archive, order: Order, finish: Callable[[ClusterCut, ClusterCopy], Manifest]
    ) -> tuple[Manifest, int]:
        """The backup, when it is there, and how long workers waited for it, in µs.

        Args:
            finish: stores the manifest.

        Raises:
            JournalDamaged, Refused: as a broker says. Unavailable: something came between for
                longer than AGAIN_SECONDS_MAX.
        """
        clock = self._broker.clock
        self._until_us = clock.now_us() + round(AGAIN_SECONDS_MAX * 1e6)
        while True:
            try:
                with self._held(archive) as owners:
                    cut = self._cut(owners)
                    copied = self._copied(archive, order, cut, owners)
                    manifest = finish(cut, copied)
                    self._ask_quietly("done", logs=manifest.logs, chain=manifest.chain)
                    return manifest, cut.pause_us
            except Unavailable as wrong:
                self._broker.check_running()
                if clock.now_us() > self._until_us:
                    raise
                log.info("the backup of the cluster is taken again: %s", wrong)
                self._pause(AGAIN_US)

    # --- steps --------------------------------------------------------------------------------

    @contextmanager
    def _held(self, archive: Archive) -> Iterator[Owners]:
        """Have all brokers keep what is in their journals until the block ends; who they are."""
        owners = self._turns.owners()
        while not owners.is_whole or not owners.slots:
            if self._broker.clock.now_us() > self._until_us:
                raise Unavailable("backup: slots of the cluster have no broker", 1_000)
            self._pause(AGAIN_US)
            owners = self._turns.owners()
        self._name, self._urls = secrets.token_hex(8), owners.urls
        archive.take(self._name)
        try:
            self._ask("hold")
            self._wait_for("held")
            yield owners
        except DejaQError as wrong:
            if not isinstance(wrong, Unavailable):
                self._check_same(owners)  # what was wrong is so because of that
            raise
        finally:
            self._ask_quietly("end")
            archive.taken(self._name)

    def _cut(self, owners: Owners) -> ClusterCut:
        """Where all partitions stood while no worker of any broker did anything."""
        for _ in range(CUTS):
            self._keep()
            try:
                self._ask("stop")
                catalogue = self._broker.catalogue_state()
                noted = self._ask("cut").values()
            except DejaQError:
                self._ask_quietly("go")
                raise
            used = {
                name
                for row in catalogue.rows.values()
                if row.is_used
                for name in self._broker.served_names(row.topic)
            }
            names = Counter(name for one in noted for name in one.get("names", ()))
            is_whole = all(one["is_whole"] for one in noted)
            if is_whole and all(names[name] == 1 for name in used):
                self._check_same(owners)
                at_ms = max(int(one["now_ms"]) for one in noted)
                pause_us = max(int(one["pause_us"]) for one in noted)
                return ClusterCut(at_ms, pause_us, catalogue)
        raise Unavailable("backup: topics keep coming, or are between two owners", 1_000)

    def _copied(
        self, archive: Archive, order: Order, cut: ClusterCut, owners: Owners
    ) -> ClusterCopy:
        """Have all brokers copy what they noted."""
        self._ask(
            "copy", url=order.url, store=order.store, parent=order.parent, full=order.replaces
        )
        answers = self._wait_for("copied").values()
        self._check_same(owners)
        copies: list[PartitionCopy] = []
        for answer in answers:
            piece = Piece(str(answer["piece"][0]), int(answer["piece"][1]))
            values = json.loads(archive.stored(piece, "what a broker copied"))
            copies += [PartitionCopy.from_values(one) for one in values]
        numbers = {name: row.number for name, row in cut.catalogue.rows.items()}
        return ClusterCopy(
            tuple(one for one in copies if numbers.get(one.topic) == one.topic_number),
            sum(int(answer["new_bytes"]) for answer in answers),
            {int(number) for answer in answers for number in answer["data_keys"]},
            frozenset(str(answer.get("chain", "")) for answer in answers),
            _positions(answers),
        )

    def _check_same(self, owners: Owners) -> None:
        """Raise Unavailable if a slot has had another owner since."""
        if self._turns.owners().slots != owners.slots:
            raise Unavailable("backup: topics went to other brokers meanwhile", 100)

    # --- asking -------------------------------------------------------------------------------

    def _ask(self, step: str, **more: Any) -> dict[str, Answer]:
        """Have all brokers do a step at once; their answers, by name. Raises the first error."""
        body = {"backup": self._name, "step": step, **more}
        asked = {name: self._asked(name, body) for name in self._urls if name != self._turns.node}
        answers: dict[str, Answer] = {}
        errors: list[DejaQError] = []
        if self._turns.node in self._urls:
            try:
                answers[self._turns.node] = self._parts.hear(body)
            except DejaQError as error:
                errors.append(error)
        for name, answer in asked.items():
            try:
                answers[name] = answer.result(ANSWER_SECONDS_MAX)
            except TimeoutError:
                errors.append(Unavailable(f"backup: node {name} does not answer", 1_000))
            except DejaQError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers

    def _asked(self, name: str, body: Answer) -> Future[Answer]:
        peers = self._broker.peers
        if peers is None:
            failed: Future[Answer] = Future()
            failed.set_exception(Unavailable("there is no way to other brokers", 1_000))
            return failed
        return peers.ask(self._urls[name], BACKUP, body)

    def _ask_quietly(self, step: str, **more: Any) -> None:
        try:
            self._ask(step, **more)
        except DejaQError as error:  # it lets go by itself when it hears nothing
            log.debug("%s: %s", step, error)

    def _wait_for(self, state: str) -> dict[str, Answer]:
        """Look until all brokers are so far; what they say then, by name."""
        while True:
            self._keep()
            self._broker.check_running()
            answers = self._ask("look")
            for name, answer in answers.items():
                if answer["state"] == "failed":
                    raise _failure(name, answer)
            self._say(
                {
                    what: sum(int(one.get(what, 0)) for one in answers.values())
                    for what in ("partitions", "done", "new_bytes")
                }
            )
            if all(answer["state"] == state for answer in answers.values()):
                return answers
            self._pause(LOOK_US)

    def _pause(self, pause_us: int) -> None:
        self._keep()
        clock = self._broker.clock
        clock.wait_until(clock.now_us() + pause_us, self._wake)


def _positions(answers: Iterable[Answer]) -> dict[str, int]:
    """Where the archive is to begin in each log: who has it open says that; of a log that nobody
    has, where it ended before the cut."""
    found: dict[str, int] = {}
    for answer in answers:
        for name, position in answer.get("tails", {}).items():
            found[name] = min(int(position), found.get(name, int(position)))
    for answer in answers:
        found |= {name: int(position) for name, position in answer.get("logs", {}).items()}
    return found


def _failure(name: str, answer: Answer) -> DejaQError:
    text = f"node {name}: {answer.get('error', 'its part failed')}"
    if answer.get("may_pass"):
        return Unavailable(text, 1_000)
    return Refused(text) if "error" in answer else InternalError(text)
