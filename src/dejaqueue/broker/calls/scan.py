"""Scan: all messages of a stretch of a partition as a stream of batches, without leasing.

Room: broker. Asks the partition's worker for one short stretch at a time, and gathers what is
stored on the caller's thread, while the worker looks for the next stretch.
Holds: no stretch keeps the worker longer than a few milliseconds; a message that is not changed
meanwhile comes once, in order of its id, however slowly it is read and wherever it is copied; the
stream ends where the partition ended when it began; no row is left out because of damage: the scan
fails and names it, or marks it if that is asked for.
See: docs/wire.md for the ticket; peek.py for pages, which are for people; spark/ for who reads so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.calls.browse import answer_of, followed, parse_selection, whole
from dejaqueue.broker.calls.peek import named, parse_names
from dejaqueue.broker.consumers.gathering import text_of
from dejaqueue.broker.consumers.row_reader import NoRows, RowReader, read_in_parts, read_stored
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_partitions import ServedPartitions
from dejaqueue.broker.topic.served_view import ServedView
from dejaqueue.engine.arrays import Int64s, UInt8s, UInt16s, Words, distinct
from dejaqueue.engine.message_filter import Selection
from dejaqueue.errors import BadRequest, DejaQError, JournalDamaged
from dejaqueue.journal.interface import TEXT_COLUMNS
from dejaqueue.model import MessageState
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema import packing
from dejaqueue.schema.messages import DEFAULT_PRIORITY, SCAN, UNREAD
from dejaqueue.schema.plain import text_column

BATCH_BYTES = 8 << 20
"""Stored bytes of one batch, about."""
_FIRST_ROWS = 256
_DEFAULT_STATES = (MessageState.SCHEDULED, MessageState.LEASED)
_STATE_NAMES = text_column([state.name.lower() for state in MessageState])


@dataclass(frozen=True, slots=True)
class Ticket:
    """A checked scan.

    Attributes:
        selection: which messages.
        partition: of the topic.
        first, end: sequences to begin with and to stop before.
        columns: names of SCAN, in its order; and UNREAD as the last one, where it is asked for.
        ids, keys: only these; None = all.
    """

    selection: Selection
    partition: int
    first: int
    end: int
    columns: tuple[str, ...]
    ids: Int64s | None
    keys: pa.StringArray | None

    @property
    def marks_damage(self) -> bool:
        """Whether a row that cannot be read comes all the same, and says so; else all fails."""
        return UNREAD.name in self.columns

    @property
    def schema(self) -> pa.Schema:
        """Of the batches."""
        fields = {name: SCAN.field(name) for name in self.columns if name != UNREAD.name}
        if self.marks_damage:
            fields[UNREAD.name] = UNREAD
            if "payload" in fields:  # of a damaged row there is none
                fields["payload"] = fields["payload"].with_nullable(True)
        return pa.schema(list(fields.values()))


@dataclass(slots=True)
class Rows:
    """What a partition knows of the rows of a stretch."""

    sequences: Int64s
    dues_ms: Int64s
    attempts: UInt16s
    locators: Int64s
    states: UInt8s
    priorities: UInt16s | None
    groups: Words | None
    expires_ms: Int64s | None

    def slice(self, first: int, end: int) -> Rows:
        """Some of them."""
        groups = self.groups
        return Rows(
            self.sequences[first:end],
            self.dues_ms[first:end],
            self.attempts[first:end],
            self.locators[first:end],
            self.states[first:end],
            None if self.priorities is None else self.priorities[first:end],
            None if groups is None else Words(groups.names, groups.indices[first:end]),
            None if self.expires_ms is None else self.expires_ms[first:end],
        )


def parse(values: dict[str, Any], partitions: ServedPartitions, now_ms: int) -> Ticket:
    """The checked ticket; BadRequest names what is wrong."""
    if values["partition"] is None:
        raise BadRequest("partition", "a number", None)
    ids, keys = parse_names(values.get("ids"), values.get("keys"))
    return Ticket(
        selection=parse_selection(values, now_ms, _DEFAULT_STATES),
        partition=partitions.check(
            "partition", whole(values, "partition", 0, limits.PARTITIONS_MAX)
        ),
        first=whole(values, "first", 0, limits.SEQUENCE_MAX),
        end=whole(values, "end", limits.SEQUENCE_MAX, limits.SEQUENCE_MAX),
        columns=columns_of(values.get("columns"), (*SCAN.names, UNREAD.name)),
        ids=ids,
        keys=keys,
    )


def columns_of(given: object, known: Sequence[str] = SCAN.names) -> tuple[str, ...]:
    """The columns that are asked for, None = all of SCAN, in the order in which they are known.
    Raises BadRequest."""
    if given is None:
        return tuple(SCAN.names)
    if not isinstance(given, list) or not all(name in known for name in given):
        raise BadRequest("columns", f"a list of {', '.join(known)}", given)
    return tuple(name for name in known if name in given)


def ranges(topic: ServedView) -> dict[str, Any]:
    """Where the messages of each partition lie: `first` and `end` sequences, and how many live."""

    def look(core: PartitionCore) -> dict[str, int]:
        engine = core.engine
        return {
            "partition": core.number,
            "first": engine.first_sequence,
            "end": engine.next_sequence,
            "live": engine.counts.live,
        }

    futures = [topic.look(number, look) for number in topic.partitions.numbers]
    return {"partitions": [answer_of(future) for future in futures]}


def scan(topic: ServedView, ticket: Ticket) -> Iterator[pa.RecordBatch]:
    """The messages of a ticket, in order of their ids, in batches of the ticket's schema."""
    size = _FIRST_ROWS

    def ask(first: int, end: int) -> Future[tuple[Rows, int | None, int]]:
        return topic.look(ticket.partition, lambda core: _look(topic, core, ticket, first, end))

    rows, following, end = answer_of(ask(ticket.first, ticket.end))
    while True:
        coming = None if following is None else ask(following, end)
        for batch in in_batches(topic, rows, ticket, size):
            size = _next_size(size, batch.num_rows, batch.nbytes)
            yield batch
        if coming is None:
            return
        rows, following, end = answer_of(coming)


