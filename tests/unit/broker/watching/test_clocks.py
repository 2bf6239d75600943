"""How a broker's clock is, from outside. What it does about it: test_timekeeping.py."""

from __future__ import annotations

import dejaqueue
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.watching.clocks import ClockNumbers, clock_numbers
from dejaqueue.local import LocalTransport
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock

HOUR_MS = 3_600_000


def test_a_jump_is_shown_until_it_is_believed__and_what_was_put_right_afterwards() -> None:
    clock = VirtualClock()
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), clock)
    broker.start()
    try:
        broker.create_topic(Topic("t"))
        with dejaqueue.Client(transport=LocalTransport(broker)) as client:
            client.send("t", b"x")
        assert clock_numbers(broker) == ClockNumbers(0, 0, 0, 0, 0, None)
        clock.jump(ms=-HOUR_MS)
        assert clock_numbers(broker).jump_us == -HOUR_MS * 1_000
        for _ in range(40):
            clock.advance(ms=1_000)
        broker.runtime("t").look(0, lambda core: None).result(10)
        broker.runtime("t").look(0, lambda core: None).result(10)
        numbers = clock_numbers(broker)
        assert (numbers.jump_us, numbers.jump_count, numbers.set_count) == (0, 1, 1)
    finally:
        broker.stop()
