"""What a broker does for a backup of its cluster: it holds, stops, notes and copies what it serves.

    hold    keep what is in the journals here from now on; it goes on by itself
    stop    hold what came into use since; workers stop; answered when all of them have
    cut     note where partitions stand; workers go on
    go      workers go on, as another broker did not stop
    copy    copy what was noted into the archive; it goes on by itself
    look    how far that is; when it is done, the piece that lists what was copied
    done    the backup is there: entries that it has need not be kept for the next one
    end     let go of everything

Room: broker. Steps are asked by the broker that takes the backup, itself included; one thread holds
and copies.
Holds: who asks no more is taken for dead, and everything is let go of; workers stop for
PAUSE_SECONDS_MAX at most, whoever dies; what is noted was so while the workers of all brokers stood
still, as `cut` is asked when all have answered `stop`.
See: cluster_backup.py, who asks; cut.py; docs/adr/0075-a-backup-of-a-cluster-is-one-cut.md.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, Protocol

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup.archiver import ArchivePosition, Archiver
from dejaqueue.broker.backup.cut import BrokerCut, CutPort, Holding, Pause
from dejaqueue.broker.backup.partition_copies import copied, known_of, target_of
from dejaqueue.broker.backup.strand_archiver import StrandArchiver
from dejaqueue.clock import Wake
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Fenced,
    InternalError,
    Refused,
    Unavailable,
)
from dejaqueue.journal.interface import JournalStore
from dejaqueue.settings import BrokerSettings

STEPS: Final = ("hold", "stop", "cut", "go", "copy", "look", "done", "end")
SILENT_SECONDS_MAX: Final = 30.0
"""Who asks looks several times a second."""
STOP_SECONDS_MAX: Final = 2.0
"""Less than a broker waits for the answer of another one (flight/peers.py)."""

log = logging.getLogger("dejaqueue.backup")


class PartPort(CutPort, Protocol):
    """A broker, as its part of a backup sees it."""

    store: JournalStore
    settings: BrokerSettings

    def check_running(self) -> None: ...  # noqa: D102


class BackupParts:
    """The part of a broker in the backup that is being taken of its cluster.

    Args:
        executor: has a thread for it.
        archiver: what stores in between what the journals here get.
    """

    def __init__(self, broker: PartPort, executor: Executor, archiver: Archiver) -> None:
        self._broker, self._executor, self._archiver = broker, executor, archiver
        self._guard = threading.Lock()
        self._part: _Part | None = None

    def hear(self, body: dict[str, Any]) -> dict[str, Any]:
        """Do a step.

        Raises:
            BadRequest: there is no such step. Unavailable: nothing is held for this backup, as this
                is a later life of the broker; workers hang; the broker is stopping.
        """
        backup, step = body.get("backup"), body.get("step")
        if not isinstance(backup, str) or not backup:
            raise BadRequest("backup", "the name of a backup that is being taken", backup)
        if step not in STEPS:
            raise BadRequest("step", ", ".join(STEPS), step)
        self._broker.check_running()
        part = self._begun(backup) if step == "hold" else self._known(backup, is_end=step == "end")
        if part is None:
            return {}
        part.heard()
        if step in {"copy", "done"}:
            return part.copy(body) if step == "copy" else part.done(body)
        answer: dict[str, Any] = getattr(part, step)()
        return answer

    def close(self) -> None:
        """Let go of everything; twice is fine."""
        with self._guard:
            part = self._part
        if part is not None:
            part.end()

    def _begun(self, backup: str) -> _Part:
        with self._guard:
            before = self._part
            if before is not None and before.backup == backup:
                return before
            part = self._part = _Part(self._broker, backup, self._archiver)
        if before is not None:  # who asked for it has died
            before.end()
        try:
            self._executor.submit(part.run)
        except RuntimeError:  # it was shut down
            raise Unavailable("the broker is stopping", 1_000) from None
        return part

    def _known(self, backup: str, *, is_end: bool) -> _Part | None:
        with self._guard:
            part = self._part
        if part is None or part.backup != backup:
            if is_end:
                return None
            raise Unavailable(f"backup: nothing is held here for {backup}", 100)
        return part


class _Part:
    """The part of one backup; its methods are the steps."""

    def __init__(self, broker: PartPort, backup: str, archiver: Archiver) -> None:
        self.backup = backup
        self._archiver: StrandArchiver | None = None
        if archiver.is_wanted and isinstance(archiver, StrandArchiver):
            self._archiver = archiver
        self._archived: tuple[ArchivePosition, dict[str, int]] | None = None
        """Where the archive stood before the workers stopped, and where all logs ended."""
        self._broker, self._holding = broker, Holding(broker)
        self._lock = threading.Lock()
        """Over what is held and stopped: nothing is once it has ended."""
        self._wake, self._heard_us = Wake(), broker.clock.now_us()
        self._has_ended = False
        self._pause: Pause | None = None
        self._noted: BrokerCut | None = None
        self._order: dict[str, Any] | None = None
        self._told: dict[str, Any] = {"state": "holding"}

    def heard(self) -> None:
        """Who takes the backup is there."""
        self._heard_us = self._broker.clock.now_us()

    # --- steps --------------------------------------------------------------------------------

    def hold(self) -> dict[str, Any]:
        return self.look()

    def look(self) -> dict[str, Any]:
        return dict(self._told)

    def stop(self) -> dict[str, Any]:
        with self._lock:
            self._check_held()
            self._holding.follow()
            self._go_on()
            if self._archiver is not None:
                self._archived = self._archiver.note(), self._archiver.tails()
            self._pause = Pause(self._broker)
            if not self._pause.has_come(STOP_SECONDS_MAX):
                self._go_on()
                raise Unavailable("backup: a worker hangs; take it again", 1_000)
        return {}

    def cut(self) -> dict[str, Any]:
        with self._lock:
            self._check_held()
            noted = self._holding.noted()
            pause_us = self._go_on()
            if noted is None or pause_us is None:
                return {"is_whole": False}
            self._noted = noted
            return {
                "is_whole": True,
                "now_ms": noted.now_ms,
                "pause_us": pause_us,
                "names": sorted(self._holding.names),
            }

    def go(self) -> dict[str, Any]:
        with self._lock:
            self._go_on()
        return {}

    def copy(self, body: dict[str, Any]) -> dict[str, Any]:
        for name in ("url", "store"):
            if not isinstance(body.get(name), str):
                raise BadRequest(name, "a text", body.get(name))
        if self._noted is None:
            raise Unavailable("backup: nothing was noted here", 100)
        self._order = body
        self._wake.ring()
        return {}

    def done(self, body: dict[str, Any]) -> dict[str, Any]:
        noted, logs = self._noted, body.get("logs")
        if noted is not None and self._is_ours:
            for held in noted.partitions:
                held.reached()
            if self._archived is not None and self._archiver is not None and logs:
                self._archiver.backed_up(self._archived[0], logs)
                self._archiver.hears_of(str(body.get("chain", "")))
        return {}

    @property
    def _is_ours(self) -> bool:
        """Whether it goes where the settings have backups taken."""
        return (self._order or {}).get("url") == self._broker.settings.backup.url

    def end(self) -> dict[str, Any]:
        with self._lock:
            self._has_ended = True
            self._go_on()
        self._wake.ring()
        return {}

    def _check_held(self) -> None:
        if self._has_ended or self._told["state"] != "held":
            raise Unavailable(f"backup: its part here is {self._told['state']}", 100)

    def _go_on(self) -> int | None:
        pause, self._pause = self._pause, None
        return None if pause is None else pause.end()

    # --- its thread ---------------------------------------------------------------------------

    def run(self) -> None:
        """Hold, and copy when that is asked, until it ends or nobody asks any more."""
        try:
            with self._lock:
                if not self._has_ended:
                    self._holding.follow()
            self._told = {"state": "held"}
            self._wait(lambda: self._order is not None)
            if self._order is not None and not self._has_ended:
                self._told = self._copied(self._order)
                self._wait(lambda: False)
        except Exception as wrong:  # noqa: BLE001 - who takes the backup is told
            error = wrong if isinstance(wrong, DejaQError) else InternalError(repr(wrong))
            log.warning("the part of a backup of the cluster failed: %s", error)
            may_pass = isinstance(error, (Unavailable, Fenced))
            self._told = {"state": "failed", "error": str(error), "may_pass": may_pass}
        finally:
            with self._lock:
                self._has_ended = True
                self._go_on()
                self._holding.let_go()

    def _wait(self, is_over: Callable[[], bool]) -> None:
        """Return when something is so, or it has ended, or nobody asks any more."""
        clock = self._broker.clock
        while not self._has_ended and not is_over():
            until_us = self._heard_us + round(SILENT_SECONDS_MAX * 1e6)
            if clock.now_us() >= until_us:
                log.warning("who takes a backup of the cluster is silent: it is given up here")
                return
            clock.wait_until(until_us, self._wake)

    def _copied(self, order: dict[str, Any]) -> dict[str, Any]:
        """Copy what was noted; what is told of it."""
        archive = Archive.open(order["url"])
        if not archive.is_being_taken(self.backup):
            raise Refused(
                f"{archive.bucket.url} is another place here than where the backup is taken: it "
                "has to be one that all brokers of the cluster reach"
            )
        assert self._noted is not None
        parent = order.get("parent")
        if parent and self._archiver is not None and self._is_ours:
            self._archiver.check_line(archive, archive.manifest(parent))
        known = known_of(archive.manifest(parent) if parent else None)
        replaces = known is None or order.get("full") is True
        target = target_of(archive, self._broker.store, order["store"], replaces=replaces)
        held, copies = self._noted.partitions, []
        for copy in copied(target, held, known):
            copies.append(copy)
            self._told = {
                "state": "copying",
                "partitions": len(held),
                "done": len(copies),
                "new_bytes": target.new_bytes,
            }
            if self._has_ended:
                raise Refused("the backup was given up")
        values = [copy.to_values() for copy in copies]
        piece = archive.put(json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode())
        answer = {
            "state": "copied",
            "partitions": len(held),
            "done": len(copies),
            "new_bytes": target.new_bytes,
            "piece": list(piece),
            "data_keys": sorted(target.data_keys),
        }
        if self._archiver is not None and self._archived is not None and self._is_ours:
            position, tails = self._archived
            logs = self._archiver.bounds(position, held)
            answer |= {"chain": position.chain, "logs": logs, "tails": tails}
        return answer
