"""What users may say of Kafka's records, refused by name. The records themselves: tests/spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.reordering.records import SCOPE, messages_of


class AnalysisException(Exception):
    """As Spark's, by its name."""


class ParseException(Exception):
    """As Spark's, by its name."""


class Records:
    """A table that notes its columns; `said` has the type of the test's, or Spark refuses it."""

    def __init__(self, kind: str = "bigint", wrong: Exception | None = None) -> None:
        self.selected: list[tuple[str, ...]] = []
        self._kind, self._wrong = kind, wrong

    def selectExpr(self, *columns: str) -> Records:
        if self._wrong is not None and any(column.endswith("as said") for column in columns):
            raise self._wrong
        self.selected.append(columns)
        return self

    @property
    def schema(self) -> Any:
        kind = SimpleNamespace(simpleString=lambda: self._kind)
        return {"said": SimpleNamespace(dataType=kind)}


def column(by: str, kind: str) -> str:
    records = Records(kind)
    messages_of(cast(Any, records), by, "offset * 7")
    assert records.selected[1] == ("scope.*", "carried")
    assert records.selected[2] == ("(offset * 7) as said", "carried")
    carried, last = records.selected[3]
    assert carried == "carried.*"
    return last


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "bigint", "int", "string", "void"])
def test_a_due_time_is_held_between_what_there_is(kind: str) -> None:
    said = column("due", kind)
    assert said.startswith("least(greatest(")
    assert said.endswith(f", 0L), {limits.INSTANT_MS_MAX}L) as due")
    assert ("unix_micros" in said) == kind.startswith("timestamp")


@pytest.mark.parametrize("kind", ["bigint", "int", "smallint", "tinyint", "string", "void"])
def test_a_priority_is_held_between_what_there_is(kind: str) -> None:
    said = column("priority", kind)
    assert f", 0L), {limits.PRIORITY_MAX}L) as int) as priority" in said


@pytest.mark.parametrize(
    ("by", "kind", "text"),
    [
        ("due", "double", "--column: a timestamp, or UTC milliseconds, got: 'double'"),
        ("due", "date", "--column: a timestamp"),
        ("priority", "timestamp", f"--column: a whole number from 0 to {limits.PRIORITY_MAX}"),
        ("priority", "array<int>", "got: 'array<int>'"),
    ],
)
def test_a_type_that_says_neither_is_refused(by: str, kind: str, text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        column(by, kind)
    assert text in str(refused.value)


@pytest.mark.parametrize("kind", [AnalysisException, ParseException])
def test_an_expression_that_spark_does_not_understand_is_refused_in_one_line(
    kind: type[Exception],
) -> None:
    records = Records(wrong=kind("there is no column `colour`\nand a plan of many lines"))
    with pytest.raises(BadRequest) as refused:
        messages_of(cast(Any, records), "due", "colour")
    said = str(refused.value)
    assert said.startswith("--column: an SQL expression over ")
    assert "there is no column `colour`" in said
    assert "many lines" not in said
    assert all(name in said for name in SCOPE)


def test_what_else_breaks_in_spark_is_not_blamed_on_the_expression() -> None:
    records = Records(wrong=ConnectionError("the cluster is gone"))
    with pytest.raises(ConnectionError, match="the cluster is gone"):
        messages_of(cast(Any, records), "due", "offset")
