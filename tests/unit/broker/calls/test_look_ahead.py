"""What is due when, of an engine of each order."""

from __future__ import annotations

import pytest

from dejaqueue.broker.calls.look_ahead import HORIZONS, Outlook, look_ahead
from tests.rules.broker_fixture import TOPIC, BrokerFixture


@pytest.mark.parametrize("kind", ["timeline", "priority", "fair"])
def test_what_is_ready_and_what_falls_due_within_each_horizon(kind: str) -> None:
    fixture = BrokerFixture(kind=kind)
    try:
        dues_ms = [fixture.now_ms - 5, fixture.now_ms, fixture.now_ms + 900]
        fixture.send([b"a", b"b", b"c", b"d"], [*dues_ms, fixture.now_ms + 30_000])
        found = fixture.broker.runtime(TOPIC).look(0, look_ahead).result(10)
        assert (found.ready, found.excess) == (2, 0)
        assert dict(zip(HORIZONS, found.due_within, strict=True)) == {
            "1s": 1, "10s": 1, "1m": 2, "10m": 2, "1h": 2,
        }  # fmt: skip
    finally:
        fixture.stop()


def test_outlooks_are_added_up() -> None:
    one = Outlook(1, (1, 2, 3, 4, 5), 1)
    assert one + Outlook(2, (1, 1, 1, 1, 1), 0) == Outlook(3, (2, 3, 4, 5, 6), 1)
