"""Filling the empty data directory of a standby with a backup, at the positions of the active site.

What is restored by `dejaq restore` begins its own positions. A standby keeps those of the site that
it follows: the rows of a partition come first, as in any restore, and then a snapshot that says
behind which position they are. What the archive has next is appended behind that.

One whose archive goes on where it cannot follow is filled once more: into a store beside the one
that it has, which can be read meanwhile, and then put in its place.

Room: broker. Nobody has the journals open.
Holds: partitions and catalogue are as they were at the cut of the backup, leases included; a
journal says by its tail how far it is.
See: backup/archived_partition.py, which reads the archive; follower.py, which goes on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.manifest import Manifest
from dejaqueue.broker.backup.archived_partition import ArchivedPartition
from dejaqueue.broker.backup.backups import CATALOGUE
from dejaqueue.broker.backup.restoring import cipher_of
from dejaqueue.broker.payloads.payloads import DOCUMENT as PAYLOADS
from dejaqueue.broker.payloads.payloads import FORMER
from dejaqueue.broker.shard import entries
from dejaqueue.broker.standby.record import DOCUMENT
from dejaqueue.catalogue.log import JOURNAL, snapshot_of
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.engine.commands import Relocate
from dejaqueue.engine.view_snapshots import abandon_views_snapshot, plan_views_snapshot
from dejaqueue.engine.views import PartitionViews
from dejaqueue.errors import InternalError, JournalDamaged, Unavailable
from dejaqueue.journal.encryption.master_keys import MasterKey
from dejaqueue.journal.interface import SnapshotFile
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.journal.segments.store import DirectoryLock, SegmentStore

BESIDE: Final = "anew"
"""The directory, in that of a standby, that is filled while what it has can be read."""
_KEPT: Final = {"lock", f"{DOCUMENT}.json"}


def clear(root: Path) -> None:
    """Empty the data directory of a standby, but for what it knows of itself.

    Raises:
        Locked: another process has it. Unavailable: it could not be emptied.
    """
    lock = DirectoryLock(root)
    try:
        _empty(root, _KEPT)
    except OSError as failure:
        raise Unavailable(f"{root} could not be emptied: {failure}") from failure
    finally:
        lock.release()


def put_in_place(root: Path) -> None:
    """Have what was filled beside instead of what the data directory has. If it breaks off, the
    directory is not whole; who knows that it is a standby's has noted so before.

    Raises:
        Locked: another process has it. Unavailable: it could not be done.
    """
    lock, beside = DirectoryLock(root), root / BESIDE
    try:
        _empty(root, _KEPT | {BESIDE})
        for path in _files_last(beside)[::-1]:
            if path.name not in _KEPT:
                path.rename(root / path.name)
        shutil.rmtree(beside)
        FileSystem().sync_directory(root)
    except OSError as failure:
        raise Unavailable(f"{beside} could not be put in place: {failure}") from failure
    finally:
        lock.release()


def remove_beside(root: Path) -> None:
    """Remove what was filled by half. Raises Unavailable."""
    try:
        if (root / BESIDE).exists():
            shutil.rmtree(root / BESIDE)
    except OSError as failure:
        raise Unavailable(f"{root / BESIDE} could not be removed: {failure}") from failure


def _files_last(root: Path) -> list[Path]:
    """What a data directory has. A store can be opened that has its files without directories, not
    the other way round; and to know that it is not whole, it has to be opened."""
    return sorted(root.iterdir(), key=Path.is_file)


def _empty(root: Path, kept: set[str]) -> None:
    for path in _files_last(root):
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def fill(
    archive: Archive,
    manifest: Manifest,
    store: SegmentStore,
    masters: Sequence[MasterKey],
    say: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> int:
    """Write a backup into an empty store; how many live messages there are.

    Args:
        masters: keys to open the backup with.
        say: told what is done.
        check: asked often; what it raises ends the filling.

    Raises:
        JournalDamaged: something is missing in the backup, or is not what was stored.
        EncryptionKeyMissing, ResourceExhausted, Unavailable.
    """
    cipher = cipher_of(manifest, masters)
    what = f"{manifest.store}/{CATALOGUE}"
    state = CatalogueState.from_bytes(archive.get(manifest.catalogue, what, cipher))
    state.cluster = None  # whichever brokers it was of, here is one
    for name, text in manifest.documents.items():
        store.store_document(name, text)
    if manifest.payload_ids:  # who is promoted deletes what nothing needs any more
        store.store_document(PAYLOADS, json.dumps({FORMER: manifest.payload_ids}))
    rows = {row.number: row for row in (*state.rows.values(), *state.leaving.values())}
    for number, row in rows.items():
        if row.is_used:
            store.make(row.topic.name, number)
    count = 0
    for copy in manifest.partitions:
        if copy.topic_number not in rows or not copy.position:
            continue
        say(f"filling {copy.place}")
        archived = ArchivedPartition(archive, manifest.store, copy, cipher)
        journal = store.open(rows[copy.topic_number].topic.name, copy.partition, only_made=True)
        try:
            count += _write(journal, archived, archived.views(), check)
        finally:
            journal.close()
    if state.revision:
        journal = store.open(JOURNAL, 0)
        journal.begin_behind(state.revision, *snapshot_of(state))
        journal.close()
    return count


def _write(
    journal: SegmentJournal,
    archived: ArchivedPartition,
    views: PartitionViews,
    check: Callable[[], None],
) -> int:
    """Write a partition as it was; how many live messages it has."""
    if journal.tail:
        raise InternalError(f"{journal}: is not empty")
    tail = count = 0
    for sequences, texts in archived.rows(views):
        check()
        command = Relocate(views.now_ms, tail + 1, sequences)
        entry = entries.relocate_entry(command, texts)
        tail = journal.append([entry], tail, views.unnamed.epoch)
        views.apply(command)
        count += len(sequences)
    if tail > archived.copy.position:
        raise JournalDamaged(f"{archived.copy.place}: has more rows than entries")
    abandon_views_snapshot(views)  # the journal has none of the files of the archive
    meta, planned = plan_views_snapshot(views)
    files = [SnapshotFile(name, content) for name, content in planned]
    journal.begin_behind(archived.copy.position, meta, files)
    return count
