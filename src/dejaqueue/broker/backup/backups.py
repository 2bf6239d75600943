"""Backups of a running broker: one at a time, on a thread of its own.

Room: broker. Any thread may ask.
Holds: the manifest is stored last, so whatever breaks off, the backups before are as they were;
what breaks off leaves pieces that the next one uses.
See: cut.py, copying.py; docs/guides/backup.md.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Executor
from typing import Any, Final, Protocol

from dejaqueue.backup.archive import Archive, open_bucket
from dejaqueue.backup.backup_id import id_facts, new_id
from dejaqueue.backup.manifest import Manifest, PartitionCopy
from dejaqueue.broker.backup.backup_counts import BackupCounts
from dejaqueue.broker.backup.copying import CopyTarget, PartitionReader
from dejaqueue.broker.backup.cut import Cut, CutPort, HeldPartition, held_cut
from dejaqueue.broker.backup.lineage import Lineage
from dejaqueue.broker.backup.schedule import BackupSchedule
from dejaqueue.errors import (
    DejaQError,
    InternalError,
    JournalDamaged,
    Refused,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.journal.interface import JournalStore
from dejaqueue.settings import BrokerSettings
from dejaqueue.version import __version__

CATALOGUE: Final = "catalogue"
KEPT_DOCUMENTS: Final = ("keys",)
TRIES: Final = 3
"""Of a backup during which topics are deleted."""

log = logging.getLogger("dejaqueue.backup")


class BackupPort(CutPort, Protocol):
    """A broker, as its backups see it."""

    store: JournalStore
    settings: BrokerSettings

    def check_running(self) -> None: ...  # noqa: D102


class Backups:
    """Takes backups of a broker.

    Args:
        executor: of two threads: where they are taken, and what waits for the next one.

    Attributes:
        counts: how they went.
    """

    def __init__(self, broker: BackupPort, executor: Executor) -> None:
        self._broker, self._executor = broker, executor
        self._schedule = BackupSchedule(self, broker)
        self._guard = threading.Lock()
        self._is_running = False
        self._progress: dict[str, Any] = {"state": "none"}
        self.counts = BackupCounts()

    def start(self) -> None:
        """Take backups by the schedule, if the settings have one."""
        if self._broker.settings.backup.url:
            self.counts.expect(self._broker.clock.utc_ms(), self._last_ms())
            self._executor.submit(self._schedule.run)

    def _last_ms(self) -> int:
        """As of when the last backup is that this store knows of; 0 = of none."""
        url = self._broker.settings.backup.url
        try:
            known = id_facts(Lineage(self._broker.store).last(open_bucket(url).url))
        except DejaQError:
            return 0  # the first turn says it
        return 0 if known is None else known.cut_ms

    def trouble(self) -> str:
        """What is wrong with backups, in words for everybody; "" = nothing."""
        settings = self._broker.settings.backup
        interval_ms = settings.interval_ms if settings.url else 0
        return self.counts.trouble(self._broker.clock.utc_ms(), interval_ms)

    def begin(self, url: str, *, full: bool = False) -> dict[str, Any]:
        """Begin a backup; how it goes is told by `progress`.

        Args:
            full: store everything, whatever earlier backups have; begins a line of backups anew
                where these journals are an older copy.

        Raises:
            BadRequest: the URL is none. Refused: a backup is being taken; a broker of a cluster.
        """
        self._broker.check_running()
        if self._broker.alone is None:
            raise Refused("a broker of a cluster takes no backups yet")
        self._claim(url)
        try:
            self._executor.submit(self._run, url, full, False)
        except RuntimeError:  # it was shut down
            self._is_running = False
            raise Unavailable("the broker is stopping", 1_000) from None
        return self.progress()

    def take(self, url: str, *, anew: bool = False) -> bool:
        """Take a backup now, on this thread; True if it is done, False if it failed: the log has
        why. Raises Refused: one is being taken.

        Args:
            anew: store everything, as earlier backups are damaged.
        """
        self._claim(url)
        self._run(url, False, anew)
        return bool(self._progress["state"] == "done")

    def _claim(self, url: str) -> None:
        with self._guard:
            if self._is_running:
                raise Refused("a backup is being taken already")
            self._is_running = True
            self._progress = {"state": "running", "url": url, "partitions": 0, "done": 0}

    def progress(self) -> dict[str, Any]:
        """How the last backup goes: `state` is none, running, done or failed."""
        return dict(self._progress)

    def close(self) -> None:
        """Return when none is being taken any more."""
        self._schedule.stop()
        self._executor.shutdown()

    def _run(self, url: str, full: bool, anew: bool) -> None:
        began_us = self._broker.clock.now_us()
        try:
            manifest, pause_us = self._taken(url, full, anew)
            took_ms = (self._broker.clock.now_us() - began_us) // 1_000
            found = manifest.describe() | {"took_ms": took_ms, "pause_us": pause_us}
            self.counts.succeed(manifest.cut_ms, manifest.new_bytes)
            self._end({"state": "done", **found})
            log.info("backup %s at %s: %d bytes are new", manifest.id, url, manifest.new_bytes)
        except Exception as wrong:  # noqa: BLE001 - who asks how it goes is told
            error = wrong if isinstance(wrong, DejaQError) else InternalError(repr(wrong))
            self.counts.fail()
            self._end({"state": "failed", "error": str(error)})
            log.error("backup at %s failed: %s", url, error)

    def _end(self, outcome: dict[str, Any]) -> None:
        """It is over: who is told so may begin the next one."""
        with self._guard:
            self._is_running = False
            self._progress |= outcome

    def _taken(self, url: str, full: bool, anew: bool) -> tuple[Manifest, int]:
        archive = Archive.open(url, make=True)
        lineage = Lineage(self._broker.store)
        parent = None
        if not full:
            newest = archive.newest(lineage.store)
            lineage.check(archive.bucket.url, newest)
            parent = None if anew else newest
        for last_try in range(TRIES - 1, -1, -1):
            try:
                with held_cut(self._broker) as cut:
                    return self._copied(archive, lineage, parent, cut), cut.pause_us
            except Unavailable:
                self._broker.check_running()
                if not last_try:
                    raise
        raise InternalError("a backup ended without an outcome")

    def _copied(
        self, archive: Archive, lineage: Lineage, parent: Manifest | None, cut: Cut
    ) -> Manifest:
        store, url = self._broker.store, archive.bucket.url
        cipher = None if store.encryption is None else store.encryption.cipher("backup")
        target = CopyTarget(archive, lineage.store, cipher, replaces=parent is None)
        known: dict[tuple[str, int, int], PartitionCopy] | None = None
        if parent is not None:
            known = {(one.topic, one.topic_number, one.partition): one for one in parent.partitions}
        backup = new_id(cut.at_ms, lineage.store, lineage.latest(url))
        lineage.begin(url, backup)
        catalogue = target.put(cut.catalogue.to_bytes(), CATALOGUE)
        held = [one for one in cut.partitions if _is_there(cut, one)]
        self._progress |= {"id": backup, "partitions": len(held), "done": 0}
        copies = []
        for one in held:
            copies.append(_copy(target, one, known))
            self._progress |= {"done": len(copies), "new_bytes": target.new_bytes}
        documents = {name: store.load_document(name) for name in KEPT_DOCUMENTS}
        manifest = Manifest(
            id=backup,
            store=lineage.store,
            parent="" if parent is None else parent.id,
            cut_ms=cut.at_ms,
            done_ms=self._broker.clock.utc_ms(),
            version=__version__,
            catalogue=catalogue,
            partitions=tuple(copies),
            documents={name: text for name, text in documents.items() if text is not None},
            data_keys=self._data_keys(target, parent),
            new_bytes=target.new_bytes,
        )
        if parent is not None and parent.id not in archive.ids():
            raise Unavailable(f"backup {parent.id}, which this goes on from, was deleted", 1_000)
        archive.put_manifest(manifest)
        lineage.done(url, backup)
        return manifest

    def _data_keys(self, target: CopyTarget, parent: Manifest | None) -> dict[str, str]:
        """Wrapped keys of all pieces, those that were taken over included; as they are wrapped now
        where the store still has them."""
        store = self._broker.store
        found = {} if parent is None else dict(parent.data_keys)
        for name in {*found, *(f"{number:016x}" for number in target.data_keys)}:
            text = store.load_data_key(int(name, 16))
            if text is not None:
                found[name] = text
        return found


def _copy(
    target: CopyTarget,
    held: HeldPartition,
    known: dict[tuple[str, int, int], PartitionCopy] | None,
) -> PartitionCopy:
    """Copy a partition; `known` is what the backup before has, None = there is none."""
    served, number = held.served, held.core.number
    name = served.topic.name
    before = None if known is None else known.get((name, served.number, number))
    if before is not None and before.position > held.position:
        raise JournalDamaged(
            f"{name}/{number} ends at {held.position}, though a backup has {before.position}: "
            "an old copy was put in place; begin anew with a full backup"
        )
    place = (name, served.number, served.journals, number)
    reader = PartitionReader(target, held.journal, place, before, wants_entries=known is not None)
    copy = reader.copy(held.position)
    if not held.core.is_held:
        raise ResourceExhausted(f"backup: the disk is full, so {name}/{number} gave room back", 0)
    return copy


def _is_there(cut: Cut, held: HeldPartition) -> bool:
    row = cut.catalogue.rows.get(held.served.topic.name)
    return row is not None and row.number == held.served.number
