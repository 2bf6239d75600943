"""Holding until due (rule 2), and when leases are extended."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.client.consuming.holding import Holder, Lease, LeaseBook
from dejaqueue.wire.frames import DeliveryHead
from tests.unit.client.fake_transport import delivery_batch


def held(
    holder: Holder,
    dues_ms: list[int],
    *,
    lease_id: int = 1,
    first_id: int = 0,
    generation: int = 1,
    broker_us: int = 30_000_000,
) -> Lease:
    head = DeliveryHead(0, len(dues_ms), lease_id, 60_000, broker_us)
    return holder.add(head, delivery_batch(dues_ms, first_id), generation)


def test_rows_come_out_when_they_are_due_and_not_before() -> None:
    holder = Holder()
    held(holder, [100, 101, 101, 105])
    assert holder.take(99_999, 10) is None
    first = holder.take(100_000, 10)
    assert first is not None
    assert first.ids.tolist() == [0]
    assert not first.is_whole
    second = holder.take(101_000, 10)
    assert second is not None
    assert second.ids.tolist() == [1, 2]
    assert second.batch.column("payload").to_pylist() == [b"payload-1", b"payload-2"]
    assert holder.take(104_999, 10) is None
    assert holder.next_due_ms() == 105
    assert holder.rows == 1


def test_a_whole_delivery_is_named_by_its_lease() -> None:
    holder = Holder()
    lease = held(holder, [100, 101])
    whole = holder.take(200_000, 10)
    assert whole is not None
    assert whole.is_whole
    assert whole.lease is lease
    assert holder.take(10**12, 10) is None
    assert holder.rows == 0


def test_what_was_due_when_it_was_sent_keeps_the_order_it_was_sent_in() -> None:
    holder = Holder()
    held(holder, [90, 80, 95], lease_id=1, broker_us=100_000)
    held(holder, [70], lease_id=2, first_id=10, broker_us=100_900)  # by priority, or in turn
    held(holder, [40], lease_id=3, first_id=20, broker_us=103_000)
    taken = []
    while (found := holder.take(110_000, 2)) is not None:
        taken += found.ids.tolist()
    assert taken == [0, 1, 2, 10, 20]


def test_what_was_sent_ahead_of_its_time_comes_before_what_was_sent_after_it() -> None:
    holder = Holder()
    held(holder, [105], lease_id=1, broker_us=100_000)
    held(holder, [104], lease_id=2, first_id=10, broker_us=106_000)
    held(holder, [101], lease_id=3, first_id=20, broker_us=101_000)
    taken = []
    while (found := holder.take(110_000, 10)) is not None:
        taken += found.ids.tolist()
    assert taken == [20, 0, 10]


def test_several_deliveries_come_out_by_due_time() -> None:
    holder = Holder()
    held(holder, [110, 120], lease_id=1, broker_us=90_000)
    held(holder, [100, 130], lease_id=2, first_id=10, broker_us=90_000)
    taken = []
    for now_us in (100_000, 110_000, 120_000, 130_000):
        found = holder.take(now_us, 10)
        assert found is not None
        taken.append(found.ids.tolist())
        assert holder.take(now_us, 10) is None
    assert taken == [[10], [0], [1], [11]]


def test_rows_max_bounds_a_slice() -> None:
    holder = Holder()
    held(holder, [5] * 7)
    sizes = []
    while (found := holder.take(10_000, 3)) is not None:
        sizes.append(len(found.ids))
    assert sizes == [3, 3, 1]


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=8), min_size=1, max_size=6),
    st.lists(st.integers(1, 20_000), min_size=1, max_size=30),
    st.integers(1, 5),
)
def test_never_early_and_nothing_lost(
    deliveries: list[list[int]], steps_us: list[int], rows_max: int
) -> None:
    holder = Holder()
    for index, dues_ms in enumerate(deliveries):
        held(holder, dues_ms, lease_id=index, first_id=100 * index)
    seen: list[int] = []
    now_us = 0
    for step_us in [*steps_us, 10**9]:
        now_us += step_us
        while (found := holder.take(now_us, rows_max)) is not None:
            assert (found.dues_ms * 1000 <= now_us).all()
            assert len(found.ids) <= rows_max
            seen += found.ids.tolist()
    want = [100 * i + at for i, dues in enumerate(deliveries) for at in range(len(dues))]
    assert sorted(seen) == want
    assert holder.rows == 0


def test_what_is_delivered_again_is_forgotten() -> None:
    holder = Holder()
    held(holder, [100, 101], lease_id=1, first_id=0)
    held(holder, [100, 101], lease_id=2, first_id=10)
    assert holder.drop_repeated(np.array([11]), generation=2) == 2
    assert holder.rows == 2
    left = holder.take(10**9, 10)
    assert left is not None
    assert left.ids.tolist() == [0, 1]


def test_everything_can_be_taken_back() -> None:
    holder = Holder()
    assert holder.take_all() is None
    held(holder, [100, 300])
    assert holder.take(100_000, 10) is not None
    held(holder, [200], lease_id=2, first_id=5)
    rest = holder.take_all()
    assert rest is not None
    assert sorted(rest.ids.tolist()) == [1, 5]
    assert int(rest.dues_ms.max()) == 300
    assert not rest.is_whole
    assert holder.rows == 0


def lease(lease_id: int, end_ms: int, length_ms: int = 300) -> Lease:
    return Lease(0, lease_id, 10, length_ms, end_ms, 1, rows_open=10)


def test_leases_are_extended_in_their_last_third() -> None:
    book = LeaseBook()
    early, late = lease(1, 1_000), lease(2, 2_000)
    book.plan(late)
    book.plan(early)
    assert book.next_ms() == 900
    assert book.take_due(899) == []
    assert book.take_due(900) == [early]
    assert book.next_ms() == 1_900


def test_with_a_lease_that_is_due_go_those_that_are_due_soon() -> None:
    book = LeaseBook()
    leases = [lease(number, 1_000 + 10 * number) for number in range(8)]
    for one in leases:
        book.plan(one)
    assert book.take_due(899) == []
    assert book.take_due(900) == leases[:6]  # less than half of their 300 ms is left
    assert book.next_ms() == 960


def test_a_lease_that_ended_is_not_extended() -> None:
    book = LeaseBook()
    book.plan(lease(1, 1_000))
    assert book.take_due(1_000) == []
    assert book.next_ms() is None


def test_settled_leases_are_not_extended() -> None:
    book = LeaseBook()
    leases = [lease(number, 1_000 + number) for number in range(3_000)]
    for one in leases:
        book.plan(one)
    for one in leases[:-1]:
        book.settled(one, 4)
        book.settled(one, 6)
    assert book.take_due(3_999 - 100) == [leases[-1]]
