"""Covers: one turn for the logs of several processes: what is within its ends, seen through other
maps of the memory; logs that go from one to another; up to where each is archived.

Not covered: who takes cuts (tests/unit/broker/backup/test_strand_archiver.py).
"""

from __future__ import annotations

import threading
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.segments.shared_turn import SharedTurn, make_turns


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "locks" / "turns"
    make_turns(path, 4)
    return path


def log_of(tail: int) -> Any:
    return SimpleNamespace(tail=tail)


def test_a_turn_ends_where_logs_ended_when_it_began__in_whichever_process(path: Path) -> None:
    one, other, leader = SharedTurn(path), SharedTurn(path), SharedTurn(path)
    assert leader.ends() == {}
    one.opened("0", log_of(0))
    other.opened("3", log_of(7))
    one.published(0, one.number, 0, 2)
    leader.begin()
    assert leader.ends() == {"0": 2, "3": 7}
    one.published(0, one.number, 2, 3)
    other.published(3, other.number, 7, 8)
    other.published(3, other.number, 8, 9)
    assert leader.ends() == {"0": 2, "3": 7}
    assert other.tails() == {"0": 3, "3": 9}
    leader.begin()
    assert leader.ends() == {"0": 3, "3": 9}


def test_an_append_that_had_looked_before_the_turn_is_in_it_or_not(path: Path) -> None:
    one, leader = SharedTurn(path), SharedTurn(path)
    one.opened("1", log_of(5))
    looked = one.number
    leader.begin()
    assert leader.ends() == {"1": 5}
    one.published(1, looked, 5, 6)
    assert leader.ends() == {"1": 6}  # nobody was told of it before
    one.published(1, one.number, 6, 7)
    assert leader.ends() == {"1": 6}


def test_what_a_process_did_not_live_to_say_comes_with_who_opens_the_log(path: Path) -> None:
    dead, heir = SharedTurn(path), SharedTurn(path)
    dead.opened("2", log_of(10))
    heir.begin()
    heir.opened("2", log_of(12))
    assert heir.ends() == {"2": 10}
    assert heir.tails() == {"2": 12}
    heir.begin()
    assert heir.ends() == {"2": 12}
    heir.opened("2", log_of(12))
    assert heir.ends() == {"2": 12}


def test_an_effect_is_in_no_turn_without_its_cause(path: Path) -> None:
    turns = [SharedTurn(path) for _ in range(3)]
    for number in (0, 1):
        turns[number].opened(str(number), log_of(0))
    told: SimpleQueue[int] = SimpleQueue()
    is_over = threading.Event()

    def cause() -> None:
        tail = 0
        while not is_over.is_set():
            tail += 1
            turns[0].published(0, turns[0].number, tail - 1, tail)
            told.put(tail)
        told.put(0)

    def effect() -> None:
        while tail := told.get():
            turns[1].published(1, turns[1].number, tail - 1, tail)

    threads = [threading.Thread(target=one) for one in (cause, effect)]
    for thread in threads:
        thread.start()
    seen: set[int] = set()
    try:
        while len(seen) < 20:
            before = turns[2].tails()
            turns[2].begin()
            ends = turns[2].ends()
            assert before["1"] <= ends["1"] <= ends["0"]
            seen.add(ends["1"])
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    turns[2].begin()
    assert turns[2].ends() == turns[2].tails()
    assert turns[2].ends()["0"] == turns[2].ends()["1"]


def test_up_to_where_a_log_is_archived__is_of_one_chain(path: Path) -> None:
    one, other = SharedTurn(path), SharedTurn(path)
    assert other.archived("1", 77) == 0
    one.is_archived("1", 77, 5)
    one.is_archived("1", 77, 3)  # somebody else was farther
    one.is_archived("own", 77, 9)
    assert (other.archived("1", 77), other.archived("own", 77)) == (5, 9)
    assert other.archived("1", 78) == 0
    other.is_archived("1", 78, 2)
    assert (one.archived("1", 78), one.archived("1", 77)) == (2, 0)
    one.chain = 77
    assert other.chain == 77


def test_logs_are_kept_for_who_follows_alone(path: Path) -> None:
    turn = SharedTurn(path)
    turn.opened("0", log_of(1))
    turn.opened("own", log_of(1))
    assert turn.logs == {}
    turn.number = 1
    turn.opened("1", log_of(1))
    assert list(turn.logs) == ["1"]
    assert turn.number == 1


def test_it_begins_anew__and_one_of_before_has_another(path: Path) -> None:
    before = SharedTurn(path)
    before.opened("0", log_of(3))
    make_turns(path, 4)
    after = SharedTurn(path)
    before.published(0, before.number, 3, 4)
    assert (before.tails(), after.tails()) == ({"0": 4}, {})
    path.write_bytes(bytes(4096))
    with pytest.raises(JournalDamaged, match="is not what it was made as"):
        SharedTurn(path)
