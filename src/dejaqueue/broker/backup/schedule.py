"""Backups that a broker takes by itself: one after the other; old ones go, the newest is checked.

Room: broker. A thread of its own, while `backup.url` is set.
Holds: what fails is logged and tried again at the next turn; nothing of it ends the schedule.
See: backups.py, which takes them; setting_groups.py, BackupSettings; docs/guides/backup.md.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup.lineage import Lineage
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import DejaQError, Refused
from dejaqueue.journal.interface import JournalStore
from dejaqueue.settings import BrokerSettings

FIRST_MS: Final = 1_000
"""So long after its start a broker takes its first backup."""

log = logging.getLogger("dejaqueue.backup")


class BackupPort(Protocol):
    """What takes backups; see backups.py."""

    def take(self, url: str) -> bool: ...  # noqa: D102


class SchedulePort(Protocol):
    """A broker, as its schedule of backups sees it."""

    clock: Clock
    store: JournalStore
    settings: BrokerSettings


class BackupSchedule:
    """The backups of a broker by the clock."""

    def __init__(self, backups: BackupPort, broker: SchedulePort) -> None:
        self._backups, self._broker = backups, broker
        self._wake = Wake()
        self._is_stopping = False
        self._verified_us = 0

    def run(self) -> None:
        """Take backups until `stop`."""
        clock = self._broker.clock
        self._verified_us = clock.now_us()
        next_us = clock.now_us() + FIRST_MS * 1_000
        while True:
            clock.wait_until(next_us, self._wake)
            if self._is_stopping:
                return
            next_us = clock.now_us() + self._broker.settings.backup.interval_ms * 1_000
            try:
                self.turn()
            except DejaQError as failure:
                log.error("backups at %s: %s", self._broker.settings.backup.url, failure)
            except Exception:
                log.exception("backups at %s", self._broker.settings.backup.url)

    def stop(self) -> None:
        """Begin none any more. Any thread; twice is fine."""
        self._is_stopping = True
        self._wake.ring()

    def turn(self) -> None:
        """Take one, delete what is not kept, and look at the newest if it is time."""
        settings = self._broker.settings.backup
        try:
            if not self._backups.take(settings.url):
                return  # it was logged
        except Refused:
            return  # somebody takes one just now
        archive = Archive.open(settings.url)
        store = Lineage(self._broker.store).store
        now_ms = self._broker.clock.utc_ms()
        gone = archive.outlived(store, now_ms, count=settings.backups_max, age_ms=settings.keep_ms)
        if gone:
            archive.forget(gone, now_ms)
        interval_us = settings.verify_interval_ms * 1_000
        if interval_us and self._broker.clock.now_us() - self._verified_us >= interval_us:
            self._verified_us = self._broker.clock.now_us()
            self.verify(archive, store)

    def verify(self, archive: Archive, store: str) -> int:
        """Read the newest backup back; how many pieces of it are damaged, which the log names."""
        manifest = archive.newest(lambda one: one.store == store)
        damage = [] if manifest is None else list(archive.damage(manifest))
        for text in damage:
            log.error("a backup is damaged: %s; take a full one", text)
        if manifest is not None and not damage:
            log.info("backup %s was read back: it is whole", manifest.id)
        return len(damage)
