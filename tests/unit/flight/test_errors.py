"""Every error of ours travels over Flight and comes back as itself."""

from __future__ import annotations

import pytest
from pyarrow import flight

from dejaqueue.client.flight_errors import error_of
from dejaqueue.errors import DejaQError, Forbidden, InternalError, Unauthenticated, all_errors
from dejaqueue.flight.errors import to_flight, translated


def made(kind: type[DejaQError]) -> DejaQError:
    error = kind.__new__(kind)
    Exception.__init__(error, "why\nin two lines")
    for name in ("field", "limit", "value", "key", "name", "node", "url", "http_url"):
        setattr(error, name, "x")
    error.retry_after_ms = error.id = error.spread = 5  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_an_error_comes_back_as_itself(kind: type[DejaQError]) -> None:
    error = made(kind)
    found = error_of(to_flight(error))
    assert type(found) is kind
    assert str(found) == str(error)
    assert found.fields() == error.fields()


def test_errors_of_access_have_the_statuses_of_grpc() -> None:
    assert isinstance(to_flight(Unauthenticated("x")), flight.FlightUnauthenticatedError)
    assert isinstance(to_flight(Forbidden("x")), flight.FlightUnauthorizedError)


def test_a_bug_is_an_internal_error_without_its_story() -> None:
    with pytest.raises(flight.FlightInternalError) as caught, translated():
        raise ZeroDivisionError("x")
    assert type(error_of(caught.value)) is InternalError
