"""Snapshots: the state of an engine as a text and files, most of which stay from one to the next.

Room: engine; pure: it names files and fills them, the journal stores them.
Holds: what is restored has the hash of what was planned; a file name is never used for other
    content; files handed out do not change when the engine goes on.
See: journal/interface.py (SnapshotFile, duty 10), rule 13.

Slabs of the table that were not written since the snapshot before, and sealed runs, are named
again without their content. Everything else is small and is written each time.

    slab-…     dues int64 × rows · locators int64 × rows · attempts uint16 × rows · states uint8 × rows
               those wide columns of expires int64 · groups int32 · tag sets int32 · urgencies uint16 ·
               key hashes int64 · payload sizes uint32 · senders int32 ·
               returned uint8 that the slab uses · uint8: which (table.WIDE_BITS)
    run-…      keys int64 × rows · sequences int64 × rows     (order-… alike)
    leases-…   ids int64 × n · sizes int64 × n · sequences int64 × m · attempts uint16 × m
    small-…    JSON: rules, names of groups, tag sets and senders, the dead, transactions (state_hash.py)
    producers-…  JSON: {name: [last_ms, [[number, first, count, [places], [ids], [statuses], [strays]?], …]]}

All numbers are little-endian.
"""  # noqa: E501

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np

from dejaqueue import limits
from dejaqueue.engine.arrays import Int64s, distinct
from dejaqueue.engine.dictionary import Dictionary
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.fair import FairReady
from dejaqueue.engine.layout import STANDARD, Layout
from dejaqueue.engine.producers import Answer, Producer
from dejaqueue.engine.records import Counts, DeadGroup, Staged
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.runs import Run
from dejaqueue.engine.schedule import Schedule
from dejaqueue.engine.shares import Starts
from dejaqueue.engine.state import PartitionState
from dejaqueue.engine.state_hash import small_values
from dejaqueue.engine.table import (
    SCHEDULED,
    STAGED_ACK,
    WIDE_COLUMNS,
    MessageTable,
    columns_of,
)
from dejaqueue.errors import JournalDamaged
from dejaqueue.schema.keys import NO_KEY

FORMAT = 1
PlannedFile: TypeAlias = tuple[str, bytes | memoryview | None]
"""Name and content; None = stored by an earlier snapshot."""
Read: TypeAlias = Callable[[str], memoryview]
"""A file's content by its name; it may be a view of mapped memory, and is kept."""

assert sys.byteorder == "little", "snapshot files are memory as it is"


class SnapshotPlan:
    """A snapshot on its way: its text, and its files once the slabs are copied.

    Attributes:
        meta: what `restore` wants, JSON.
    """

    def __init__(self, meta: str, files: list[PlannedFile], slabs: dict[str, int], engine: Engine):
        self.meta = meta
        self._files = files
        self._slabs = slabs
        self._table = engine.state.table

    def copy_some(self, slab_count: int | None = None) -> bool:
        """Copy up to `slab_count` slabs, None = all; True if all are copied. Between two commands.

        The engine copies a slab itself before it changes it, so what is stored is the state of the
        time of the plan, however long this takes.
        """
        return self._table.copy_held(slab_count)

    def files(self) -> list[PlannedFile]:
        """The files; once all slabs are copied, and once only."""
        copies, self._table.copies = self._table.copies, {}
        return [
            (name, copies[self._slabs[name]] if name in self._slabs else content)
            for name, content in self._files
        ]


def plan_snapshot(engine: Engine) -> tuple[str, list[PlannedFile]]:
    """As `begin_snapshot`, with all slabs copied at once."""
    plan = begin_snapshot(engine)
    plan.copy_some()
    return plan.meta, plan.files()


