"""Covers: a clock that was wrong, seen from one broker: leases, delays, due times, transactions,
restarts, and the journal read again.

Not covered: when a clock is believed (tests/unit/test_clock.py), the command itself
(tests/unit/engine/test_timekeeping.py), clusters (tests/cluster).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue.broker.broker import Broker
from dejaqueue.local import LocalTransport
from dejaqueue.model import Topic, TopicKind
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock

HOUR_MS = 3_600_000
YEARS_MS = 10 * 365 * 24 * HOUR_MS
START_MS = 1_700_000_000_000


def settings(path: Path) -> BrokerSettings:
    return BrokerSettings(journal=JournalSettings(url=str(path)))


def a_broker(path: Path, clock: VirtualClock) -> Broker:
    broker = Broker(settings(path), clock)
    broker.start()
    broker.create_topic(Topic("t", lease_ms=1_000), exist_ok=True)
    return broker


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START_MS)


@pytest.fixture
def broker(tmp_path: Path, clock: VirtualClock) -> Iterator[Broker]:
    broker = a_broker(tmp_path, clock)
    yield broker
    broker.stop()


def claimed(broker: Broker) -> int:
    """How many messages are leased now to who asks, for a second."""
    body = {"topic": "t", "partition": 0, "rows": 100, "lease_ms": 1_000}
    return int(broker.call("claim", body)["rows"])


def send(broker: Broker, *, due_ms: int | None = None) -> None:
    with dejaqueue.Client(transport=LocalTransport(broker)) as client:
        client.send("t", b"x", due=due_ms)


def set_counts(broker: Broker) -> list[int]:
    return [place.core.time.set_count for place in broker.runtime("t").partitions]


def believe(clock: VirtualClock) -> None:
    """The wall clock stays where it jumped to until it is believed, looked at now and then."""
    for _ in range(31):
        clock.advance(ms=1_000)


@pytest.mark.parametrize("wrong_ms", [YEARS_MS, -YEARS_MS, HOUR_MS, -HOUR_MS, 600])
def test_a_lease_of_a_second_ends_after_a_second__wrong_for_one_send(
    broker: Broker, clock: VirtualClock, wrong_ms: int
) -> None:
    clock.jump(ms=wrong_ms)
    send(broker, due_ms=START_MS - 1)
    clock.jump(ms=-wrong_ms)
    assert claimed(broker) == 1
    clock.advance(ms=999)
    assert claimed(broker) == 0
    clock.advance(ms=1)
    assert claimed(broker) == 1
    assert set_counts(broker) == [0]


def test_time_does_not_stand_still__an_hour_ahead_for_eight_seconds(
    broker: Broker, clock: VirtualClock
) -> None:
    send(broker, due_ms=START_MS + 20_000)
    clock.jump(ms=HOUR_MS)
    clock.advance(ms=8_000)
    assert claimed(broker) == 0  # it is not due yet
    clock.jump(ms=-HOUR_MS)
    clock.advance(ms=11_999)
    assert claimed(broker) == 0
    clock.advance(ms=1)
    assert claimed(broker) == 1


@pytest.mark.parametrize("wrong_ms", [YEARS_MS, -YEARS_MS, HOUR_MS, -HOUR_MS])
def test_what_is_left_of_a_lease_stays__believed(
    broker: Broker, clock: VirtualClock, wrong_ms: int
) -> None:
    send(broker, due_ms=START_MS - 1)
    clock.jump(ms=wrong_ms)
    for _ in range(29):
        clock.advance(ms=1_000)
    clock.advance(ms=500)
    assert claimed(broker) == 1
    clock.advance(ms=600)  # it is believed now
    assert clock.utc_ms() == START_MS + wrong_ms + 30_100
    assert claimed(broker) == 0
    clock.advance(ms=399)
    assert claimed(broker) == 0
    clock.advance(ms=1)
    assert claimed(broker) == 1
    assert set_counts(broker) == [1]


def test_a_due_time_stays__a_clock_that_was_a_day_ahead_is_put_right(tmp_path: Path) -> None:
    clock = VirtualClock(START_MS + 24 * HOUR_MS)
    broker = a_broker(tmp_path, clock)
    clock.jump(ms=-24 * HOUR_MS)
    believe(clock)
    due_ms = clock.utc_ms() + 2 * HOUR_MS
    send(broker, due_ms=due_ms)
    assert claimed(broker) == 0
    clock.advance(ms=due_ms - clock.utc_ms() - 1)
    assert claimed(broker) == 0
    clock.advance(ms=1)
    assert claimed(broker) == 1
    broker.stop()


@pytest.mark.parametrize("kind", list(TopicKind))
def test_a_partition_is_mended_by_opening_it__ten_years_ahead_and_started_again(
    tmp_path: Path, kind: TopicKind
) -> None:
    ahead = Broker(settings(tmp_path), VirtualClock(START_MS + YEARS_MS))
    ahead.start()
    ahead.create_topic(Topic("t", kind=kind, lease_ms=1_000, backoff_ms=2_000, backoff_jitter=0.0))
    for _ in range(3):
        send(ahead, due_ms=START_MS)
    assert claimed(ahead) == 3
    ahead.stop()

    clock = VirtualClock(START_MS)
    broker = Broker(settings(tmp_path), clock)
    broker.start()
    assert claimed(broker) == 0
    clock.advance(ms=999)
    assert claimed(broker) == 0
    clock.advance(ms=2)
    assert claimed(broker) == 0  # they wait for their second delivery
    clock.advance(ms=2_001)
    assert claimed(broker) == 3
    broker.stop()

    again = Broker(settings(tmp_path), clock)
    again.start()
    assert claimed(again) == 0
    assert set_counts(again) == [0]
    again.stop()


def test_a_transaction_of_a_wrong_clock_ends__and_what_it_acked_comes_back(tmp_path: Path) -> None:
    clock = VirtualClock(START_MS + YEARS_MS)
    broker = a_broker(tmp_path, clock)
    send(broker, due_ms=START_MS)
    with dejaqueue.Client(transport=LocalTransport(broker), clock=clock) as client:
        transaction = client.transaction(timeout=5)
        [message] = client.consume("t", max_messages=1)
        transaction.ack(message)
        assert client.stats("t")["staged_acks"] == 1
        clock.jump(ms=-YEARS_MS)
        believe(clock)
        for _ in range(20):
            clock.advance(ms=1_000)
            if not client.stats("t")["staged_acks"]:
                break
        assert client.stats("t")["staged_acks"] == 0
    assert claimed(broker) == 1
    broker.stop()
