"""Options: what is typed becomes values; what is wrong is refused by the name of its option."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import Field

from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.pipelines.frame import Instant, Names, PipelineOptions, Span, Topic
from dejaqueue.pipelines.frame.options import flag


class Sample(PipelineOptions):
    topic: Topic
    ahead_ms: Span = Field(default="24h", validate_default=True)
    from_ms: Instant | None = None
    columns: Names = ()
    count: int = Field(default=3, ge=1, le=9)
    mode: Literal["fast", "safe"] = "safe"


def test_what_is_typed_becomes_values() -> None:
    found = Sample.of(
        {
            "topic": "t",
            "ahead_ms": "90s",
            "from_ms": "1970-01-01T00:00:01Z",
            "columns": "a, b,",
            "count": "7",
            "mode": None,
        }
    )
    assert (found.ahead_ms, found.from_ms, found.count, found.mode) == (90_000, 1_000, 7, "safe")
    assert found.columns == ("a", "b")
    assert Sample(topic="t").ahead_ms == 86_400_000
    assert Sample(topic="t", ahead_ms=5).ahead_ms == 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "--topic: must be given"),
        ({"topic": "a b"}, "--topic"),
        ({"topic": "t", "ahead_ms": "soon"}, "--ahead: a time is like 250ms, 10s, 5m, 2h or 1d"),
        ({"topic": "t", "from_ms": "soon"}, "--from: an instant is like"),
        ({"topic": "t", "count": 10}, "--count: a whole number from 1 to 9, got: 10"),
        ({"topic": "t", "mode": "odd"}, "--mode: one of fast, safe, got: 'odd'"),
        ({"topic": "t", "colour": "red"}, "option: one of --url"),
    ],
)
def test_what_is_wrong_is_told_by_its_name(given: dict[str, object], said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        Sample.of(given)
    assert said in str(refused.value)


def test_a_key_is_not_shown() -> None:
    options = Sample(topic="t", api_key="hidden")
    assert "hidden" not in repr(options)
    with pytest.raises(BadRequest) as refused:
        Sample.of({"topic": "t", "api_key": ["hidden"]})
    assert "hidden" not in str(refused.value)


def test_the_data_source_is_told_the_same() -> None:
    options = Sample(topic="t", url="dejaqs://h:1", api_key="k", tls_ca="ca.pem")
    assert options.source_options(topic="t", rows_per_partition=5) == {
        "url": "dejaqs://h:1",
        "api_key": "k",
        "tls.ca": "ca.pem",
        "topic": "t",
        "rows.per.partition": "5",
    }


def test_a_broker_that_is_not_there_is_found_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dejaqueue.pipelines.frame.options.RETRY_MS_MAX", 1)
    with pytest.raises(Unavailable):
        Sample(topic="t", url="dejaq://127.0.0.1:1").client()


def test_units_of_time_are_typed_with_the_value() -> None:
    assert [flag(name) for name in ("expires_after_ms", "dry_run", "at")] == [
        "--expires-after",
        "--dry-run",
        "--at",
    ]
