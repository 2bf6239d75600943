"""Who gets the next rows. Whole deliveries are in tests/rules."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.broker.consumers.dispatch import Consumer, Dispatcher, Push
from dejaqueue.broker.consumers.held_lease import SentRows
from dejaqueue.broker.consumers.turns import RUN_MAX
from dejaqueue.engine.effects import Leased
from dejaqueue.errors import DejaQError, ResourceExhausted
from dejaqueue.model import TagFilter
from dejaqueue.wire.descriptors import ConsumeStream

SILENCE_US = 1_000


class NoSink:
    def push(self, push: Push) -> None:
        raise AssertionError("nothing is sent here")

    def end(self, error: DejaQError) -> None:
        raise AssertionError("nothing ends here")


def make(count: int = 1, ahead_ms: int = 0) -> tuple[Dispatcher, list[Consumer], list[int]]:
    rings: list[int] = []

    def wake(number: int) -> bool:
        rings.append(number)
        return True

    dispatcher = Dispatcher(SILENCE_US, wake)
    options = ConsumeStream("t", batch_rows_max=10)
    return dispatcher, [dispatcher.add(options, NoSink(), 0, ahead_ms) for _ in range(count)], rings


def test_without_credit_nobody_takes_a_row() -> None:
    dispatcher, _, _ = make()
    assert dispatcher.reserve(5, 0, holding=False) is None


def test_credit_can_be_taken_back_as_far_as_it_was_not_used() -> None:
    dispatcher, (consumer,), _ = make()
    dispatcher.credit(consumer, 7, 0)
    assert dispatcher.withdraw(consumer, 3) == 3
    assert dispatcher.reserve(2, 0, holding=False) == (consumer, 2)
    assert dispatcher.withdraw(consumer, 5) == 2
    assert dispatcher.reserve(1, 0, holding=False) is None
    dispatcher.give_back(consumer, 1)
    assert dispatcher.withdraw(consumer, 5) == 1


def test_the_turn_goes_round_over_those_with_credit() -> None:
    dispatcher, (one, two, three), _ = make(3)
    dispatcher.credit(one, 100, 0)
    dispatcher.credit(three, 100, 0)
    turns = [dispatcher.reserve(1, 0, holding=False) for _ in range(4)]
    assert [turn[0] for turn in turns if turn is not None] == [one, three, one, three]
    assert two.credit == 0


def take(dispatcher: Dispatcher, count: int, partition: int = 0) -> list[Consumer]:
    """To whom so many dispatches go."""
    found = []
    for _ in range(count):
        grant = dispatcher.reserve(1, 0, holding=False, partition=partition)
        assert grant is not None
        found.append(grant[0])
    return found


def runs_of(consumers: list[Consumer]) -> list[int]:
    """How many dispatches in a row went to the same consumer."""
    return [len(list(same)) for _, same in itertools.groupby(consumers, key=id)]


def test_a_deep_backlog_is_dealt_out_in_longer_and_longer_turns__to_everybody() -> None:
    dispatcher, consumers, _ = make(4)
    for consumer in consumers:
        dispatcher.credit(consumer, 1_000, 0)
    found = take(dispatcher, 400)
    runs = runs_of(found)
    assert runs[:8] == [1] * 8, "a short backlog goes round one by one"
    assert max(runs) == RUN_MAX
    for at in range(1, len(found)):
        given = [sum(one is consumer for one in found[:at]) for consumer in consumers]
        assert max(given) - min(given) <= min(RUN_MAX, 1 + at // len(consumers))


def test_after_a_backlog_turns_are_short_again() -> None:
    dispatcher, consumers, _ = make(2)
    for consumer in consumers:
        dispatcher.credit(consumer, 1_000, 0)
    assert max(runs_of(take(dispatcher, 100))) == RUN_MAX
    assert runs_of(take(dispatcher, 4, partition=1)) == [1] * 4, "each partition has its own"
    dispatcher.has_no_more(0)
    assert runs_of(take(dispatcher, 4)) == [1] * 4


def test_a_turn_ends_with_the_credit__and_with_the_consumer() -> None:
    dispatcher, (one, two), _ = make(2)
    dispatcher.credit(one, 1_000, 0)
    dispatcher.credit(two, 1_000, 0)
    while take(dispatcher, 1) != [one] or dispatcher.reserve(1, 0, holding=False) != (one, 1):
        pass
    dispatcher.withdraw(one, 1_000)
    assert take(dispatcher, 1) == [two]
    dispatcher.credit(one, 1_000, 0)
    while take(dispatcher, 1) != [one] or dispatcher.reserve(1, 0, holding=False) != (one, 1):
        pass
    dispatcher.remove(one)
    assert take(dispatcher, 1) == [two]


def test_rows_are_bound_by_credit_by_batch_and_by_what_is_wanted() -> None:
    dispatcher, (one,), rings = make()
    dispatcher.looked(7, dispatcher.waiting.round, waits=True)
    dispatcher.credit(one, 13, 0)
    assert rings == [7]
    assert dispatcher.reserve(100, 0, holding=False) == (one, 10)
    assert dispatcher.reserve(100, 0, holding=False) == (one, 3)
    assert dispatcher.reserve(100, 0, holding=False) is None
    dispatcher.give_back(one, 2)
    assert dispatcher.reserve(1, 0, holding=False) == (one, 1)


def test_a_silent_consumer_is_passed_over_until_it_is_heard_again() -> None:
    dispatcher, (one,), rings = make()
    dispatcher.credit(one, 10, 0)
    assert dispatcher.reserve(1, SILENCE_US + 1, holding=False) is None
    assert dispatcher.has_credit(SILENCE_US + 1) == (False, False)
    dispatcher.looked(7, dispatcher.waiting.round, waits=True)
    dispatcher.seen(one, SILENCE_US + 2)
    assert rings == [7]
    assert dispatcher.reserve(1, SILENCE_US + 3, holding=False) == (one, 1)


def test_only_holders_are_sent_rows_ahead() -> None:
    dispatcher, (one,), _ = make()
    dispatcher.credit(one, 10, 0)
    assert dispatcher.reserve(1, 0, holding=True) is None
    assert dispatcher.has_credit(0) == (True, False)
    one.ahead_ms = 25
    assert dispatcher.reserve(1, 0, holding=True) == (one, 1)
    assert dispatcher.has_credit(0) == (True, True)


def leased(rows: int, end_ms: int = 100) -> Leased:
    column = np.arange(rows)
    return Leased(9, end_ms, column, column.astype(np.uint16), column, column)


def given_back(consumer: Consumer) -> list[tuple[int, int, int]]:
    released: list[tuple[int, int, int]] = []
    consumer.release = lambda *lease: released.append(lease[:3])
    return released


def test_what_a_consumer_holds_is_given_back_when_it_goes() -> None:
    """Also what becomes its own after that; and at the time of what is due last."""
    dispatcher, (one, two), _ = make(2)
    released = given_back(one)
    dispatcher.holds(one, 3, leased(5))
    dispatcher.settled(one, 3, 9, 2)
    assert one.describe()["leases"] == 1
    dispatcher.remove(one, release=True)
    dispatcher.remove(one, release=True)
    assert released == [(3, 9, 4)]
    dispatcher.holds(one, 5, leased(2))
    assert released[1:] == [(5, 9, 1)]
    dispatcher.holds(two, 3, leased(5))
    dispatcher.remove(two)  # it broke, and may come back with acks
    dispatcher.holds(two, 5, leased(2))


def test_what_cannot_be_read_goes_back_with_its_credit() -> None:
    dispatcher, (one,), rings = make()
    released = given_back(one)
    dispatcher.credit(one, 5, 0)
    assert dispatcher.reserve(5, 0, holding=False) == (one, 5)
    assert dispatcher.reserve(5, 0, holding=False) is None
    dispatcher.looked(7, dispatcher.waiting.round, waits=True)
    dispatcher.holds(one, 3, leased(5))
    dispatcher.could_not_read(one, 3, leased(2), 777)
    assert (one.credit, one.leases[3, 9].rows, one.settled_count) == (2, 3, 0)
    dispatcher.could_not_read(one, 3, leased(3), 778)
    assert released == [(3, 9, 777), (3, 9, 778)]
    assert rings == [7]
    assert (one.credit, one.leases) == (5, {})


def test_a_settled_or_ended_lease_is_forgotten() -> None:
    dispatcher, (one,), _ = make()
    dispatcher.holds(one, 3, leased(5))
    dispatcher.extended(one, 3, [9], 200)
    dispatcher.forget_ended(150)
    assert len(one.leases) == 1
    dispatcher.forget_ended(201)
    assert not one.leases
    dispatcher.holds(one, 3, leased(5))
    dispatcher.settled(one, 3, 9, -1)
    released = given_back(one)
    dispatcher.remove(one, release=True)
    assert released == []


def test_of_a_lease_that_was_sent_in_part_only_that_is_meant() -> None:
    dispatcher, (one,), _ = make()
    dispatcher.holds(one, 3, leased(5))
    assert dispatcher.rows_sent(one, 3, 9) is None
    sent = SentRows(np.array([1, 4]), np.array([1, 1], np.uint16))
    dispatcher.sent_in_part(one, 3, 9, sent)
    assert dispatcher.rows_sent(one, 3, 9) is sent
    dispatcher.settled(one, 3, 9, -1)
    assert (one.leases, one.settled_count) == ({}, 2)
    dispatcher.sent_in_part(one, 3, 9, sent)  # it was settled before
    assert dispatcher.rows_sent(one, 3, 9) is None


def test_too_many_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONSUMERS_PER_TOPIC_MAX", 2)
    dispatcher, _, _ = make(2)
    with pytest.raises(ResourceExhausted, match="2 consumers"):
        dispatcher.add(ConsumeStream("t"), NoSink(), 0, 0)


def test_credit_that_comes_back_wakes_who_was_refused_meanwhile() -> None:
    dispatcher, (one,), rings = make()
    dispatcher.credit(one, 5, 0)

    def look(*, waits: bool) -> None:
        dispatcher.looked(7, dispatcher.waiting.round, waits=waits)

    look(waits=True)
    assert dispatcher.reserve(5, 0, holding=False) == (one, 5)
    dispatcher.give_back(one, 1)
    assert rings == []  # nobody missed it
    assert dispatcher.reserve(5, 0, holding=False) == (one, 1)
    assert dispatcher.reserve(5, 0, holding=False) is None
    dispatcher.give_back(one, 1)
    assert rings == [7]
    assert dispatcher.reserve(1, 0, holding=False) == (one, 1)
    assert dispatcher.has_credit(0) == (False, False)
    look(waits=True)
    dispatcher.give_back(one, 1)
    assert rings == [7, 7]


def test_who_could_have_been_woken_is_woken_by_credit_that_comes_back() -> None:
    dispatcher, (one,), rings = make()
    for partition in (7, 8):
        dispatcher.looked(partition, dispatcher.waiting.round, waits=True)
    dispatcher.credit(one, 5, 0)
    assert rings == [7]
    assert dispatcher.reserve(5, 0, holding=False) == (one, 5), "by a partition of another lane"
    dispatcher.looked(7, dispatcher.waiting.round, waits=False)
    assert rings == [7], "there is no credit for 8"
    dispatcher.give_back(one, 4)
    assert rings == [7, 8]


def test_a_consumer_that_may_be_sent_rows_earlier_wakes_who_waits_for_one() -> None:
    dispatcher, (one,), rings = make()
    dispatcher.looked(7, dispatcher.waiting.round, waits=True)
    dispatcher.holds_ahead(one, 25)
    assert (rings, one.ahead_ms) == ([7], 25)


def test_a_consumer_of_other_messages_has_all_partitions_look() -> None:
    dispatcher, _, rings = make(0)
    dispatcher.waiting.occupy(7)
    one = dispatcher.add(ConsumeStream("t"), NoSink(), 0, 0)
    dispatcher.credit(one, 1, 0)
    assert rings == [7]
    dispatcher.looked(7, dispatcher.waiting.round, waits=False)
    dispatcher.credit(dispatcher.add(ConsumeStream("t"), NoSink(), 0, 0), 1, 0)
    assert rings == [7], "the second one takes what the first one takes"
    tagged = ConsumeStream("t", tags_any=("red",))
    dispatcher.credit(dispatcher.add(tagged, NoSink(), 0, 0), 1, 0)
    assert rings == [7, 7]


def test_the_names_of_those_who_have_leases_are_told__of_that_partition() -> None:
    dispatcher, [first, second], _ = make(2)
    for consumer, lease_id in ((first, 5), (second, 6)):
        held = replace(leased(1), lease_id=lease_id)
        dispatcher.holds(consumer, 3, held)
    assert dispatcher.names_of(3, [5, 6, 7]) == {5: first.name, 6: second.name}
    assert dispatcher.names_of(4, [5, 6]) == {}
    assert dispatcher.names_of(3, []) == {}
    dispatcher.settled(first, 3, 5, -1)
    assert dispatcher.names_of(3, [5, 6]) == {6: second.name}


def test_what_a_consumer_takes_is_shown() -> None:
    dispatcher, [consumer], _ = make(1)
    assert dispatcher.describe()[0]["tags_any"] == []
    consumer.wanted = TagFilter(("a",), ("b",), ("c",))
    [shown] = dispatcher.describe()
    assert (shown["tags_any"], shown["tags_all"], shown["tags_none"]) == (["a"], ["b"], ["c"])
