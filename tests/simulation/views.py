"""A simulated topic with named subscriptions, which retains what they are done with.

Each subscription has consumers and a history of its own, judged by itself: what was sent, moved and
cancelled is the same in all, what was delivered and settled is its own. Producers give keys where
the newest message of each is retained: who has a key cannot be judged from one subscription.
See: late_views.py for one that is made while messages flow.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from dejaqueue.broker.calls import seek
from dejaqueue.broker.shard import key_retention_chore, retention_chore, seeding_chore
from dejaqueue.errors import DejaQError
from dejaqueue.subscriptions import Order
from dejaqueue.testing.simulation.machine import Machine
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import World
from dejaqueue.topic_names import subscription_name
from tests.checker.fault import Fault
from tests.checker.history import History, Outcome, Seek
from tests.checker.judge import judge
from tests.simulation.consumers import Consumer
from tests.simulation.late_views import LateView
from tests.simulation.scenario import GROUPS, TOPIC, Scenario
from tests.simulation.view_consumers import View, ViewConsumer, ViewLetters, history_of_view

SECOND = 1_000_000
HOUR_MS = 3_600_000
PIECES = (
    (seeding_chore, "SPAN", 5),
    (seeding_chore, "PIECES_MAX", 1),
    (seek, "SPAN", 16),
    (seek, "CALL_COMMANDS_MAX", 2),
    (retention_chore, "ROWS_MAX", 8),
    (key_retention_chore, "ROWS_MAX", 16),
    (key_retention_chore, "READ_MAX", 4),
)
"""What is done in pieces of thousands of messages is done in pieces of some."""


@contextmanager
def in_small_pieces() -> Iterator[None]:
    """Pieces of messages are small, so that things happen between them."""
    with ExitStack() as stack:
        for place, name, value in PIECES:
            stack.enter_context(patch.object(place, name, value))
        yield


def random_of(seed: int) -> random.Random:
    """What is drawn about subscriptions, apart: the rest of a seed goes as it does without."""
    return random.Random(f"{seed} views")


def with_views(scenario: Scenario, seed: int) -> Scenario:
    """The same, of a topic with one to three subscriptions that retains for an hour, a moment, or
    not at all."""
    drawn = random_of(seed)
    orders = drawn.sample(list(Order), drawn.choice([1, 2, 3]))
    retention_ms = drawn.choice([HOUR_MS, HOUR_MS, 1_000, 0])
    # A number of its own: a broker that starts anew has to know that it is the same one.
    subscriptions: dict[str, dict[str, Any]] = {
        f"by-{order}": {"order": str(order), "max_attempts": drawn.choice([0, 0, 3])}
        for order in orders
    }
    topic = replace(
        scenario.topic,
        subscriptions=subscriptions,
        retention_ms=retention_ms,
        retention_keys=retention_ms != 1_000 and drawn.random() < 0.3,
        unnamed=drawn.random() < 0.8,
    )
    return replace(
        scenario, topic=topic, fires=False, transacts=scenario.transacts and topic.unnamed
    )


class Views:
    """The subscriptions of a run.

    Args:
        history: of the unnamed one, with what producers did.
    """

    def __init__(
        self, world: World, machine: Machine, history: History, scenario: Scenario
    ) -> None:
        self._world, self._machine = world, machine
        self._drawn = random_of(world.seed + 1_000_003)
        self.keeps_keys = scenario.topic.retention_keys
        self._seeks = scenario.topic.retention_ms == HOUR_MS or self.keeps_keys
        self.views: list[View] = []
        self._unnamed = history if scenario.topic.unnamed else None
        history.is_one_of_several = True
        history.keeps_keys = self.keeps_keys
        for number, (name, settings) in enumerate(scenario.topic.subscriptions.items()):
            own = history_of_view(history, scenario, settings)
            view = View(name, own)
            served = subscription_name(TOPIC, name)
            first = 100 * (number + 1)
            for place in range(self._drawn.choice([1, 2])):
                view.consumers.append(ViewConsumer(first + place, world, machine, own, served))
            letters = f"{TOPIC}.{name}.dead"
            view.consumers.append(ViewLetters(first + 91, world, machine, own, letters))
            self.views.append(view)
        self._late: LateView | None = None
        if self._drawn.random() < 0.6:
            self._late = LateView(world, machine, history, scenario, self._drawn)

    @property
    def consumers(self) -> list[Consumer]:
        """All of them."""
        views = [*self.views, *([] if self._late is None else [self._late])]
        return [consumer for view in views for consumer in view.consumers]

    def begin(self, end_us: int) -> None:
        """Consumers connect, and some subscriptions go back now and then."""
        for view in self.views:
            for consumer in view.consumers:
                self._world.after(self._drawn.randint(0, SECOND), consumer.begin)
            if self._seeks and self._drawn.random() < 0.7:
                self._world.after(
                    self._drawn.randint(SECOND // 2, 3 * SECOND),
                    partial(self._go_back, view, end_us),
                )
        if self._late is not None:
            self._late.begin()

    def heal(self, healed_us: int, healed_broker_us: int) -> None:
        """Nothing breaks any more; who has gone back before does so once more, at the end."""
        for view in self.views:
            view.history.healed_us, view.history.healed_broker_us = healed_us, healed_broker_us
            if view.history.seeks:
                # When whatever was due has been done: then there is something to bring back.
                self._world.after(20 * SECOND, partial(self._go_back, view, 0))
        if self._late is not None:
            self._late.heal(healed_us, healed_broker_us)

    def faults(self) -> list[Fault]:
        """What the judge says of each."""
        found = []
        for view in self.views:
            view.history.drained = True
            found += [
                Fault(fault.rule, f"{view.name}: {fault.text}", fault.id)
                for fault in judge(view.history)
            ]
        if self._late is not None:
            others = [view.history for view in self.views]
            others += [] if self._unnamed is None else [self._unnamed]
            found += self._late.faults(others)
        return found

    def text(self) -> str:
        """All that happened in them."""
        late = [] if self._late is None else [self._late]
        return "\n".join(view.history.text() for view in [*self.views, *late])

    def _go_back(self, view: View, end_us: int) -> None:
        world = self._world
        is_last = not end_us
        note = Seek(
            world.now_us,
            group=self._drawn.choice([None, *GROUPS]) if self._drawn.random() < 0.6 else None,
            to_end=not is_last and self._drawn.random() < 0.3,
            called_broker_us=self._machine.clock.now_us(),
        )
        view.history.seeks.append(note)
        connection = Connection(world, self._machine.pick(TOPIC))

        def told(error: DejaQError | None) -> None:
            if error is None and note.answered_us is None:
                note.answer(world.now_us, Outcome.OK, self._machine.time_us)

        def arrive() -> None:
            to = "end" if note.to_end else "beginning"
            body: dict[str, Any] = {"topic": subscription_name(TOPIC, view.name), "to": to}
            body |= {} if note.group is None else {"group": note.group}
            try:
                answer = connection.machine.require().call("seek", body)
                while answer["next"] is not None:
                    again = body | {"after": answer["next"]}
                    answer = connection.machine.require().call("seek", again)
            except DejaQError as error:
                connection.to_client(partial(told, error))
            else:
                connection.to_client(partial(told, None))

        connection.to_broker(arrive)
        later_us = self._drawn.randint(SECOND // 2, 4 * SECOND)
        if world.now_us + later_us < end_us:
            world.after(later_us, partial(self._go_back, view, end_us))
