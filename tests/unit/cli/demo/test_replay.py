"""The replay against a client of lists and a clock that jumps: what is sent, when, what is kept.

Covered: scheduling, shifting when it took too long, changes in time and order, answers, retries.
Against a real broker: tests/cli/test_demo.py.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from dejaqueue.cli.demo import replay as module
from dejaqueue.cli.demo.plan import make_plan
from dejaqueue.cli.demo.replay import Replay
from dejaqueue.cli.demo.verdict import NOT_TOLD, UNSURE
from dejaqueue.client import Client, SendResult, Settled
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import InternalError, Refused, Unavailable
from dejaqueue.model import RowStatus
from tests.cli.small_flights import small_flights

START_MS = 1_000_000


class JumpingClock:
    """A clock that is where one waits for it to be."""

    def __init__(self) -> None:
        self.us = START_MS * 1_000

    def now_us(self) -> int:
        return self.us

    def now_ms(self) -> int:
        return self.us // 1_000

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        assert instant_us is not None
        self.us = max(self.us, instant_us)
        return False


class ListClient:
    """Takes every call down."""

    def __init__(self, clock: JumpingClock) -> None:
        self.clock = clock
        self.dues: dict[str, int] = {}
        self.keys: list[str] = []
        self.calls: list[tuple[str, int, dict[str, int]]] = []
        self.send_ms = 0
        self.failures = 0
        self.answer: int = RowStatus.OK

    def send_batch(self, topic: str, rows: pa.Table) -> SendResult:
        self.clock.us += self.send_ms * 1_000
        first = len(self.keys)
        self.keys += rows["key"].to_pylist()
        self.dues |= dict(zip(rows["key"].to_pylist(), rows["due"].to_pylist(), strict=True))
        ids = np.arange(first, len(self.keys), dtype=np.int64)
        return SendResult(ids, np.zeros(len(ids), dtype=np.uint8))

    def move(self, topic: str, *, due: Any, keys: Any = None, ids: Any = None) -> Settled:
        names = keys.to_pylist() if ids is None else [self.keys[i] for i in ids]
        return self._note("move", dict(zip(names, due.tolist(), strict=True)))

    def cancel(self, topic: str, *, keys: pa.Array) -> Settled:
        return self._note("cancel", dict.fromkeys(keys.to_pylist(), 0))

    def _note(self, name: str, dues: dict[str, int]) -> Settled:
        if self.failures:
            self.failures -= 1
            raise Unavailable("away")
        self.calls.append((name, self.clock.now_ms(), dues))
        answers: npt.NDArray[np.uint8] = np.full(len(dues), self.answer, dtype=np.uint8)
        return Settled(answers)


def make() -> tuple[Replay, ListClient, JumpingClock]:
    clock = JumpingClock()
    client = ListClient(clock)
    flights = small_flights()
    plan = make_plan(flights, 10_000, notice_minutes=20, notice_ms_min=50)
    return Replay(cast(Client, client), "t", flights, plan, cast(Clock, clock)), client, clock


def nothing() -> None:
    pass


def test_everything_is_scheduled_before_the_clock_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_ROWS", 2)
    replay, client, _ = make()
    replay.schedule(300, 200, nothing)
    assert replay.start_ms == START_MS + 500
    assert [due - replay.start_ms for due in client.dues.values()] == [
        0,
        1_000,
        2_000,
        3_000,
        10_000,
    ]
    assert client.calls == []
    assert replay.scheduled_count == 5


def test_scheduling_that_takes_too_long_shifts_the_whole_timeline() -> None:
    replay, client, clock = make()
    client.send_ms = 1_000
    replay.schedule(300, 200, nothing)
    assert replay.start_ms >= clock.now_ms() + 200
    ((name, _, dues),) = client.calls
    assert name == "move"
    assert [due - replay.start_ms for due in dues.values()] == [0, 1_000, 2_000, 3_000, 10_000]


def test_changes_are_told_by_key_when_they_become_known() -> None:
    replay, client, clock = make()
    replay.schedule(300, 200, nothing)
    replay.run(nothing)
    told = [(name, at_ms - replay.start_ms, list(dues)) for name, at_ms, dues in client.calls]
    assert told == [("move", 800, ["B"]), ("move", 1_700, ["C"]), ("cancel", 2_800, ["D"])]
    assert [due - replay.start_ms for _, _, dues in client.calls[:2] for due in dues.values()] == [
        1_500,
        1_900,
    ]
    assert clock.now_ms() == replay.start_ms + 2_800


def test_answers_are_kept_per_flight() -> None:
    replay, client, _ = make()
    client.answer = RowStatus.LEASED
    replay.schedule(300, 200, nothing)
    replay.run(nothing)
    assert replay.statuses.tolist() == [NOT_TOLD, 2, 2, 2, NOT_TOLD]
    assert (replay.told_count, replay.change_count) == (3, 3)


@pytest.mark.parametrize(
    ("answer", "kept"), [(RowStatus.OK, RowStatus.OK), (RowStatus.NOT_FOUND, UNSURE)]
)
def test_change_that_found_no_broker_is_sent_again__and_is_unsure_unless_ok(
    answer: RowStatus, kept: int
) -> None:
    replay, client, _ = make()
    replay.schedule(300, 200, nothing)
    client.failures, client.answer = 2, answer
    replay.run(nothing)
    assert [name for name, _, _ in client.calls] == ["move", "move", "cancel"]
    assert replay.statuses.tolist() == [NOT_TOLD, kept, answer, answer, NOT_TOLD]


def test_refused_message_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    replay, client, _ = make()

    def refuse(topic: str, rows: pa.Table) -> SendResult:
        return SendResult(np.array([7]), np.array([RowStatus.DUPLICATE], dtype=np.uint8))

    monkeypatch.setattr(client, "send_batch", refuse)
    with pytest.raises(Refused):
        replay.schedule(300, 200, nothing)


def test_answers_of_another_length_are_our_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    replay, client, _ = make()
    replay.schedule(300, 200, nothing)
    monkeypatch.setattr(client, "move", lambda *_, **__: Settled(np.zeros(2, dtype=np.uint8)))
    with pytest.raises(InternalError, match="2 answers to 1 changes"):
        replay.run(nothing)
