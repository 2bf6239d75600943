"""Covers: calls to another broker end with what they return, when it is gone, and when the broker
that makes them stops; one that waits has it asked, with the key of the last caller. Not covered: a
broker that is silent (tests/cluster/test_hanging_calls.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dejaqueue.client import silence_watch
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.flight.owner_calls import OwnerCalls
from tests.patience import PATIENCE_SECONDS

URL = "dejaq://far:1"


class Far:
    """The other broker: answers a call when the test lets it, and a question or not."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.begun = threading.Event()
        self.asked_with: list[str | None] = []
        self.is_silent = False

    def call(self) -> int:
        self.begun.set()
        assert self.may.wait(PATIENCE_SECONDS)
        return 7

    def ask(self, _seconds: float, bearer: str | None) -> None:
        self.asked_with.append(bearer)
        if self.is_silent:
            raise Unavailable("deadline")
        self.may.set()


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far()
    yield made
    made.may.set()


@pytest.fixture
def calls(far: Far) -> Iterator[OwnerCalls]:
    made = OwnerCalls(URL, far.ask)
    yield made
    made.close()


@pytest.fixture
def caller() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def refuse() -> None:
    raise BadRequest("topic", "a topic", "?")


def test_a_call_ends_with_what_it_returns_or_raises(calls: OwnerCalls) -> None:
    assert calls.make(lambda: 7, "key") == 7
    with pytest.raises(BadRequest):
        calls.make(refuse, None)


def test_one_that_waits_has_the_broker_asked__and_goes_on_if_it_answers(
    calls: OwnerCalls, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence_watch, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(silence_watch, "SILENT_SECONDS_MAX", 0.05)
    assert calls.make(far.call, "key") == 7
    assert set(far.asked_with) == {"key"}


def test_one_at_a_silent_broker_names_it(
    calls: OwnerCalls, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence_watch, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(silence_watch, "SILENT_SECONDS_MAX", 0.05)
    far.is_silent = True
    with pytest.raises(Unavailable, match=f"the broker at {URL} does not answer"):
        calls.make(far.call, None)


def test_a_broker_that_is_gone_is_waited_for_by_nobody(
    calls: OwnerCalls, far: Far, caller: ThreadPoolExecutor
) -> None:
    waiting = caller.submit(calls.make, far.call, None)
    assert far.begun.wait(PATIENCE_SECONDS)
    calls.drop(Unavailable("it went away"))
    with pytest.raises(Unavailable, match="it went away"):
        waiting.result(PATIENCE_SECONDS)
    far.may.set()
    assert calls.make(lambda: 8, None) == 8, "it may be back"


def test_a_broker_that_stops_waits_for_none(
    calls: OwnerCalls, far: Far, caller: ThreadPoolExecutor
) -> None:
    waiting = caller.submit(calls.make, far.call, None)
    assert far.begun.wait(PATIENCE_SECONDS)
    calls.close()
    with pytest.raises(Unavailable, match="stopping"):
        waiting.result(PATIENCE_SECONDS)
    with pytest.raises(Unavailable):
        calls.make(lambda: 7, None)
