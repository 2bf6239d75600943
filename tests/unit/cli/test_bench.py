"""`dejaq bench`: what is measured with, how it is shown, and that nothing is left.

Not covered: the figures themselves, which are the machine's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest

import dejaqueue
from dejaqueue.cli import bench as module
from dejaqueue.clock import SystemClock
from tests.cli.conftest import Run, invoke

ROWS = 2_500


def topics(url: str) -> list[str]:
    with dejaqueue.Client(url) as client:
        return [topic.name for topic in client.topics()]


def test_messages_are_cut_into_batches__each_with_its_due_times() -> None:
    tables = module._batches(range(ROWS))
    assert [table.num_rows for table in tables] == [1_000, 1_000, 500]
    dues = [due for table in tables for due in table["due"].to_pylist()]
    assert dues == list(range(ROWS))
    assert set(map(len, tables[-1]["payload"].to_pylist())) == {module.PAYLOAD_BYTES}


def test_all_that_is_sent_is_due__and_taken_and_acked(url: str) -> None:
    with dejaqueue.Client(url) as client:
        client.create_topic("b")
        assert module._enqueue(client, "b", ROWS) > 0
        assert client.stats("b")["ready"] == ROWS
        assert module._lease_ack(client, "b", ROWS) > 0
        stats = client.stats("b")
        assert (stats["acked"], stats["scheduled"], stats["leased"]) == (ROWS, 0, 0)


class Late:
    """A client whose messages come 20 ms, 20 ms and 60 ms after they were due."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send_batch(self, topic: str, table: Any) -> None:
        self.sent += table["due"].to_pylist()

    @contextmanager
    def consume_batches(self, topic: str, *, max_messages: int) -> Iterator[Any]:
        assert max_messages == len(self.sent)
        now_ms = SystemClock().now_us() // 1_000
        yield [Batch(np.array([now_ms - late_ms])) for late_ms in (20, 20, 60)]


class Batch:
    def __init__(self, dues_ms: np.ndarray) -> None:
        self.dues_ms = dues_ms

    def ack(self, *, wait: bool) -> None:
        assert not wait


def test_lateness_is_from_the_due_time_to_the_application__in_milliseconds() -> None:
    client = Late()
    now_ms = SystemClock().now_ms()
    p50_ms, p99_ms, most_ms = module._lateness(cast(dejaqueue.Client, client), "t", 2)
    assert 20 <= p50_ms < 60 <= most_ms < 10_000
    assert p50_ms < p99_ms <= most_ms
    assert len(client.sent) == 2 * module.LATENESS_RATE
    assert client.sent[0] >= now_ms + module.LATENESS_LEAD_MS
    assert client.sent[-1] - client.sent[0] == 1_999


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_enqueue", lambda *given: 1_234_567.8)
    monkeypatch.setattr(module, "_lateness", lambda *given: (0.1234, 1.5, 2_000.4))


@pytest.mark.usefixtures("short")
def test_figures_are_lines_or_json__and_the_topic_is_gone(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_lease_ack", lambda *given: 7.0)
    assert run("bench").stdout.splitlines() == [
        "enqueue 1,234,568 messages/s",
        "lease_ack 7.000 messages/s",
        "lateness_p50 0.123 ms",
        "lateness_p99 1.500 ms",
        "lateness_max 2,000 ms",
    ]
    rows = [json.loads(line) for line in run("bench", "--json").stdout.splitlines()]
    assert rows[0] == {"name": "enqueue", "value": 1_234_567.8, "unit": "messages/s"}
    assert topics(url) == []


@pytest.mark.usefixtures("short")
def test_the_topic_is_gone_where_it_breaks_off(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_lease_ack", fails)
    assert invoke("bench", url=url).exit_code != 0
    assert topics(url) == []
