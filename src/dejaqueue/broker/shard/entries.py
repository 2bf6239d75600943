"""Commands as journal entries, and back.

Room: broker. Pure translation; what a kind's `params` and `ints` mean is said here and nowhere
else.
Holds: to_command(to_entry(command)) does the same to an engine as the command.
See: docs/reference/journal-format.md.

    kind        params                                  ints                         texts · extra
    OPEN_EPOCH  epoch
    CONFIGURE                                                                        rules
    ENQUEUE     payload bytes · EnqueueFlag · first     dues, priorities?, expires?  all · JSON
    LEASE       until · count · lease end · leased                                   filter
    ACK         lease id                                sequences, attempts          stage
    NACK        lease id · due · fate                   as ACK                       reason
    EXTEND      lease id · lease end                    as ACK
    MOVE        MoveFlag                                sequences, dues?,            names of groups
                                                        priorities?, groups?
    CANCEL                                              sequences
    RELOCATE                                            sequences                    all
    DECIDE      commit                                                               transaction
    REMEMBER    commit, -1 = forget                                                  JSON
    BURY        group
    PUT_ENTRY                                                                        JSON
    DROP_ENTRY                                                                       JSON
    DEPART                                              sequences                    destination
    SET_TIME    by
    OPEN_VIEW   number · born · held due · ViewFlag                  JSON: name, rules, from?
    SEED_VIEW   number · span
    DROP_VIEW   number
    FORGET      before                                  sequences?
    SEEK        first · end · from                                                   filter
    FORGET_TEXTS
    IN_VIEW     of the entry that is in it                  of that              number, kind; its

Where ACK, NACK and EXTEND name a whole lease, they have no ints. The extra of ENQUEUE is a list of
sub-batches, or an object of that and of what else there is; its `first` is 1 more than the sequence
of its first row, 0 = not noted. No replay needs that: it names rows whose messages are done.
"""

from __future__ import annotations

import json
import struct
from dataclasses import astuple, replace
from enum import IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.engine import commands
from dejaqueue.engine.arrays import Int64s, UInt16s, Words
from dejaqueue.engine.commands import Command, SubBatch
from dejaqueue.engine.dictionary import of_runs, to_runs
from dejaqueue.engine.message_filter import Selection
from dejaqueue.errors import BadRequest, JournalDamaged
from dejaqueue.journal.interface import Entry, EntryKind, TextColumn
from dejaqueue.model import TagFilter
from dejaqueue.schema.keys import hash_keys
from dejaqueue.schema.references import stored_sizes
from dejaqueue.schema.text_columns import text_offsets
from dejaqueue.schema.texts import mended


def text_column(column: pa.Array) -> TextColumn:
    """A binary or utf8 column without nulls as a journal column; no copy of the bytes."""
    offsets = text_offsets(column)
    first, last = int(offsets[0]), int(offsets[-1])
    if first:
        offsets = offsets - np.int32(first)
    content = column.buffers()[2]
    if content is None:
        return TextColumn(offsets, b"")
    return TextColumn(
        offsets,
        content if last == content.size and not first else content.slice(first, last - first),
    )


def arrow_column(text: TextColumn, kind: pa.DataType) -> pa.Array:
    """A journal column as an Arrow column over the same bytes."""
    rows = len(text.offsets) - 1
    return pa.Array.from_buffers(
        kind, rows, [None, pa.py_buffer(text.offsets), pa.py_buffer(text.data)]
    )


def hash_column(text: TextColumn) -> Int64s:
    """The key hashes of a key column; 0 where the key is empty."""
    hashes = hash_keys(text.offsets, np.frombuffer(text.data, dtype=np.uint8))
    hashes[text.offsets[1:] == text.offsets[:-1]] = 0
    return hashes


def hash_texts(texts: list[bytes]) -> Int64s:
    """The same of keys that are no column."""
    offsets = np.zeros(len(texts) + 1, dtype=np.int32)
    np.cumsum(list(map(len, texts)), out=offsets[1:])
    return hash_column(TextColumn(offsets, b"".join(texts)))


def words(column: pa.StringArray | None, name: str = "group") -> Words | None:
    """A text column as a dictionary, each text once, in the order they are first used.

    Raises:
        BadRequest: a text is not UTF-8.
    """
    if column is None:
        return None
    encoded = column.dictionary_encode()
    try:
        texts = encoded.dictionary.to_pylist()
    except UnicodeDecodeError as wrong:
        raise BadRequest(name, "text in UTF-8", wrong.object) from None
    return Words(tuple(texts), encoded.indices.to_numpy())


