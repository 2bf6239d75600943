"""One simulation of topics that move while consumers come and go, and nothing else goes wrong.

Brokers stop as they should, and start again, one after the other; threads that send deliveries come
late. So no message waits for a lease to run out: neither one that is on its way to a consumer when
its topic moves, nor one that a consumer had when it was closed. Rule 5 is judged with that bound.
In some seeds messages are sent a second ahead, as with a journal in a bucket, to consumers of which
none waits for so long, and what they give back is due when it was.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dejaqueue.broker.topic.writer import Writer
from dejaqueue.model import GroupOrder, OnDuplicate, TopicKind
from dejaqueue.testing.simulation.network import SLOW_US_MAX
from dejaqueue.testing.simulation.world import World
from tests.checker.fault import Fault
from tests.checker.history import Delivery, Outcome, Send
from tests.checker.judge import judge
from tests.simulation.cluster.client_fibers import clients_in_fibers
from tests.simulation.cluster.coordinators import coordinators_in_fibers
from tests.simulation.cluster.machines import Cluster
from tests.simulation.cluster.plan import Plan, in_shards
from tests.simulation.cluster.programs import Program, Sender, Taker, Town
from tests.simulation.cluster.run import _make_far
from tests.simulation.cluster.watch import Watch
from tests.simulation.cluster.wire import SENDER_US_MAX, Wire
from tests.simulation.run import SECOND, Run, history_of
from tests.simulation.scenario import TOPIC, choose
from tests.simulation.transactors import FAR

LEASE_MS = 20_000
WAIT_US_MAX = 5 * SECOND
"""Much less than a lease, and more than a hand-over takes when calls to servers take long."""
SECONDS = 12
FAR_AHEAD_MS = 1_000


@dataclass
class Ends:
    """Who closed a consumer, with what of it open, and when.

    Attributes:
        closed_us: by id and attempt of what was not settled.
    """

    closed_us: dict[tuple[int, int], int] = field(default_factory=dict)


class Visitor(Taker):
    """Takes a few messages, settles some of them, and closes its consumer well; again and again."""

    def __init__(self, name: str, town: Town, ends: Ends) -> None:
        super().__init__(name, town, TOPIC)
        self._ends = ends

    def work(self) -> None:
        dice = self.world.random
        while not self.town.stopped:
            taken: list[Delivery] = []
            named = {"prefetch": dice.choice([1, 5, 50]), "lease_ms": LEASE_MS, "idle_ms": 300}
            count = self.world.between(1, 8)
            with self.client.consume(self.town.topic, name=self.name, **named) as messages:
                for message in messages:
                    row = self._handed(message.id, message.attempt)
                    if self.world.chance(0.6):
                        self._answered(self._noted("ack", [row]), [message.ack(wait=True)])
                    else:
                        taken.append(row)
                    count -= 1
                    if not count:
                        break
                    self.pause(30_000)
            for row in taken:
                self._ends.closed_us[row.id, row.attempt] = self.world.now_us
            self.pause(300_000)


class Resident(Taker):
    """Has one consumer after the other, and acks what comes."""

    def __init__(self, name: str, town: Town, idle_ms: int) -> None:
        super().__init__(name, town, TOPIC)
        self._idle_ms = idle_ms

    def work(self) -> None:
        while not self.town.stopped:
            named = {"prefetch": 20, "lease_ms": LEASE_MS, "idle_ms": self._idle_ms}
            with self.client.consume(self.town.topic, name=self.name, **named) as messages:
                for message in messages:
                    self._noted("ack", [self._handed(message.id, message.attempt)])
                    message.ack(wait=False)
                    if self.town.stopped:
                        break


def waits(town: Town, ends: Ends, until_us: int) -> list[Fault]:
    """Messages that waited for a lease to run out, of those that had the time to, and of which no
    producer changed the time or the end."""
    faults = []
    moves, cancels = town.history.moves, town.history.cancels
    changed = {one.id for one in moves if one.outcome is not Outcome.REFUSED}
    changed |= {one.id for one in cancels if one.outcome is not Outcome.REFUSED}
    deliveries: dict[int, list[Delivery]] = {}
    for row in town.history.deliveries:
        deliveries.setdefault(row.id, []).append(row)
    for send in town.history.sends:
        rows = deliveries.get(send.id, [])
        if send.id >= 0 and rows and send.id not in changed:
            faults += _lost_on_the_way(send, rows, until_us) + _put_off(send, rows, until_us)
    for (number, attempt), closed_us in ends.closed_us.items():
        if number in changed:
            continue
        later = [row.pushed_us for row in deliveries[number] if row.attempt > attempt]
        again_us = min(later, default=until_us)
        if again_us - closed_us > WAIT_US_MAX:
            text = f"{(again_us - closed_us) / SECOND:.1f} s after its consumer was closed"
            faults.append(Fault(5, f"it came again {text}", number))
    return faults


def _lost_on_the_way(send: Send, rows: list[Delivery], until_us: int) -> list[Fault]:
    """A delivery that no client was handed, and that was not given back either."""
    faults = []
    rows = sorted(rows, key=lambda row: row.attempt)
    for row, following in itertools.zip_longest(rows, rows[1:]):
        if row.handed_broker_us >= 0:
            continue
        again_us = until_us if following is None else following.pushed_us
        begin_us = max(row.pushed_us, send.due_ms * 1_000)
        if again_us - begin_us > WAIT_US_MAX:
            text = f"attempt {row.attempt} did not arrive, and it took"
            faults.append(
                Fault(5, f"{text} {(again_us - begin_us) / SECOND:.1f} s to come again", send.id)
            )
    return faults


def _put_off(send: Send, rows: list[Delivery], until_us: int) -> list[Fault]:
    """It was delivered, maybe again and again, and nobody was handed it."""
    handed_us = [row.handed_broker_us for row in rows if row.handed_broker_us >= 0]
    late_us = min(handed_us, default=until_us) - send.due_ms * 1_000
    if late_us <= WAIT_US_MAX:
        return []
    text = f"of {len(rows)} attempts none was handed over for {late_us / SECOND:.1f} s"
    return [Fault(5, text, send.id)]


class Rolling:
    """Stops one broker after the other as it should, and starts it again."""

    def __init__(self, world: World, cluster: Cluster, end_us: int) -> None:
        self._world, self._cluster, self._end_us = world, cluster, end_us
        self._dice = random.Random(f"{world.seed} rolling")
        self.count = 0

    def begin(self) -> None:
        """The first stops soon."""
        self._world.after(self._dice.randint(SECOND, 2 * SECOND), self._stop)

    def _stop(self) -> None:
        if self._world.now_us >= self._end_us:
            return
        machine = self._cluster.machines[self.count % len(self._cluster.machines)]
        if all(one.is_up and one.is_well for one in self._cluster.machines):
            self.count += 1
            machine.stop()
        self._world.after(self._dice.randint(SECOND // 4, SECOND), self._start)

    def _start(self) -> None:
        for machine in self._cluster.machines:
            machine.start()
        self._world.after(self._dice.randint(SECOND // 2, 2 * SECOND), self._stop)


@coordinators_in_fibers()
def simulate_moves(seed: int, haste: int = 1) -> Run:
    """Run a seed.

    Args:
        haste: it is so many times shorter.
    """
    world = World(seed)
    Writer._spread = itertools.count()
    dice = world.random
    plan = Plan(is_apart=True, append_us_max=dice.choice([0, 2_000, 20_000]))
    cluster = Cluster(world, dice.choice([2, 3]), 0.0, plan)
    scenario = choose(world)
    # Letters are read by those who speak the protocol by hand.
    topic = scenario.topic
    settings: dict[str, Any] = {"max_attempts": 0, "paused": False}
    is_far_ahead = seed % 3 == 2  # not drawn: other seeds go on as they did
    if is_far_ahead:
        settings |= {"kind": TopicKind.TIMELINE, "weights": {}, "group_in_flight_max": 0}
        settings |= {"lease_ms": LEASE_MS, "lease_ahead_ms": FAR_AHEAD_MS}
        # What is given back may be replaced, and the judge does not know what was given back.
        settings |= {"group_order": GroupOrder.ARRIVAL, "on_duplicate": OnDuplicate.REJECT}
    shards = in_shards(seed, topic)
    settings |= {"spread": shards.spread, "partitions": shards.partitions}
    for name, value in settings.items():
        object.__setattr__(topic, name, value)
    history = history_of(scenario)
    history.letters_read = False
    for machine in cluster.machines:
        # Nothing that was sent is lost where a broker ends a stream well.
        machine.sending_us = 2 * SENDER_US_MAX + SLOW_US_MAX
        machine.on_start.append(scenario.make_topics)
        machine.on_start.append(partial(_make_far, topic.__class__("u")))
        machine.start()
    watch = Watch(world, cluster, history, {TOPIC: 0, "u": FAR})
    watch.ahead_ms = topic.lease_ahead_ms
    wire = Wire(world, cluster, watch)
    wire.senders = random.Random(f"{seed} senders")
    town, ends = Town(world, cluster, history, watch, wire, TOPIC, "u"), Ends()
    with clients_in_fibers(world, wire):
        idle_ms = FAR_AHEAD_MS // 2 if is_far_ahead else 2_000
        sender = Sender("a", town)
        if is_far_ahead:
            sender.pace_us = 8 * SECOND  # else somebody is always handed something, and stays
        programs: list[Program] = [sender, Resident("r", town, idle_ms)]
        programs += [Visitor(f"v{number}", town, ends) for number in range(dice.choice([1, 2, 3]))]
        for program in programs:
            world.after(world.between(200_000, SECOND), program.begin)
        end_us = world.now_us + SECONDS * SECOND // haste
        rolling = Rolling(world, cluster, end_us)
        rolling.begin()
        world.run(end_us)
        for machine in cluster.machines:
            machine.start()
        world.run(world.now_us + 2 * WAIT_US_MAX)
        town.stopped = True
        looked_us = world.now_us
        for _ in range(60):
            if not all(program.over for program in programs):
                world.run(world.now_us + SECOND)
        for program in programs:
            assert program.over, f"program {program.name} does not end"
        world.run(world.now_us + 2 * LEASE_MS * 1_000)
    history.healed_us = world.now_us
    history.healed_broker_us = cluster.time_us
    faults = waits(town, ends, looked_us)
    for machine in cluster.machines:
        machine.stop()
    world.run(world.now_us + 10 * SECOND)
    assert not any(machine.is_up for machine in cluster.machines), "a broker did not stop"
    return Run.of(world, history, [*judge(history), *faults], cluster.deaths, rolling.count)
