"""Who is leased what, and when to look again. Orders, filters and kinds: tests/rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dejaqueue.broker.consumers import gathering
from dejaqueue.broker.consumers.dispatch import Consumer, Push
from dejaqueue.broker.consumers.gathering import AT_HAND_ROWS_MAX
from dejaqueue.broker.partition.leasing import (
    AHEAD_PERCENT,
    AT_HAND_BYTES_MAX,
    AT_HAND_LEASES_MAX,
    DISPATCH_STEPS,
    STEP_PIECES_MAX,
    STEP_US_MAX,
    dispatch,
    outlook,
    take_over,
)
from dejaqueue.engine.commands import Lease
from dejaqueue.engine.effects import Leased
from dejaqueue.engine.rules import Rules
from dejaqueue.model import Topic, TopicKind
from dejaqueue.schema.references import MARK
from dejaqueue.settings import BrokerSettings, DispatchSettings
from dejaqueue.wire.descriptors import ConsumeStream
from tests.unit.broker.cores import Served, Sink

AHEAD_MS = 100


@pytest.fixture
def served() -> Served:
    return Served(Topic("t", lease_ahead_ms=AHEAD_MS, lease_ms=1_000))


def consume(served: Served, credit: int = 10, ahead_ms: int = 0) -> tuple[Consumer, Sink]:
    sink = Sink()
    consumer = served.dispatcher.add(ConsumeStream("t"), sink, served.clock.now_us(), ahead_ms)
    served.dispatcher.credit(consumer, credit, served.clock.now_us())
    return consumer, sink


def dispatched(served: Served) -> int:
    """Rows that are leased by one dispatch."""
    before = served.core.engine.counts.leased
    dispatch(served.core, served.dispatcher)
    served.core.commits.commit_all()
    return served.core.engine.counts.leased - before


def test_what_is_due_goes_to_who_has_credit__as_much_as_it_takes(served: Served) -> None:
    served.send([b"a", b"b", b"c"])
    assert dispatched(served) == 0
    consumer, sink = consume(served, credit=2)
    assert dispatched(served) == 2
    assert [push.leased.lease_end_ms for push in sink.pushes] == [served.core.now_ms() + 1_000]
    assert (consumer.credit, dispatched(served)) == (0, 0)


def sent_and_leased(served: Served, *batches: list[bytes], **columns: list[str]) -> list[Push]:
    """Batches that come and are handed out by one step, and what was handed out."""
    _, sink = consume(served, credit=100)
    for payloads in batches:
        served.bring_in(payloads, **columns)
    dispatch(served.core, served.dispatcher)
    served.core.commits.commit_all()
    return sink.pushes


@pytest.mark.parametrize("columns", [{}, {"keys": ["k0", "", "k2"]}])
@pytest.mark.parametrize("credit", [1, 2, 3])
def test_what_came_in_this_very_step_is_sent_from_memory__as_it_is_stored(
    served: Served, columns: dict[str, list[str]], credit: int
) -> None:
    _, sink = consume(served, credit=credit)
    served.bring_in([b"a", b"", b"ccc"], **columns)
    dispatch(served.core, served.dispatcher)
    served.core.commits.commit_all()
    [push] = sink.pushes
    [stored] = gathering.stored_batches([push])
    assert gathering.is_at_hand(push, served.core.now_ms())
    assert gathering.batch_at_hand(push).equals(stored)
    assert stored.num_rows == credit
    [sent] = gathering.readable_batches([push], served.core.now_ms())
    assert sent.equals(stored)


def test_rows_of_an_entry_in_another_order_are_sent_in_theirs(served: Served) -> None:
    _, sink = consume(served)
    now_ms = served.core.now_ms()
    served.bring_in([b"c", b"a", b"b"], dues_ms=[now_ms, now_ms - 2, now_ms - 1])
    dispatch(served.core, served.dispatcher)
    served.core.commits.commit_all()
    batch = gathering.batch_at_hand(sink.pushes[0])
    assert batch.column("payload").to_pylist() == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "batches",
    [
        [[b"a"], [b"b"]],
        [[b"a"] * (AT_HAND_ROWS_MAX + 1)],
        [[b"x" * AT_HAND_BYTES_MAX]],
        [[MARK + b"a payload of somebody's own"]],
    ],
    ids=["of two entries", "many", "large", "marked"],
)
def test_others_are_read(served: Served, batches: list[list[bytes]]) -> None:
    pushes = sent_and_leased(served, *batches)
    assert [push.entry for push in pushes] == [None] * len(pushes)
    assert sum(len(push.leased.sequences) for push in pushes) == sum(map(len, batches))


def test_what_came_before_is_read(served: Served) -> None:
    served.send([b"a"])
    [push] = sent_and_leased(served)
    assert push.entry is None


def test_nothing_is_kept_for_who_holds_much_already(served: Served) -> None:
    """It may have credit for a million messages, and not read one of them."""
    consumer, sink = consume(served, credit=10 * AT_HAND_LEASES_MAX)
    for number in range(3 * AT_HAND_LEASES_MAX):
        served.bring_in([b"%d" % number])
        dispatch(served.core, served.dispatcher)
        served.core.commits.commit_all()
    assert len(consumer.leases) == 3 * AT_HAND_LEASES_MAX
    assert sum(push.entry is not None for push in sink.pushes) == AT_HAND_LEASES_MAX


def test_nothing_is_kept_for_who_acks_as_it_is_sent(served: Served) -> None:
    sink = Sink()
    options = ConsumeStream("t", auto_ack=True)
    consumer = served.dispatcher.add(options, sink, served.clock.now_us(), 0)
    served.dispatcher.credit(consumer, 5, served.clock.now_us())
    served.bring_in([b"a"])
    dispatch(served.core, served.dispatcher)
    served.core.commits.commit_all()
    assert [(push.entry, len(push.kept)) for push in sink.pushes] == [(None, 1)]


def test_what_others_may_have_done_since_is_read(served: Served) -> None:
    [push] = sent_and_leased(served, [b"b"])
    assert gathering.is_at_hand(push, push.leased.lease_end_ms - 1)
    assert not gathering.is_at_hand(push, push.leased.lease_end_ms)


def test_a_paused_topic_leases_nothing(served: Served) -> None:
    served.send([b"a"])
    consume(served)
    served.topic = replace(served.topic, paused=True)
    assert dispatched(served) == 0
    assert outlook(served.core, served.dispatcher).wake_us is None


def test_who_holds_until_due_is_sent_ahead__who_does_not_is_not(served: Served) -> None:
    served.send([b"a"], dues_ms=[served.clock.utc_ms() + AHEAD_MS])
    consume(served)
    _, holds = consume(served, ahead_ms=AHEAD_MS)
    assert dispatched(served) == 0
    served.clock.advance(ms=AHEAD_MS * (100 - AHEAD_PERCENT) // 100)
    assert dispatched(served) == 1
    assert len(holds.pushes) == 1


def test_looking_in_vain_leaves_no_entry(served: Served) -> None:
    consume(served)
    position = served.core.position
    assert dispatched(served) == 0
    assert served.core.position == position


def test_a_lease_that_is_over_comes_back(served: Served) -> None:
    served.send([b"a"])
    consume(served)
    assert dispatched(served) == 1
    served.clock.advance(ms=1_000)
    assert dispatched(served) == 0  # it went to the same one again
    assert served.core.engine.counts.leased == 1
    assert served.core.engine.next_expiry_ms() == served.core.now_ms() + 1_000


def test_the_next_look_is_when_something_is_due_to_somebody(served: Served) -> None:
    core, clock = served.core, served.clock
    assert outlook(core, served.dispatcher).wake_us is None
    served.send([b"a"], dues_ms=[clock.utc_ms() + 5_000])
    assert outlook(core, served.dispatcher).wake_us is None  # nobody would get it
    consume(served)
    at_us = outlook(core, served.dispatcher).wake_us
    assert at_us is not None
    assert 4_999_000 < at_us - clock.now_us() <= 5_000_000
    consume(served, ahead_ms=AHEAD_MS)
    earlier_us = outlook(core, served.dispatcher).wake_us
    assert earlier_us == at_us - AHEAD_MS * AHEAD_PERCENT // 100 * 1_000


def test_what_nobody_can_be_sent_waits_for_credit(served: Served) -> None:
    core, dispatcher = served.core, served.dispatcher
    assert outlook(core, dispatcher).is_empty
    consumer, _ = consume(served, credit=1)
    served.send([b"a", b"b"])
    assert dispatched(served) == 1
    assert outlook(core, dispatcher).waits
    dispatcher.credit(consumer, 1, served.clock.now_us())
    assert dispatched(served) == 1
    found = outlook(core, dispatcher)
    assert found.waits, "its lease may end, and nobody has credit then"
    assert not found.is_empty
    dispatcher.credit(consumer, 1, served.clock.now_us())
    assert not outlook(core, dispatcher).waits


def test_what_is_due_later_waits_for_somebody_who_may_hold_it(served: Served) -> None:
    consumer, _ = consume(served)
    served.send([b"later"], dues_ms=[served.clock.now_ms() + 10_000])
    assert outlook(served.core, served.dispatcher).waits
    served.dispatcher.holds_ahead(consumer, AHEAD_MS)
    assert not outlook(served.core, served.dispatcher).waits


# --- stretches of the worker


def in_pieces(rows: int, count: int = 5) -> Served:
    """Messages of a priority topic that are due, taken over by so many."""
    dispatch_settings = DispatchSettings(take_over_rows_max=rows)
    served = Served(
        Topic("t", kind=TopicKind.PRIORITY), settings=BrokerSettings(dispatch=dispatch_settings)
    )
    served.send([b"x"] * count)
    return served


def ready_count(served: Served) -> int:
    return int(served.core.engine.state.ready_places().size)


def test_what_was_begun_to_be_taken_over_goes_on__though_nobody_has_credit_any_more() -> None:
    served = in_pieces(1, 12)
    assert dispatched(served) == 0
    assert ready_count(served) == 0  # nobody wants anything yet
    consume(served, credit=1)
    assert dispatched(served) == 1
    assert ready_count(served) == 0
    for ready in (STEP_PIECES_MAX, 2 * STEP_PIECES_MAX, 11):
        assert outlook(served.core, served.dispatcher).wake_us == served.clock.now_us()
        assert dispatched(served) == 0
        assert ready_count(served) == ready
    assert outlook(served.core, served.dispatcher).wake_us is None


def test_while_it_goes_on_some_steps_dispatch__then_all_do() -> None:
    served = in_pieces(1, 200)
    consume(served, credit=100)
    dispatched(served)
    taken = [dispatched(served) > 0 for _ in range(DISPATCH_STEPS)]
    assert taken == [False] * (DISPATCH_STEPS - 1) + [True]
    assert served.core.engine.is_taking_over
    while served.core.engine.is_taking_over:
        dispatched(served)
    assert served.core.engine.counts.scheduled == ready_count(served)


def test_one_lease_of_many_has_as_many_taken_over() -> None:
    served = in_pieces(2)
    take_over(served.core, 3)
    assert ready_count(served) == 4
    take_over(served.core, 9)
    assert ready_count(served) == 5
    everything = in_pieces(0)
    position = everything.core.next_position()
    take_over(everything.core, 3)
    assert everything.core.next_position() == position
    assert everything.core.engine.rules == Rules.of(everything.topic)


def test_a_step_dispatches_no_longer_than_its_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.send([b"a", b"b", b"c"])
    for _ in range(3):
        consume(served, credit=1)
    apply_lease = served.core.apply_lease

    def slow(command: Lease) -> Leased | None:
        served.clock.advance(us=STEP_US_MAX)
        return apply_lease(command)

    monkeypatch.setattr(served.core, "apply_lease", slow)
    assert dispatched(served) == 1
    monkeypatch.undo()
    wake_us = outlook(served.core, served.dispatcher).wake_us
    assert wake_us is not None
    assert wake_us <= served.clock.now_us()
    assert dispatched(served) == 2
