"""The judge finds every fault it knows, and nothing in a history without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.checker.history import (
    Away,
    Cancel,
    Decide,
    Delivery,
    History,
    Move,
    Outcome,
    Send,
    Settle,
)
from tests.checker.judge import judge
from tests.checker.judge_owners import judge_owners

MS = 1_000


def sent(number: int, at_ms: int = 0, due_ms: int = 100, **more: object) -> Send:
    send = Send(at_ms * MS, token=f"m{number}", due_ms=due_ms, id=number)
    for name, value in more.items():
        setattr(send, name, value)
    send.answer((at_ms + 1) * MS, Outcome.OK)
    return send


def got(
    number: int, at_ms: int, attempt: int = 1, lease_ms: int = 1_000, **more: object
) -> Delivery:
    delivery = Delivery(
        number,
        f"m{number}",
        attempt,
        100,
        at_ms * MS,
        at_ms * MS,
        at_ms * MS,
        at_ms + lease_ms,
        "c",
        dispatch=(at_ms, 0),
    )
    for name, value in more.items():
        setattr(delivery, name, value)
    return delivery


def settled(op: str, number: int, at_ms: int, attempt: int = 1, fine: bool = True) -> Settle:
    settle = Settle(at_ms * MS, op=op, id=number, attempt=attempt)
    settle.answer((at_ms + 1) * MS, Outcome.OK if fine else Outcome.REFUSED)
    return settle


def cancelled(number: int, at_ms: int) -> Cancel:
    cancel = Cancel(at_ms * MS, id=number)
    cancel.answer((at_ms + 1) * MS, Outcome.OK)
    return cancel


def whole() -> History:
    """A history of everything that may happen, without a fault."""
    history = History(drained=True)
    history.sends = [sent(1), sent(2), sent(3), sent(4), Send(0, token="m5", due_ms=100)]
    history.moves = [Move(5 * MS, id=2, due_ms=300)]
    history.moves[0].answer(6 * MS, Outcome.OK)
    history.cancels = [cancelled(3, 10)]
    history.deliveries = [
        got(1, 100),
        got(2, 300, due_ms=300),
        got(4, 100, dispatch=(100, 1)),
        got(4, 1_100, attempt=2),
        got(5, 100, dispatch=(100, 2)),  # its answer was lost: it may be there
    ]
    history.settles = [
        settled("ack", 1, 110),
        settled("ack", 2, 310),
        settled("ack", 4, 1_105, attempt=1, fine=False),
        settled("ack", 4, 1_110, attempt=2),
        Settle(120 * MS, op="ack", id=5, attempt=1),
    ]
    return history


def test_a_history_without_a_fault() -> None:
    assert judge(whole()) == []


def lost(history: History) -> None:
    history.sends.append(sent(9))


def delivered_and_forgotten(history: History) -> None:
    history.sends.append(sent(9))
    history.deliveries.append(got(9, 100, dispatch=(7, 0)))


def early(history: History) -> None:
    history.deliveries[0].handed_broker_us -= 1


def an_invented_due(history: History) -> None:
    history.deliveries[0].due_ms = 99


def the_due_before_it_was_moved(history: History) -> None:
    history.deliveries[1].due_ms = 100


def invented(history: History) -> None:
    history.deliveries.append(got(9, 100, dispatch=(7, 0)))


def doubled(history: History) -> None:
    history.deliveries.append(got(9, 100, token="m1", dispatch=(7, 0)))


def leased_twice(history: History) -> None:
    history.deliveries[3].pushed_us = history.deliveries[3].pushed_broker_us = 1_099 * MS


def an_attempt_twice(history: History) -> None:
    history.deliveries[3].attempt = 1


def a_stale_ack(history: History) -> None:
    history.settles[2].outcome = Outcome.OK


def two_acks(history: History) -> None:
    history.settles.append(settled("ack", 1, 120))


def delivered_after_its_ack(history: History) -> None:
    history.deliveries.append(got(1, 1_200, attempt=2))


def delivered_after_its_cancel(history: History) -> None:
    history.deliveries.append(got(3, 100, dispatch=(7, 0)))


def cancelled_while_leased(history: History) -> None:
    history.sends.append(sent(9))
    history.deliveries.append(got(9, 100, dispatch=(7, 0)))
    history.cancels.append(cancelled(9, 150))


def out_of_order(history: History) -> None:
    history.deliveries[0].dispatch = (100, 9)


def a_key_twice(history: History) -> None:
    history.sends += [sent(8, key="k", due_ms=10**9), sent(9, at_ms=5, key="k", due_ms=10**9)]


def too_many_attempts(history: History) -> None:
    history.max_attempts = 1


def part_of_a_transaction(history: History) -> None:
    history.sends += [sent(8, transaction="x"), sent(9, transaction="x")]
    history.decisions.append(Decide(50 * MS, transaction="x"))
    history.decisions[0].answer(51 * MS, Outcome.OK)
    history.deliveries.append(got(8, 100, dispatch=(7, 0)))
    history.settles.append(settled("ack", 8, 110))


def an_aborted_transaction(history: History) -> None:
    history.sends.append(sent(8, transaction="x"))
    history.decisions.append(Decide(50 * MS, transaction="x", commit=False))
    history.deliveries.append(got(8, 100, dispatch=(7, 0)))
    history.settles.append(settled("ack", 8, 110))


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (lost, 1),
        (delivered_and_forgotten, 5),
        (early, 2),
        (an_invented_due, 9),
        (the_due_before_it_was_moved, 9),
        (invented, 1),
        (doubled, 10),
        (leased_twice, 3),
        (an_attempt_twice, 3),
        (a_stale_ack, 4),
        (two_acks, 4),
        (delivered_after_its_ack, 6),
        (delivered_after_its_cancel, 6),
        (cancelled_while_leased, 9),
        (out_of_order, 7),
        (a_key_twice, 11),
        (too_many_attempts, 5),
        (part_of_a_transaction, 12),
        (an_aborted_transaction, 12),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[History], None], rule: int) -> None:
    history = whole()
    plant(history)
    assert rule in {fault.rule for fault in judge(history)}


def test_what_is_unknown_counts_both_ways() -> None:
    history = History(drained=True)
    history.sends = [sent(1), sent(2)]
    history.cancels = [Cancel(10 * MS, id=1)]  # never answered: it may be gone
    history.moves = [Move(10 * MS, id=2, due_ms=50)]  # never answered: both are right
    history.deliveries = [got(2, 100, due_ms=50)]
    history.settles = [settled("ack", 2, 110)]
    assert judge(history) == []
    history.deliveries[0].due_ms = 100
    assert judge(history) == []


def test_a_consumer_that_went_away_gives_its_messages_back() -> None:
    history = History(drained=True)
    history.sends = [sent(1)]
    history.deliveries = [got(1, 100), got(1, 200, attempt=2, consumer="d")]
    history.settles = [settled("ack", 1, 210, attempt=2)]
    assert {fault.rule for fault in judge(history)} == {3}
    history.aways = [Away("c", 150 * MS)]
    assert judge(history) == []


def test_an_extension_sets_the_end_anew() -> None:
    history = History(drained=True)
    history.sends = [sent(1)]
    history.deliveries = [got(1, 100), got(1, 1_100, attempt=2)]
    history.settles = [settled("ack", 1, 1_110, attempt=2), settled("extend", 1, 500)]
    history.settles[1].lease_end_ms = 2_000
    assert {fault.rule for fault in judge(history)} == {3}
    history.deliveries[1].pushed_us = history.deliveries[1].pushed_broker_us = 2_000 * MS
    history.settles[0] = settled("ack", 1, 2_010, attempt=2)
    assert judge(history) == []


def test_what_a_consumer_that_went_away_had_may_be_cancelled() -> None:
    history = History()
    history.sends = [sent(1)]
    history.deliveries = [got(1, 100)]
    history.cancels = [cancelled(1, 200)]
    assert [fault.rule for fault in judge(history)] == [9]
    history.aways = [Away("c", 150 * MS)]
    assert judge(history) == []
    history.aways = [Away("c", 250 * MS)]
    assert [fault.rule for fault in judge(history)] == [9]


def test_where_it_is_not_certain_when_a_message_was_sent__only_what_is_certain_counts() -> None:
    history = History()
    history.sends = [sent(1)]
    history.deliveries = [got(1, 100), got(1, 150, attempt=2, latest_us=300 * MS)]
    history.settles = [settled("nack", 1, 250, fine=False)]
    history.settles[0].outcome = Outcome.UNKNOWN
    assert judge(history) == []  # it may have been sent after the nack
    history.deliveries[1].latest_us = 200 * MS
    assert [fault.rule for fault in judge(history)] == [3]


@pytest.mark.parametrize("what", ["moves", "cancels"])
def test_what_another_one_sent_was_reached(what: str) -> None:
    history = History()
    history.sends += [sent(1, sender="a"), sent(2)]
    operations = getattr(history, what)
    kind = Move if what == "moves" else Cancel
    for number, owner, outcome in (
        (1, "a", Outcome.OK),
        (1, None, Outcome.OK),
        (1, "b", Outcome.REFUSED),
        (2, None, Outcome.OK),
    ):
        operations.append(kind(5 * MS, id=number, owner=owner))
        operations[-1].answer(6 * MS, outcome)
    assert judge_owners(history) == []
    for number in (1, 2):
        operations.append(kind(5 * MS, id=number, owner="b"))
        operations[-1].answer(6 * MS, Outcome.OK)
    assert [(fault.rule, "by b" in fault.text) for fault in judge_owners(history)] == [
        (9, True)
    ] * 2


# --- turns and time -------------------------------------------------------------------------------


def shared(counts: dict[str, int]) -> History:
    """20 messages of each group of a fair topic: so many came at 200 ms, the others at 2,000 ms.

    The message that comes last of all is of another partition: it says nothing of the others.
    """
    history = History(kind="fair", weights={"a": 8, "b": 2})
    numbers = iter(range(1, 1_000))
    places = {200: 0, 2_000: 0}
    for group, first_count in counts.items():
        for place in range(20):
            number, at_ms = next(numbers), 200 if place < first_count else 2_000
            dispatch = (at_ms, places[at_ms])
            places[at_ms] += 1
            history.sends.append(sent(number, group=group))
            history.deliveries.append(
                got(number, at_ms, group=group, decided_ms=at_ms, dispatch=dispatch)
            )
    history.sends.append(sent(999, group="c"))
    history.deliveries.append(got(999, 5_000, group="c", decided_ms=5_000, partition=1))
    return history


@pytest.mark.parametrize("counts", [{"a": 8, "b": 2}, {"a": 7, "b": 3}, {"a": 13, "b": 2}])
def test_groups_that_come_by_their_weights__one_more_or_less__are_no_fault(
    counts: dict[str, int],
) -> None:
    assert judge(shared(counts)) == []


@pytest.mark.parametrize("counts", [{"a": 5, "b": 5}, {"a": 0, "b": 7}, {"a": 12, "b": 1}])
def test_groups_that_come_by_other_shares_while_both_wait_are_found(
    counts: dict[str, int],
) -> None:
    assert [fault.rule for fault in judge(shared(counts))] == [8]


def test_a_group_that_had_no_more_may_have_got_less_than_its_share() -> None:
    history = History(kind="fair", weights={"a": 8, "b": 2})
    history.sends = [sent(number, group="a" if number == 1 else "b") for number in range(1, 10)]
    for number, at_ms in [*((n, 200) for n in range(1, 9)), (9, 2_000)]:
        group = "a" if number == 1 else "b"
        history.deliveries.append(
            got(number, at_ms, group=group, decided_ms=at_ms, dispatch=(at_ms, number))
        )
    assert judge(history) == []  # one of a, seven of b, and only b has another


ROWS = [("a", 5), ("b", 5), ("a", 1), ("b", 9)]
"""Groups and priorities of the messages 1, 2, …"""


@pytest.mark.parametrize(
    ("group_order", "came", "rules"),
    [
        ("arrival", [1, 2, 3, 4], []),
        ("arrival", [3, 2, 1, 4], [7]),
        ("priority", [3, 2, 1, 4], []),
        ("priority", [1, 2, 3, 4], [7]),
        ("priority", [2, 3, 4, 1], []),
        ("priority_first", [3, 1, 2, 4], []),
        ("priority_first", [3, 2, 1, 4], []),
        ("priority_first", [3, 2, 4, 1], [7]),
    ],
)
def test_messages_of_a_group_that_come_in_another_order_are_found(
    group_order: str, came: list[int], rules: list[int]
) -> None:
    history = History(kind="fair", group_order=group_order)
    for number, (group, priority) in enumerate(ROWS, 1):
        history.sends.append(sent(number, group=group, priority=priority))
    for place, number in enumerate(came):
        group, priority = ROWS[number - 1]
        history.deliveries.append(
            got(number, 200, group=group, priority=priority, dispatch=(200, place))
        )
    assert [fault.rule for fault in judge(history)] == rules


def test_where_priority_is_first_groups_share_in_each_by_itself() -> None:
    history = shared({"a": 8, "b": 2})
    history.group_order = "priority_first"
    for send, got_one in zip(history.sends, history.deliveries, strict=True):
        send.priority = got_one.priority = 7
    assert judge(history) == []
    for send, got_one in zip(history.sends, history.deliveries, strict=True):
        send.priority = got_one.priority = 7 if send.group == "a" else 1
    rules = {fault.rule for fault in judge(history)}
    assert rules == {7}, "b has to come first, and neither shares with the other"


def test_a_group_over_its_cap_is_found() -> None:
    history = History(kind="fair", group_in_flight_max=2)
    history.sends = [sent(number, group="a") for number in (1, 2, 3)]
    history.deliveries = [got(number, 100 + number, group="a") for number in (1, 2, 3)]
    assert [fault.rule for fault in judge(history)] == [8]
    history.settles = [settled("ack", 1, 101)]  # its place was free when the third one came
    assert judge(history) == []


def test_a_message_that_comes_late_is_found_once_nothing_is_broken() -> None:
    history = History(healed_us=1 * MS, healed_broker_us=1 * MS)
    history.sends = [sent(1)]
    history.deliveries = [got(1, 100 + 30_000)]
    assert judge(history) == []
    history.deliveries = [got(1, 100 + 30_001)]
    assert [fault.rule for fault in judge(history)] == [5]
