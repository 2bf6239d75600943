"""What becomes of selected messages, what is refused, and how long a stretch is. The walk over a
topic: tests/rules."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.broker.calls import by_filter
from dejaqueue.broker.calls.by_filter import Change, cancel_where, move_where
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.topic.served_view import Changing
from dejaqueue.engine.commands import Cancel, Move
from dejaqueue.errors import BadRequest, Unavailable
from tests.unit.broker.cores import Served

SEQUENCES = np.array([3, 9], dtype=np.int64)
DUES_MS = np.array([100, 5_000], dtype=np.int64)
# What is refused is refused before the topic is looked at.
NO_TOPIC = cast(ServedTopic, None)


def moved(change: Change) -> Move:
    command = change.command(50, SEQUENCES, DUES_MS)
    assert isinstance(command, Move)
    assert (command.now_ms, command.sequences.tolist()) == (50, [3, 9])
    return command


def test_a_cancel_is_nothing_else() -> None:
    command = Change(cancel=True, due_ms=7).command(50, SEQUENCES, DUES_MS)
    assert isinstance(command, Cancel)
    assert command.sequences.tolist() == [3, 9]


def test_a_fixed_time_is_that_of_all_rows() -> None:
    dues_ms = moved(Change(due_ms=0)).dues_ms
    assert dues_ms is not None
    assert dues_ms.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("by_ms", "expected"),
    [
        (40, [140, 5_040]),
        (-40, [60, 4_960]),
        (-1_000, [0, 4_000]),
        (limits.INSTANT_MS_MAX, [limits.INSTANT_MS_MAX] * 2),
    ],
)
def test_a_shift_stays_among_the_instants_there_are(by_ms: int, expected: list[int]) -> None:
    dues_ms = moved(Change(by_ms=by_ms)).dues_ms
    assert dues_ms is not None
    assert dues_ms.tolist() == expected


def test_what_is_not_asked_for_stays() -> None:
    command = moved(Change(priority=0))
    assert (command.dues_ms, command.groups) == (None, None)
    assert command.priorities is not None
    assert command.priorities.tolist() == [0, 0]
    command = moved(Change(group=""))
    assert (command.dues_ms, command.priorities) == (None, None)
    assert command.groups is not None
    assert (command.groups.names, command.groups.indices.tolist()) == (("",), [0, 0])


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({}, "due"),
        ({"by_ms": 0}, "due"),
        ({"due": 5, "by_ms": 5}, "by_ms"),
        ({"due": -1}, "due"),
        ({"window_from": 5}, "window_to"),
        ({"window_from": 5, "window_to": 6, "by_ms": 5}, "window_from"),
        ({"due": 5, "window_from": 5, "window_to": 6}, "window_from"),
        ({"set_group": 5}, "set_group"),
        ({"set_group": "ä" * (limits.GROUP_BYTES_MAX // 2 + 1)}, "set_group"),
        ({"set_priority": limits.PRIORITY_MAX + 1}, "set_priority"),
        ({"due": 5, "state": "leased"}, "state"),
        ({"due": 5, "dry_run": "yes"}, "dry_run"),
    ],
)
def test_a_move_that_is_none_is_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest, match=rf"^{field}\b"):
        move_where(NO_TOPIC, values, 50)


class OnePartition:
    """A topic of one partition, whose worker is who asks; what is applied is never durable, until
    `become_durable`, or somebody waits for it."""

    class Partitions(dict[int, PartitionCore]):
        numbers = (0,)

        def check(self, name: str, number: int) -> int:
            return number

        def at(self, number: int) -> int:
            return number

    def __init__(self, served: Served, error: Exception | None = None) -> None:
        self.topic = served.topic
        self.partitions = self.Partitions({0: served.core})
        self.entries: list[int] = []
        self.waits = 0
        self._served, self._error = served, error

    def change_ahead(self, number: int, function: Callable[[PartitionCore], Any]) -> Changing[Any]:
        topic, group = self, self._served.core.commits.group

        class Durable(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                topic.waits += 1
                if topic._error is not None:
                    raise topic._error
                return None

        before = len(group.entries)
        applied: Future[Any] = Future()
        applied.set_result(function(self._served.core))
        self.entries.append(len(group.entries) - before)
        return Changing(applied, Durable())


def on_one_partition(error: Exception | None = None, rows: int = 100) -> tuple[Served, Any]:
    served = Served()
    far_ms = served.core.now_ms() + 3_600_000
    served.send([b"m"] * rows, dues_ms=[far_ms] * rows)
    return served, OnePartition(served, error)


def test_a_call_asks_for_more_before_the_last_is_durable__and_answers_when_all_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CHANGE_ROWS_MAX", 1)
    _, topic = on_one_partition()
    answer = cancel_where(topic, {}, 0)
    assert answer == {"count": 100, "next": None}
    assert sum(topic.entries) == 100
    assert max(topic.entries) == by_filter.STRETCH_COMMANDS_MAX
    assert topic.waits == len(topic.entries) > 1


def test_what_did_not_become_durable_is_not_answered() -> None:
    _, topic = on_one_partition(Unavailable("the disk is gone", 1_000))
    with pytest.raises(Unavailable):
        cancel_where(topic, {}, 0)


def test_a_stretch_ends_when_it_has_taken_long__whatever_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CHANGE_ROWS_MAX", 10)
    served, topic = on_one_partition()
    plain = served.core.apply

    def slow(command: Any) -> Any:
        served.clock.advance(us=by_filter.STRETCH_US // 2)
        return plain(command)

    monkeypatch.setattr(served.core, "apply", slow)
    assert cancel_where(topic, {}, 0)["count"] == 100
    assert topic.entries == [2] * 5


def test_a_call_has_so_many_commands__and_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CHANGE_ROWS_MAX", 7)
    monkeypatch.setattr(by_filter, "CALL_COMMANDS_MAX", 2)
    served, topic = on_one_partition(rows=30)
    counts: list[int] = []
    answer: dict[str, Any] = {"next": None}
    while not counts or answer["next"] is not None:
        answer = move_where(topic, {"by_ms": 5, "after": answer["next"]}, served.core.now_ms())
        counts.append(answer["count"])
    assert counts == [14, 14, 2]
