"""Commands to journal entries and back. The bytes are in tests/unit/journal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.broker.shard import entries
from dejaqueue.engine import commands
from dejaqueue.engine.commands import SubBatch
from dejaqueue.engine.dictionary import of_runs, to_runs
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import Entry, EntryKind, TextColumn


def same(one: object, other: object) -> bool:
    """Equal commands: arrays by value."""
    if type(one) is not type(other):
        return False
    for name in one.__dataclass_fields__:  # type: ignore[attr-defined]
        left, right = getattr(one, name), getattr(other, name)
        if isinstance(left, np.ndarray):
            if not np.array_equal(left, right):
                return False
        elif left != right:
            return False
    return True


ROWS = (np.array([3, 5]), np.array([1, 2], dtype=np.uint16))
COMMANDS = [
    commands.OpenEpoch(1, 7),
    commands.Lease(2, 9, 10, 100, 30_010, 4),
    commands.Ack(3, 5),
    commands.Ack(3, -1, *ROWS),
    commands.Nack(4, 500, 6),
    commands.Nack(4, 500, -1, *ROWS),
    commands.Extend(5, 900, 8),
    commands.Extend(5, 900, -1, *ROWS),
    commands.Move(6, np.array([1, -1]), np.array([10, 20])),
    commands.Cancel(7, np.array([4])),
    commands.ForgetTexts(8),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: type(c).__name__)
def test_a_command_comes_back(command: commands.Command) -> None:
    leased = command.count_expected if isinstance(command, commands.Lease) else 0
    entry = entries.to_entry(command, leased)
    assert same(entries.to_command(entry, 9), command)


def test_an_enqueue_comes_back__with_refused_rows_and_key_hashes() -> None:
    text = entries.text_column(pa.array(["k", ""]))
    command = commands.Enqueue(
        1,
        4,
        np.array([10, 20]),
        (SubBatch("p", 3, 1), SubBatch("", 0, 1, (0,), (99,), (4,))),
        entries.hash_column(text),
        7,
    )
    entry = entries.enqueue_entry(command, {"key": text})
    assert same(entries.to_command(entry, 4), command)
    replacing = replace(command, replaced=np.array([7]))
    entry = entries.enqueue_entry(replacing, {"key": text})
    assert same(entries.to_command(entry, 4), replacing)
    kept = replace(command, senders=of_runs([("a", 1), ("", 1)]))
    entry = entries.enqueue_entry(kept, {"key": text})
    back = entries.to_command(entry, 4)
    assert isinstance(back, commands.Enqueue)
    assert back.senders is not None
    assert to_runs(back.senders) == [("a", 1), ("", 1)]
    sized = replace(command, payload_sizes=np.array([3, 4], dtype=np.uint32))
    payload = entries.text_column(pa.array([b"abc", b"defg"]))
    entry = entries.enqueue_entry(sized, {"key": text, "payload": payload})
    assert same(entries.to_command(entry, 4), sized)


def test_an_enqueue_says_which_messages_it_has() -> None:
    command = commands.Enqueue(1, 4, np.array([10, 20]), (SubBatch("", 0, 2),))
    entry = entries.enqueue_entry(command, {}, 0)
    found = entries.sequences_of(entry)
    assert found is not None
    assert found.tolist() == [0, 1]
    assert same(entries.to_command(entry, 4), command)
    assert entries.sequences_of(entries.enqueue_entry(command, {})) is None
    copy = entries.relocate_entry(commands.Relocate(1, 5, np.array([7, 9])), {})
    copied = entries.sequences_of(copy)
    assert copied is not None
    assert copied.tolist() == [7, 9]


def test_a_slice_is_stored_from_offset_zero() -> None:
    text = entries.text_column(pa.array(["aa", "b", "ccc"])[1:])
    assert text.offsets.tolist() == [0, 1, 4]
    assert bytes(text.data) == b"bccc"
    assert entries.arrow_column(text, pa.utf8()).to_pylist() == ["b", "ccc"]


@pytest.mark.parametrize(
    "entry",
    [
        Entry(EntryKind.MOVE, 1, rows=1, ints=(np.array([1]),)),
        Entry(EntryKind.ENQUEUE, 1, rows=1, ints=(np.array([1]),), extra=b"{"),
    ],
    ids=["column missing", "extra is no JSON"],
)
def test_an_entry_that_nobody_wrote_is_damage(entry: Entry) -> None:
    with pytest.raises(JournalDamaged, match="entry 3"):
        entries.to_command(entry, 3)


def test_an_empty_column_has_no_bytes() -> None:
    text = entries.text_column(pa.array([b"", b""]))
    assert isinstance(text, TextColumn)
    assert (text.offsets.tolist(), len(text.data)) == ([0, 0, 0], 0)
