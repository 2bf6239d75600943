"""Flight errors to ours."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyarrow import flight

from dejaqueue import errors
from dejaqueue.client.flight_errors import MARK, error_of

DEBUG = ". Detail: Failed. gRPC client debug context: UNKNOWN:text. Client context: OK"


def test_an_error_of_the_broker_comes_back_as_it_was() -> None:
    sent = errors.BadRequest("payload", "at most 5 bytes", 6)
    text = f"{sent}{MARK}{json.dumps(errors.to_fields(sent))}{DEBUG}"
    got = error_of(flight.FlightServerError(text))
    assert type(got) is errors.BadRequest
    assert str(got) == str(sent)
    assert got.field == "payload"


def test_retry_after_travels() -> None:
    sent = errors.ResourceExhausted("full", retry_after_ms=250)
    got = error_of(pa.ArrowInvalid(f"x{MARK}{json.dumps(errors.to_fields(sent))}"))
    assert isinstance(got, errors.ResourceExhausted)
    assert got.retry_after_ms == 250


@pytest.mark.parametrize("tail", ["", "{", "[]", '{"number": "x"}'])
def test_nonsense_after_the_mark_is_an_internal_error(tail: str) -> None:
    assert type(error_of(flight.FlightServerError(f"x{MARK}{tail}"))) is errors.InternalError


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (flight.FlightUnavailableError("gone"), errors.Unavailable),
        (flight.FlightCancelledError("cancelled"), errors.Unavailable),
        (flight.FlightTimedOutError("late"), errors.Unavailable),
        (flight.FlightServerError("what"), errors.Unavailable),
        (flight.FlightInternalError("what"), errors.Unavailable),
        (OSError("reset"), errors.Unavailable),
        (pa.ArrowInvalid("schemas differ"), errors.BadRequest),
        (flight.FlightServerError("RESOURCE_EXHAUSTED: too large"), errors.ResourceExhausted),
    ],
)
def test_what_arrow_raises(wrong: BaseException, kind: type[errors.DejaQError]) -> None:
    assert type(error_of(wrong)) is kind


def test_only_who_was_not_reached_heard_nothing() -> None:
    refused = "Flight returned unavailable error, with message: failed to connect to all addresses"
    for text, is_unheard in ((refused, True), ("Stream removed", False)):
        error = error_of(flight.FlightUnavailableError(text))
        assert isinstance(error, errors.Unavailable)
        assert error.is_unheard is is_unheard


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("(Trying to connect an http1.x server (HTTP status 400))", "this is the HTTP port"),
        ("SSL routines::wrong version number", "dejaq:// in place of dejaqs://"),
    ],
)
def test_a_wrong_port_is_named(said: str, advice: str) -> None:
    assert advice in str(error_of(flight.FlightUnavailableError(said)))


def test_ours_stay_as_they_are() -> None:
    mine = errors.Unavailable("x")
    assert error_of(mine) is mine


def test_that_another_broker_is_the_owner_now_is_something_to_try_again() -> None:
    sent = errors.Fenced("another owner has appended")
    got = error_of(flight.FlightServerError(f"{sent}{MARK}{json.dumps(errors.to_fields(sent))}"))
    assert type(got) is errors.Unavailable
    assert str(sent) in str(got)
