"""What becomes of selected messages, and what is refused. The walk over a topic: tests/rules."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.broker.calls.by_filter import Change, move_where
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.engine.commands import Cancel, Move
from dejaqueue.errors import BadRequest

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