def begin_snapshot(engine: Engine, tag: str = "") -> SnapshotPlan:
    """What to store so that `restore` gives an engine of this state.

    Args:
        tag: in the names of its files, where several engines have theirs in one snapshot.

    The contents may be stored by another thread while the engine goes on. One plan at a time: if
    one is not finished, or not stored, call `abandon_snapshot` before the next.

    Cost: O(leased messages, and messages in runs that are not sealed); the slabs that were written
        since the last plan are copied later, by `SnapshotPlan.copy_some` or when they change.
    """
    state = engine.state
    state.snapshot_number += 1
    plan = _Plan(f"{state.epoch}.{state.snapshot_number}{tag}")
    state.order.sort_young(None)  # first of all: it may seal a run
    meta = {
        "format": FORMAT,
        "partition": engine.partition,
        "slab_bits": state.table.slab_bits,
        "now_ms": state.now_ms,
        "epoch": state.epoch,
        "ready_until_ms": state.ready_until_ms,
        "ready_until_sequence": state.ready_until_sequence,
        "next_sequence": state.table.next_sequence,
        "snapshot_number": state.snapshot_number,
        "counts": asdict(state.counts),
        "slabs": _plan_slabs(state, plan),
        "runs": [plan.sealed_run("run", run) for run in state.order.sealed],
        "order": plan.pairs("order", *_unsealed_entries(state)),
        "leases": _plan_leases(state, plan),
        "small": plan.file("small", json.dumps(small_values(state)).encode()),
        "producers": plan.file("producers", _producers_text(state)),
    }
    return SnapshotPlan(
        json.dumps(meta, separators=(",", ":")), plan.files, plan.held_slabs, engine
    )


def abandon_snapshot(engine: Engine) -> None:
    """The last planned snapshot was not stored: the next plan writes everything anew."""
    state = engine.state
    state.table.drop_copies()
    state.slab_files.clear()
    for run in state.order.sealed:
        run.file_name = ""


class _Plan:
    """The files of one snapshot, as they are found."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.files: list[PlannedFile] = []
        self.held_slabs: dict[str, int] = {}
        self._count = 0

    def file(self, kind: str, content: bytes | memoryview) -> str:
        """Add a new file; return its name, which no other snapshot uses (the epoch is in it)."""
        name = f"{kind}-{self.tag}"
        self.files.append((name, content))
        return name

    def pairs(self, kind: str, keys: Int64s, sequences: Int64s) -> list[object]:
        """Add entries; return the file's name and how many they are."""
        return [self.file(kind, b"".join((keys.data, sequences.data))), keys.size]

    def sealed_run(self, kind: str, run: Run) -> list[object]:
        """Name a sealed run; return name, rows of the file, and rows that are taken of them."""
        if run.file_name:
            self.files.append((run.file_name, None))
        else:
            self._count += 1
            content = (
                memoryview(run.pages)
                if run.pages is not None
                else b"".join((run.keys.data, run.sequences.data))
            )
            run.file_name = self.file(f"{kind}-{self._count}", content)
            run.file_rows = run.keys.size
        return [run.file_name, run.file_rows, run.file_rows - len(run)]


def _plan_slabs(state: PartitionState, plan: _Plan) -> list[list[object]]:
    """Add the slabs with live rows; return [slab number from sequence 0, file name] of each."""
    table = state.table
    first_slab = table.base >> table.slab_bits
    names: dict[int, str] = {}
    for first, _ in table.live_slabs():
        slab = first >> table.slab_bits
        name = state.slab_files.get(first_slab + slab, "")
        if name and not table.slab_dirty_mask[slab]:
            plan.files.append((name, None))
        else:
            name = plan.file(f"slab-{first_slab + slab}", b"")
            plan.held_slabs[name] = first_slab + slab
            table.hold(first_slab + slab)
        names[first_slab + slab] = name
    state.slab_files = names
    return [[slab, name] for slab, name in names.items()]


def _unsealed_entries(state: PartitionState) -> tuple[Int64s, Int64s]:
    keys, sequences = _concat_runs(state.order.small)
    mask = state.is_due(keys, sequences)
    keys, sequences = keys[mask], sequences[mask]
    if state.ready is None:
        return keys, sequences
    # What is ready goes back where it came from: it is ready again at the next lease.
    places = state.ready_places()
    return (
        np.concatenate([keys, state.table.dues_ms[places]]),
        np.concatenate([sequences, places + state.table.base]),
    )


def _concat_runs(runs: list[Run]) -> tuple[Int64s, Int64s]:
    nothing = [np.zeros(0, dtype=np.int64)]
    keys = np.concatenate([run.keys[run.start :] for run in runs] or nothing)
    sequences = np.concatenate([run.sequences[run.start :] for run in runs] or nothing)
    return keys, sequences


