"""One subscription of a simulation: its consumers, and what they did and saw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dejaqueue.model import TopicKind
from dejaqueue.subscriptions import Order
from dejaqueue.testing.simulation.machine import Machine
from dejaqueue.testing.simulation.world import World
from tests.checker.history import History
from tests.simulation.consumers import Consumer, LetterReader
from tests.simulation.scenario import Scenario

KINDS = {
    Order.DUE: TopicKind.TIMELINE,
    Order.PRIORITY: TopicKind.PRIORITY,
    Order.GROUPS: TopicKind.FAIR,
}
"""How a subscription of each order is judged; those by arrival are judged in arrival's own way."""


@dataclass
class View:
    """One subscription.

    Attributes:
        history: what its consumers did and saw.
        consumers: of its messages, and of its dead letters.
    """

    name: str
    history: History
    consumers: list[Consumer] = field(default_factory=list)


class ViewConsumer(Consumer):
    """Takes messages of a subscription."""

    def __init__(
        self, number: int, world: World, machine: Machine, history: History, topic: str
    ) -> None:
        super().__init__(number, world, machine, history)
        self.topic = topic


class ViewLetters(LetterReader):
    """Reads the dead letters of a subscription."""

    def __init__(
        self, number: int, world: World, machine: Machine, history: History, topic: str
    ) -> None:
        super().__init__(number, world, machine, history)
        self.topic = topic


def history_of_view(shared: History, scenario: Scenario, settings: dict[str, Any]) -> History:
    """A history of its own, with what producers do to all."""
    topic, kind = scenario.topic, KINDS.get(Order(settings["order"]))
    is_fair = kind is TopicKind.FAIR
    return History(
        kind="arrival" if kind is None else str(kind),
        max_attempts=settings["max_attempts"],
        on_duplicate=shared.on_duplicate,
        weights=topic.weights if is_fair else {},
        group_in_flight_max=topic.group_in_flight_max if is_fair else 0,
        group_order=str(topic.group_order),
        letters_read=True,
        is_one_of_several=True,
        keeps_keys=topic.retention_keys,
        sends=shared.sends,
        moves=shared.moves,
        cancels=shared.cancels,
        decisions=shared.decisions,
    )