def in_batches(
    topic: ServedView, rows: Rows, ticket: Ticket, size: int = _FIRST_ROWS
) -> Iterator[pa.RecordBatch]:
    """These rows with what is stored of them, in batches of about BATCH_BYTES."""
    first = 0
    while first < rows.sequences.size:
        part = rows.slice(first, first + size)
        batch = _batch(topic, part, ticket)
        first += part.sequences.size
        size = _next_size(size, part.sequences.size, batch.nbytes)
        if batch.num_rows:
            yield batch


def _next_size(size: int, rows: int, byte_count: int) -> int:
    """Rows of the next batch, so that it has about BATCH_BYTES if they are like the last ones."""
    fitting = BATCH_BYTES * rows // max(byte_count, 1)
    return max(1, min(fitting, 8 * size, limits.SLAB_ROWS))


def _look(
    topic: ServedView, core: PartitionCore, ticket: Ticket, first: int, end: int
) -> tuple[Rows, int | None, int]:
    """The next rows, where to go on, and where the scan ends."""
    engine = core.engine
    end = min(end, engine.next_sequence)
    following: int | None = None
    if ticket.ids is None and ticket.keys is None:
        sequences, following = engine.find(
            ticket.selection,
            first=first,
            end=end,
            limit=limits.SLAB_ROWS,
            rows_max=limits.BROWSE_ROWS_MAX,
        )
    else:
        sequences = distinct(named(topic, core, ticket))
        sequences = sequences[(sequences >= first) & (sequences < end)]
    return rows_of(core, sequences), following, end


def rows_of(core: PartitionCore, sequences: Int64s) -> Rows:
    """What the partition knows of these messages. On its worker."""
    engine = core.engine
    return Rows(
        sequences,
        engine.dues(sequences),
        engine.attempts(sequences),
        engine.locators(sequences),
        engine.states(sequences),
        engine.priorities(sequences),
        engine.moved_groups(sequences),
        engine.expires(sequences),
    )


class _Stored(NamedTuple):
    """What is stored of rows.

    Attributes:
        columns: by name; null where a row is gone, or damaged.
        is_there: of each row whether it is stored still; it may have been finished since the look.
        reasons: of each row why it cannot be read; null = it can. A row with one is there.
    """

    columns: dict[str, pa.Array]
    is_there: pa.Array
    reasons: pa.Array


def _batch(topic: ServedView, rows: Rows, ticket: Ticket) -> pa.RecordBatch:
    """These rows with what is stored of them.

    Raises:
        JournalDamaged: it names the entry; not where the ticket wants such rows to be marked.
    """
    core = topic.partitions[ticket.partition].core
    wanted = [name for name in TEXT_COLUMNS if name in ticket.columns]
    if rows.groups is not None and "group" in wanted:
        wanted.remove("group")
    if not wanted:  # nothing is read
        return _batch_of(
            core, rows, ticket, {UNREAD.name: pa.nulls(rows.sequences.size, UNREAD.type)}
        )
    reader = followed(topic, ticket.partition, rows.sequences, rows.locators)
    stored = _stored(reader, rows, ticket, wanted)
    if "payload" in wanted and core.payloads is not None:
        stored = _with_payloads(core, rows, ticket, stored)
    batch = _batch_of(core, rows, ticket, stored.columns | {UNREAD.name: stored.reasons})
    return batch if stored.is_there.true_count == len(batch) else batch.filter(stored.is_there)


