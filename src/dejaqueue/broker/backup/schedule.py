"""Backups that a broker takes by itself: one after the other; old ones go, the newest is checked.

Of the brokers of a cluster one takes each, whichever finds first that it is time: what the last one
is of is noted in the store of journals that they share.

Room: broker. A thread of its own, while `backup.url` is set.
Holds: what fails is logged and tried again at the next turn; nothing of it ends the schedule; a
turn reads no manifest but the newest, however many there are; what is found damaged is stored anew
with the next backup.
See: backups.py, which takes them; schedule_document.py; setting_groups.py, BackupSettings;
docs/guides/backup.md.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup.backup_counts import BackupCounts
from dejaqueue.broker.backup.lineage import Lineage
from dejaqueue.broker.backup.schedule_document import ScheduleDocument
from dejaqueue.broker.topic.cluster_port import ClusterPort
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import DejaQError, Refused
from dejaqueue.journal.interface import JournalStore
from dejaqueue.setting_groups import BackupSettings
from dejaqueue.settings import BrokerSettings

FIRST_MS: Final = 1_000
"""So long after its start a broker takes its first backup."""
LOOK_MS: Final = 2_000
"""So long after it has seen that another broker takes one, a broker of a cluster looks again."""
SWEEP_MS: Final = 21_600_000
"""Pieces that no backup names are looked for this often, as each manifest is read for it: they are
kept for a day anyway."""

log = logging.getLogger("dejaqueue.backup")


class BackupPort(Protocol):
    """What takes backups; see backups.py."""

    counts: BackupCounts

    def last_ms(self) -> int: ...  # noqa: D102
    def take(self, url: str, *, anew: bool = False) -> bool: ...  # noqa: D102


class SchedulePort(Protocol):
    """A broker, as its schedule of backups sees it."""

    clock: Clock
    store: JournalStore
    settings: BrokerSettings
    node: ClusterPort | None


class BackupSchedule:
    """The backups of a broker by the clock."""

    def __init__(self, backups: BackupPort, broker: SchedulePort) -> None:
        self._backups, self._broker = backups, broker
        self._wake = Wake()
        self._is_stopping = False

    def run(self) -> None:
        """Take backups until `stop`."""
        clock = self._broker.clock
        next_us = clock.now_us() + FIRST_MS * 1_000
        while True:
            clock.wait_until(next_us, self._wake)
            if self._is_stopping:
                return
            began_us = clock.now_us()
            wait_ms = self._broker.settings.backup.interval_ms
            try:
                wait_ms = self.turn()
            except DejaQError as failure:
                log.error("backups at %s: %s", self._broker.settings.backup.url, failure)
            except Exception:
                log.exception("backups at %s", self._broker.settings.backup.url)
            next_us = began_us + wait_ms * 1_000

    def stop(self) -> None:
        """Begin none any more. Any thread; twice is fine."""
        self._is_stopping = True
        self._wake.ring()

    def turn(self) -> int:
        """Take one, delete what is not kept, and look at the newest if it is time.

        Returns:
            After how many milliseconds from when it began to look again.
        """
        settings, now_ms = self._broker.settings.backup, self._broker.clock.utc_ms()
        if self._broker.node is not None:
            last_ms = self._backups.last_ms()
            self._backups.counts.seen(last_ms)
            wait_ms = last_ms + settings.interval_ms - now_ms
            if 0 < wait_ms <= 2 * settings.interval_ms:  # else a clock was far ahead
                return min(wait_ms, settings.interval_ms)
        notes = ScheduleDocument(self._broker.store, now_ms)
        try:
            if not self._backups.take(settings.url, anew=notes.is_damaged):
                return settings.interval_ms  # it was logged
        except Refused:  # somebody takes one just now
            return min(LOOK_MS, settings.interval_ms)
        if notes.is_damaged:
            notes.stored_anew()
        self._look_after(settings, notes, now_ms)
        return settings.interval_ms

    def _look_after(self, settings: BackupSettings, notes: ScheduleDocument, now_ms: int) -> None:
        """Delete what is not kept, and look at the newest if it is time."""
        archive = Archive.open(settings.url)
        store = Lineage(self._broker.store).store
        gone = archive.outlived(store, now_ms, count=settings.backups_max, age_ms=settings.keep_ms)
        if gone:
            archive.forget(gone)
        if notes.is_sweep_due(now_ms, SWEEP_MS):
            notes.swept(now_ms)
            archive.sweep(now_ms)
        if notes.is_verification_due(now_ms, settings.verify_interval_ms):
            notes.verified(now_ms, is_damaged=bool(self.verify(archive, store)))

    def verify(self, archive: Archive, store: str) -> int:
        """Read the newest backup back; how many pieces of it are damaged, which the log names."""
        manifest = archive.newest(store)
        damage = [] if manifest is None else list(archive.damage(manifest))
        for text in damage:
            log.error("a backup is damaged: %s; the next one stores all of it anew", text)
        if manifest is not None and not damage:
            log.info("backup %s was read back: it is whole", manifest.id)
        return len(damage)
