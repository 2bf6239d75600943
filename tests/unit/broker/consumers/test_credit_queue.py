"""Which partitions are woken when credit comes. Whole deliveries: tests/rules."""

from __future__ import annotations

from collections.abc import Callable

from dejaqueue.broker.consumers.credit_queue import CreditQueue

LANES = 2


class Topic:
    """Partitions that are woken, and a credit that they take from."""

    def __init__(self, unused: tuple[int, ...] = ()) -> None:
        self.woken: list[int] = []
        self.unused = unused
        self.credit = 1
        self.queue = CreditQueue(self.wake, lambda number: number % LANES)

    def wake(self, number: int) -> bool:
        if number in self.unused:
            return False
        self.woken.append(number)
        return True

    def look(
        self, number: int, *, waits: bool, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """A step of a partition, from its beginning to its end."""
        seen = self.queue.round
        if meanwhile is not None:
            meanwhile()
        self.queue.looked(number, seen, waits=waits, has_credit=lambda: self.credit > 0)

    def take_woken(self) -> list[int]:
        woken, self.woken = self.woken, []
        return woken


def test_who_has_nothing_or_all_it_needs_is_not_woken() -> None:
    topic = Topic()
    topic.look(0, waits=False)
    topic.queue.credit_came()
    assert topic.woken == []


def test_credit_wakes_the_one_that_waits_longest_in_each_lane() -> None:
    topic = Topic()
    for number in (4, 2, 0, 1, 3):
        topic.look(number, waits=True)
    topic.queue.credit_came()
    assert sorted(topic.take_woken()) == [1, 4]


def test_lanes_have_turns_to_be_the_first() -> None:
    topic = Topic()
    firsts = set()
    for _ in range(4):
        topic.look(0, waits=True)
        topic.look(1, waits=True)
        topic.queue.credit_came()
        firsts.add(topic.take_woken()[0])
    assert firsts == {0, 1}


def test_who_was_woken_wakes_the_next_while_there_is_credit() -> None:
    topic = Topic()
    for number in (0, 2, 4):
        topic.look(number, waits=True)
    topic.queue.credit_came()
    topic.look(0, waits=False)
    assert topic.take_woken() == [0, 2]
    topic.credit = 0
    topic.look(2, waits=True)
    assert topic.woken == [], "nobody has credit for the next one"
    topic.queue.credit_came()
    assert topic.woken == [2], "it was woken for nothing: another lane was quicker"


def test_who_comes_too_late_once_does_not_do_so_each_time() -> None:
    """Credit for one at a time, which the two lanes get in turns."""
    topic = Topic()
    for number in range(8):
        topic.look(number, waits=True)
    topic.credit, given = 0, []
    for turn in range(8):
        topic.queue.credit_came()
        woken = topic.take_woken()
        winner = next(number for number in woken if number % LANES == turn % LANES)
        given.append(winner)
        topic.queue.give(winner)
        for number in woken:
            topic.look(number, waits=True)
    assert sorted(given) == list(range(8)), "nobody twice before everybody was once"


def test_who_was_given_some_without_being_woken_is_as_late_as_others() -> None:
    topic = Topic()
    topic.queue.give(0)
    topic.look(0, waits=False)
    topic.credit = 0
    for number in (0, 2):
        topic.look(number, waits=True)
    topic.queue.credit_came()
    topic.look(0, waits=True)
    topic.queue.credit_came()
    assert topic.take_woken() == [0, 0], "it was woken, and given nothing"


def test_each_is_woken_once_for_credit_that_it_cannot_use() -> None:
    topic = Topic()
    for number in (0, 2, 4):
        topic.look(number, waits=True)
    topic.queue.credit_came()
    for _ in range(10):
        for number in topic.take_woken():
            topic.look(number, waits=True)
    assert topic.woken == []
    topic.queue.credit_came()
    assert topic.woken == [0]


def test_a_lane_that_hangs_holds_up_no_other() -> None:
    topic = Topic()
    for number in range(6):
        topic.look(number, waits=True)
    topic.queue.credit_came()
    assert sorted(topic.take_woken()) == [0, 1]
    for number in (1, 3, 5):  # those of lane 0 are never stepped
        topic.look(number, waits=False)
    assert topic.woken == [3, 5]


def test_credit_that_comes_while_a_partition_looks_wakes_it_again() -> None:
    topic = Topic()
    topic.look(0, waits=True, meanwhile=topic.queue.credit_came)
    assert topic.woken == [0]


def test_other_consumers_are_a_reason_to_look_for_all_that_may_have_something() -> None:
    topic = Topic(unused=(2, 4))
    for number in (6, 4, 2, 0):
        topic.queue.expect(number)
    topic.queue.look_again()
    assert topic.woken == [], "nobody has given credit yet"
    topic.queue.credit_came()
    topic.look(0, waits=False)
    assert topic.woken == [0, 6], "there is nothing in 2 and 4"
    assert topic.queue.occupied == [0, 6]


def test_a_partition_that_was_emptied_is_forgotten() -> None:
    topic = Topic()
    topic.queue.occupy(0)
    topic.queue.leave(0)
    topic.queue.look_again()
    topic.queue.credit_came()
    assert topic.woken == []
    assert topic.queue.occupied == []


def test_what_comes_while_an_unused_partition_is_passed_over_is_found() -> None:
    queue: CreditQueue

    def wake(number: int) -> bool:
        queue.occupy(number)  # its worker takes the first message just now
        return False

    queue = CreditQueue(wake, lambda _number: 0)
    queue.expect(0)
    queue.look_again()
    queue.credit_came()
    assert queue.occupied == [0]


def test_consumers_that_come_while_a_partition_looks_are_looked_for_again() -> None:
    """Its step began when nobody consumed, so it waits for nobody."""
    topic = Topic()
    topic.queue.occupy(0)
    topic.look(0, waits=False, meanwhile=topic.queue.look_again)
    assert topic.take_woken() == [0]
    topic.look(0, waits=False)
    topic.queue.credit_came()
    assert topic.woken == []
