"""One simulation of a cluster and of the client library from one seed; then it is judged."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from functools import partial

from dejaqueue.broker.topic.writer import Writer
from dejaqueue.testing.simulation.world import World
from tests.checker.judge import judge
from tests.simulation.cluster.client_fibers import clients_in_fibers
from tests.simulation.cluster.coordinators import coordinators_in_fibers
from tests.simulation.cluster.faults import ClusterFaults
from tests.simulation.cluster.machines import Cluster
from tests.simulation.cluster.makers import Maker
from tests.simulation.cluster.membership import Membership
from tests.simulation.cluster.plan import choose_plan, in_shards
from tests.simulation.cluster.programs import Looker, Program, Sender, Taker, Town, Transactor
from tests.simulation.cluster.programs_aio import AsyncSender, AsyncTaker
from tests.simulation.cluster.remakers import leftovers
from tests.simulation.cluster.run import _make_far
from tests.simulation.cluster.watch import Watch
from tests.simulation.cluster.wire import Wire
from tests.simulation.run import SECOND, Run, history_of
from tests.simulation.scenario import TOPIC, choose
from tests.simulation.transactors import FAR

MADE = ("m1", "m2")
DRAIN_SECONDS = 40
"""What is due comes within 30; who takes it settles it at once then."""


@coordinators_in_fibers()
def simulate_clients(seed: int, haste: int = 1) -> Run:
    """Run a seed.

    Args:
        haste: it is so many times shorter, and things break so many times as often.
    """
    world, plan = World(seed), choose_plan(seed, haste)
    Writer._spread = itertools.count()
    plan_dice = random.Random(f"{seed} makers")
    dice = world.random
    cluster = Cluster(world, dice.choice([2, 3, 3]), dice.choice([0.0, 0.0, 0.01, 0.05]), plan)
    scenario = choose(world)
    # Letters are read by those who speak the protocol by hand.
    scenario = replace(scenario, topic=replace(scenario.topic, max_attempts=0))
    scenario = replace(scenario, topic=in_shards(seed, scenario.topic))
    far = replace(
        scenario.topic, spread=1, name=dice.choice("uvwx"), partitions=dice.choice([1, 2])
    )
    history = history_of(scenario)
    history.letters_read = False
    for machine in cluster.machines:
        machine.on_start.append(scenario.make_topics)
        machine.on_start.append(partial(_make_far, far))
        machine.start()
    watch = Watch(world, cluster, history, {TOPIC: 0, far.name: FAR})
    wire = Wire(world, cluster, watch)
    town = Town(world, cluster, history, watch, wire, TOPIC, far.name)
    with clients_in_fibers(world, wire):
        programs: list[Program] = [
            dice.choice([Sender, AsyncSender])(name, town) for name in "ab"[: dice.choice([1, 2])]
        ]
        takers = [
            dice.choice([Taker, AsyncTaker])(f"c{n}", town, TOPIC)
            for n in range(dice.choice([1, 2, 3]))
        ]
        takers.append(Taker("far", town, far.name))
        programs += [*takers, Looker("l", town)]
        if scenario.transacts:
            programs += [Transactor("x", town), Transactor("y", town)]
        names = MADE[: plan_dice.choice([0, 1, 1, 2])]
        makers = [Maker(name, town, ends_gone=plan_dice.random() < 0.5) for name in names]
        programs += makers
        for program in programs:
            world.after(world.between(200_000, SECOND), program.begin)
        end_us = world.now_us + dice.choice([4, 8, 12]) * SECOND // haste
        faults = ClusterFaults(world, cluster, scenario, takers, programs, end_us)
        faults.begin()
        if plan.moves:
            Membership(world, cluster, end_us).begin()
        world.run(end_us)
        faults.heal()
        town.stopped = True
        for program in programs:
            program.lose()
        history.healed_us = world.now_us
        history.healed_broker_us = cluster.time_us + 5 * SECOND
        world.run(world.now_us + DRAIN_SECONDS * SECOND)
        for taker in takers:
            taker.finish()
        for _ in range(30):
            if not all(program.over for program in programs):
                world.run(world.now_us + SECOND)
        for program in programs:
            assert program.over, f"program {program.name} does not end"
        history.drained = True
    faults_seen = [*(fault for maker in makers for fault in maker.faults), *leftovers(cluster)]
    for machine in cluster.machines:
        machine.stop()
    world.run(world.now_us + 10 * SECOND)
    assert not any(machine.is_up for machine in cluster.machines), "a broker did not stop"
    return Run.of(world, history, [*judge(history), *faults_seen], cluster.deaths)
