"""Leases that are extended together: a status for each, and entries of bounded size."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dejaqueue.broker.partition import extending
from dejaqueue.engine.commands import Extend
from dejaqueue.engine.effects import Effects
from dejaqueue.model import RowStatus

OK, LOST = RowStatus.OK, RowStatus.LEASE_LOST


class FakeCore:
    """Leases by name, their rows, and which of these are held."""

    def __init__(self, leases: dict[int, list[int]], held: set[int]) -> None:
        self.leases = leases
        self.held = held
        self.commands: list[Extend] = []
        self.engine = SimpleNamespace(rows_of_leases=self.rows_of_leases)

    def rows_of_leases(self, lease_ids: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
        found = [self.leases.get(one, []) for one in lease_ids.tolist()]
        sequences = np.array([row for rows in found for row in rows], np.int64)
        return sequences, np.ones(len(sequences), np.uint16), np.array([len(r) for r in found])

    def topic(self) -> Any:
        return SimpleNamespace(lease_ms=30_000)

    def now_ms(self) -> int:
        return 5_000

    def apply(self, command: Extend) -> Effects:
        self.commands.append(command)
        assert command.sequences is not None
        statuses = [OK if row in self.held else LOST for row in command.sequences.tolist()]
        if not any(statuses):
            return Effects()
        return Effects(statuses=np.array(statuses, np.uint8))


def extend(core: FakeCore, lease_ids: list[int], lease_ms: int = 100) -> list[int]:
    found = extending.extend_leases(core, np.array(lease_ids), lease_ms)  # type: ignore[arg-type]
    assert found.dtype == np.uint8
    return [int(status) for status in found]


def test_a_lease_lasts_if_any_of_its_rows_is_held() -> None:
    core = FakeCore({7: [0, 1], 8: [2], 9: [3, 4]}, {0, 1, 4})
    assert extend(core, [9, 8, 7, 99, 7]) == [OK, LOST, OK, LOST, OK]
    [command] = core.commands
    assert (command.lease_end_ms, command.lease_id) == (5_100, -1)


def test_all_are_held() -> None:
    assert extend(FakeCore({7: [0], 8: [1, 2]}, {0, 1, 2}), [8, 7]) == [OK, OK]


def test_none_is_known() -> None:
    core = FakeCore({}, set())
    assert extend(core, [1, 2]) == [LOST, LOST]
    assert core.commands == []


def test_the_topic_says_how_long() -> None:
    core = FakeCore({7: [0]}, {0})
    extend(core, [7], 0)
    assert core.commands[0].lease_end_ms == 35_000


def test_entries_are_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extending, "ROWS_MAX", 4)
    leases = {number: [3 * number + row for row in range(3)] for number in range(5)}
    core = FakeCore(leases, set(range(15)) - {0, 1, 2, 7})
    assert extend(core, [0, 1, 2, 3, 4]) == [LOST, OK, OK, OK, OK]
    sizes = [len(command.sequences) for command in core.commands if command.sequences is not None]
    assert sizes == [4, 4, 4, 3]