def _plan_leases(state: PartitionState, plan: _Plan) -> list[object]:
    """Add the leases of which rows are held; return file name, leases, rows."""
    held = state.leases.held(state.table)
    ids = np.array([lease.lease_id for lease in held], dtype=np.int64)
    sizes = np.array([lease.sequences.size for lease in held], dtype=np.int64)
    parts = [ids.tobytes(), sizes.tobytes()]
    parts += [lease.sequences.tobytes() for lease in held]
    parts += [lease.attempts.tobytes() for lease in held]
    return [plan.file("leases", b"".join(parts)), len(held), int(sizes.sum())]


def _producers_text(state: PartitionState) -> bytes:
    producers = {
        name: [
            producer.last_ms,
            [
                [
                    number,
                    answer.first_sequence,
                    answer.count,
                    answer.refused_indices,
                    answer.refused_ids,
                    answer.refused_statuses,
                    *((answer.strays,) if answer.strays else ()),
                ]
                for number, answer in producer.answers.items()
            ],
        ]
        for name, producer in state.producers.by_name.items()
    }
    return json.dumps(producers, separators=(",", ":")).encode()


def restore(meta: str, read: Read, layout: Layout = STANDARD) -> Engine:
    """The engine that a snapshot was planned from.

    Args:
        meta: the text of `plan_snapshot`.
        read: gives the files' contents. Sealed runs are used where they are, not copied.

    Raises:
        JournalDamaged: the text or a file is not what a plan gives; names it.
    """
    try:
        values = json.loads(meta)
        _check(values["format"] == FORMAT, f"snapshot format {values['format']}, not {FORMAT}")
        _check(values["slab_bits"] == layout.slab_bits, "slabs of another size")
        engine = Engine(int(values["partition"]), layout)
        state = engine.state
        state.now_ms, state.epoch = int(values["now_ms"]), int(values["epoch"])
        state.snapshot_number = int(values["snapshot_number"])
        counts = values["counts"]
        _check(all(type(count) is int for count in counts.values()), "counts are no numbers")
        state.counts = Counts(**counts)
        small = json.loads(bytes(read(str(values["small"]))))
        _restore_table(state, values, small[1], read)
        starts = _restore_small(state, small)
        _restore_runs(state, values, read)
        _restore_keys(state)
        _restore_sizes(state)
        if state.ready is not None:
            until_sequence = values.get("ready_until_sequence", limits.SEQUENCE_MAX)
            state.fill_ready(int(values["ready_until_ms"]), int(until_sequence))
        if isinstance(state.ready, FairReady):
            state.ready.restore(starts)
        _restore_leases(state, values["leases"], read)
        _restore_producers(state, values["producers"], read)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise JournalDamaged(f"snapshot: not what was planned ({error!r})") from error
    return engine


def locators_of(meta: str, read: Read) -> Int64s:
    """Where the rows of all messages that were live at a snapshot are, without restoring it.

    Args:
        meta, read: as for `restore`; slabs alone are read.

    Returns:
        Ascending; an int64 array.

    Raises:
        JournalDamaged: the text or a slab is not what a plan gives.
    """
    found = [np.zeros(0, dtype=np.int64)]
    try:
        values = json.loads(meta)
        # Those of named views lie in it (view_snapshots.py): a row may be live in several.
        metas = [values, *(view[-1] for view in values.get("views", ()))]
        for _, name in [slab for one in metas for slab in one["slabs"]]:
            content = memoryview(read(str(name))).cast("B")
            columns = columns_of(content[-1])
            row_bytes = sum(np.dtype(dtype).itemsize for _, dtype in columns)
            rows, rest = divmod(len(content) - 1, row_bytes)
            _check(rest == 0, f"{name} has {len(content)} bytes")
            at, of_name = 0, {}
            for column, dtype in columns:
                of_name[column] = np.frombuffer(content, dtype, rows, at)
                at += of_name[column].nbytes
            live_mask = of_name["states"] != 0
            locators = of_name["locators"]
            # Memory that is new to the process costs more than anything else here.
            found.append(locators if live_mask.all() else locators[live_mask])
    except (LookupError, TypeError, ValueError) as error:
        raise JournalDamaged(f"snapshot: not what was planned ({error!r})") from error
    return distinct(np.concatenate(found))


def next_sequence_of(meta: str) -> int:
    """The sequence that the next message got after a snapshot. Raises JournalDamaged."""
    try:
        return int(json.loads(meta)["next_sequence"])
    except (LookupError, TypeError, ValueError) as error:
        raise JournalDamaged(f"snapshot: not what was planned ({error!r})") from error


