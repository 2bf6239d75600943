"""Which stored rows an erasure is about, entry by entry.

Here: keys, keys of dead letters, groups, tags, due times and priorities, copies, references. Not
here: what is live (tests/crash/test_erasure_kill.py).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.broker.shard import entries
from dejaqueue.broker.shard.stored_erasure import ErasureChoice, ErasureRows
from dejaqueue.engine import commands
from dejaqueue.engine.arrays import Words
from dejaqueue.engine.message_filter import Selection
from dejaqueue.journal.interface import Entry, TextColumn
from dejaqueue.model import TagFilter, pack_id
from dejaqueue.schema.dead_letters import KEY, ORIGIN, ORIGIN_ID
from dejaqueue.schema.packing import RECORD, UNIT
from dejaqueue.schema.references import Reference

SUBS = (commands.SubBatch("", 0, 2),)


def texts(**columns: list[str] | list[bytes]) -> dict[str, TextColumn]:
    return {
        name: entries.text_column(pa.array(values, pa.binary() if name == "payload" else pa.utf8()))
        for name, values in columns.items()
    }


def sent(first: int = -1, **columns: list[str] | list[bytes]) -> Entry:
    """Two rows, due at 10 and 20, of priorities 1 and 2; `first` is the sequence of the first."""
    command = commands.Enqueue(
        1, 4, np.array([10, 20]), SUBS, priorities=np.array([1, 2], dtype=np.uint16)
    )
    return entries.enqueue_entry(command, texts(payload=[b"a", b"b"], **columns), first)


def copied(**columns: list[str] | list[bytes]) -> Entry:
    return entries.relocate_entry(commands.Relocate(1, 5, np.array([7, 8])), texts(**columns))


def rows(choice: ErasureChoice, entry: Entry) -> list[int]:
    return np.flatnonzero(choice.fits(entry)).tolist()


def test_a_key_is_found__also_in_a_copy() -> None:
    choice = ErasureChoice(("k",))
    assert rows(choice, sent(key=["k", "kk"])) == [0]
    assert rows(choice, copied(key=["", "k"])) == [1]
    assert rows(choice, sent()) == []


def test_a_dead_letter_is_found_by_the_key_of_its_message__of_one_origin() -> None:
    header = RECORD.join([f"{KEY}{UNIT}k", f"{ORIGIN}{UNIT}orders"])
    letter = sent(key=["orders/1/2", "k"], headers=[header, ""])
    assert rows(ErasureChoice(("k",)), letter) == [0, 1]
    assert rows(ErasureChoice(("k",), origin="orders"), letter) == [0]
    assert rows(ErasureChoice(("k",), origin="others"), letter) == []


def test_letters_of_a_shard_are_of_its_topic() -> None:
    headers = [f"{ORIGIN}{UNIT}orders=1-3", f"{ORIGIN}{UNIT}ordersother"]
    letters = sent(key=["k", "k"], headers=headers)
    assert rows(ErasureChoice(("k",), origin="orders"), letters) == [0]


def test_an_id_is_found__in_its_partition__also_in_a_copy() -> None:
    choice = ErasureChoice(ids=(pack_id(2, 6), pack_id(2, 8), pack_id(1, 5)), partition=2)
    assert rows(choice, sent(first=5)) == [1]
    assert rows(choice, copied(key=["", ""])) == [1]
    assert rows(choice, sent()) == []  # an older broker did not say which they are


def test_a_dead_letter_is_found_by_the_id_of_its_message() -> None:
    header = RECORD.join([f"{ORIGIN}{UNIT}orders", f"{ORIGIN_ID}{UNIT}77"])
    letters = sent(first=77, headers=[header, ""])
    assert rows(ErasureChoice(ids=(77,), origin="orders"), letters) == [0]
    assert rows(ErasureChoice(ids=(78,), origin="orders"), letters) == []


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(group="a"), [0]),
        (Selection(group=""), [1]),
        (Selection(tags=TagFilter(any_of=("t",))), [0]),
        (Selection(tags=TagFilter(none_of=("t",))), [1]),
        (Selection(due_from_ms=15), [1]),
        (Selection(due_to_ms=20), [0]),
        (Selection(priority_from=2), [1]),
        (Selection(group="a", due_from_ms=15), []),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_was_sent_is_selected_by_what_it_was(
    selection: Selection, expected: list[int]
) -> None:
    choice = ErasureChoice(None, selection)
    assert rows(choice, sent(group=["a", ""], tags=[f"s{UNIT}t", "s"])) == expected


def test_of_a_copy_it_is_not_known_when_it_was_due() -> None:
    copy = copied(group=["a", "a"])
    assert rows(ErasureChoice(None, Selection(group="a")), copy) == [0, 1]
    assert rows(ErasureChoice(None, Selection(group="a", due_from_ms=1)), copy) == []


def test_rows_are_found_where_they_are__and_by_name() -> None:
    first = 4 << limits.ROW_BITS
    found = ErasureRows(ErasureChoice(("k",)))
    wanted = np.array([first + 1])
    found.look([(4, sent(key=["k", "x"])), (5, copied(key=["y", "z"]))], wanted, np.array([8]))
    assert found.found.tolist() == [first, first + 1, (5 << limits.ROW_BITS) + 1]


def test_payloads_apart_are_named() -> None:
    reference = Reference("store/1-orders/ab", 9, bytes(32)).encode()
    found = ErasureRows(ErasureChoice(("k",)))
    columns = texts(key=["k", "x"], payload=[reference, reference])
    found.look([(4, entries.relocate_entry(commands.Relocate(1, 4, np.array([7, 8])), columns))])
    assert found.names == {4 << limits.ROW_BITS: "store/1-orders/ab"}


def test_a_move_that_names_the_group_is_found() -> None:
    groups = Words(("a",), np.zeros(1, dtype=np.int32))
    move = entries.to_entry(commands.Move(1, np.array([7]), groups=groups))
    found = ErasureRows(ErasureChoice(None, Selection(group="a")))
    found.look([(6, move)])
    assert found.moves == [6]
