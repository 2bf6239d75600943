"""Which ids a topic has given: where those of the next topic of its name go on.

Whoever acks late, with the id of a message of a topic that was deleted, must not settle one of the
topic made after it. So its partitions begin behind every sequence that was given before.

Room: broker. Asked when nothing writes to the journals of a topic any more.
Holds: what a partition knew counts, or what its journal says; one that cannot be read is taken to
have given a great many.
See: deleting.py; engine/rules.py, `ids_from`; docs/adr/0034-the-catalogue-is-a-journal.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from dejaqueue import limits
from dejaqueue.broker.shard.entries import to_entry
from dejaqueue.catalogue.state import TopicRow
from dejaqueue.engine.commands import OpenEpoch
from dejaqueue.engine.snapshot import epoch_of, next_sequence_of
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import EntryKind, Journal, JournalStore
from dejaqueue.model import parse_shard

UNREADABLE_IDS: Final = 1 << 40
"""So many ids is a partition taken to have given whose journal cannot be read: at a million
messages a second that is twelve days."""
IDS_FROM_MAX: Final = limits.SEQUENCE_MAX // 4 * 3
"""Ids that would begin above this begin at 0 again: after more than three years at a million
messages a second."""

log = logging.getLogger("dejaqueue.broker")


def ids_behind(
    store: JournalStore,
    row: TopicRow,
    journals: str,
    known: Mapping[int, int],
    *,
    shard: str = "",
    fences: bool = False,
) -> int:
    """A sequence above all that the partitions of a topic have given.

    Args:
        row: the topic; it is closed.
        journals: what it is called in the store.
        known: the next sequence of partitions that were read, by number.
        shard: of which partitions; "" = of all.
        fences: begin an epoch in each, so that a broker that sleeps gives nothing more.

    Raises:
        Unavailable: the journals cannot be asked at the moment. Fenced: somebody appends.
    """
    found = row.ids_from
    part = parse_shard(shard) if shard else None
    first, step = (0, 1) if part is None else part[1:]
    for number in range(first, row.topic.partitions, step):
        found = max(found, known.get(number, 0))
        if number not in known and store.was_used(journals, number):
            found = max(found, _read(store, row, journals, number, fences=fences))
    return found if found <= IDS_FROM_MAX else 0


def _read(store: JournalStore, row: TopicRow, journals: str, number: int, *, fences: bool) -> int:
    try:
        journal = store.open(journals, number, only_made=True)
        try:
            return _next_sequence(journal, row.ids_from, fences=fences)
        finally:
            journal.close()
    except JournalDamaged as damage:
        text = (
            "topic %s, partition %d: how many ids it gave cannot be read, so many are left out: %s"
        )
        log.warning(text, row.topic.name, number, damage)
        return row.ids_from + UNREADABLE_IDS


def _next_sequence(journal: Journal, ids_from: int, *, fences: bool) -> int:
    found, position, now_ms, last_epoch = ids_from, 0, 0, 0
    snapshot = journal.latest_snapshot()
    if snapshot is not None:
        found, position = max(found, next_sequence_of(snapshot.meta)), snapshot.position
        now_ms, last_epoch = epoch_of(snapshot.meta)
    for _, epoch, entry in journal.scan(position):
        now_ms, last_epoch = max(now_ms, entry.now_ms), max(last_epoch, epoch)
        if entry.kind is EntryKind.ENQUEUE:
            found += entry.rows
    if fences:
        entry = to_entry(OpenEpoch(now_ms, last_epoch + 1))
        journal.append([entry], journal.tail, last_epoch + 1)
    return found