def epoch_of(meta: str) -> tuple[int, int]:
    """When a snapshot was taken, in ms, and the epoch of then. Raises JournalDamaged."""
    try:
        values = json.loads(meta)
        return int(values["now_ms"]), int(values["epoch"])
    except (LookupError, TypeError, ValueError) as error:
        raise JournalDamaged(f"snapshot: not what was planned ({error!r})") from error


def decided_of(meta: str, read: Read) -> dict[str, tuple[bool, str]]:
    """What was decided of transactions at a snapshot, without restoring it.

    Args:
        meta, read: as for `restore`; one small file is read.

    Raises:
        JournalDamaged: the text or the file is not what a plan gives.
    """
    try:
        small = json.loads(bytes(read(str(json.loads(meta)["small"]))))
        return {str(name): (bool(commit), str(text)) for name, commit, text in small[8]}
    except (LookupError, TypeError, ValueError) as error:
        raise JournalDamaged(f"snapshot: not what was planned ({error!r})") from error


def _check(is_right: bool, text: str) -> None:
    if not is_right:
        raise JournalDamaged(f"snapshot: {text}")


def _read_bytes(read: Read, name: str, byte_count: int) -> memoryview:
    content = memoryview(read(name)).cast("B")
    _check(len(content) == byte_count, f"{name} has {len(content)} bytes, not {byte_count}")
    return content


def _restore_small(state: PartitionState, small: list[Any]) -> Starts:
    """What is JSON; the table is there. Returns what decides the next turns of groups."""
    rules, _, groups_moved, groups, tag_sets, dead_number, dead, staged, decided, *rest = small
    starts, _, schedule, *senders = rest
    keeps = Rules.from_text(rules).keeps
    state.entries = Schedule.from_values(schedule)
    table = state.table
    state.groups_moved = bool(groups_moved)
    state.groups, state.tag_sets = Dictionary.from_values(groups), Dictionary.from_values(tag_sets)
    if senders:
        state.senders = Dictionary.from_values(senders[0])
    named = ("groups", state.groups), ("tag_sets", state.tag_sets), ("senders", state.senders)
    for places in table.live_places():
        for name, words in named:
            if name in table.uses:
                codes = getattr(table, name)[places]
                _check(int(codes.max()) < len(words), f"a code of {name} without a name")
                if name != "senders":  # they are not counted
                    words.come(codes)
        if "expires_ms" in table.uses and not keeps:
            mask = (table.expires_ms[places] > 0) & (table.states[places] == SCHEDULED)
            state.expiries.insert(table.expires_ms[places[mask]], places[mask] + table.base)
    state.configure(Rules.from_text(rules))
    state.dead_number = int(dead_number)
    for number, reason, now_ms, destination, sequences in dead:
        group = DeadGroup(_int64s(sequences), str(reason), int(now_ms), str(destination))
        state.dead[int(number)] = group
    for name, until_ms, *parts in staged:
        columns = [[_int64s(part) for part in some] for some in parts]
        state.staged[str(name)] = Staged(int(until_ms), *columns)
    for name, commit, text in decided:
        state.decided[str(name)] = bool(commit), str(text)
    return [[str(name), int(time)] for name, time in starts]


def _int64s(values: list[int]) -> Int64s:
    return np.array(values, dtype=np.int64)


