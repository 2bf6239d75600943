"""One simulation of a cluster from one seed: brokers, clients, faults; then it is judged."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.writer import Writer
from dejaqueue.errors import TopicUnknown
from dejaqueue.model import Topic
from dejaqueue.testing.simulation.world import World
from tests.checker.history import History
from tests.checker.judge import judge
from tests.simulation.cluster.aimed import AimedFaults
from tests.simulation.cluster.coordinators import coordinators_in_fibers
from tests.simulation.cluster.faults import ClusterFaults
from tests.simulation.cluster.going_back import GoingBack
from tests.simulation.cluster.hanging import Hanging
from tests.simulation.cluster.homes import HomeRemover, has_homes
from tests.simulation.cluster.machines import Cluster
from tests.simulation.cluster.membership import Membership
from tests.simulation.cluster.plan import Plan, choose_plan
from tests.simulation.cluster.remakers import Remaker, leftovers
from tests.simulation.consumers import FarConsumer
from tests.simulation.run import DRAIN_SECONDS, SECOND, Run, history_of, people_of
from tests.simulation.scenario import choose

QUIET_US = 15 * SECOND
"""Leases of messages last ten seconds, transactions eight, and brokers look at everything again
after ten (node.py, REFRESH_MS)."""
HANGS_US_MIN = 3 * SECOND
HOMES = ("y1", "y2")
REMADE = ("m1", "m2", "m3")
FAR_NAMES = ("u", "v", "w", "x")


def _make_far(topic: Topic, broker: Broker) -> None:
    try:
        broker.topic(topic.name)
    except TopicUnknown:
        broker.create_topic(topic)


def _drain(world: World, cluster: Cluster, history: History, is_idle: Callable[[], bool]) -> None:
    """Give what is due all the time that it has.

    In haste that is over when nothing was noted for longer than anybody waits, and nothing is
    missing then: most of a short seed would be brokers that renew their memberships.
    """
    end_us = world.now_us + DRAIN_SECONDS * SECOND
    noted, quiet_us, looks = 0, 0, cluster.plan.haste > 1
    while world.now_us < end_us:
        world.run(world.now_us + SECOND)
        quiet_us, before, noted = quiet_us + SECOND, noted, _note_count(history)
        if noted != before:
            quiet_us = 0
        if looks and quiet_us >= QUIET_US and is_idle():
            history.drained = True
            if not judge(history):
                return
            looks = False  # who is late has the whole of a minute, as at full length
    history.drained = True


def _note_count(history: History) -> int:
    """How much was noted of what still comes when nobody begins anything new."""
    handed_out = len(history.deliveries) + len(history.letters) + len(history.firings)
    return handed_out + len(history.settles)


@coordinators_in_fibers()
def simulate_cluster(seed: int, haste: int = 0, plan: Plan | None = None) -> Run:
    """Run a seed.

    Args:
        haste: it is so many times shorter, and things break so many times as often; 0 = 4 where
            homes of transactions are deleted, 1 elsewhere.
        plan: what the cluster is like; None = the seed says it.
    """
    world = World(seed)
    plan = plan or choose_plan(seed, haste or (4 if has_homes(seed) else 1))
    Writer._spread = itertools.count()
    random = world.random
    count, trouble = random.choice([2, 3, 3, 4]), random.choice([0.0, 0.0, 0.01, 0.05])
    cluster = Cluster(world, count, 0.0 if plan.hangs else trouble, plan)
    scenario = choose(world)
    far = None
    if scenario.transacts and world.chance(0.7):
        # Without letters, of which only those of one topic are read.
        scenario = replace(scenario, topic=replace(scenario.topic, max_attempts=0))
        partitions = random.choice([1, 2])
        far = replace(scenario.topic, name=random.choice(FAR_NAMES), partitions=partitions)
    history = history_of(scenario)
    for machine in cluster.machines:
        machine.on_start.append(scenario.make_topics)
        if far is not None:
            machine.on_start.append(partial(_make_far, far))
        machine.start()
    people = people_of(world, cluster, history, scenario)
    if far is not None:
        people.consumers.append(FarConsumer(92, world, cluster, history, far.name))
        world.after(world.between(0, SECOND), people.consumers[-1].begin)
        for transactor in people.transactors:
            transactor.far = (far.name, far.partitions)
    names = REMADE[: max(random.choice([0, 0, 1, 2, 3]), 2 * plan.hangs)]
    remakers = [Remaker(name, world, cluster, world.chance(0.5)) for name in names]
    if has_homes(seed):
        remakers += [HomeRemover(name, world, cluster, ends_gone=True) for name in HOMES]
    for remaker in remakers:
        world.after(world.between(0, 2 * SECOND), remaker.act)
    end_us = world.now_us + random.choice([4, 8, 12]) * SECOND // plan.haste
    if plan.aims and plan.hangs:  # or it would be over before anybody had stood still for long
        end_us = max(end_us, world.now_us + HANGS_US_MIN)
    faults = ClusterFaults(world, cluster, scenario, people.consumers, people.producers, end_us)
    faults.begin()
    hanging = Hanging(world, cluster, faults, end_us)
    if plan.hangs:
        hanging.begin()
    if plan.aims:
        AimedFaults(cluster, faults, people.consumers, end_us).begin()
    if plan.moves:
        Membership(world, cluster, end_us).begin()
    # Of topics that are made and deleted over and over an operator could not say what is right.
    going_back = GoingBack(seed, world, cluster) if not remakers else None
    if going_back is not None:
        going_back.begin(end_us)
    world.run(end_us)
    faults.heal()
    people.heal()
    for remaker in remakers:
        remaker.stopped = True
    if going_back is not None:
        going_back.ask()
    history.healed_us = world.now_us
    history.healed_broker_us = cluster.time_us + 5 * SECOND
    _drain(world, cluster, history, lambda: all(one.idle for one in (*people.all, *remakers)))
    people.check_idle()
    assert all(remaker.idle for remaker in remakers), "a topic was never made or deleted"
    for remaker in remakers:
        remaker.look()
    world.run(world.now_us + 5 * SECOND)
    faults_seen = [fault for remaker in remakers for fault in remaker.faults]
    faults_seen += [*hanging.faults, *leftovers(cluster)]
    if going_back is not None:
        faults_seen += going_back.faults
    for machine in cluster.machines:
        machine.stop()
    until_us = world.now_us + 10 * SECOND
    while any(machine.is_up for machine in cluster.machines) and world.now_us < until_us:
        world.run(world.now_us + SECOND)
    assert not any(machine.is_up for machine in cluster.machines), "a broker did not stop"
    lives = [remaker.lives for remaker in remakers]
    return Run.of(world, history, [*judge(history), *faults_seen], cluster.deaths, lives)
