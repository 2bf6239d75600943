"""Rule 7: within a partition by (due, sequence)."""

import numpy as np

from tests.rules.conftest import MakeBroker


def test_due_decides_then_the_order_of_sending(make_broker: MakeBroker) -> None:
    broker = make_broker()
    now = broker.now_ms
    broker.send([b"c1", b"a1", b"b1"], [now + 3, now + 1, now + 2])
    broker.send([b"a2", b"c2"], [now + 1, now + 3])
    consumer = broker.consumer(holds=False)
    broker.advance(10)
    assert consumer.payloads() == [b"a1", b"a2", b"b1", b"c1", b"c2"]


def test_a_thousand_random_dues_come_in_order(make_broker: MakeBroker) -> None:
    broker = make_broker()
    dues = np.random.default_rng(7).integers(0, 50, 1_000) + broker.now_ms
    for part in np.split(np.arange(1_000), 10):
        broker.send([b"%d" % row for row in part], dues[part].tolist())
    consumer = broker.consumer(credit=10_000)
    broker.advance(60)
    got = [int(payload) for payload in consumer.payloads()]
    assert got == sorted(range(1_000), key=lambda row: (dues[row], row))
