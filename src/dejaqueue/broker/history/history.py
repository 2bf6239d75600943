"""The history of a broker: its directory, its one thread, and the bound on what waits for it.

Room: broker. Any thread may call it.
Holds: what waits to be written has a bound, all partitions together; files older than the
retention go within the hour, also of topics that are gone or whose history is off.
See: recorder.py for a partition; reading.py for who reads it over the network.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Protocol

from dejaqueue.broker.history.files import Files
from dejaqueue.clock import Clock
from dejaqueue.errors import BadRequest, DejaQError
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.interface import store_path
from dejaqueue.settings import BrokerSettings, HistorySettings

log = logging.getLogger("dejaqueue.broker")

WAIT_SECONDS_MAX = 30.0
"""A snapshot, or who reads, waits so long at most for what is recorded to be on the disk."""
PRUNE_MS = 600_000
"""Old files are looked for so often."""


def directory_of(settings: BrokerSettings) -> Path | None:
    """Where history goes; None = nowhere, as the journal is only in memory."""
    if settings.history.directory:
        return Path(settings.history.directory).expanduser()
    root = store_path(settings.journal.url) if "://" not in settings.journal.url else None
    if settings.journal.url.startswith("segment://"):
        root = store_path(settings.journal.url)
    return None if root is None else root / "history"


class Waiting(Protocol):
    """What has changes in memory that wait to be encoded."""

    def encode(self) -> None:
        """Have the own thread encode what waits. Under the lock."""
        ...


class History:
    """Records what happens to messages.

    Attributes:
        clock: the broker's.
        lock: of all recorders; held for a few lines.
        waiting_rows: changes that are in memory still. Under the lock.
        next_prune_ms: when to look for old files again.
        journals_of: what a topic is called in the store of its journals; None = the broker is
            alone, and forgets the history of a topic with it.

    Args:
        executor: runs what it is given in order, one at a time.
    """

    def __init__(
        self,
        directory: Path | None,
        settings: HistorySettings,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.waiting_rows = 0
        self.next_prune_ms = 0
        self.directory = directory
        self.journals_of: Callable[[str], str] | None = None
        self._files = None if directory is None else Files(directory)
        self.clock = clock
        self._executor = executor
        self._recorders: weakref.WeakSet[Waiting] = weakref.WeakSet()
        self._is_used = False

    @property
    def files(self) -> Files:
        """The directory. Raises BadRequest if there is none."""
        if self._files is None:
            raise BadRequest(
                "topic.history",
                "off: a broker whose journal is in memory needs history.directory for it",
                True,
            )
        return self._files

    def check(self, wanted: object) -> None:
        """Raise BadRequest if a topic wants a history that has no place."""
        if wanted is True:
            assert self.files

    def encrypt(self, cipher: Cipher) -> None:
        """Encrypt the files that are written from now on, and decrypt those that are read."""
        from dejaqueue.broker.history.encryption import HistoryEncryption

        if self._files is not None:
            self._files.encryption = HistoryEncryption(cipher)

    def start(self) -> None:
        """Clear up after a sudden end, and delete what is old."""
        if self._files is not None and self._files.root.is_dir():
            self._files.begin()
            self.prune_if_due(self.clock.utc_ms())

    def close(self) -> None:
        """Return when everything handed over is on the disk."""
        self._executor.shutdown()

    def add(self, recorder: Waiting) -> None:
        """Count a recorder in, as long as it lives, when all of them are to encode."""
        with self.lock:
            self._recorders.add(recorder)

    def drop(self, topic: str) -> None:
        """Forget what happened in a topic that is deleted, or was before this one was made."""
        files = self._files
        if files is not None and (self._is_used or files.topic(topic).is_dir()):
            self.submit(lambda: files.drop(topic)).result(WAIT_SECONDS_MAX)

    def adopt(self, topic: str) -> None:
        """This broker records a topic now: forget an earlier one of its name, of which it was not
        told, as others served it, that it was deleted. Under the lock."""
        if self.journals_of is not None:
            try:
                self.files.adopt(topic, self.journals_of(topic))
            except (OSError, DejaQError) as wrong:  # what cannot be recorded then, is said there
                log.warning("history of topic %s: %s", topic, wrong)

    def is_mine(self, topic: str) -> bool:
        """True if what this broker has recorded under this name is of the topic that has it now."""
        if self._files is None:
            return False
        return self.journals_of is None or self._files.is_of(topic, self.journals_of(topic))

    def settle(self) -> None:
        """Return when what was handed over so far is in files, or has failed."""
        if self._is_used:
            self.submit(lambda: None).result(WAIT_SECONDS_MAX)

    # --- the bound ----------------------------------------------------------------------------

    def has_room(self, rows: int) -> bool:
        """True if so many changes more may wait. Under the lock."""
        return not self.waiting_rows or self.waiting_rows + rows <= self.settings.waiting_rows_max

    @property
    def is_crowded(self) -> bool:
        """True if what waits should be encoded, though it would make small pieces."""
        return self.waiting_rows * 2 > self.settings.waiting_rows_max

    def encode_all(self) -> None:
        """Have all that waits encoded. Under the lock."""
        for recorder in self._recorders:
            recorder.encode()

    def submit(self, run: Callable[[], Any]) -> Future[None]:
        """Run on the own thread; what it raises is logged."""

        def guarded() -> None:
            _step_back()
            try:
                run()
            except Exception:  # our bug: history must not be what stops a broker
                log.exception("history: a step broke off")

        self._is_used = True
        return self._executor.submit(guarded)

    # --- old files ----------------------------------------------------------------------------

    def file_done(self) -> None:
        """A file can be seen. On the own thread."""
        self.prune_if_due(self.clock.utc_ms())

    def prune_if_due(self, now_ms: int) -> None:
        """Have files that are older than the retention deleted, now and then."""
        if self.next_prune_ms - PRUNE_MS <= now_ms < self.next_prune_ms:
            return
        self.next_prune_ms = now_ms + PRUNE_MS
        retention_ms = self.settings.retention_ms
        if self._files is not None and retention_ms:
            files = self._files
            self.submit(lambda: files.prune(now_ms - retention_ms))


_stepped_back = threading.local()


def _step_back() -> None:
    """Have this thread, where the system knows how, not interrupt others when it wakes up."""
    if not getattr(_stepped_back, "done", False):
        _stepped_back.done = True
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
