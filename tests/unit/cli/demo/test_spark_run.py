"""The demo on Spark without Spark: its verdict, its flights, how long it drains.

Not covered: a run (tests/spark/test_demo_spark.py).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow.parquet as parquet
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from dejaqueue.cli.demo import spark_run as module
from dejaqueue.cli.demo.spark_check import Check
from dejaqueue.cli.demo.spark_run import YEAR_ROWS, Drain, Result
from dejaqueue.clock import SystemClock
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.pipelines.frame import Outcome, Run

ONE = np.ones(1, dtype=np.int64)
CHECK = Check(1, 1, 0, 0, 0, 0, 0, 0, ONE, ONE)
PLANNED = {"peak_per_second": 2, "late": 0, "first": "a", "last": "b", "audience": 9}
GOOD = Result(CHECK, PLANNED, 0, [], Outcome({"lost": 0, "changes": 8}))


def test_it_is_good_where_nothing_at_all_is_wrong() -> None:
    assert GOOD.is_good
    assert replace(GOOD, sockets=None).is_good, "nobody can tell here"
    for wrong in (
        {"check": replace(CHECK, lost=1)},
        {"planned": PLANNED | {"late": 1}},
        {"not_stopped": 1},
        {"sockets": ["0.0.0.0:80"]},
        {"audited": Outcome({}, is_good=False)},
    ):
        assert not replace(GOOD, **cast(Any, wrong)).is_good, wrong


def test_figures_are_those_of_the_check_the_campaign_and_the_audit() -> None:
    figures = replace(GOOD, sockets=["a", "b"], not_stopped=3).figures()
    assert figures.items() >= CHECK.figures().items()
    assert (figures["peak_per_second"], figures["audit_lost"]) == (2, 0)
    assert (figures["not_stopped"], figures["sockets_beyond_loopback"]) == (3, 2)
    assert not {"audience", "audit_changes"} & figures.keys()
    assert replace(GOOD, sockets=None).figures()["sockets_beyond_loopback"] is None


def test_more_rows_are_scheduled_further_ahead() -> None:
    assert module._lead_ms(8_000, YEAR_ROWS) > module._lead_ms(8_000, 1_000) > module.LEAD_MS
    assert module._lead_ms(0, YEAR_ROWS) == module.LEAD_MS


# --- flights ------------------------------------------------------------------------------------

HEAD = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,"
    "flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour\n"
)
FLIGHT = "2013,{day},517,515,2,830,819,11,UA,1545,N1,EWR,{to},227,1400,5,15,2013-01-01T10:00:00Z\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two flights, and the airports of which one has no time zone."""
    rows = [FLIGHT.format(day="1,1", to="IAH"), FLIGHT.format(day="7,1", to="BQN")]
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", HEAD + "".join(rows))
    airports = "faa,name,lat,tzone\nIAH,Houston,1,America/Chicago\nXXX,Nowhere,2,NA\n"
    (tmp_path / "airports.csv").write_text(airports)
    monkeypatch.setattr(module, "find_file", lambda name="flights.csv.zip": tmp_path / name)


@pytest.mark.usefixtures("installed")
def test_a_day_has_its_own_flights_alone__and_one_without_any_is_refused() -> None:
    assert module._read_flights(None)["dest"].to_pylist() == ["IAH", "BQN"]
    july = module._read_flights(date(2013, 7, 1))
    assert july.column_names == ["user", "dest", "scheduled_ms"]
    assert july["dest"].to_pylist() == ["BQN"]
    with pytest.raises(BadRequest, match="--date: a day of 2013"):
        module._read_flights(date(2014, 1, 1))


@pytest.mark.usefixtures("installed")
def test_airports_have_a_zone_or_none(tmp_path: Path) -> None:
    module._write_airports(tmp_path / "airports.parquet")
    rows = parquet.read_table(tmp_path / "airports.parquet").to_pylist()
    assert rows == [
        {"dest": "IAH", "airport": "Houston", "zone": "America/Chicago"},
        {"dest": "XXX", "airport": "Nowhere", "zone": None},
    ]


# --- draining -----------------------------------------------------------------------------------


class Query:
    """A streaming query of Spark, which goes on by a batch with each look."""

    def __init__(self, rows: list[int], failure: str = "") -> None:
        self._left, self._failure = list(enumerate(rows)), failure
        self._done: list[Any] = []
        self.told: list[str] = []

    def exception(self) -> str | None:
        return self._failure or None

    @property
    def recentProgress(self) -> list[Any]:
        if self._left:
            number, rows = self._left.pop(0)
            self._done.append(SimpleNamespace(batchId=number, numInputRows=rows))
        return self._done[-2:]  # Spark forgets, too

    def __getattr__(self, name: str) -> Any:
        return lambda: self.told.append(name)


class Clock:
    """A clock that goes on when somebody waits."""

    ms = 0

    def now_ms(self) -> int:
        return self.ms

    def wait_until(self, until_us: int, wake: Any) -> None:
        self.ms = until_us // 1_000


class Says:
    """The run's progress."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.said: list[str] = []

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        self.steps.append(text)
        yield

    def say(self, text: str) -> None:
        self.said.append(text)


class Draining:
    """A drain over queries of the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *queries: Query) -> None:
        self.clock, self.says = Clock(), Says()
        self.started: list[bool] = []
        self._queries = list(queries)
        self.drain = Drain(cast(Any, None), "dejaq://h", Path("out"), Path("checkpoint"))
        monkeypatch.setattr(self.drain, "_start", self._start)

    def _start(self, *, available_now: bool = False) -> Query:
        self.started.append(available_now)
        return self._queries.pop(0)

    def until(self, planned: int, end_ms: int) -> list[str] | None:
        clock, run = cast(SystemClock, self.clock), cast(Run, self.says)
        return self.drain.until(planned, clock, end_ms, run)


def test_it_drains_until_all_have_come__and_then_once_more_from_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "beyond_loopback", lambda pid: ["0.0.0.0:80"])
    first, again = Query([0, 2, 3, 4]), Query([])
    draining = Draining(monkeypatch, first, again)
    assert draining.until(9, 1_000_000) == ["0.0.0.0:80"]
    assert draining.drain.count == 9, "each batch counts once"
    assert draining.clock.ms == 4 * module.LOOK_EVERY_MS
    assert draining.started == [False, True]
    assert (first.told, again.told) == (["stop"], ["awaitTermination"])


def test_it_ends_when_what_is_lacking_had_time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "beyond_loopback", lambda pid: [])
    draining = Draining(monkeypatch, Query([2]), Query([]))
    assert draining.until(3, 5_000) == []
    over_ms = 5_000 + module.GRACE_MS
    assert over_ms <= draining.clock.ms < over_ms + module.LOOK_EVERY_MS
    assert draining.says.said[0] == "2 have arrived"
    assert len(draining.says.said) == draining.clock.ms // (module.SAY_EVERY_MS + 100)


def test_a_query_that_fails_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    draining = Draining(monkeypatch, Query([1], failure="out of memory"))
    with pytest.raises(Unavailable, match="the streaming query failed: out of memory"):
        draining.until(3, 5_000)
