"""One simulation of a cluster from one seed: brokers, clients, faults; then it is judged."""

from __future__ import annotations

import hashlib
import itertools

from dejaqueue.broker.writer import Writer
from dejaqueue.testing.simulation.world import START_US, World
from tests.checker.judge import judge
from tests.simulation.cluster.faults import ClusterFaults
from tests.simulation.cluster.machines import Cluster
from tests.simulation.run import DRAIN_SECONDS, SECOND, Run, history_of, people_of
from tests.simulation.scenario import choose


def simulate_cluster(seed: int) -> Run:
    """Run a seed."""
    world = World(seed)
    Writer._spread = itertools.count()
    random = world.random
    cluster = Cluster(world, random.choice([2, 3, 3, 4]), random.choice([0.0, 0.0, 0.01, 0.05]))
    scenario = choose(world)
    history = history_of(scenario)
    for machine in cluster.machines:
        machine.on_start.append(scenario.make_topics)
        machine.start()
    people = people_of(world, cluster, history, scenario)
    end_us = world.now_us + random.choice([4, 8, 12]) * SECOND
    faults = ClusterFaults(world, cluster, scenario, people.consumers, people.producers, end_us)
    faults.begin()
    world.run(end_us)
    faults.heal()
    people.heal()
    history.healed_us = world.now_us
    history.healed_broker_us = cluster.time_us + 5 * SECOND
    world.run(world.now_us + DRAIN_SECONDS * SECOND)
    people.check_idle()
    history.drained = True
    for machine in cluster.machines:
        machine.stop()
    world.run(world.now_us + 10 * SECOND)
    assert not any(machine.is_up for machine in cluster.machines), "a broker did not stop"
    digest = hashlib.blake2b(history.text().encode(), digest_size=12)
    digest.update(f"{world.happened} {world.now_us}".encode())
    return Run(
        seed,
        judge(history),
        history,
        digest.hexdigest(),
        (world.now_us - START_US) / SECOND,
        world.happened,
        cluster.deaths,
    )
