"""Batches to Kafka, once each: what is noted before, and what is left out the second time.

Tables are sets of sources. With Kafka and Spark: tests/spark/test_reorder.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from dejaqueue.pipelines.reordering import target as module
from dejaqueue.pipelines.reordering.kafka import KafkaSide
from dejaqueue.pipelines.reordering.target import CLOCKS_MS_MAX, NOTE, Target
from dejaqueue.testing.virtual_clock import VirtualClock

NOW_MS = 1_700_000_000_000


class Rows:
    """A table: where its records came from."""

    sparkSession = "spark"  # noqa: N815 - Spark's name

    def __init__(self, *sources: str) -> None:
        self.sources = sources

    def __getitem__(self, name: str) -> Any:
        return {"kafka.from": name}

    def withColumn(self, name: str, column: Any) -> Rows:
        return self

    def distinct(self) -> Rows:
        return self

    def cache(self) -> Rows:
        return self

    def count(self) -> int:
        return len(self.sources)

    def join(self, other: Rows, on: str, how: str) -> Rows:
        assert on == "source"
        wants = {"left_semi": True, "left_anti": False}[how]
        return Rows(*(one for one in self.sources if (one in other.sources) == wants))


class Kafka:
    """A topic: what was written to it, and from when on it was looked at."""

    def __init__(self, note: Path) -> None:
        self.written: list[str] = []
        self.looks: list[int] = []
        self.fails_after = -1
        self.noted: list[Any] = []
        self._note = note

    def since(self, spark: Any, topic: str, since_ms: int) -> Rows:
        assert (spark, topic) == ("spark", "out")
        self.looks.append(since_ms)
        return Rows(*self.written)

    def append(self, records: Rows, topic: str) -> None:
        self.noted.append(json.loads(self._note.read_text()))
        for source in records.sources:
            if self.fails_after == 0:
                raise ConnectionError("Kafka is gone")
            self.fails_after -= 1
            self.written.append(source)


class Site:
    """A folder of state, a Kafka and a clock; targets come and go."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.kafka = Kafka(self.state / NOTE)
        self.clock = VirtualClock(start_ms=NOW_MS)

    def target(self) -> Target:
        return Target(cast(KafkaSide, self.kafka), "out", str(self.state), self.clock)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(module, "records_of", lambda batch: batch)
    monkeypatch.setattr(module, "sources_of", lambda records: records)
    return Site(tmp_path)


def batch(*sources: str) -> Any:
    return Rows(*sources)


def test_a_batch_is_noted_before_its_first_row__and_kafka_is_not_asked(site: Site) -> None:
    target = site.target()
    target.write(batch("a", "b"), 7)
    site.clock.advance(ms=5)
    target.write(batch("c"), 8)
    assert site.kafka.written == ["a", "b", "c"]
    assert site.kafka.noted == [
        {"batch": 7, "began_ms": NOW_MS},
        {"batch": 8, "began_ms": NOW_MS + 5},
    ]
    assert (site.kafka.looks, target.left_out) == ([], 0)


def test_a_batch_that_broke_off_is_finished_by_the_next_one__nothing_twice(site: Site) -> None:
    site.kafka.fails_after = 2
    with pytest.raises(ConnectionError):
        site.target().write(batch("a", "b", "c"), 7)
    site.kafka.fails_after = -1
    site.clock.advance(ms=3_600_000)
    again = site.target()
    again.write(batch("a", "b", "c"), 7)
    assert site.kafka.written == ["a", "b", "c"]
    assert again.left_out == 2
    # From when it was begun, not from now: and the clocks of machines may differ.
    assert site.kafka.looks == [NOW_MS - CLOCKS_MS_MAX]


def test_an_earlier_batch_is_not_taken_for_this_one(site: Site) -> None:
    site.target().write(batch("a"), 7)
    site.target().write(batch("a"), 8)
    assert site.kafka.written == ["a", "a"]


def test_half_a_note_is_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash while it is written leaves the note of before."""
    target = site.target()
    target.write(batch("a"), 7)
    crashing = SimpleNamespace(
        get_file_info=target._system.get_file_info,
        open_input_stream=target._system.open_input_stream,
        open_output_stream=target._system.open_output_stream,
    )
    monkeypatch.setattr(target, "_system", crashing)  # it cannot give a file its name
    with pytest.raises(AttributeError, match="move"):
        target.write(batch("b"), 8)
    again = site.target()
    again.write(batch("a"), 7)
    assert (site.kafka.written, again.left_out) == (["a"], 1)


def test_a_state_may_be_a_uri(site: Site) -> None:
    target = Target(cast(KafkaSide, site.kafka), "out", site.state.as_uri(), site.clock)
    target.write(batch("a"), 7)
    assert json.loads((site.state / NOTE).read_text())["batch"] == 7
