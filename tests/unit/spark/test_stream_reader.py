"""Offsets, claims and their ends, as a streaming query goes through them. By Spark: tests/spark.

A broker that claims, extends and acks as the test says. What a claim is: tests/rules.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)
from pyspark.sql.types import BinaryType, StructField, StructType

from dejaqueue import limits
from dejaqueue.errors import BadRequest, Refused, Unavailable
from dejaqueue.spark import stream_reader as module
from dejaqueue.spark.options import Options
from dejaqueue.spark.stream_reader import ClaimStretch, StreamReader

SCHEMA = StructType([StructField("payload", BinaryType())])
START: dict[str, Any] = {"batch": 0, "rows": 0, "claims": {}}


class Broker:
    """Partitions with so many messages due, and every call in order."""

    def __init__(self, *due: int) -> None:
        self.due = list(due)
        self.claims: list[dict[str, Any]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.extended = threading.Event()
        self.fails = False
        self.is_lost: set[int] = set()
        """Partitions whose next claim has no answer, though it was made."""
        self.is_closed = False
        self.transport = self

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        assert name == "claim"
        self.claims.append(body)
        partition = body["partition"]
        rows = min(body["rows"], self.due[partition])
        self.due[partition] -= rows
        answer: Future[dict[str, Any]] = Future()
        claim = len(self.claims) if rows else None
        if partition in self.is_lost:
            self.is_lost.remove(partition)
            answer.set_exception(Unavailable("the broker has died"))
        else:
            answer.set_result({"claim": claim, "rows": rows, "ready": self.due[partition]})
        return answer

    def call(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if name == "describe_topic":
            return {"partitions": len(self.due)}
        if name == "claim":
            return self.action(name, body).result()
        self.calls.append((name, body))
        if name == "extend_claims":
            self.extended.set()
            if self.fails:
                raise Unavailable("the broker is away")
        return {"lost": []}

    def close(self) -> None:
        self.is_closed = True

    def said(self, name: str) -> list[Any]:
        """Claims that were extended or acked."""
        return [body["claims"] for called, body in self.calls if called == name]


class Query:
    """A reader over a broker."""

    def __init__(self, patch: pytest.MonkeyPatch, *due: int, **options: str) -> None:
        self.broker = Broker(*due)
        patch.setattr(Options, "client", lambda options, name: self.broker)
        self.reader = StreamReader(Options.of({"topic": "t", **options}), SCHEMA)

    def next(self, start: dict[str, Any] = START, limit: ReadLimit | None = None) -> dict[str, Any]:
        limit = limit or self.reader.getDefaultReadLimit()
        # Spark keeps offsets as text.
        found: dict[str, Any] = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        return found


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Query] = []

    def make(*due: int, **options: str) -> Query:
        made.append(Query(monkeypatch, *due, **options))
        return made[-1]

    yield make
    for query in made:
        query.reader.stop()
        assert query.broker.is_closed or query.reader._driver is None


def rows_of(offset: dict[str, Any]) -> dict[str, int]:
    return {name: sum(rows for _, rows in claims) for name, claims in offset["claims"].items()}


# --- claiming -----------------------------------------------------------------------------------


def test_rows_are_claimed_of_all_partitions_alike(queries: Any) -> None:
    query = queries(50, 50, 50)
    found = query.next(limit=ReadMaxRows(10))
    assert rows_of(found) == {"0": 4, "1": 4, "2": 2}
    assert (found["batch"], found["rows"]) == (1, 10)
    assert query.reader.reportLatestOffset() == {"ready": 140}


def test_a_claim_without_an_answer_is_made_again__what_is_lost_is_in_no_batch(queries: Any) -> None:
    query = queries(50, 50)
    query.broker.is_lost = {1}
    found = query.next(limit=ReadMaxRows(10))
    assert rows_of(found) == {"0": 5, "1": 5}
    assert found["claims"]["1"] == [[3, 5]]
    assert query.broker.due == [45, 40]


def test_what_one_partition_does_not_have_others_give(queries: Any) -> None:
    found = queries(1, 50, 0).next(limit=ReadMaxRows(30))
    assert rows_of(found) == {"0": 1, "1": 29}
    assert len(found["claims"]["1"]) > 1, "it was asked again"


def test_bytes_are_shared_out__and_rounded_up(queries: Any) -> None:
    query = queries(5, 5, 5, **{"max.bytes": "100"})
    assert isinstance(query.reader.getDefaultReadLimit(), ReadMaxBytes)
    query.next()
    assert {claim["bytes"] for claim in query.broker.claims} == {34}
    rows = queries(5, **{"max.rows": "3"})
    assert rows_of(rows.next()) == {"0": 3}
    assert "bytes" not in rows.broker.claims[0]


def test_a_batch_of_everything_is_bounded_too(queries: Any) -> None:
    query = queries(limits.CLAIM_ROWS_MAX + 9)
    assert query.next(limit=ReadAllAvailable())["rows"] == limits.CLAIM_ROWS_MAX


def test_where_nothing_is_due_the_query_stays_where_it_is(queries: Any) -> None:
    query = queries(0, 0)
    assert query.next() == START
    assert query.reader.partitions(START, START) == []


def test_a_query_that_ends_reads_what_was_due_at_its_beginning_and_no_more(queries: Any) -> None:
    query = queries(7, **{"max.rows": "3"})
    query.reader.prepareForTriggerAvailableNow()
    offset, rows = START, []
    for _ in range(4):
        offset = query.next(offset)
        rows.append(offset["rows"])
        query.broker.due[0] += 5  # others send meanwhile
    assert rows == [3, 3, 1, 1]
    assert offset["batch"] == 3, "the fourth time nothing was claimed"


# --- what becomes of claims ---------------------------------------------------------------------


def test_a_batch_is_acked_when_the_next_one_is_planned__once(queries: Any) -> None:
    query = queries(9, **{"max.rows": "3"})
    first = query.next()
    query.reader.partitions(START, first)
    assert query.broker.said("ack_claims") == []
    second = query.next(first)
    query.reader.commit(first)
    assert query.broker.said("ack_claims") == [{"0": [1]}]
    query.reader.commit(second)
    assert query.broker.said("ack_claims") == [{"0": [1]}, {"0": [2]}]


def test_a_batch_of_before_a_restart_is_extended_at_once__a_new_one_later(queries: Any) -> None:
    query = queries(9)
    found = query.next()
    query.reader.partitions(START, found)
    assert query.broker.said("extend_claims") == [], "their time has just begun"
    again = queries(9)
    again.reader.partitions(START, found)
    assert again.broker.said("extend_claims") == [{"0": [1]}]


def test_claims_are_held_while_the_batch_is_on_its_way(
    queries: Any, caplog: pytest.LogCaptureFixture
) -> None:
    query = queries(9, **{"claim.timeout": "1"})
    query.broker.fails = True
    query.next()
    assert query.broker.extended.wait(20)
    query.broker.extended.clear()
    assert query.broker.extended.wait(20), "a broker that was away is asked again"
    assert query.broker.calls[0][1]["lease_ms"] == 1_000
    assert "claims not extended" in caplog.text


def test_a_query_that_stops_ends_its_thread_and_gives_nothing_back(queries: Any) -> None:
    query = queries(9)
    query.next()
    before = [thread for thread in threading.enumerate() if thread.name == "dejaq-claims"]
    assert before
    query.reader.stop()
    assert query.broker.is_closed
    assert query.broker.calls == []
    assert not any(thread.is_alive() for thread in before)
    query.reader.stop()


# --- stretches ----------------------------------------------------------------------------------


def test_a_claim_is_read_in_stretches_that_touch(
    queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STRETCH_ROWS", 4)
    end = {"batch": 1, "rows": 11, "claims": {"0": [[81, 9]], "3": [[77, 2]]}}
    stretches = cast(list[ClaimStretch], queries(0).reader.partitions(START, end))
    tickets = [one.ticket for one in stretches]
    assert {(one["op"], one["topic"]) for one in tickets} == {("claim", "t")}
    assert [(one["partition"], one["claim"], one["first"], one["end"]) for one in tickets] == [
        (0, 81, 0, 4),
        (0, 81, 4, 8),
        (0, 81, 8, 9),
        (3, 77, 0, 2),
    ]


def test_executors_get_nothing_of_the_drivers(queries: Any) -> None:
    query = queries(9)
    query.next()
    there = pickle.loads(pickle.dumps(query.reader))
    assert there._driver is None
    assert query.reader._driver is not None


@pytest.mark.parametrize(("lost", "raises"), [("fail", True), ("skip", False)])
def test_a_claim_that_returned_fails_the_batch_unless_it_may_be_left_out(
    monkeypatch: pytest.MonkeyPatch, lost: str, raises: bool
) -> None:
    def scan(options: Options, ticket: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"payload": pa.array([b"a"], pa.binary())})
        raise Refused("claim 7 is over")

    monkeypatch.setattr(Options, "scan", scan)
    reader = StreamReader(Options.of({"topic": "t", "lost.claims": lost}), SCHEMA)
    read = reader.read(ClaimStretch({}))
    assert next(read).column("payload").to_pylist() == [b"a"]
    if raises:
        with pytest.raises(Refused, match="claim 7 is over"):
            next(read)
    else:
        assert list(read) == []


def test_what_else_is_wrong_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(options: Options, ticket: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        raise BadRequest("columns", "names", "x")

    monkeypatch.setattr(Options, "scan", scan)
    reader = StreamReader(Options.of({"topic": "t", "lost.claims": "skip"}), SCHEMA)
    with pytest.raises(BadRequest):
        list(reader.read(ClaimStretch({})))
