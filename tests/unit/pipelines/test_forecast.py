"""A forecast that the broker counts: stretches, what is overdue, the hottest seconds, advice.

Not covered: counting by Spark (tests/spark), what is needed (load/test_capacity.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dejaqueue.client.browsing import DueHistogram
from dejaqueue.errors import BadRequest
from dejaqueue.pipelines import forecast as module
from dejaqueue.pipelines.forecast import HISTOGRAM_SECONDS, Options
from dejaqueue.pipelines.frame import Outcome, Run
from dejaqueue.pipelines.load import measure

START_MS = 1_700_000_000_000


class Broker:
    """A broker whose topic has messages at these times."""

    def __init__(self, *dues_ms: int) -> None:
        self.dues_ms = np.array(dues_ms, dtype=np.int64)
        self.asked: list[tuple[int, int, float]] = []

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *error: object) -> None: ...

    def topic(self, name: str) -> Any:
        return SimpleNamespace(name=name, partitions=3)

    def histogram(self, topic: str, *, bucket: float, due_from: int, due_to: int) -> DueHistogram:
        bucket_ms = round(bucket * 1_000)
        self.asked.append((due_from, due_to, bucket))
        dues_ms = self.dues_ms[self.dues_ms < due_to]  # or the last edge would be inside
        edges = np.arange(due_from, due_to + bucket_ms, bucket_ms)
        return DueHistogram(due_from, bucket_ms, np.histogram(dues_ms, edges)[0])


class Working:
    """A run without Spark."""

    clock = SimpleNamespace(now_ms=lambda: START_MS)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        yield


def forecast(patch: pytest.MonkeyPatch, broker: Broker, **options: Any) -> Outcome:
    patch.setattr(Options, "client", lambda self: broker)
    given = Options.of({"topic": "t", "source": "broker", **options})
    return module.run(given, cast(Run, Working()))


def test_what_is_due_is_counted_by_second__and_what_was_due_before_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = [START_MS - 5_000] * 2
    soon = [START_MS + 1_500, START_MS + 1_501, START_MS + 1_501, START_MS + 61_000]
    far = [START_MS + 3_600_000]
    told = forecast(monkeypatch, Broker(*late, *soon, *far), ahead_ms="1h", hot=1).figures
    assert (told["due"], told["due_before"]) == (4, 2)
    assert (told["peak_per_second"], told["peak_second"]) == (3, "2023-11-14T22:13:21.000Z")
    assert told["hot"] == [{"second": "2023-11-14T22:13:21.000Z", "due": 3, "due_in_one_ms": 2}]
    assert (told["partitions_now"], told["topic"], told["spike_ahead_ms"]) == (3, "t", 0)


def test_what_the_partitions_of_now_cannot_serve_in_time_has_to_be_sent_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(*[START_MS + 1_500] * 30)
    told = forecast(monkeypatch, broker, ahead_ms="1h", hot=1, partition_rate=5).figures
    assert told["spike_ahead_ms"] == 2_000


def test_a_long_look_is_asked_in_stretches_that_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    step_ms = HISTOGRAM_SECONDS * 1_000
    broker = Broker(START_MS, START_MS + step_ms, START_MS + 2 * step_ms)
    told = forecast(monkeypatch, broker, ahead_ms=f"{2 * HISTOGRAM_SECONDS + 7}s", hot=0).figures
    assert told["due"] == 3
    stretches = [(begin, end) for begin, end, bucket in broker.asked if bucket == 1]
    assert stretches == [
        (START_MS, START_MS + step_ms),
        (START_MS + step_ms, START_MS + 2 * step_ms),
        (START_MS + 2 * step_ms, START_MS + 2 * step_ms + 7_000),
    ]


def test_it_looks_at_whole_seconds__the_first_and_the_last_included(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(START_MS + 100, START_MS + 1_950)
    told = forecast(monkeypatch, broker, from_ms=START_MS + 500, ahead_ms="1s").figures
    assert told["due"] == 2
    assert (told["from"], told["to"]) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:22.000Z")


def test_an_empty_topic_has_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    told = forecast(monkeypatch, Broker(), ahead_ms="1m").figures
    assert (told["due"], told["peak_per_second"], told["peak_second"], told["hot"]) == (
        *(0, 0),
        None,
        [],
    )


def test_what_was_measured_counts_in_place_of_what_was_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure, "measure_partition", lambda client: 12_345.6)
    broker = Broker(START_MS)
    said = forecast(monkeypatch, broker, partition_rate=77, ahead_ms="1s").figures
    assert said["partition_rate"] == 77
    measured = forecast(monkeypatch, broker, partition_rate=77, measure=True, ahead_ms="1s")
    assert measured.figures["partition_rate"] == 12_346


def test_the_page_is_written_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "load.html"
    told = forecast(monkeypatch, Broker(START_MS), ahead_ms="1m", report=str(page)).figures
    assert told["report"] == str(page)
    assert "<svg" in page.read_text()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ahead_ms": "999ms"}, "--ahead: from 1s to 366d"),
        ({"ahead_ms": "367d"}, "--ahead: from 1s to 366d"),
        ({"lateness_ms": "0s"}, "--lateness: at least 1ms"),
        ({"consumer_rate": 0}, "--consumer-rate"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], text: str
) -> None:
    broker = Broker()
    with pytest.raises(BadRequest) as refused:
        forecast(monkeypatch, broker, **options)
    assert text in str(refused.value)
    assert broker.asked == []
