"""Every error of ours travels over Flight and comes back as itself."""

from __future__ import annotations

import traceback

import pytest
from pyarrow import flight

from dejaqueue.broker import news
from dejaqueue.client.flight_errors import error_of
from dejaqueue.errors import (
    DejaQError,
    Fenced,
    Forbidden,
    InternalError,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    all_errors,
)
from dejaqueue.flight.errors import to_flight, translated


def made(kind: type[DejaQError]) -> DejaQError:
    error = kind.__new__(kind)
    Exception.__init__(error, "why\nin two lines")
    for name in ("field", "limit", "value", "key", "name", "node", "url", "http_url"):
        setattr(error, name, "x")
    error.retry_after_ms = error.id = error.spread = 5  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    "kind",
    [kind for kind in all_errors() if kind not in (InternalError, Fenced)],
    ids=lambda kind: kind.__name__,
)
def test_an_error_comes_back_as_itself(kind: type[DejaQError]) -> None:
    error = made(kind)
    found = error_of(to_flight(error))
    assert type(found) is kind
    assert str(found) == str(error)
    assert found.fields() == error.fields()


def test_a_lost_partition_is_seen_as_a_broker_that_is_away() -> None:
    found = error_of(to_flight(made(Fenced)))
    assert type(found) is Unavailable
    assert "took the partition over: why" in str(found)


def test_errors_of_access_have_the_statuses_of_grpc() -> None:
    assert isinstance(to_flight(Unauthenticated("x")), flight.FlightUnauthenticatedError)
    assert isinstance(to_flight(Forbidden("x")), flight.FlightUnauthorizedError)


def test_a_bug_is_an_internal_error_without_its_story(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InternalError, "keep_story", news.told)
    with pytest.raises(flight.FlightInternalError) as caught, translated():
        raise ZeroDivisionError("of the planted kind")
    found = error_of(caught.value)
    assert type(found) is InternalError
    assert "planted" not in str(caught.value)
    assert found.fault in str(found)
    [record] = [record for record in caplog.records if found.fault in record.getMessage()]
    assert "ZeroDivisionError: of the planted kind" in record.getMessage()
    assert record.exc_info is not None


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_arrow_cannot_print_an_error_as_python_does(kind: type[DejaQError]) -> None:
    """It makes a status of what this function returns, for whoever called (Arrow 14 to 26)."""
    error = InternalError("x") if kind is InternalError else made(kind)
    try:
        raise to_flight(error) from KeyError("inside")
    except Exception as translated_error:  # noqa: BLE001
        with pytest.raises(AttributeError, match="not told"):
            traceback.format_exception(translated_error)


def test_no_memory_is_no_bug() -> None:
    with pytest.raises(flight.FlightServerError) as caught, translated():
        raise MemoryError
    assert type(error_of(caught.value)) is ResourceExhausted


def test_a_fault_is_logged_once_and_the_memory_of_that_has_a_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(3):
        news.told(InternalError("again and again"))
    assert len([record for record in caplog.records if "again" in record.getMessage()]) == 1
    for number in range(2_000):
        news.told(InternalError(f"fault {number}"))
    assert len(news._faults) == news.FAULTS_MAX