class EnqueueFlag(IntFlag):
    """What the rows of an ENQUEUE entry have."""

    KEYS = 1
    PRIORITIES = 2
    EXPIRES = 4
    SIZES = 8
    """No column: the payloads have their sizes."""


class MoveFlag(IntFlag):
    """What a MOVE entry changes."""

    DUES = 1
    PRIORITIES = 2
    GROUPS = 4


class ViewFlag(IntFlag):
    """How a view begins."""

    FROM_START = 1
    BY_ARRIVAL = 2
    IN_PIECES = 4


_IN_VIEW = struct.Struct("<IH")
"""Number of the view, and kind of the entry: before the extra of an IN_VIEW entry."""


def in_view(number: int, entry: Entry) -> Entry:
    """The entry of a view that is like this one of the unnamed view."""
    extra = _IN_VIEW.pack(number, entry.kind) + bytes(entry.extra)
    return replace(entry, kind=EntryKind.IN_VIEW, extra=extra)


def _of_view(entry: Entry, position: int) -> commands.InView:
    extra = bytes(entry.extra)
    try:
        number, kind = _IN_VIEW.unpack_from(extra)
    except struct.error as wrong:
        raise ValueError(str(wrong)) from None
    inner = replace(entry, kind=EntryKind(kind), extra=extra[_IN_VIEW.size :])
    return commands.InView(entry.now_ms, number, _to_command(inner, position))  # type: ignore[arg-type]  # what is no command of a view is refused by its engine


def enqueue_entry(
    command: commands.Enqueue, texts: dict[str, TextColumn], first_sequence: int = -1
) -> Entry:
    """The entry of an Enqueue, whose texts the command does not carry.

    Args:
        first_sequence: that its first row gets; -1 = it is not noted.
    """
    flags, ints = EnqueueFlag(0), [command.dues_ms]
    if command.key_hashes is not None:
        flags |= EnqueueFlag.KEYS
    if command.priorities is not None:
        flags |= EnqueueFlag.PRIORITIES
        ints.append(command.priorities.astype(np.int64))
    if command.expires_ms is not None:
        flags |= EnqueueFlag.EXPIRES
        ints.append(command.expires_ms)
    if command.payload_sizes is not None:
        flags |= EnqueueFlag.SIZES
    return Entry(
        EntryKind.ENQUEUE,
        command.now_ms,
        (command.payload_bytes, int(flags), first_sequence + 1, 0),
        len(command.dues_ms),
        tuple(ints),
        texts,
        _pack_enqueue(command),
    )


def sequences_of(entry: Entry) -> Int64s | None:
    """Of which messages the rows of an ENQUEUE or a RELOCATE are; None = that was not noted."""
    if entry.kind is EntryKind.RELOCATE:
        return entry.ints[0]
    first = entry.params[2] - 1
    return None if first < 0 else np.arange(first, first + entry.rows, dtype=np.int64)


def _sizes(payload: TextColumn) -> npt.NDArray[np.uint32]:
    """Bytes of each payload, wherever it is."""
    return stored_sizes(payload.offsets, np.frombuffer(payload.data, dtype=np.uint8))


def _enqueue_command(entry: Entry, position: int) -> commands.Enqueue:
    flags = EnqueueFlag(entry.params[1])
    dues_ms, *others = entry.ints
    priorities = others.pop(0).astype(np.uint16) if EnqueueFlag.PRIORITIES in flags else None
    expires_ms = others.pop(0) if EnqueueFlag.EXPIRES in flags else None
    key = entry.texts["key"] if EnqueueFlag.KEYS in flags else None
    payload = entry.texts["payload"] if EnqueueFlag.SIZES in flags else None
    more: dict[str, Any] = {}
    sub_batches: tuple[SubBatch, ...] = (SubBatch("", 0, entry.rows),)
    if entry.extra:
        values = json.loads(bytes(entry.extra))
        more = values if isinstance(values, dict) else {"batches": values}
        if more.get("batches"):
            sub_batches = _unpack_sub_batches(more["batches"])
    replaced, stage = more.get("replaced"), more.get("stage")
    return commands.Enqueue(
        entry.now_ms,
        position,
        dues_ms,
        sub_batches,
        None if key is None else hash_column(key),
        entry.params[0],
        priorities,
        _words_of(entry, "group"),
        _words_of(entry, "tags"),
        expires_ms,
        None if replaced is None else np.array(replaced, dtype=np.int64),
        None if stage is None else commands.Stage(*stage),
        tuple(commands.Firing(*firing) for firing in more.get("firings", ())),
        None if payload is None else _sizes(payload),
        of_runs(more["senders"]) if "senders" in more else None,
    )


