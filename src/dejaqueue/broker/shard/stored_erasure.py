"""Which stored rows an erasure is about: found in the entries of a journal, needed or not.

Room: broker. Pure; reads entries, changes nothing.
Holds: what is live is judged by what it is now (the caller knows that, and names it); what is done
is judged by what it was when it was sent, as far as entries of it are there still.
See: calls/erasure.py; journal/interface.py, `stored`; rule 23.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.shard import entries
from dejaqueue.engine.arrays import Int64s, Mask, distinct
from dejaqueue.engine.message_filter import DUE_END_MS, Selection
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import Entry, EntryKind, TextColumn
from dejaqueue.model import TagFilter
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema import dead_letters as letters
from dejaqueue.schema.messages import DEFAULT_PRIORITY
from dejaqueue.schema.packing import UNIT
from dejaqueue.schema.references import Reference, decode, marked_rows
from dejaqueue.schema.texts import mended

_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ErasureChoice:
    """Which messages are erased: all that is said holds of them.

    Attributes:
        keys: of one of these keys; a dead letter has that of its message; None = any.
        selection: its states are not read; None = it decides nothing.
        origin: dead letters of messages of this topic; "" = any message.
        ids: with one of these ids, with `origin` those of the messages that letters were; None =
            any.
        partition: the one that is looked through.
    """

    keys: tuple[str, ...] | None = None
    selection: Selection | None = None
    origin: str = ""
    ids: tuple[int, ...] | None = None
    partition: int = 0

    @property
    def is_by_now(self) -> bool:
        """Whether what a live message is now decides, which may be another thing than what is
        stored of it."""
        return self.selection is not None and not self.origin

    @property
    def sequences(self) -> Int64s:
        """Of the messages of the partition that are named by their ids, ascending."""
        if self.ids is None or self.origin:
            return _NONE
        ids = distinct(np.array(self.ids, dtype=np.int64))
        sequences: Int64s = ids[ids >> limits.SEQUENCE_BITS == self.partition] & limits.SEQUENCE_MAX
        return sequences

    def fits(self, entry: Entry) -> Mask:
        """Which rows of an entry are meant, by what is stored of them."""
        mask: Mask = np.ones(entry.rows, dtype=np.bool_)
        if self.keys is not None:
            mask &= self._has_key(entry)
        if self.ids is not None:
            mask &= self._has_id(entry)
        if self.origin:
            mask &= _came_from(_header(entry, letters.ORIGIN), self.origin)
        if self.selection is not None:
            mask &= _selected(self.selection, entry)
        return mask

    def _has_key(self, entry: Entry) -> Any:
        assert self.keys is not None
        mask = _equal(_texts(entry, "key"), self.keys)
        return mask | _equal(_header(entry, letters.KEY), self.keys)

    def _has_id(self, entry: Entry) -> Any:
        assert self.ids is not None
        if self.origin:
            return _equal(_header(entry, letters.ORIGIN_ID), tuple(map(str, self.ids)))
        sequences = entries.sequences_of(entry)
        return False if sequences is None else np.isin(sequences, self.sequences)

    def names(self, entry: Entry) -> bool:
        """Whether an entry that moves messages has the text that they are chosen by."""
        group = None if self.selection is None else self.selection.group
        if not group or entry.kind is not EntryKind.MOVE:
            return False
        return group.encode() in bytes(entry.extra)


@dataclass(slots=True)
class ErasureRows:
    """What was found of a partition.

    Attributes:
        choice: what is looked for.
        moves: positions of entries without rows of messages that have the text looked for.
        locators: of rows that are meant, by what is stored of them.
        sequences: of their messages, where the rows say that.
        names: of payloads that are in the payload store, by locator.
        shared: of these the objects that other messages have payloads in, too.
    """

    choice: ErasureChoice
    moves: list[int] = field(default_factory=list)
    locators: list[Int64s] = field(default_factory=list)
    sequences: list[Int64s] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)

    def look(
        self, stored: Iterable[tuple[int, Entry]], wanted: Int64s = _NONE, named: Int64s = _NONE
    ) -> None:
        """Go through entries.

        Args:
            wanted: locators of rows that are meant whatever is stored of them, ascending.
            named: sequences of such messages, ascending; copies of rows have theirs.
        """
        for position, entry in stored:
            if entry.kind in (EntryKind.ENQUEUE, EntryKind.RELOCATE):
                self._rows_of(position, entry, wanted, named)
            elif self.choice.names(entry):
                self.moves.append(position)

    def _rows_of(self, position: int, entry: Entry, wanted: Int64s, named: Int64s) -> None:
        mask = self.choice.fits(entry)
        first = position << limits.ROW_BITS
        low, high = wanted.searchsorted([first, first + entry.rows])
        mask[wanted[low:high] - first] = True
        if entry.kind is EntryKind.RELOCATE and named.size:
            places = np.minimum(named.searchsorted(entry.ints[0]), named.size - 1)
            mask |= named[places] == entry.ints[0]
        rows = np.flatnonzero(mask)
        if not rows.size:
            return
        self.locators.append(rows + first)
        known = entries.sequences_of(entry)
        if known is not None:
            self.sequences.append(known[rows])
        payload = entry.texts.get("payload")
        if payload is not None:
            self._note_payloads(entries.arrow_column(payload, pa.binary()), rows, first)

    def _note_payloads(self, column: pa.BinaryArray, rows: Int64s, first: int) -> None:
        for row in np.intersect1d(marked_rows(column), rows).tolist():
            try:
                reference = decode(column[row].as_py())
            except JournalDamaged:  # who reads it is told
                continue
            if isinstance(reference, Reference):
                self.names[first + row] = reference.name
                if reference.is_cold:
                    self.shared.add(reference.name)

    @property
    def found(self) -> Int64s:
        """All locators."""
        return np.concatenate([_NONE, *self.locators])


def _texts(entry: Entry, name: str) -> pa.StringArray | None:
    """A column of texts; None = all are empty."""
    text: TextColumn | None = entry.texts.get(name)
    return None if text is None else mended(entries.arrow_column(text, pa.utf8()))


def _header(entry: Entry, name: str) -> pa.StringArray | None:
    headers = _texts(entry, "headers")
    return None if headers is None else letters.packed_value(headers, name)


def _equal(column: pa.StringArray | None, values: tuple[str, ...]) -> Any:
    """Which rows have one of these texts, none of which is empty; False = none."""
    if column is None:
        return False
    found = pc.is_in(column, value_set=pa.array(values, pa.utf8()))
    return np.asarray(found.cast(pa.uint8())) == 1


def _came_from(column: pa.StringArray | None, origin: str) -> Any:
    """Which rows are letters of a topic, or of a shard of it."""
    if column is None:
        return False
    is_shard = pc.starts_with(column, f"{origin}=")
    return _equal(column, (origin,)) | (np.asarray(is_shard.cast(pa.uint8())) == 1)


def _selected(wanted: Selection, entry: Entry) -> Any:
    mask: Any = np.ones(entry.rows, dtype=np.bool_)
    if wanted.group is not None:
        groups = _texts(entry, "group")
        mask &= not wanted.group if groups is None else _equal(groups, (wanted.group,))
    if wanted.tags is not None:
        mask &= _tagged(_texts(entry, "tags"), wanted.tags, entry.rows)
    by_time = wanted.due_from_ms > 0 or wanted.due_to_ms < DUE_END_MS
    by_priority = wanted.priority_from > 0 or wanted.priority_to < limits.PRIORITY_MAX
    if (by_time or by_priority) and entry.kind is not EntryKind.ENQUEUE:
        return np.zeros(entry.rows, dtype=np.bool_)  # a copy does not say
    if by_time:
        dues_ms = entry.ints[0]
        mask &= (dues_ms >= wanted.due_from_ms) & (dues_ms < wanted.due_to_ms)
    if by_priority:
        priorities = np.full(entry.rows, DEFAULT_PRIORITY, dtype=np.int64)
        if entries.EnqueueFlag.PRIORITIES in entries.EnqueueFlag(entry.params[1]):
            priorities = entry.ints[1]
        mask &= (priorities >= wanted.priority_from) & (priorities <= wanted.priority_to)
    return mask


def _tagged(column: pa.StringArray | None, wanted: TagFilter, rows: int) -> Mask:
    """Which rows have such tags; each text that there is is looked at once."""
    if column is None:
        return np.full(rows, _takes(wanted, ""))
    encoded = column.dictionary_encode()
    takes = np.array([_takes(wanted, text) for text in encoded.dictionary.to_pylist()], np.bool_)
    mask: Mask = takes[encoded.indices.to_numpy()]
    return mask


def _takes(wanted: TagFilter, packed: str) -> bool:
    tags = set(packed.split(UNIT)) - {""}
    if wanted.any_of and tags.isdisjoint(wanted.any_of):
        return False
    return tags.issuperset(wanted.all_of) and tags.isdisjoint(wanted.none_of)
