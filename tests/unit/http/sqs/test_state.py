"""What operations share: when messages were received first, bounded."""

from __future__ import annotations

import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.service import Service
from dejaqueue.http.sqs import state as module
from dejaqueue.http.sqs.state import Sqs


def test_first_receives_are_remembered__so_many_at_most(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_RECEIVES_MAX", 2)
    shared = Sqs(Service(broker, Gate(), lambda: True))
    for number in range(3):
        assert shared.first_receive_ms("q", number, 1, 100 + number) == 100 + number
    assert shared.first_receive_ms("q", 2, 2, 900) == 102
    assert shared.first_receive_ms("q", 0, 2, 900) == 900, "it was forgotten"
    assert len(shared.first_receives) == 2