def _words_of(entry: Entry, name: str) -> Words | None:
    text = entry.texts.get(name)
    return None if text is None else words(mended(arrow_column(text, pa.utf8())))


def _pack_enqueue(command: commands.Enqueue) -> bytes:
    """JSON of what of an Enqueue is no column; nothing if there is nothing to say."""
    batches = _pack_sub_batches(command.sub_batches)
    more: dict[str, Any] = {}
    if command.replaced is not None:
        more["replaced"] = command.replaced.tolist()
    if command.stage is not None:
        more["stage"] = [command.stage.transaction, command.stage.until_ms]
    if command.firings:
        more["firings"] = command.firings
    if command.senders is not None:
        more["senders"] = to_runs(command.senders)
    if not more:
        return _json(batches) if batches else b""
    return _json({"batches": batches} | more)


_ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Made once: `json.dumps` with separators makes one for each call."""


def _json(values: object) -> bytes:
    return _ENCODER.encode(values).encode()


def relocate_entry(command: commands.Relocate, texts: dict[str, TextColumn]) -> Entry:
    """The entry of a Relocate, whose texts the command does not carry."""
    rows = len(command.sequences)
    return Entry(
        EntryKind.RELOCATE, command.now_ms, (0, 0, 0, 0), rows, (command.sequences,), texts
    )


_BURY, _RELEASE = 1, 2


def _settled(
    kind: EntryKind,
    command: commands.Ack | commands.Nack | commands.Extend,
    argument: int = 0,
    flag: int = 0,
    extra: bytes = b"",
) -> Entry:
    params = (command.lease_id, argument, flag, 0)
    if command.sequences is None or command.attempts is None:
        return Entry(kind, command.now_ms, params, extra=extra)
    ints = (command.sequences, command.attempts.astype(np.int64))
    return Entry(kind, command.now_ms, params, len(command.sequences), ints, extra=extra)


def _move_entry(command: commands.Move) -> Entry:
    flags, ints, extra = MoveFlag(0), [command.sequences], b""
    if command.dues_ms is not None:
        flags |= MoveFlag.DUES
        ints.append(command.dues_ms)
    if command.priorities is not None:
        flags |= MoveFlag.PRIORITIES
        ints.append(command.priorities.astype(np.int64))
    if command.groups is not None:
        flags |= MoveFlag.GROUPS
        ints.append(command.groups.indices.astype(np.int64))
        extra = _json(command.groups.names)
    params = (int(flags), 0, 0, 0)
    return Entry(EntryKind.MOVE, command.now_ms, params, len(ints[0]), tuple(ints), extra=extra)


def _move_command(entry: Entry) -> commands.Move:
    flags = MoveFlag(entry.params[0])
    if not flags:
        raise ValueError("a move that changes nothing")
    sequences, *others = entry.ints
    dues_ms = others.pop(0) if MoveFlag.DUES in flags else None
    priorities = others.pop(0).astype(np.uint16) if MoveFlag.PRIORITIES in flags else None
    groups = None
    if MoveFlag.GROUPS in flags:
        names = tuple(json.loads(bytes(entry.extra)))
        groups = Words(names, others.pop(0).astype(np.int32))
    return commands.Move(entry.now_ms, sequences, dues_ms, priorities, groups)


def _open_view_entry(command: commands.OpenView) -> Entry:
    flags = ViewFlag.FROM_START * command.from_start
    flags |= ViewFlag.BY_ARRIVAL * command.by_arrival
    flags |= ViewFlag.IN_PIECES * command.in_pieces
    params = (command.number, command.born, command.held_due_ms, int(flags))
    kept = () if command.kept_from_ms is None else (command.kept_from_ms,)
    extra = _json([command.name, command.rules, *kept])
    return Entry(EntryKind.OPEN_VIEW, command.now_ms, params, extra=extra)


def to_entry(command: Command, leased_count: int = 0) -> Entry:
    """The entry of a command without texts.

    Args:
        leased_count: for a Lease: how many rows it took, checked at replay.
    """
    now_ms = command.now_ms
    match command:
        case commands.Lease():
            params = (command.until_ms, command.count, command.lease_end_ms, leased_count)
            extra = b"" if command.filter is None else _json(astuple(command.filter))
            return Entry(EntryKind.LEASE, now_ms, params, extra=extra)
        case commands.Ack():
            stage = command.stage
            extra = b"" if stage is None else _json([stage.transaction, stage.until_ms])
            return _settled(EntryKind.ACK, command, extra=extra)
        case commands.Nack():
            extra = command.reason.encode()
            fate = _BURY * command.bury + _RELEASE * command.release
            return _settled(EntryKind.NACK, command, command.due_ms, fate, extra)
        case commands.Extend():
            return _settled(EntryKind.EXTEND, command, command.lease_end_ms)
        case commands.Move():
            return _move_entry(command)
        case commands.Cancel():
            rows = len(command.sequences)
            return Entry(EntryKind.CANCEL, now_ms, rows=rows, ints=(command.sequences,))
        case commands.OpenEpoch():
            return Entry(EntryKind.OPEN_EPOCH, now_ms, (command.epoch, 0, 0, 0))
        case commands.ForgetTexts():
            return Entry(EntryKind.FORGET_TEXTS, now_ms)
        case commands.Configure():
            return Entry(EntryKind.CONFIGURE, now_ms, extra=command.rules.encode())
        case commands.Decide():
            name = command.transaction.encode()
            return Entry(EntryKind.DECIDE, now_ms, (int(command.commit), 0, 0, 0), extra=name)
        case commands.Remember():
            commit = -1 if command.commit is None else int(command.commit)
            extra = _json([command.transaction, command.participants])
            return Entry(EntryKind.REMEMBER, now_ms, (commit, 0, 0, 0), extra=extra)
        case commands.Bury():
            return Entry(EntryKind.BURY, now_ms, (command.group, 0, 0, 0))
        case commands.PutEntries():
            return Entry(EntryKind.PUT_ENTRY, now_ms, extra=_json(command.entries))
        case commands.DropEntries():
            return Entry(EntryKind.DROP_ENTRY, now_ms, extra=_json(command.names))
        case commands.Depart():
            rows, extra = len(command.sequences), command.destination.encode()
            ints = (command.sequences,)
            return Entry(EntryKind.DEPART, now_ms, rows=rows, ints=ints, extra=extra)
        case commands.SetTime():
            return Entry(EntryKind.SET_TIME, now_ms, (command.by_ms, 0, 0, 0))
        case commands.OpenView():
            return _open_view_entry(command)
        case commands.SeedView():
            return Entry(EntryKind.SEED_VIEW, now_ms, (command.number, command.span, 0, 0))
        case commands.DropView():
            return Entry(EntryKind.DROP_VIEW, now_ms, (command.number, 0, 0, 0))
        case commands.Forget():
            if command.sequences is None:
                return Entry(EntryKind.FORGET, now_ms, (command.before, 0, 0, 0))
            rows, ints = command.sequences.size, (command.sequences,)
            return Entry(EntryKind.FORGET, now_ms, (command.before, 0, 0, 0), rows=rows, ints=ints)
        case commands.Seek():
            params = (command.first, command.end, command.from_ms, 0)
            wanted = command.wanted
            extra = b"" if wanted is None else _json(wanted.to_values())
            return Entry(EntryKind.SEEK, now_ms, params, extra=extra)
        case commands.InView():
            return in_view(command.number, to_entry(command.command, leased_count))
        case _:
            raise TypeError(f"no entry is made of {type(command).__name__} here")


def to_command(entry: Entry, position: int) -> Command:
    """The command of an entry, for replay.

    Raises:
        JournalDamaged: the entry is not one that `to_entry` writes.
    """
    try:
        return _to_command(entry, position)
    except (IndexError, ValueError, TypeError, KeyError) as wrong:
        raise JournalDamaged(f"entry {position} ({entry.kind!r}): {wrong}") from wrong


def _to_command(entry: Entry, position: int) -> Command:
    now_ms, params, extra = entry.now_ms, entry.params, bytes(entry.extra)
    match entry.kind:
        case EntryKind.OPEN_EPOCH:
            return commands.OpenEpoch(now_ms, params[0])
        case EntryKind.ENQUEUE:
            return _enqueue_command(entry, position)
        case EntryKind.LEASE:
            until_ms, count, lease_end_ms, leased = params
            wanted = TagFilter(*map(tuple, json.loads(extra))) if extra else None
            return commands.Lease(now_ms, position, until_ms, count, lease_end_ms, leased, wanted)
        case EntryKind.ACK:
            stage = commands.Stage(*json.loads(extra)) if extra else None
            return commands.Ack(now_ms, params[0], *_named_rows(entry), stage)
        case EntryKind.NACK:
            rows, fate = _named_rows(entry), params[2]
            return commands.Nack(
                now_ms,
                params[1],
                params[0],
                *rows,
                extra.decode(),
                bool(fate & _BURY),
                bool(fate & _RELEASE),
            )
        case EntryKind.EXTEND:
            return commands.Extend(now_ms, params[1], params[0], *_named_rows(entry))
        case EntryKind.MOVE:
            return _move_command(entry)
        case EntryKind.CANCEL:
            return commands.Cancel(now_ms, entry.ints[0])
        case EntryKind.RELOCATE:
            return commands.Relocate(now_ms, position, entry.ints[0])
        case EntryKind.CONFIGURE:
            return commands.Configure(now_ms, extra.decode())
        case EntryKind.DECIDE:
            return commands.Decide(now_ms, extra.decode(), bool(params[0]))
        case EntryKind.REMEMBER:
            name, participants = json.loads(extra)
            commit = None if params[0] < 0 else bool(params[0])
            return commands.Remember(now_ms, name, commit, participants)
        case EntryKind.BURY:
            return commands.Bury(now_ms, params[0])
        case EntryKind.PUT_ENTRY:
            return commands.PutEntries(now_ms, tuple(map(tuple, json.loads(extra))))
        case EntryKind.DROP_ENTRY:
            return commands.DropEntries(now_ms, tuple(json.loads(extra)))
        case EntryKind.DEPART:
            return commands.Depart(now_ms, entry.ints[0], extra.decode())
        case EntryKind.SET_TIME:
            return commands.SetTime(now_ms, params[0])
        case EntryKind.OPEN_VIEW:
            return _open_view_command(entry)
        case EntryKind.SEED_VIEW:
            return commands.SeedView(now_ms, *params[:2])
        case EntryKind.DROP_VIEW:
            return commands.DropView(now_ms, params[0])
        case EntryKind.FORGET:
            return commands.Forget(now_ms, params[0], entry.ints[0] if entry.ints else None)
        case EntryKind.SEEK:
            selection = Selection.from_values(json.loads(extra)) if extra else None
            return commands.Seek(now_ms, *params[:3], selection)
        case EntryKind.FORGET_TEXTS:
            return commands.ForgetTexts(now_ms)
        case EntryKind.IN_VIEW:
            return _of_view(entry, position)
        case _:
            raise ValueError("unknown kind")


def _open_view_command(entry: Entry) -> commands.OpenView:
    number, born, held_due_ms, flags = entry.params
    name, rules, *kept = json.loads(bytes(entry.extra))
    return commands.OpenView(
        entry.now_ms,
        number,
        name,
        born,
        rules,
        from_start=bool(flags & ViewFlag.FROM_START),
        by_arrival=bool(flags & ViewFlag.BY_ARRIVAL),
        held_due_ms=held_due_ms,
        kept_from_ms=kept[0] if kept else None,
        in_pieces=bool(flags & ViewFlag.IN_PIECES),
    )


def _named_rows(entry: Entry) -> tuple[Int64s | None, UInt16s | None]:
    if not entry.ints:
        return None, None
    attempts: npt.NDArray[np.uint16] = entry.ints[1].astype(np.uint16)
    return entry.ints[0], attempts


def _pack_sub_batches(sub_batches: tuple[SubBatch, ...]) -> list[Any]:
    """The producers' batches for JSON; none if no answer has to be remembered."""
    if not any(batch.producer for batch in sub_batches):
        return []
    return [_pack_sub_batch(batch) for batch in sub_batches]


def _pack_sub_batch(batch: SubBatch) -> list[Any]:
    values: list[Any] = [batch.producer, batch.number, batch.count]
    if batch.refused_indices or batch.strays:
        values += [batch.refused_indices, batch.refused_ids, batch.refused_statuses]
    if batch.strays:
        values.append(batch.strays)
    return values


def _unpack_sub_batches(batches: list[Any]) -> tuple[SubBatch, ...]:
    return tuple(
        SubBatch(row[0], row[1], row[2], *(tuple(part) for part in row[3:])) for row in batches
    )
