"""Covers: a broker whose place was taken lets go of its topics, says so, and notes it.

Not covered: who finds out (tests/unit/broker/standby/test_standby.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.backup.fence import Fence
from dejaqueue.broker.standby.record import StandbyRecord, StandbyState
from dejaqueue.errors import NotActive
from tests.backups import client_of, started

FENCE = Fence("9f", "a1", 0, "dejaq://b:7464")


def test_topics_are_let_go_of__and_a_start_is_refused(tmp_path: Path) -> None:
    broker = started(tmp_path / "data")
    client = client_of(broker)
    client.create_topic("a")
    client.send("a", b"1")
    with client.consume("a", idle_ms=60_000) as messages:
        assert next(iter(messages)).payload == b"1"
        broker.replaced(FENCE)
        with pytest.raises(NotActive, match="standby a1"):
            next(iter(messages))
    with pytest.raises(NotActive, match="standby a1"):
        client.send("a", b"2")
    record = StandbyRecord.load(broker.store)
    assert record is not None
    assert (record.state, Fence.from_text(record.fence)) == (StandbyState.REPLACED, FENCE)
    broker.stop()
    with pytest.raises(NotActive, match="standby a1"):
        started(tmp_path / "data")
