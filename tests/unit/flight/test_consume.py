"""What is on its way to a consumer: a delivery for which there is no memory ends its stream aloud.

Covered: that. Not covered: streams as such (integration).
"""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.errors import Unavailable
from dejaqueue.flight.consume import NO_MEMORY_RETRY_MS, _Outbound
from dejaqueue.wire import frames
from dejaqueue.wire.frames import Close, StreamError


class Written:
    def __init__(self) -> None:
        self.frames: SimpleQueue[Any] = SimpleQueue()

    def begin(self, _schema: pa.Schema) -> None: ...

    def write_metadata(self, content: pa.Buffer) -> None:
        self.frames.put(frames.decode(memoryview(content)))


def test_without_memory_for_a_delivery_the_client_is_told_to_open_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def deliver(_self: _Outbound, _pushes: list[Push]) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    writer = Written()
    outbound = _Outbound(None, writer)  # type: ignore[arg-type]
    monkeypatch.setattr(_Outbound, "_next", lambda self: self._lane.take())
    monkeypatch.setattr(_Outbound, "_deliver", deliver)
    outbound.start()
    outbound._lane.put([])  # type: ignore[arg-type]
    said = writer.frames.get(timeout=10)
    assert isinstance(said, StreamError)
    assert isinstance(said.error, Unavailable)
    assert said.error.retry_after_ms == NO_MEMORY_RETRY_MS
    assert isinstance(writer.frames.get(timeout=10), Close)
    outbound.finish()
