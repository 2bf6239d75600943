"""What a topic leaves: where ids of the next one of its name go on, and decisions not yet told.

Whoever acks late, with the id of a message of a topic that was deleted, must not settle one of the
topic made after it. So its partitions begin behind every sequence that was given before. And what
was committed in it counts for all who take part, also for whoever hears of it later.

Room: broker. Asked when nothing writes to the journals of a topic any more.
Holds: what a partition knew counts, or what its journal says; one that cannot be read is taken to
have given a great many ids, and its decisions are lost.
See: deleting.py; engine/rules.py, `ids_from`; docs/adr/0034 and 0057.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dejaqueue import limits
from dejaqueue.broker.shard.entries import to_command, to_entry
from dejaqueue.catalogue.changes import Decided
from dejaqueue.catalogue.state import TopicRow
from dejaqueue.engine.commands import OpenEpoch, Remember
from dejaqueue.engine.snapshot import decided_of, epoch_of, next_sequence_of
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import EntryKind, Journal, JournalStore
from dejaqueue.topic_names import parse_shard

UNREADABLE_IDS: Final = 1 << 40
"""So many ids is a partition taken to have given whose journal cannot be read: at a million
messages a second that is twelve days."""
IDS_FROM_MAX: Final = limits.SEQUENCE_MAX // 4 * 3
"""Ids that would begin above this begin at 0 again: after more than three years at a million
messages a second."""

log = logging.getLogger("dejaqueue.broker")


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What a partition has given out.

    Attributes:
        next_sequence: of its next message.
        decided: of transactions whose home it is: (commit, record) by name.
    """

    next_sequence: int
    decided: Mapping[str, tuple[bool, str]] = field(default_factory=dict)

    @property
    def untold(self) -> tuple[Decided, ...]:
        """The decisions that somebody may not know: their records begin with whom to tell."""
        return tuple(
            (name, commit, record)
            for name, (commit, record) in self.decided.items()
            if record and not record.startswith(";")
        )


@dataclass(frozen=True, slots=True)
class TopicReport:
    """What a topic leaves, or a shard of it.

    Attributes:
        ids_from: above all sequences that its partitions have given.
        decided: what not everybody was told of transactions.
    """

    ids_from: int
    decided: tuple[Decided, ...] = ()


def left_by(
    store: JournalStore,
    row: TopicRow,
    journals: str,
    known: Mapping[int, PartitionReport],
    *,
    shard: str = "",
    fences: bool = False,
) -> TopicReport:
    """What the partitions of a topic leave.

    Args:
        row: the topic; it is closed.
        journals: what it is called in the store.
        known: what partitions have given that were read, by number.
        shard: of which partitions; "" = of all.
        fences: begin an epoch in each, so that a broker that sleeps gives nothing more.

    Raises:
        Unavailable: the journals cannot be asked at the moment. Fenced: somebody appends.
    """
    found, decided = row.ids_from, list[Decided]()
    part = parse_shard(shard) if shard else None
    first, step = (0, 1) if part is None else part[1:]
    for number in range(first, row.topic.partitions, step):
        given = known.get(number)
        if given is None and store.was_used(journals, number):
            given = _read(store, row, journals, number, fences=fences)
        if given is not None:
            found = max(found, given.next_sequence)
            decided += given.untold
    return TopicReport(found if found <= IDS_FROM_MAX else 0, tuple(decided))


def _read(
    store: JournalStore, row: TopicRow, journals: str, number: int, *, fences: bool
) -> PartitionReport:
    try:
        journal = store.open(journals, number, only_made=True)
        try:
            return _given(journal, row.ids_from, fences=fences)
        finally:
            journal.close()
    except JournalDamaged as damage:
        text = (
            "topic %s, partition %d: how many ids it gave cannot be read, so many are left out; "
            "what it decided of transactions is not known either: %s"
        )
        log.warning(text, row.topic.name, number, damage)
        return PartitionReport(row.ids_from + UNREADABLE_IDS)


def _given(journal: Journal, ids_from: int, *, fences: bool) -> PartitionReport:
    found, position, now_ms, last_epoch = ids_from, 0, 0, 0
    decided: dict[str, tuple[bool, str]] = {}
    snapshot = journal.latest_snapshot()
    if snapshot is not None:
        found, position = max(found, next_sequence_of(snapshot.meta)), snapshot.position
        now_ms, last_epoch = epoch_of(snapshot.meta)
        try:
            decided = decided_of(snapshot.meta, journal.read_snapshot_file)
        except JournalDamaged as damage:  # the epoch is begun all the same
            log.warning("what was decided of transactions cannot be read: %s", damage)
    for at, epoch, entry in journal.scan(position):
        now_ms, last_epoch = max(now_ms, entry.now_ms), max(last_epoch, epoch)
        if entry.kind is EntryKind.ENQUEUE:
            found += entry.rows
        elif entry.kind is EntryKind.REMEMBER:
            command = to_command(entry, at)
            assert isinstance(command, Remember)
            if command.commit is None:
                decided.pop(command.transaction, None)
            else:
                decided[command.transaction] = command.commit, command.participants
    if fences:
        entry = to_entry(OpenEpoch(now_ms, last_epoch + 1))
        journal.append([entry], journal.tail, last_epoch + 1)
    return PartitionReport(found, decided)
