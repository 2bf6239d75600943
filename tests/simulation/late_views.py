"""A subscription that is made while messages flow, with what there is already, and may end by
itself when nobody consumes it.

What it has to have is judged by what the others surely had when it was made, or by what is
retained; that an ephemeral one ends in time, and not before, by looking who is there.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from dejaqueue.broker.broker import Broker
from dejaqueue.errors import DejaQError, TopicUnknown
from dejaqueue.subscriptions import Order
from dejaqueue.testing.simulation.machine import Machine
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import World
from dejaqueue.topic_names import subscription_name
from tests.checker.fault import Fault
from tests.checker.history import History, Operation, Outcome, Send
from tests.checker.judge import judge
from tests.simulation.scenario import TOPIC, Scenario
from tests.simulation.view_consumers import View, ViewConsumer, ViewLetters, history_of_view

SECOND = 1_000_000
NAME = "late"
EPHEMERAL_MS = 4_000
LOOK_US = 20_000
LEAVE_SECONDS, GONE_SECONDS = 35, 55
"""So long after everything was mended its consumer leaves, and it has to be gone."""


class LateView(View):
    """The subscription.

    Attributes:
        settings: with which it is made.
        opened: the making of it, as its maker knows it.
    """

    def __init__(
        self,
        world: World,
        machine: Machine,
        shared: History,
        scenario: Scenario,
        drawn: random.Random,
    ) -> None:
        topic = scenario.topic
        self.settings: dict[str, Any] = {
            "order": str(drawn.choice(list(Order))),
            "start": drawn.choice(["new", "live", "live"] + ["beginning"] * topic.retains),
            "max_attempts": 0,
        }
        if drawn.random() < 0.5:
            self.settings["ephemeral_ms"] = EPHEMERAL_MS
        super().__init__(NAME, history_of_view(shared, scenario, self.settings))
        self.opened = Operation(0)
        self._retains = topic.retains and topic.retention_ms != 1_000
        self._world, self._machine, self._drawn = world, machine, drawn
        self._found: list[Fault] = []
        self._seen_us = 0
        self._known: Broker | None = None
        self._has_been = self._has_ended = False
        self._consumer = LateConsumer(900, world, machine, self, subscription_name(TOPIC, NAME))
        letters = f"{TOPIC}.{NAME}.dead"
        self.consumers.append(self._consumer)
        self.consumers.append(ViewLetters(991, world, machine, self.history, letters))

    @property
    def is_ephemeral(self) -> bool:
        """It ends when nobody consumes it."""
        return "ephemeral_ms" in self.settings

    def begin(self) -> None:
        """It is made a little later."""
        self._world.after(self._drawn.randint(SECOND // 10, 2 * SECOND), self._open)

    def heal(self, healed_us: int, healed_broker_us: int) -> None:
        """Nothing breaks any more; a little later nobody consumes it any more."""
        self.history.healed_us, self.history.healed_broker_us = healed_us, healed_broker_us
        if self.is_ephemeral:
            self._world.after(LEAVE_SECONDS * SECOND, self._leave)
            self._world.after(GONE_SECONDS * SECOND, self._must_be_gone)

    # --- its maker ----------------------------------------------------------------------------

    def _open(self) -> None:
        world = self._world
        self.opened.called_us = self.opened.called_us or world.now_us
        connection = Connection(world, self._machine.pick(TOPIC))
        connection.on_break_here = lambda: world.after(world.between(1_000, 500_000), self._open)

        def arrive() -> None:
            try:
                changes = {"subscriptions": {NAME: self.settings}}
                connection.machine.require().alter_topic(TOPIC, changes)
            except DejaQError:
                connection.break_it()
            else:
                connection.to_client(told)

        def told() -> None:
            if self.opened.answered_us is not None:
                return
            connection.on_break_here = lambda: None
            self.opened.answer(world.now_us, Outcome.OK, self._machine.time_us)
            self.history.begun_us = world.now_us
            for consumer in self.consumers:
                consumer.begin()
            if self.is_ephemeral:
                self._seen_us = world.now_us
                self._look()
                self._come_and_go()

        connection.to_broker(arrive)

    # --- who is there ---------------------------------------------------------------------------

    def _come_and_go(self) -> None:
        """Its consumer is away for a while, now and then."""
        consumer = self._consumer
        if self._drawn.random() < 0.5 and not self.history.healed_us:
            consumer.away_until_us = self._world.now_us + self._drawn.randint(0, 8 * SECOND)
            consumer.lose()
        self._world.after(self._drawn.randint(SECOND // 2, 3 * SECOND), self._come_and_go)

    def _leave(self) -> None:
        self._consumer.away_until_us = 1 << 62
        self._consumer.lose()

    def _look(self) -> None:
        """Whether it is there, and somebody consumes it; a broker that begins counts anew."""
        world, broker = self._world, self._machine.broker
        if broker is None or broker is not self._known:
            self._known, self._seen_us = broker, world.now_us
        if broker is not None and not self._has_ended:
            is_there = NAME in broker.topic(TOPIC).subscriptions
            if not is_there and self._has_been:
                self._has_ended = True
                self._judge_end(world.now_us - self._seen_us)
            elif is_there:
                self._has_been = True
                if self._is_used(broker):
                    self._seen_us = world.now_us
        if not self._has_ended:
            world.after(LOOK_US, self._look)

    def _is_used(self, broker: Broker) -> bool:
        try:
            served = broker.runtime(TOPIC).subscription(NAME)
        except DejaQError:
            return False
        return served.dispatcher.has_consumers

    def _judge_end(self, absent_us: int) -> None:
        # A clock that is put right, or runs too fast, makes of it a little less.
        if absent_us < EPHEMERAL_MS * 1_000 // 2:
            text = f"{NAME} ended when nobody had been there for {absent_us / SECOND:.2f} s"
            self._found.append(Fault(19, text))

    def _must_be_gone(self) -> None:
        broker = self._machine.broker
        if broker is not None and NAME in broker.topic(TOPIC).subscriptions:
            self._found.append(Fault(19, f"{NAME} is still there, and nobody consumes it"))

    # --- what it has to have --------------------------------------------------------------------

    def faults(self, others: list[History]) -> list[Fault]:
        """What the judge says of it.

        Args:
            others: of the subscriptions that there were before it.
        """
        history = self.history
        # One that ended before its consumer left for good has not had what was due later.
        lived = not self.is_ephemeral or self._seen_us > history.healed_us + 20 * SECOND
        history.drained = lived and self.opened.outcome is Outcome.OK
        history.sends = [self._as_asked(send, others) for send in history.sends]
        history.decisions = []  # of one that was decided before, it may have a part
        found = [
            Fault(fault.rule, f"{NAME} ({self.settings['start']}): {fault.text}", fault.id)
            for fault in judge(history)
        ]
        return found + self._found

    def _as_asked(self, send: Send, others: list[History]) -> Send:
        """A message as the judge is to know it: what it need not have may or may not be there."""
        is_sure = self._must_have(send, others)
        outcome = send.outcome if is_sure else Outcome.UNKNOWN
        return replace(send, outcome=outcome, transaction="")

    def _must_have(self, send: Send, others: list[History]) -> bool:
        opened_us = self.opened.answered_us
        if opened_us is None or send.outcome is not Outcome.OK or send.transaction:
            return False
        if send.called_us > opened_us:
            return True
        start = self.settings["start"]
        if start == "new" or send.expires_ms or send.key:
            return False
        if start == "beginning" and self._retains:
            return True
        return any(_surely_has(history, send, opened_us) for history in others)


def _surely_has(history: History, send: Send, by_us: int) -> bool:
    """Whether a subscription has a message at that time that it was to have once."""
    if history.max_attempts or history.begun_us or any(seek.to_end for seek in history.seeks):
        return False
    return not any(
        settle.id == send.id
        and settle.op == "ack"
        and settle.outcome is not Outcome.REFUSED
        and settle.called_us <= by_us
        for settle in history.settles
    )


class LateConsumer(ViewConsumer):
    """Takes messages of a subscription that may end."""

    def __init__(
        self, number: int, world: World, machine: Machine, view: LateView, topic: str
    ) -> None:
        super().__init__(number, world, machine, view.history, topic)
        self._is_ephemeral = view.is_ephemeral
        self.away_until_us = 0

    def begin(self) -> None:
        """Connect, unless it is away."""
        wait_us = self.away_until_us - self._world.now_us
        if wait_us > 0:
            self._world.after(min(wait_us, SECOND), self.begin)
        else:
            super().begin()

    def gone(self, error: TopicUnknown) -> None:
        """An ephemeral one may have ended."""
        if not self._is_ephemeral:
            super().gone(error)
