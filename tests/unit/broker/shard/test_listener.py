"""Who listens hears each entry once: as it is read, then as it becomes durable."""

from __future__ import annotations

from typing import Any

from dejaqueue.broker.shard.listener import Listener
from dejaqueue.engine.commands import Cancel
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.engine import Engine
from dejaqueue.journal.interface import Entry
from dejaqueue.model import Topic
from tests.unit.broker.cores import Served, journals, sequences


class Hears(Listener):
    """Notes the positions that it hears of."""

    def __init__(self) -> None:
        self.read_from = -1
        self.positions: list[int] = []

    def reading(self, topic: Topic, engine: Engine, position: int) -> None:
        self.read_from = position

    def replayed(self, position: int, entry: Entry, effects: Effects) -> None:
        self.positions.append(position)

    def durable(self, first: int, last: int, changes: Any, pushes: Any) -> None:
        self.positions += range(first, last + 1)


def cancel(served: Served) -> None:
    served.core.apply(Cancel(served.core.now_ms(), sequences(1)))


def test_each_entry_is_told_once__also_those_of_before() -> None:
    open_journal = journals()
    first = Hears()
    served = Served(open_journal=open_journal, listener=first)
    cancel(served)
    cancel(served)
    assert first.positions == [1]
    served.core.commits.commit_all()
    assert (first.read_from, first.positions) == (0, [1, 2, 3])
    served.core.journal.close()
    second = Hears()
    Served(open_journal=open_journal, listener=second)
    assert second.positions == [1, 2, 3, 4]


def test_by_itself_a_listener_does_nothing() -> None:
    served = Served(listener=Listener())
    cancel(served)
    served.core.commits.commit_all()
    assert Listener().roll() is None
