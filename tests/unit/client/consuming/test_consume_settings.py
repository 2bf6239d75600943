"""What `prefetch` counts: what is held, or what is not settled; other settings are tested with the
core
(test_consume_core.py).
"""

from __future__ import annotations

from dejaqueue.client.consuming.consume_settings import ConsumeSettings
from dejaqueue.client.consuming.settle_batches import ACKED
from dejaqueue.wire.frames import SettleOp
from tests.patience import until
from tests.unit.client.consuming.test_consume_core import Bench


def test_prefetch_counts_what_is_held__by_default() -> None:
    assert ConsumeSettings(1, True, 0).until_settled is False
    bench = Bench(prefetch=2)
    bench.sync_clocks()
    bench.deliver(0, 0)
    assert bench.core.take(2) is not None
    assert bench.channel.credits == [2, 2]


def test_prefetch_counts_what_is_at_work__until_settled() -> None:
    bench = Bench(prefetch=2, until_settled=True)
    bench.sync_clocks()
    bench.deliver(0, 0)
    found = bench.core.take(2)
    assert found is not None
    assert bench.channel.credits == [2]
    bench.core.settle(SettleOp.EXTEND, found, 1_000)
    assert bench.channel.credits == [2]
    bench.core.settle(SettleOp.ACK, found)
    assert bench.channel.credits == [2, 2]


def test_messages_that_are_settled_together_make_room__until_settled() -> None:
    bench = Bench(prefetch=2, until_settled=True)
    bench.sync_clocks()
    bench.deliver(0, 0)
    found = bench.core.take(2)
    assert found is not None
    for message_id, attempt in zip(found.ids.tolist(), found.attempts.tolist(), strict=True):
        bench.core.settle_together(ACKED, found.lease, message_id, attempt)
    bench.advance(2)
    assert bench.channel.credits == [2, 2]


def test_what_is_at_work_counts_on_the_next_stream__until_settled() -> None:
    bench = Bench(prefetch=3, until_settled=True)
    bench.sync_clocks()
    bench.deliver(0)
    found = bench.core.take(1)
    assert found is not None
    bench.channel.break_off()
    again = bench.transport.wait_consumes(2)
    until(lambda: again.credits == [2])
    bench.core.settle(SettleOp.ACK, found)
    assert sum(again.credits) == 3


def test_a_consumer_that_drains_asks_for_nothing__until_settled() -> None:
    bench = Bench(prefetch=2, until_settled=True)
    bench.sync_clocks()
    bench.deliver(0, 0)
    found = bench.core.take(1)
    rest = bench.core.take(1)
    assert found is not None
    assert rest is not None
    bench.core.finish()
    bench.core.settle(SettleOp.ACK, found)
    assert [credit for credit in bench.channel.credits if credit] == [2]