def _stored(reader: RowReader, rows: Rows, ticket: Ticket, wanted: list[str]) -> _Stored:
    """Columns of the journal, read past damaged rows where the ticket wants these to be marked."""

    def read(part: slice) -> _Stored:
        found = read_stored(reader, rows.locators[part], wanted)
        columns = dict(zip(wanted, found.columns, strict=True))
        is_there = _is_there(reader, rows.locators[part], columns)
        return _Stored(columns, is_there, pa.nulls(found.num_rows, UNREAD.type))

    def lost(part: slice, damage: DejaQError) -> _Stored:
        if not ticket.marks_damage or not isinstance(damage, JournalDamaged):
            raise damage
        found = NoRows().read(rows.locators[part], wanted)
        columns = dict(zip(wanted, found.columns, strict=True))
        reasons = pa.repeat(pa.scalar(damage.told(), UNREAD.type), found.num_rows)
        return _Stored(columns, reasons.is_valid(), reasons)

    parts = read_in_parts(rows.locators >> limits.ROW_BITS, read, lost)
    if len(parts) == 1:
        return parts[0]
    return _Stored(
        {name: pa.concat_arrays([part.columns[name] for part in parts]) for name in wanted},
        pa.concat_arrays([part.is_there for part in parts]),
        pa.concat_arrays([part.reasons for part in parts]),
    )


def _is_there(reader: RowReader, locators: Int64s, columns: dict[str, pa.Array]) -> pa.Array:
    payloads = columns.get("payload")
    if payloads is None:
        # Each row has a payload; another column may be null because the row has none.
        if not next(reversed(columns.values())).null_count:
            return pa.array(np.ones(len(locators), dtype=np.bool_))
        payloads = read_stored(reader, locators, ("payload",)).column(0)
    return payloads.is_valid()


def _with_payloads(core: PartitionCore, rows: Rows, ticket: Ticket, stored: _Stored) -> _Stored:
    """The same with payloads of the payload store as they were sent.

    Raises:
        JournalDamaged: as `_batch`. Unavailable: the store is away, which is no damage.
    """
    assert core.payloads is not None
    payloads, failed = core.payloads.read(stored.columns["payload"])
    reasons = stored.reasons
    if failed:
        told = reasons.to_pylist()
        for row, error in failed.items():
            if not isinstance(error, JournalDamaged):
                raise error
            entry = int(rows.locators[row]) >> limits.ROW_BITS
            told[row] = f"{core.journal.place}, entry {entry}: {error.told()}"
            if not ticket.marks_damage:
                raise JournalDamaged(told[row])
        reasons = pa.array(told, UNREAD.type)
        payloads = pc.if_else(reasons.is_valid(), pa.scalar(None, payloads.type), payloads)
    return _Stored(stored.columns | {"payload": payloads}, stored.is_there, reasons)


def _batch_of(
    core: PartitionCore, rows: Rows, ticket: Ticket, stored: dict[str, pa.Array]
) -> pa.RecordBatch:
    arrays = [_column(name, core.number, rows, stored) for name in ticket.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=ticket.schema)


def _column(name: str, partition: int, rows: Rows, stored: dict[str, pa.Array]) -> pa.Array:
    """One column of SCAN."""
    count = rows.sequences.size
    match name:
        case "id":
            return pa.array(rows.sequences | (partition << limits.SEQUENCE_BITS))
        case "partition":
            return pa.array(np.full(count, partition, dtype=np.int32))
        case "due":
            return pa.array(rows.dues_ms, mask=_unknown(rows.dues_ms))
        case "attempts":
            return pa.array(rows.attempts)
        case "priority":
            if rows.priorities is None:
                return pa.array(np.full(count, DEFAULT_PRIORITY, dtype=np.uint16))
            return pa.array(rows.priorities)
        case "state":
            return _STATE_NAMES.take(pa.array(rows.states))
        case "expires":
            if rows.expires_ms is None:
                return pa.nulls(count, pa.int64())
            return pa.array(rows.expires_ms, mask=rows.expires_ms == 0)
        case "group":
            return _text(stored[name]) if rows.groups is None else text_of(rows.groups)
        case "key":
            return _text(stored[name])
        case "tags" | "headers":
            return _nested(name, stored[name])
        case _:
            return stored[name]


def _unknown(dues_ms: Int64s) -> npt.NDArray[np.bool_] | None:
    """Which due times are not known, as those of a claim are after a restart; None = no one is."""
    unknown = dues_ms < 0
    return unknown if unknown.any() else None


def _nested(name: str, packed: pa.Array) -> pa.Array:
    """Tags or headers; null where a row has none."""
    kind = SCAN.field(name).type
    if packed.null_count == len(packed):
        return pa.nulls(len(packed), kind)
    empty_mask = pc.equal(packed, "").fill_null(True)
    if name == "tags":
        lists = packing.unpack_tags(packed)
        return pa.ListArray.from_arrays(lists.offsets, lists.values, mask=empty_mask)
    maps = packing.unpack_headers(packed)
    return pa.MapArray.from_arrays(maps.offsets, maps.keys, maps.items, mask=empty_mask)


def _text(texts: pa.Array) -> pa.Array:
    """A text column; null where a row has none, and also where it is empty."""
    if texts.null_count == len(texts):
        return texts
    empty_mask = pc.equal(texts, "")
    if not pc.any(empty_mask).as_py():
        return texts
    return pc.if_else(empty_mask, pa.scalar(None, pa.utf8()), texts)
