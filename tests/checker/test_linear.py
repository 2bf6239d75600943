"""The search for an order finds planted histories that have none; those that have one pass.

Covers: the search (unknown outcomes, bounds, what it says) and the three registers. Not covered:
what real clients see (tests/simulation/cluster/test_registers.py, tests/chaos).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

import pytest

from dejaqueue.model import RowStatus
from tests.checker.history import (
    Cancel,
    Decide,
    Delivery,
    History,
    Look,
    Operation,
    Outcome,
    Send,
    Settle,
)
from tests.checker.linear import Call, Register, linear
from tests.checker.linear_registers import (
    EXISTS,
    GONE,
    judge_linear,
    key_register,
    topic_register,
    transaction_register,
)

REJECTS, REPLACES = key_register(replaces=False), key_register(replaces=True)
TOPIC = topic_register()
BOTH = transaction_register(frozenset({"p", "q"}))

Noted = TypeVar("Noted", bound=Operation)
Told = tuple[str, Hashable, Hashable, int, int]
"""op, given, told, called, answered; told None = no answer."""


def is_linear(register: Register, *rows: Told) -> bool:
    return linear(register, [Call(*row) for row in rows]) is None


# --- histories ------------------------------------------------------------------------------------

FINE: dict[str, tuple[Register, tuple[Told, ...]]] = {
    "a key is taken until it is cancelled": (
        REJECTS,
        (
            ("send", "x", "OK", 0, 1),
            ("send", "y", "x", 2, 3),
            ("end any", "", "OK", 4, 5),
            ("send", "y", "OK", 6, 7),
            ("look", "", "y", 8, 9),
        ),
    ),
    "who meets may have come in any order": (
        REJECTS,
        (("send", "x", "OK", 0, 9), ("send", "y", "x", 1, 2), ("look", "", "x", 3, 4)),
    ),
    "what had no answer takes effect late": (
        REJECTS,
        (("send", "x", None, 0, 0), ("look", "", "NONE", 5, 6), ("look", "", "x", 7, 8)),
    ),
    "what had no answer never takes effect": (
        REJECTS,
        (("send", "x", None, 0, 0), ("send", "y", "OK", 5, 6), ("look", "", "y", 7, 8)),
    ),
    "the later one replaces": (
        REPLACES,
        (("send", "x", "OK", 0, 1), ("send", "y", "OK", 2, 3), ("look", "", "y", 4, 5)),
    ),
    "a topic is made, changed, deleted and made again": (
        TOPIC,
        (
            ("describe", None, GONE, 0, 1),
            ("create", 1, "OK", 2, 3),
            ("create", 1, EXISTS, 4, 5),
            ("create or equal", 1, "OK", 4, 5),
            ("alter", 2, "OK", 6, 7),
            ("describe", None, 2, 8, 9),
            ("delete", None, "OK", 10, 12),
            ("delete", None, "OK", 11, 13),
            ("alter", 3, GONE, 14, 15),
            ("create", 3, "OK", 16, 17),
        ),
    ),
    "a commit shows itself place by place until it is answered": (
        BOTH,
        (
            ("shows", "p", None, 0, 0),
            ("shows", "q", None, 0, 0),
            ("commit", "", "OK", 1, 9),
            ("see", "p", "OK", 2, 3),
            ("miss", "q", "OK", 4, 5),
            ("told", "", "OK", 9, 9),
            ("see", "q", "OK", 10, 11),
            ("abort", "", "REFUSED", 12, 13),
        ),
    ),
}

BROKEN: dict[str, tuple[Register, tuple[Told, ...]]] = {
    "a key is given twice": (REJECTS, (("send", "x", "OK", 0, 1), ("send", "y", "OK", 2, 3))),
    "a key is taken by a message that is gone": (
        REJECTS,
        (("send", "x", "OK", 0, 1), ("end any", "", "OK", 2, 3), ("send", "y", "x", 4, 5)),
    ),
    "a look sees what was cancelled": (
        REJECTS,
        (("send", "x", "OK", 0, 1), ("end any", "", "OK", 2, 3), ("look", "", "x", 4, 5)),
    ),
    "a look sees what was replaced": (
        REPLACES,
        (("send", "x", "OK", 0, 1), ("send", "y", "OK", 2, 3), ("look", "", "x", 4, 5)),
    ),
    "what was seen is gone again": (
        REJECTS,
        (("send", "x", None, 0, 0), ("look", "", "x", 1, 2), ("look", "", "NONE", 3, 4)),
    ),
    "two cancels of one message": (
        REJECTS,
        (("send", "x", "OK", 0, 1), ("end any", "", "OK", 2, 9), ("end any", "", "OK", 3, 8)),
    ),
    "a topic is described as it was": (
        TOPIC,
        (("create", 1, "OK", 0, 1), ("alter", 2, "OK", 2, 3), ("describe", None, 1, 4, 5)),
    ),
    "a deleted topic is described": (
        TOPIC,
        (("create", 1, "OK", 0, 1), ("delete", None, "OK", 2, 3), ("describe", None, 1, 4, 5)),
    ),
    "a living topic is called unknown": (
        TOPIC,
        (("create", 1, "OK", 0, 1), ("describe", None, GONE, 2, 3)),
    ),
    "a change is lost": (
        TOPIC,
        (
            ("create", 1, "OK", 0, 1),
            ("alter", 2, "OK", 2, 6),
            ("alter", 3, "OK", 3, 5),
            ("describe", None, 1, 7, 8),
        ),
    ),
    "a topic is deleted twice, one after the other": (
        TOPIC,
        (("create", 1, "OK", 0, 1), ("delete", None, "OK", 2, 3), ("delete", None, "OK", 4, 5)),
    ),
    "a transaction is committed and aborted": (
        BOTH,
        (("commit", "", "OK", 0, 3), ("abort", "", "OK", 1, 2)),
    ),
    "a place shows what was aborted": (
        BOTH,
        (("shows", "p", None, 0, 0), ("abort", "", "OK", 1, 2), ("see", "p", "OK", 3, 4)),
    ),
    "a place does not show what was committed": (
        BOTH,
        (
            ("shows", "p", None, 0, 0),
            ("shows", "q", None, 0, 0),
            ("commit", "", "OK", 1, 2),
            ("told", "", "OK", 2, 2),
            ("miss", "q", "OK", 3, 4),
        ),
    ),
    "a place shows it, and then no more": (
        BOTH,
        (
            ("shows", "p", None, 0, 0),
            ("commit", "", None, 1, 0),
            ("see", "p", "OK", 2, 3),
            ("miss", "p", "OK", 4, 5),
        ),
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_an_order_is_found(name: str) -> None:
    register, rows = FINE[name]
    assert linear(register, [Call(*row) for row in rows]) is None


@pytest.mark.parametrize("name", BROKEN)
def test_that_there_is_no_order_is_found(name: str) -> None:
    register, rows = BROKEN[name]
    assert not is_linear(register, *rows)


def test_the_first_answer_that_fits_nothing_is_named() -> None:
    register, rows = BROKEN["a look sees what was cancelled"]
    broken = linear(register, [Call(*row) for row in rows])
    assert broken is not None
    assert broken.call == Call(*rows[-1])
    assert str(broken).startswith("no order explains [4 look : x at 5]; before it was ; after\n")


def test_a_search_that_is_too_large_is_not_taken_for_right() -> None:
    calls = [Call("send", f"m{number}", "OK", 0, 10) for number in range(12)]
    broken = linear(REPLACES, calls, places_max=100)
    assert broken is not None
    assert broken.call is None


def test_many_calls_without_answers_take_no_time() -> None:
    rows: list[Call] = []
    for number in range(0, 400, 4):
        rows.append(Call("send", f"u{number}", None, number))
        rows.append(Call("end any", "", None, number))
        rows.append(Call("look", "", f"u{number}" if number % 3 else "NONE", number, number + 1))
    began = time.process_time()
    assert linear(REJECTS, rows) is None
    assert time.process_time() - began < 20


# --- against all orders ---------------------------------------------------------------------------


def _by_trying(register: Register, calls: list[Call]) -> bool:
    """Whether there is an order, by trying all of them."""
    return any(
        _fits(register, order)
        for count in range(len(calls) + 1)
        for chosen in itertools.combinations(calls, count)
        if all(call in chosen for call in calls if call.told is not None)
        for order in itertools.permutations(chosen)
    )


def _fits(register: Register, order: tuple[Call, ...]) -> bool:
    for place, call in enumerate(order):
        if any(later.told and later.answered_us < call.called_us for later in order[place + 1 :]):
            return False
    states = {register.first}
    for call in order:
        states = {after for state in states for after in register.after(state, call)}
    return bool(states)


def _drawn(dice: random.Random) -> Iterator[Call]:
    for number in range(dice.randint(2, 5)):
        called = dice.randint(0, 8)
        op = dice.choice(["send", "send", "end any", "look"])
        answers: dict[str, list[str | None]] = {
            "send": ["OK", None, "m0", "m1"],
            "end any": ["OK", "NOT_FOUND", None],
            "look": ["m0", "m1", "NONE"],
        }
        given = f"m{number}" if op == "send" else ""
        yield Call(op, given, dice.choice(answers[op]), called, called + dice.randint(0, 5))


@pytest.mark.parametrize("register", [REJECTS, REPLACES], ids=["rejects", "replaces"])
def test_the_search_agrees_with_trying_all_orders(register: Register) -> None:
    dice, seen = random.Random(7), {True: 0, False: 0}
    for _ in range(1_500):
        calls = list(_drawn(dice))
        there_is = _by_trying(register, calls)
        seen[there_is] += 1
        assert (linear(register, calls) is None) is there_is, calls
    assert min(seen.values()) > 100


# --- from what clients noted ----------------------------------------------------------------------


def answered(one: Noted, at_us: int, outcome: Outcome = Outcome.OK) -> Noted:
    one.answer(at_us, outcome)
    return one


def history() -> History:
    """A key that two messages had, one after the other, and a transaction over two partitions."""
    found = History()
    found.sends = [
        answered(Send(0, token="x", key="k", id=1), 1),
        answered(Send(2, token="y", key="k", told_id=1), 3, Outcome.REFUSED),
        answered(Send(6, token="z", key="k", id=2), 7),
        answered(Send(0, token="s", transaction="tx", id=3), 1),
        answered(Send(0, token="t", transaction="tx", id=4 + (1 << 47)), 1),
    ]
    found.deliveries = [Delivery(1, "x", 1, 0, 3, 3, 3, 99, "c")]
    found.settles = [answered(Settle(4, op="ack", id=1, attempt=1), 5)]
    found.cancels = [
        answered(Cancel(8, id=1, status=int(RowStatus.NOT_FOUND)), 9, Outcome.REFUSED),
        answered(Cancel(10, key="k"), 11),
    ]
    found.looks = [answered(Look(12, key="k"), 13)]
    found.decisions = [
        answered(Decide(2, transaction="tx", commit=True), 5),
        answered(Decide(6, transaction="tx", commit=False), 7, Outcome.REFUSED),
    ]
    return found


def test_a_history_without_a_fault_passes() -> None:
    assert judge_linear(history()) == []


def key_of_a_message_that_is_gone(found: History) -> None:
    found.sends.append(answered(Send(12, token="w", key="k", told_id=2), 13, Outcome.REFUSED))


def key_that_is_free_though_it_is_taken(found: History) -> None:
    found.looks.append(answered(Look(2, key="k"), 3))


def cancel_that_says_nothing_is_there(found: History) -> None:
    found.cancels[0].called_us, found.cancels[0].answered_us = 2, 3


def message_that_comes_when_its_key_is_another_ones(found: History) -> None:
    found.deliveries.append(Delivery(1, "x", 2, 0, 20, 20, 20, 99, "c"))
    found.deliveries[0].pushed_us = 8


def decision_that_is_told_twice_differently(found: History) -> None:
    found.decisions[1].outcome = Outcome.OK


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (key_of_a_message_that_is_gone, 11),
        (key_that_is_free_though_it_is_taken, 11),
        (cancel_that_says_nothing_is_there, 11),
        (message_that_comes_when_its_key_is_another_ones, 11),
        (decision_that_is_told_twice_differently, 12),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[History], None], rule: int) -> None:
    found = history()
    plant(found)
    assert {fault.rule for fault in judge_linear(found)} == {rule}


def test_what_was_seen_of_a_transaction_counts() -> None:
    miss = {"tx": [Call("miss", "1", "OK", 6, 7)]}
    assert [fault.rule for fault in judge_linear(history(), miss)] == [12]
    see = {"tx": [Call("see", "1", "OK", 6, 7)]}
    assert judge_linear(history(), see) == []
