"""Covers: the error tree: numbers, texts, and the way over the wire and back.

Not covered: who raises what; that is with each module, and in tests/rules/.
"""

from __future__ import annotations

import pytest

import dejaqueue
from dejaqueue import errors
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    InternalError,
    ResourceExhausted,
    TopicUnknown,
    all_errors,
)


def test_every_error_has_a_number_of_its_own() -> None:
    numbers = [kind.number for kind in errors.all_errors()]
    assert len(numbers) == len(set(numbers)) >= 12
    assert numbers == sorted(numbers)


def test_numbers_are_for_ever() -> None:
    assert {kind.__name__: kind.number for kind in errors.all_errors()} == {
        "DejaQError": 1,
        "BadRequest": 10,
        "TopicUnknown": 11,
        "Refused": 20,
        "TopicExists": 21,
        "JournalDamaged": 22,
        "DuplicateKey": 23,
        "EncryptionKeyMissing": 24,
        "NotActive": 25,
        "TryLater": 30,
        "ResourceExhausted": 31,
        "Unavailable": 32,
        "Elsewhere": 33,
        "Fenced": 40,
        "Locked": 41,
        "NotAllowed": 50,
        "Unauthenticated": 51,
        "Forbidden": 52,
        "InternalError": 90,
    }


def test_what_a_program_derives_is_made_by_that_program_alone() -> None:
    class Mine(TopicUnknown):
        """An error of somebody's program."""

    assert Mine not in errors.all_errors()
    assert type(errors.from_fields(errors.to_fields(TopicUnknown("t")))) is TopicUnknown
    assert type(errors.from_fields(errors.to_fields(Mine("t")))) is TopicUnknown


def test_every_error_says_how_it_travels() -> None:
    for kind in errors.all_errors():
        assert 400 <= kind.http_status < 600
        assert kind.flight_status.isupper()
        assert 1 <= kind.exit_code <= 8


def test_a_bad_request_names_field_limit_and_value() -> None:
    error = BadRequest("payload", "at most 1048576 bytes", 2_097_152)
    assert str(error) == "payload: at most 1048576 bytes, got: 2097152"
    assert error.fields() == {
        "field": "payload",
        "limit": "at most 1048576 bytes",
        "value": "2097152",
    }


def test_a_huge_value_is_shortened_in_the_text() -> None:
    assert len(str(BadRequest("key", "at most 256 bytes", "x" * 10_000))) < 300


def test_an_unknown_topic_is_a_bad_request_with_its_own_status() -> None:
    error = TopicUnknown("remindres")
    assert isinstance(error, BadRequest)
    assert error.http_status == 404
    assert str(error) == "topic: the name of an existing topic, got: 'remindres'"


def test_an_internal_error_carries_its_story() -> None:
    error = InternalError("two leases of one message", ["lease 7 of 3", "lease 8 of 3"])
    assert str(error) == "two leases of one message\n  lease 7 of 3\n  lease 8 of 3"
    assert error.story == ["lease 7 of 3", "lease 8 of 3"]


@pytest.mark.parametrize(
    "error",
    [
        BadRequest("due", "from 0", -1),
        TopicUnknown("x"),
        errors.TopicExists("reminders exists"),
        errors.JournalDamaged("segment 3, offset 17"),
        ResourceExhausted("backlog full", retry_after_ms=250),
        errors.Unavailable("stopping"),
        errors.Fenced("epoch 4 began"),
        errors.Locked("in use"),
        errors.DuplicateKey("alice-1", 77),
    ],
)
def test_an_error_survives_the_wire(error: DejaQError) -> None:
    back = errors.from_fields(errors.to_fields(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.fields() == error.fields()


def test_of_an_internal_error_an_id_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[InternalError] = []
    monkeypatch.setattr(InternalError, "keep_story", kept.append)
    error = InternalError("KeyError: /srv/data of a test", ["lease 7 of 3"])
    values = errors.to_fields(error)
    back = errors.from_fields(values)
    assert type(back) is InternalError
    assert back.fault == error.fault
    assert error.fault in str(back)
    assert "KeyError" not in str(values)
    assert kept == [error]
    assert errors.to_fields(back) == values  # passed on by another broker, which has no story
    assert kept == [error]


def test_an_error_of_a_later_version_is_still_an_error() -> None:
    back = errors.from_fields({"number": 77, "text": "something new"})
    assert type(back) is DejaQError
    assert str(back) == "something new"


def test_try_later_without_a_time_has_a_default() -> None:
    back = errors.from_fields({"number": 31, "text": "full"})
    assert isinstance(back, ResourceExhausted)
    assert back.retry_after_ms == 100


def test_what_programs_catch_is_at_the_top_of_the_package() -> None:
    inside = {"Fenced", "Elsewhere"}  # what brokers tell each other
    for kind in all_errors():
        if kind.__module__ == DejaQError.__module__ and kind.__name__ not in inside:
            assert getattr(dejaqueue, kind.__name__) is kind
            assert kind.__name__ in dejaqueue.__all__
