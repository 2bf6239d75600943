"""What `run` says of a message that failed, and how many handlers there may be.

Not covered: running (tests/integration/test_run.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.client.consuming.work import check_concurrency, prefetch_of, story_of, summary_of
from dejaqueue.errors import BadRequest
from dejaqueue.limits import REASON_BYTES_MAX


def fail(depth: int, text: str) -> None:
    if depth:
        fail(depth - 1, text)
    raise ValueError(text)


def caught(depth: int, text: str) -> ValueError:
    try:
        fail(depth, text)
    except ValueError as error:
        return error
    raise AssertionError


def test_the_error_comes_first__then_the_innermost_call() -> None:
    lines = story_of(caught(1, "no\n address")).splitlines()
    assert lines[0] == "ValueError: no address"
    names = [line.rsplit(" in ", 1)[1] for line in lines[1:]]
    assert names == ["fail", "fail", "caught"]
    assert lines[1].startswith("  test_work.py:")


@pytest.mark.parametrize("text", ["x", "é" * 400, "x" * 5_000])
def test_a_story_fits_the_limit_or_is_the_error_alone(text: str) -> None:
    story = story_of(caught(200, text))
    assert len(story.encode()) <= REASON_BYTES_MAX or story == f"ValueError: {text}"
    assert story.startswith(f"ValueError: {text}")


def test_an_error_without_text_is_its_name() -> None:
    assert summary_of(KeyError()) == "KeyError"


@pytest.mark.parametrize("concurrency", [0, -1, 5_000, 1.5, True, "8", None])
def test_such_a_number_of_handlers_cannot_run(concurrency: Any) -> None:
    with pytest.raises(BadRequest, match="concurrency: a whole number from 1 to 4096"):
        check_concurrency(concurrency)


def test_few_messages_are_held_ahead() -> None:
    assert (prefetch_of(1), prefetch_of(100)) == (16, 400)
