"""Backups of a running broker, or of its cluster: one at a time, on a thread of its own.

Room: broker. Any thread may ask.
Holds: the manifest is stored last, so whatever breaks off, the backups before are as they were;
what breaks off leaves pieces that the next one uses.
See: cut.py, copying.py; cluster_backup.py, of a cluster; docs/guides/backup.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from dejaqueue.access.key_ring import KeyRing
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.backup_id import id_facts, new_id
from dejaqueue.backup.fence import read_fence
from dejaqueue.backup.manifest import Manifest, PartitionCopy, Piece
from dejaqueue.broker.backup.archiver import ArchivePosition, Archiver
from dejaqueue.broker.backup.backed_payloads import copy_payloads
from dejaqueue.broker.backup.backup_counts import BackupCounts
from dejaqueue.broker.backup.cluster_backup import (
    AskerPort,
    ClusterBackup,
    ClusterCopy,
    ClusterCut,
    Order,
)
from dejaqueue.broker.backup.cut import Cut, HeldPartition, held_cut
from dejaqueue.broker.backup.lineage import Lineage
from dejaqueue.broker.backup.part import BackupParts
from dejaqueue.broker.backup.partition_copies import copied, known_of, target_of
from dejaqueue.broker.backup.record_archiver import RecordArchiver, RecordArchiverPort
from dejaqueue.broker.backup.schedule import BackupSchedule
from dejaqueue.broker.backup.strand_archiver import StrandArchiver
from dejaqueue.broker.payloads.payloads import Payloads
from dejaqueue.broker.topic.cluster_port import BackupTurns, ClusterPort
from dejaqueue.connections.bucket_urls import open_bucket
from dejaqueue.errors import DejaQError, InternalError, NotActive, Refused, Unavailable
from dejaqueue.journal.registry import is_on_server
from dejaqueue.journal.segments.store import OWN_NAME
from dejaqueue.settings import BrokerSettings
from dejaqueue.version import __version__

CATALOGUE: Final = "catalogue"
KEYS: Final = "keys"
KEPT_DOCUMENTS: Final = (KEYS,)
TRIES: Final = 3
"""Of a backup during which topics are deleted."""

log = logging.getLogger("dejaqueue.backup")


class BackupPort(AskerPort, RecordArchiverPort, Protocol):
    """A broker, as its backups see it."""

    settings: BrokerSettings
    keys: KeyRing
    node: ClusterPort | None
    payloads: Payloads


class _Line(NamedTuple):
    """What a backup goes on from.

    Attributes:
        parent: the backup before; None = everything is stored.
    """

    archive: Archive
    lineage: Lineage
    parent: Manifest | None


class Backups:
    """Takes backups of a broker.

    Args:
        executor: of three threads: where they are taken, where what is here is copied for a backup
            of the cluster, and what waits for the next one.
        archiving: of one thread.

    Attributes:
        archiver: what stores in between what the journals get.
        counts: how they went.
        parts: what this broker does for a backup of its cluster, whoever takes it.
        turns: what is agreed on with other brokers; given when this one joins them.
    """

    def __init__(self, broker: BackupPort, executor: Executor, archiving: Executor) -> None:
        self._broker, self._executor = broker, executor
        self.turns: BackupTurns | None = None
        self.archiver = archiver_of(broker, archiving, lambda: self.turns)
        self._schedule = BackupSchedule(self, broker)
        self._guard = threading.Lock()
        self._is_running = False
        self._progress: dict[str, Any] = {"state": "none"}
        self.counts = BackupCounts()
        self.parts = BackupParts(broker, executor, self.archiver)

    def start(self) -> None:
        """Take backups by the schedule, and archive in between, if the settings have that."""
        self.archiver.start()
        if self._broker.settings.backup.url:
            self.counts.expect(self._broker.clock.utc_ms(), self.last_ms())
            self._executor.submit(self._schedule.run)

    def last_ms(self) -> int:
        """As of when the last backup is that this store knows of, whoever took it; 0 = of none."""
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
        trouble = self.counts.trouble(self._broker.clock.utc_ms(), interval_ms)
        return trouble or self.archiver.trouble()

    def begin(self, url: str, *, full: bool = False) -> dict[str, Any]:
        """Begin a backup; how it goes is told by `progress`.

        Args:
            full: store everything, whatever earlier backups have; begins a line of backups anew
                where these journals are an older copy.

        Raises:
            BadRequest: the URL is none. Refused: a backup is being taken here.
        """
        self._broker.check_running()
        self._claim(url)
        try:
            self._executor.submit(self._run, url, full, False)
        except RuntimeError:  # it was shut down
            self._is_running = False
            raise Unavailable("the broker is stopping", 1_000) from None
        return self.progress()

    def take(self, url: str, *, anew: bool = False) -> bool:
        """Take a backup now, on this thread; True if it is done, False if it failed: the log has
        why. Raises Refused: one is being taken, here or by another broker of the cluster.

        Args:
            anew: store everything, as earlier backups are damaged.
        """
        self._claim(url)
        refusal = self._run(url, False, anew)
        if refusal is not None:
            raise refusal
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
        """Return when none is being taken any more; the archiver goes on."""
        self._schedule.stop()
        self.parts.close()
        self._executor.shutdown()

    def _run(self, url: str, full: bool, anew: bool) -> Refused | None:
        """Take one; why not, if that is another broker's turn."""
        began_us = self._broker.clock.now_us()
        has_turn = False
        try:
            with self._turn() as keep:
                has_turn = True
                with self._broker.payloads.kept(self._copies_payloads):
                    manifest, pause_us = self._taken(url, full, anew, keep)
                    payloads = self._copied_payloads(url, manifest)
            took_ms = (self._broker.clock.now_us() - began_us) // 1_000
            found = manifest.describe() | payloads | {"took_ms": took_ms, "pause_us": pause_us}
            self.counts.succeed(manifest.cut_ms, manifest.new_bytes)
            self._end({"state": "done", **found})
            log.info("backup %s at %s: %d bytes are new", manifest.id, url, manifest.new_bytes)
        except Exception as wrong:  # noqa: BLE001 - who asks how it goes is told
            error = wrong if isinstance(wrong, DejaQError) else InternalError(repr(wrong))
            if not has_turn and isinstance(error, Refused):
                self._end({"state": "failed", "error": str(error)})
                return error
            self.counts.fail()
            self._end({"state": "failed", "error": str(error)})
            log.error("backup at %s failed: %s", url, error)
        return None

    @property
    def _copies_payloads(self) -> bool:
        broker = self._broker
        return broker.settings.backup.payloads and broker.payloads.store is not None

    def _copied_payloads(self, url: str, manifest: Manifest) -> dict[str, Any]:
        """Copy large payloads beside a backup, if the settings say so; what that came to."""
        store = self._broker.payloads.store
        if not self._copies_payloads or store is None:
            return {}
        encryption = self._broker.store.encryption
        cipher = None if encryption is None else encryption.cipher("backup")
        counts = copy_payloads(Archive.open(url), manifest, cipher, store)
        for damage in counts.missing:
            log.error("backup %s lacks a payload: %s", manifest.id, damage)
        return {
            "payload_objects": counts.objects,
            "new_payload_bytes": counts.new_bytes,
            "missing_payloads": len(counts.missing),
        }

    @contextmanager
    def _turn(self) -> Iterator[Callable[[], None]]:
        """Of the brokers of a cluster one takes a backup. Raises Refused, Unavailable."""
        if self._broker.node is None:
            yield lambda: None
            return
        with self._shared().turn() as keep:
            yield keep

    def _shared(self) -> BackupTurns:
        if self.turns is None:
            raise Unavailable("this broker has not joined its cluster yet", 1_000)
        return self.turns

    def _end(self, outcome: dict[str, Any]) -> None:
        """It is over: who is told so may begin the next one."""
        with self._guard:
            self._is_running = False
            self._progress |= outcome

    def _taken(
        self, url: str, full: bool, anew: bool, keep: Callable[[], None]
    ) -> tuple[Manifest, int]:
        archive = Archive.open(url, make=True)
        lineage = Lineage(self._broker.store)
        fence = read_fence(archive.bucket, lineage.store)
        if fence is not None:
            self._broker.replaced(fence)  # though nothing may be archived any more
            raise NotActive(f"no backup of this broker is taken there any more: {fence.told()}")
        parent = None
        if not full:
            newest = archive.newest(lineage.store)
            lineage.check(archive.bucket.url, newest)
            if self.archiver.is_wanted:
                self.archiver.check_line(archive, newest)
            parent = None if anew else newest
        line = _Line(archive, lineage, parent)
        if self._broker.node is not None:
            return self._taken_of_cluster(url, line, keep)
        is_ours = url == self._broker.settings.backup.url
        for last_try in range(TRIES - 1, -1, -1):
            try:
                return self._taken_alone(line, is_ours=is_ours)
            except Unavailable:
                self._broker.check_running()
                if not last_try:
                    raise
        raise InternalError("a backup ended without an outcome")

    # --- of a broker that is alone ------------------------------------------------------------

    def _taken_alone(self, line: _Line, *, is_ours: bool) -> tuple[Manifest, int]:
        """Take one.

        Args:
            is_ours: it goes where the settings have backups taken.
        """
        archiver = self.archiver if is_ours and self.archiver.is_wanted else None
        notes: list[ArchivePosition] = []

        def note() -> None:
            if archiver is not None:
                notes.append(archiver.note())

        with held_cut(self._broker, note) as cut:
            follows: dict[str, Any] = {}
            if archiver is not None:
                follows = self._followed_by(archiver, notes[-1], cut)
            manifest = self._copied(line, cut, follows)
            if is_ours:
                for held in cut.partitions:
                    held.reached()
            if archiver is not None:
                archiver.follow(notes[-1], manifest)
            return manifest, cut.pause_us

    def _followed_by(self, archiver: Archiver, note: ArchivePosition, cut: Cut) -> dict[str, Any]:
        """Of the manifest, what says which log pieces follow the backup; empty = none do."""
        logs = archiver.bounds(note, cut.partitions)
        if isinstance(archiver, StrandArchiver):
            logs = {**logs, OWN_NAME: cut.catalogue.revision}
            return {"chain": note.chain or archiver.new_chain(), "logs": logs, "in_strands": True}
        if not note.chain:
            return {}
        first = archiver.first_needed(note, logs)
        return {"chain": note.chain, "logs": logs, "chain_from": first}

    def _copied(self, line: _Line, cut: Cut, follows: dict[str, Any]) -> Manifest:
        """Store what a cut has.

        Args:
            follows: of the manifest, what says which log pieces follow it; empty = none do.
        """
        store, parent = self._broker.store, line.parent
        target = target_of(line.archive, store, line.lineage.store, replaces=parent is None)
        backup = self._begun(line, cut.at_ms)
        catalogue = target.put(cut.catalogue.to_bytes(), CATALOGUE)
        held = [one for one in cut.partitions if _is_there(cut, one)]
        self._progress |= {"id": backup, "partitions": len(held), "done": 0}
        copies: list[PartitionCopy] = []
        for copy in copied(target, held, known_of(parent)):
            copies.append(copy)
            self._progress |= {"done": len(copies), "new_bytes": target.new_bytes}
        documents = {name: store.load_document(name) for name in KEPT_DOCUMENTS}
        found = ClusterCopy(tuple(copies), target.new_bytes, target.data_keys)
        manifest = self._manifest(line, backup, cut.at_ms, catalogue, found)
        kept = {name: text for name, text in documents.items() if text is not None}
        if follows:
            all_keys = manifest.data_keys | self._all_keys()
            manifest = replace(manifest, data_keys=all_keys, **follows)
        return self._stored(line, replace(manifest, documents=kept))

    # --- of a cluster -------------------------------------------------------------------------

    def _taken_of_cluster(
        self, url: str, line: _Line, keep: Callable[[], None]
    ) -> tuple[Manifest, int]:
        broker, parent, turns = self._broker, line.parent, self._shared()
        is_ours = url == broker.settings.backup.url

        def finish(cut: ClusterCut, found: ClusterCopy) -> Manifest:
            keep()
            backup = self._begun(line, cut.at_ms)
            target = target_of(
                line.archive, broker.store, line.lineage.store, replaces=parent is None
            )
            catalogue = target.put(cut.catalogue.to_bytes(), CATALOGUE)
            found = found._replace(
                new_bytes=found.new_bytes + target.new_bytes,
                data_keys=found.data_keys | target.data_keys,
            )
            manifest = self._manifest(line, backup, cut.at_ms, catalogue, found)
            keys = broker.keys.copied()
            manifest = replace(
                manifest,
                documents={} if keys is None else {KEYS: keys},
                # Processes of one machine have one clock.
                clocks=len(turns.owners().urls) if broker.store.is_remote else 1,
            )
            archiver = self.archiver
            if not isinstance(archiver, StrandArchiver) or not archiver.is_wanted or not is_ours:
                return self._stored(line, manifest)
            chains = found.chains
            chain = next(iter(chains)) if len(chains) == 1 and "" not in chains else ""
            manifest = replace(
                manifest,
                chain=chain or archiver.new_chain(),
                logs={**found.logs, OWN_NAME: cut.catalogue.revision},
                in_strands=True,
                data_keys=manifest.data_keys | self._all_keys(),
            )
            self._stored(line, manifest)
            archiver.begins(manifest.chain)
            return manifest

        taking = ClusterBackup(broker, turns, self.parts, keep, self._say)
        store, name = line.lineage.store, "" if parent is None else parent.id
        return taking.taken(line.archive, Order(url, store, name, replaces=parent is None), finish)

    def _say(self, progress: dict[str, Any]) -> None:
        self._progress |= progress

    # --- what both end with -------------------------------------------------------------------

    def _begun(self, line: _Line, cut_ms: int) -> str:
        """The id of a backup, noted before it can be there."""
        lineage, url = line.lineage, line.archive.bucket.url
        backup = new_id(cut_ms, lineage.store, lineage.latest(url))
        lineage.begin(url, backup)
        return backup

    def _manifest(
        self, line: _Line, backup: str, cut_ms: int, catalogue: Piece, found: ClusterCopy
    ) -> Manifest:
        return Manifest(
            id=backup,
            store=line.lineage.store,
            parent="" if line.parent is None else line.parent.id,
            cut_ms=cut_ms,
            done_ms=self._broker.clock.utc_ms(),
            version=__version__,
            catalogue=catalogue,
            partitions=found.partitions,
            data_keys=self._data_keys(found.data_keys, line.parent),
            new_bytes=found.new_bytes,
            payload_ids=self._broker.payloads.ids,
        )

    def _stored(self, line: _Line, manifest: Manifest) -> Manifest:
        archive, parent = line.archive, line.parent
        if parent is not None and parent.id not in archive.ids():
            raise Refused(f"backup {parent.id}, which this goes on from, was deleted meanwhile")
        archive.put_manifest(manifest)
        line.lineage.done(archive.bucket.url, manifest.id)
        return manifest

    def _data_keys(self, numbers: set[int], parent: Manifest | None) -> dict[str, str]:
        """Wrapped keys of all pieces, those that were taken over included; as they are wrapped now
        where the store still has them."""
        store = self._broker.store
        found = {} if parent is None else dict(parent.data_keys)
        for name in {*found, *(f"{number:016x}" for number in numbers)}:
            text = store.load_data_key(int(name, 16))
            if text is not None:
                found[name] = text
        return found

    def _all_keys(self) -> dict[str, str]:
        """Wrapped keys of all that is in the logs: pieces of the archive have it as it is there."""
        store = self._broker.store
        if store.encryption is None:
            return {}
        texts = {number: store.load_data_key(number) for number in store.data_key_numbers()}
        return {f"{number:016x}": text for number, text in texts.items() if text is not None}


def archiver_of(
    broker: BackupPort, executor: Executor, turns: Callable[[], BackupTurns | None]
) -> Archiver:
    """What archives the journals of a broker, whose store is not open yet."""
    url = broker.settings.journal.url
    if url.startswith("shared:"):
        return StrandArchiver(broker, executor)
    # Of a cluster without processes, too: journals that are shared by machines are on servers.
    if broker.node is not None or is_on_server(url):
        return RecordArchiver(broker, executor, turns)
    return Archiver(broker, executor)


def _is_there(cut: Cut, held: HeldPartition) -> bool:
    row = cut.catalogue.rows.get(held.served.topic.name)
    return row is not None and row.number == held.served.number