def _restore_table(
    state: PartitionState, values: dict[str, Any], uses: list[str], read: Read
) -> None:
    """Copy the slabs in; the table begins with the first that is live."""
    bits = state.layout.slab_bits
    slabs = [(int(slab), str(name)) for slab, name in values["slabs"]]
    next_sequence = int(values["next_sequence"])
    _check(slabs == sorted(slabs), "slabs are out of order")
    first_slab = slabs[0][0] if slabs else next_sequence >> bits
    table = state.table = MessageTable(state.layout, first_slab << bits)
    row_count = next_sequence - table.base
    _check(row_count >= 0, f"slab {first_slab} begins after sequence {next_sequence}")
    table.reserve(row_count)
    table.row_count = row_count
    for slab, name in slabs:
        first = (slab - first_slab) << bits
        rows = min(1 << bits, row_count - first)
        _check(rows > 0, f"{name} begins after sequence {next_sequence}")
        content = memoryview(read(name)).cast("B")
        _check(len(content) > 0, f"{name} is empty")
        columns = columns_of(content[-1])
        row_bytes = sum(np.dtype(dtype).itemsize for _, dtype in columns)
        _check(len(content) == rows * row_bytes + 1, f"{name} has {len(content)} bytes")
        at = 0
        for column, dtype in columns:
            values_of_rows = np.frombuffer(content, dtype, rows, at)
            getattr(table, column)[first : first + rows] = values_of_rows
            at += values_of_rows.nbytes
        table.slab_uses[slab - first_slab] = content[-1]
        states = table.states[first : first + rows]
        _check(int(states.max()) <= int(STAGED_ACK), f"{name} has a state that does not exist")
        table.slab_lives[slab - first_slab] = np.count_nonzero(states)
    state.slab_files = dict(slabs)
    names = [name for name, _ in WIDE_COLUMNS]
    _check(all(name in names for name in uses), f"columns {uses}, known are {names}")
    table.uses = set(uses)
    scheduled = sum(
        int(np.count_nonzero(table.states[first:end] == SCHEDULED))
        for first, end in table.live_slabs()
    )
    live = int(table.slab_lives.sum())
    counts = state.counts
    _check((scheduled, live) == (counts.scheduled, counts.live), "messages do not add up")


def _restore_runs(state: PartitionState, values: dict[str, Any], read: Read) -> None:
    order = state.order
    order.sealed = [_restore_run(spec, read) for spec in values["runs"]]
    order.set_guard()
    order.entry_count = sum(len(run) for run in order.sealed)
    order.insert(*_restore_pairs(values["order"], read))


def _restore_keys(state: PartitionState) -> None:
    """Find the keys again: the table has their hashes."""
    table = state.table
    if "key_hashes" not in table.uses or state.rules.keeps:
        return
    keyed = [places[table.key_hashes[places] != NO_KEY] for places in table.live_places()]
    state.keys.reserve(sum(places.size for places in keyed))
    for places in keyed:
        state.keys.insert(table.key_hashes[places], places + table.base, table)


def _restore_sizes(state: PartitionState) -> None:
    """Add up the payloads again."""
    if "payload_sizes" in state.table.uses:
        for places in state.table.live_places():
            state.count_sizes(places, 1)


def _restore_run(spec: list[Any], read: Read) -> Run:
    name, rows, taken = str(spec[0]), int(spec[1]), int(spec[2])
    _check(0 <= taken < rows, f"{name} has {rows} rows and {taken} are taken")
    content = _read_bytes(read, name, 16 * rows)
    run = Run(
        np.frombuffer(content, np.int64, rows), np.frombuffer(content, np.int64, -1, 8 * rows)
    )
    run.take(taken)
    run.file_name, run.file_rows = name, rows
    return run


def _restore_pairs(spec: list[Any], read: Read) -> tuple[Int64s, Int64s]:
    name, rows = str(spec[0]), int(spec[1])
    content = _read_bytes(read, name, 16 * rows)
    both = np.frombuffer(content, np.int64).copy()
    return both[:rows], both[rows:]


def _restore_leases(state: PartitionState, spec: list[Any], read: Read) -> None:
    name, lease_count, row_count = str(spec[0]), int(spec[1]), int(spec[2])
    content = _read_bytes(read, name, 16 * lease_count + 10 * row_count)
    ids = np.frombuffer(content, np.int64, lease_count)
    sizes = np.frombuffer(content, np.int64, lease_count, 8 * lease_count)
    _check(sum(sizes.tolist()) == row_count, f"{name}: sizes do not add up to {row_count}")
    start = 16 * lease_count
    sequences = np.frombuffer(content, np.int64, row_count, start).copy()
    attempts = np.frombuffer(content, np.uint16, row_count, start + 8 * row_count).copy()
    first = 0
    for lease_id, size in zip(ids.tolist(), sizes.tolist(), strict=True):
        end = first + size
        state.leases.restore(lease_id, sequences[first:end], attempts[first:end], state.table)
        first = end


def _restore_producers(state: PartitionState, name: str, read: Read) -> None:
    for producer_name, (last_ms, answers) in json.loads(bytes(read(name))).items():
        producer = Producer()
        producer.last_ms = int(last_ms)
        for number, first_sequence, count, *rows in answers:
            producer.answers[int(number)] = Answer(
                int(first_sequence), int(count), *(tuple(part) for part in rows)
            )
        state.producers.by_name[producer_name] = producer
