"""What an audit asks, in which order, and what it says. What faults are: tests/spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines import audit as module
from dejaqueue.pipelines.audit import Options
from dejaqueue.pipelines.auditing.faults import FAULTS, GAP_COLUMNS, HISTORY_COLUMNS, Bounds
from dejaqueue.pipelines.auditing.figures import QUANTILES
from dejaqueue.pipelines.auditing.findings import Findings
from dejaqueue.pipelines.frame import Outcome, Run

NOW_MS = 1_700_000_000_000
FOUND = Findings(
    messages=7,
    deliveries=6,
    unknown_begin=0,
    faults=dict.fromkeys(FAULTS, 0),
    gaps=0,
    missed=0,
    from_ms=0,
    to_ms=1_000,
    quantiles={"p50_ms": 5},
    max_ms=9,
)


class Column:
    """A column by its name: comparisons are texts."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __ge__(self, value: object) -> Any:
        return f"{self._name} >= {value}"

    def __lt__(self, value: object) -> Any:
        return f"{self._name} < {value}"

    def isin(self, *values: str) -> str:
        return f"{self._name} in {values}"


class Table:
    """Stands for a table: tells its log what is done to it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log

    def __getitem__(self, name: str) -> Column:
        return Column(name)

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            words = ",".join(str(one) for one in given)
            self._log.append(f"{self._name} {name} {words}".strip())
            return 11 if name == "count" else self

        return self if name == "write" else call


class Audit:
    """A run whose tables are the test's."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.found = FOUND
        self.bounds: list[Bounds] = []
        self.fails = False
        self.clock = SimpleNamespace(now_ms=lambda: NOW_MS)
        self.spark = None
        patch.setattr(module, "_live", lambda *given: self._table("live"))
        patch.setattr(module, "_history", lambda *given: self._table("history"))
        patch.setattr(module, "_gaps", lambda *given: self._table("gaps"))
        patch.setattr(module, "with_lives", lambda history, gaps: self._table("lives"))
        patch.setattr(module, "faults_of", self._faults)
        patch.setattr(module, "figures_of", lambda *given: self._table("figures"))
        patch.setattr(module, "_collect", self._collect)

    def _table(self, name: str) -> Any:
        self.log.append(name)
        return Table(name, self.log)

    def _faults(self, lives: Any, bounds: Bounds, live: Any) -> Any:
        self.bounds.append(bounds)
        return self._table("faults" if live is None else "faults with live")

    def _collect(self, *given: Any) -> Findings:
        if self.fails:
            raise OSError("lost an executor")
        return self.found

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        yield

    def run(self, **options: Any) -> Outcome:
        return module.run(Options.of(options), cast(Run, self))


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Audit:
    return Audit(monkeypatch)


def test_the_broker_says_what_it_has_before_its_history_is_read(audit: Audit) -> None:
    """What came after would be missing from the one and not from the other."""
    audit.run(topics="mail")
    assert audit.log.index("live count") < audit.log.index("history")
    assert "faults with live" in audit.log


@pytest.mark.parametrize("past", [{"history": "/archive"}, {"topics": "mail", "to_ms": 5_000}])
def test_of_the_past_no_broker_is_asked(audit: Audit, past: dict[str, Any]) -> None:
    audit.run(**past, lost_ms="2s")
    assert "live" not in audit.log
    assert "faults" in audit.log
    assert audit.bounds == [Bounds(1_000, 2_000, past.get("to_ms", NOW_MS))]


@pytest.mark.parametrize("fails", [False, True])
def test_memory_is_given_back_however_it_ends(audit: Audit, fails: bool) -> None:
    audit.fails = fails
    if fails:
        with pytest.raises(OSError, match="lost an executor"):
            audit.run(topics="mail")
    else:
        audit.run(topics="mail")
    given_back = {line.rpartition(" ")[0] for line in audit.log if line.endswith(" unpersist")}
    assert given_back == {"faults with live", "lives", "gaps", "live"}


@pytest.mark.parametrize("fault", FAULTS)
def test_any_fault_or_gap_is_not_good(audit: Audit, fault: str) -> None:
    assert audit.run(topics="mail").is_good
    audit.found = replace(FOUND, faults={**FOUND.faults, fault: 1})
    told = audit.run(topics="mail")
    assert (told.is_good, told.figures[fault]) == (False, 1)
    audit.found = replace(FOUND, gaps=1)
    assert not audit.run(topics="mail").is_good


def test_figures_name_what_is_known_and_leave_open_what_is_not(audit: Audit) -> None:
    figures = audit.run(topics="mail").figures
    assert (figures["changes"], figures["messages"], figures["lateness_max_ms"]) == (11, 7, 9)
    assert (figures["lateness_p50_ms"], figures["lateness_p99_ms"]) == (5, None)
    assert "report" not in figures


def test_tables_and_the_page_are_written_where_they_are_asked_for(
    audit: Audit, tmp_path: Path
) -> None:
    audit.found = replace(FOUND, unknown_begin=3, quantiles=dict.fromkeys(QUANTILES, 5))
    page = tmp_path / "audit.html"
    told = audit.run(topics="mail,sms", figures="/f", faults="/x", report=str(page))
    assert {"figures parquet /f", "faults with live parquet /x"} <= set(audit.log)
    assert told.figures["report"] == str(page)
    text = page.read_text()
    assert "History of mail, sms" in text
    assert "Of 3 messages it does not have the begin" in text


def test_topics_or_a_history_have_to_be_named(audit: Audit) -> None:
    with pytest.raises(BadRequest, match="--topics: the names of topics, or --history"):
        audit.run()


class Spark:
    """A session that tells what is read."""

    def __init__(self, log: list[str]) -> None:
        self._log = log
        self.given: list[dict[str, str]] = []

    @property
    def read(self) -> Spark:
        return self

    def format(self, name: str) -> Spark:
        assert name == "dejaq"
        return self

    def options(self, **given: str) -> Spark:
        self.given.append(given)
        return self

    def load(self, topic: str) -> Any:
        return Table(topic, self._log)

    def parquet(self, path: str) -> Any:
        return Table(path, self._log)


@pytest.mark.parametrize("columns", [HISTORY_COLUMNS, GAP_COLUMNS])
def test_the_broker_is_asked_for_these_columns_of_every_topic_and_no_others(
    columns: tuple[str, ...],
) -> None:
    log: list[str] = []
    spark = Spark(log)
    options = Options.of({"topics": "mail,sms", "from_ms": 5, "to_ms": 9})
    module._history(options, cast(Any, spark), columns)
    assert [one["columns"].split(",") for one in spark.given] == [list(columns)] * 2
    assert {one["view"] for one in spark.given} == {"history"}
    assert len([line for line in log if " unionByName " in line]) == 1
    assert log[-2:] == ["mail where at_ms >= 5", "mail where at_ms < 9"]


def test_of_a_directory_only_the_topics_that_are_named_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_text", lambda name: f"{name} as text")
    log: list[str] = []
    module._history(Options.of({"history": "/h"}), cast(Any, Spark(log)), ("topic", "id"))
    assert log == ["/h withColumn topic,topic as text", "/h select topic,id"]
    named = Options.of({"history": "/h", "topics": "mail"})
    module._history(named, cast(Any, Spark(log)), ("topic",))
    assert log[-1] == "/h where topic in ('mail',)"
