"""Errors as gRPC statuses."""

from __future__ import annotations

import grpc
import pytest

from dejaqueue.errors import InternalError, ResourceExhausted, TopicUnknown, all_errors
from dejaqueue.http.doq.door.statuses import TEXT_CHARACTERS_MAX, ours, status_of
from dejaqueue.http.doq.messages import Missing


def test_every_error_has_a_status_that_grpc_knows() -> None:
    assert {grpc.StatusCode[kind.flight_status] for kind in all_errors()}


def test_what_may_be_tried_again_says_when() -> None:
    code, text, more = status_of(ResourceExhausted("full", 70))
    assert (code, text) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    assert more == (("retry-after-ms", "70"),)
    assert status_of(TopicUnknown("q"))[::2] == (grpc.StatusCode.NOT_FOUND, ())
    assert status_of(Missing("queue is empty"))[0] is grpc.StatusCode.NOT_FOUND


def test_a_bug_is_told_without_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[InternalError] = []
    monkeypatch.setattr(InternalError, "keep_story", kept.append)
    code, text, _ = status_of(ours(KeyError("a secret")))
    assert code is grpc.StatusCode.INTERNAL
    assert "secret" not in text
    assert "secret" in str(kept[0])


def test_a_long_text_is_cut_off() -> None:
    _, text, _ = status_of(Missing("\ud800" + "x" * 10_000))
    assert len(text) == TEXT_CHARACTERS_MAX
    text.encode()
