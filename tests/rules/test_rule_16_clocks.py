"""Rule 16: clocks that differ, and a broker's clock that steps back.

Not covered here: how the client measures its offset (client/consuming/clock_offset.py).
"""

from __future__ import annotations

import logging

import pytest

from dejaqueue.settings import BrokerSettings, ClockSettings
from dejaqueue.wire.frames import Ping
from tests.rules.broker_fixture import TOPIC, BrokerFixture, RecordingConsumer
from tests.rules.conftest import MakeBroker


def ping(consumer: RecordingConsumer, offset_us: int, uncertainty_us: int) -> None:
    consumer.session.ping(Ping(1, 0, offset_us, uncertainty_us))


def said_of_clocks(caplog: pytest.LogCaptureFixture) -> list[int]:
    """The levels of what was logged of consumers' clocks."""
    return [one.levelno for one in caplog.records if "the clock of consumer" in one.getMessage()]


@pytest.mark.one_process("looks into a broker")
@pytest.mark.parametrize(
    ("offset_us", "uncertainty_us", "level"),
    [
        (50_011, 10, logging.WARNING),
        (-50_011, 10, logging.WARNING),
        (50_010, 10, logging.INFO),  # it may be within the limit
        (-27_000, 69_000, logging.INFO),
        (0, 50_001, logging.INFO),
    ],
)
def test_a_client_with_a_bad_clock_gets_nothing_ahead_and_is_named(
    make_broker: MakeBroker,
    caplog: pytest.LogCaptureFixture,
    offset_us: int,
    uncertainty_us: int,
    level: int,
) -> None:
    broker = make_broker(lease_ahead_ms=25)
    consumer = broker.consumer(consumer="far-away")
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            ping(consumer, offset_us, uncertainty_us)
    assert said_of_clocks(caplog) == [level]
    assert "far-away" in caplog.text
    broker.send([b"a"], [broker.now_ms + 20])
    broker.settle_down()
    assert consumer.payloads() == []
    [described] = broker.broker.call("stats", {"topic": TOPIC})["consumers"]
    assert described["clock_offset_us"] == offset_us
    assert described["lease_ahead_ms"] == 0
    broker.advance(20)
    assert consumer.payloads() == [b"a"]


@pytest.mark.one_process("looks into a broker")
def test_a_clock_that_turns_out_to_be_off_is_warned_of_after_it_could_not_be_told(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = make_broker().consumer()
    with caplog.at_level(logging.INFO):
        for uncertainty_us in (900_000, 10, 900_000, 10):
            ping(consumer, 60_000, uncertainty_us)
    assert said_of_clocks(caplog) == [logging.INFO, logging.WARNING]


@pytest.mark.one_process("changes a broker's settings")
@pytest.mark.parametrize(("offset_us", "uncertainty_us"), [(0, 0), (0, 10), (60_000, 10)])
def test_with_a_limit_of_0_nobody_is_sent_ahead__and_nothing_is_said_of_it(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture, offset_us: int, uncertainty_us: int
) -> None:
    broker = make_broker(lease_ahead_ms=25)
    broker.broker.change_settings(BrokerSettings(clock=ClockSettings(offset_us_max=0)))
    consumer = broker.consumer()
    with caplog.at_level(logging.INFO):
        ping(consumer, offset_us, uncertainty_us)
    assert said_of_clocks(caplog) == []
    broker.send([b"a"], [broker.now_ms + 20])
    broker.settle_down()
    assert consumer.payloads() == []
    broker.advance(20)
    assert consumer.payloads() == [b"a"]


def test_a_client_whose_clock_is_known_again_is_sent_ahead_again(make_broker: MakeBroker) -> None:
    broker = make_broker(lease_ahead_ms=25)
    consumer = broker.consumer()
    ping(consumer, 60_000, 10)
    ping(consumer, 0, 10)
    broker.send([b"a"], [broker.now_ms + 20])
    assert consumer.payloads() == [b"a"]


def step_back(broker: BrokerFixture, ms: int) -> None:
    broker.clock.advance(ms=-ms)


def test_a_clock_that_steps_back_delivers_nothing_early_and_keeps_the_journal_in_order(
    on_files: MakeBroker,
) -> None:
    broker = on_files()
    consumer = broker.consumer(holds=False)
    broker.send([b"before"])
    assert consumer.payloads() == [b"before"]
    due_ms = broker.now_ms + 10
    broker.send([b"later"], [due_ms])
    step_back(broker, 3_600_000)
    broker.send([b"now"])
    assert consumer.payloads() == [b"now"]
    broker.advance(3_600_000 + 9)
    assert consumer.payloads() == []
    broker.advance(1)
    assert consumer.payloads() == [b"later"]
    hashes = broker.state_hashes()
    broker.restart()  # commands in order of time: replay does not refuse them
    assert len(broker.state_hashes()) == len(hashes)
