"""Copies of the partitions that are held at a cut, one after the other.

Room: broker. On the thread of a backup.
Holds: what was let go of, read anew or covered by a snapshot since the cut is refused, so that what
is copied is what was there at the cut.
See: cut.py, copying.py; backups.py and part.py, who copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.manifest import Manifest, PartitionCopy
from dejaqueue.broker.backup.copying import CopyTarget, PartitionReader
from dejaqueue.broker.backup.cut import HeldPartition
from dejaqueue.errors import JournalDamaged, ResourceExhausted, Unavailable
from dejaqueue.journal.interface import JournalStore

Known = dict[tuple[str, int, int], PartitionCopy]
"""What a backup has, by the names of topics, their numbers, and partitions."""


def target_of(
    archive: Archive, journals: JournalStore, store: str, *, replaces: bool
) -> CopyTarget:
    """Where copies of a store's partitions go; `store`, `replaces` as for CopyTarget."""
    keys = journals.encryption
    cipher = None if keys is None else keys.cipher("backup")
    return CopyTarget(archive, store, cipher, replaces=replaces)


def known_of(parent: Manifest | None) -> Known | None:
    """What the backup before has; None = there is none."""
    if parent is None:
        return None
    return {(one.topic, one.topic_number, one.partition): one for one in parent.partitions}


def copied(
    target: CopyTarget, partitions: Iterable[HeldPartition], known: Known | None
) -> Iterator[PartitionCopy]:
    """Copy partitions, each when it is asked for.

    Args:
        known: what the backup before has; None = there is none.

    Raises:
        JournalDamaged: these journals are an older copy; others as the journal says.
        ResourceExhausted: a partition gave room back. Unavailable: one is served elsewhere by now,
            or was read anew.
    """
    for held in partitions:
        yield _copy(target, held, known)


def _copy(target: CopyTarget, held: HeldPartition, known: Known | None) -> PartitionCopy:
    served, number = held.served, held.core.number
    name = served.topic.name
    before = None if known is None else known.get((name, served.number, number))
    if before is not None and before.position > held.position:
        raise JournalDamaged(
            f"{held.place} ends at {held.position}, though a backup has {before.position}: "
            "an old copy was put in place; begin anew with a full backup"
        )
    place = (name, served.number, served.journals, number)
    reader = PartitionReader(target, held.journal, place, before, wants_entries=known is not None)
    copy = reader.copy(held.position)
    if not held.core.is_held:
        raise ResourceExhausted(f"backup: the disk is full, so {held.place} gave room back", 0)
    is_ahead = copy.snapshot is not None and copy.snapshot.position > held.position
    if is_ahead or held.core.journal is not held.journal:
        raise Unavailable(f"backup: {held.place} was closed meanwhile; take it again", 100)
    return copy
