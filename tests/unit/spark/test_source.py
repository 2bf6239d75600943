"""Which reader and writer Spark gets, and what is refused before there is one."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import BinaryType, DoubleType, LongType, StructField, StructType

from dejaqueue.errors import BadRequest
from dejaqueue.spark.columns import HISTORY, READ
from dejaqueue.spark.history import FilteringHistoryReader, HistoryReader
from dejaqueue.spark.reader import FilteringReader, Reader
from dejaqueue.spark.source import DejaqSource, DejaqSourceWithFilters
from dejaqueue.spark.stream_reader import StreamReader

PAYLOAD = StructType([StructField("payload", BinaryType())])
AT_MS = StructType([StructField("at_ms", LongType())])
DUE = StructType([StructField("due", LongType())])
WRONG = StructType([StructField("payload", DoubleType())])


def source(kind: type[DejaqSource] = DejaqSource, /, **options: str) -> DejaqSource:
    return kind({"topic": "t", **options})


def columns(**options: str) -> list[str]:
    return [part.split("`")[1] for part in source(**options).schema().split(", ")]


def test_users_call_it_dejaq() -> None:
    assert DejaqSource.name() == DejaqSourceWithFilters.name() == "dejaq"


def test_a_table_has_the_columns_of_its_view_or_those_that_are_named() -> None:
    assert columns() == list(READ)
    assert columns(view="history") == list(HISTORY)
    assert columns(columns="due, `group`") == ["due", "group"]
    with pytest.raises(BadRequest, match="option columns"):
        columns(columns="at_ms")
    assert columns(columns="at_ms", view="history") == ["at_ms"]


@pytest.mark.parametrize(
    ("kind", "view", "schema", "expected"),
    [
        (DejaqSource, "messages", PAYLOAD, Reader),
        (DejaqSource, "history", AT_MS, HistoryReader),
        (DejaqSourceWithFilters, "messages", PAYLOAD, FilteringReader),
        (DejaqSourceWithFilters, "history", AT_MS, FilteringHistoryReader),
    ],
)
def test_filters_are_taken_only_where_the_session_lets_sources_take_them(
    kind: type[DejaqSource], view: str, schema: StructType, expected: type[Any]
) -> None:
    """Spark fails queries of sources that take filters in a session that does not let them."""
    found = source(kind, view=view).reader(schema)
    assert type(found) is expected
    takes = type(found).pushFilters is not DataSourceReader.pushFilters
    assert takes == (kind is DejaqSourceWithFilters)


@pytest.mark.parametrize("kind", [DejaqSource, DejaqSourceWithFilters])
@pytest.mark.parametrize(("view", "schema"), [("messages", AT_MS), ("history", PAYLOAD)])
def test_a_column_of_the_other_view_is_refused(
    kind: type[DejaqSource], view: str, schema: StructType
) -> None:
    with pytest.raises(BadRequest, match="column"):
        source(kind, view=view).reader(schema)


def test_a_stream_reads_messages_in_types_that_there_are() -> None:
    assert isinstance(source().streamReader(PAYLOAD), StreamReader)
    with pytest.raises(BadRequest, match="type of column payload"):
        source().streamReader(WRONG)


def test_only_a_table_may_leave_messages_out() -> None:
    drops = source(mode="DROPMALFORMED")
    assert isinstance(drops.reader(PAYLOAD), Reader)
    for way in (
        lambda: drops.streamReader(PAYLOAD),
        lambda: drops.writer(PAYLOAD, overwrite=False),
        lambda: drops.streamWriter(PAYLOAD, overwrite=False),
        lambda: source(mode="DROPMALFORMED", view="history").reader(AT_MS),
    ):
        with pytest.raises(BadRequest, match="option mode: FAILFAST"):
            way()


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(BadRequest, match="mode: append: a topic is not overwritten"):
        source().writer(PAYLOAD, overwrite=True)
    with pytest.raises(BadRequest, match="output mode: append"):
        source().streamWriter(PAYLOAD, overwrite=True)


def test_a_table_that_can_be_no_schedule_is_refused_before_the_broker_is_asked() -> None:
    with pytest.raises(BadRequest, match="type of column payload"):
        source(url="dejaq://127.0.0.1:1").writer(WRONG, overwrite=False)
    with pytest.raises(BadRequest, match="column payload"):
        source().streamWriter(DUE, overwrite=False)


@pytest.mark.parametrize("call", ["schema", "reader", "streamReader", "writer"])
def test_options_are_checked_by_every_way_in(call: str) -> None:
    given = DejaqSource({"topic": "t", "colour": "red"})
    ways: dict[str, Any] = {
        "schema": given.schema,
        "reader": lambda: given.reader(PAYLOAD),
        "streamReader": lambda: given.streamReader(PAYLOAD),
        "writer": lambda: given.writer(PAYLOAD, overwrite=False),
    }
    with pytest.raises(BadRequest, match="option colour"):
        ways[call]()
