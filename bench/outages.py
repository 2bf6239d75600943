"""Brokers that are stopped, started one after the other, and killed: how long a client waits.

Room: bench. Three brokers, clients and servers share the machine's cores.
Holds: what is stopped and killed is the broker that serves a topic of 100 partitions with a million
scheduled messages, or what the Size says: the worst case.

- `hand_over_…`: it is stopped, and started again: the longest time in which ten partitions, each
  sent to all the time, had no answer or no message.
- `rolling_…`: so are all three brokers, one after the other.
- `failover_…`: it is killed with SIGKILL: until a batch that goes to all partitions is answered and
  a message has come from each. `failover_jetstream_leader`: so is the JetStream server beside it,
  which led the facts that brokers agree on.

See: outage.py, for what a client notices; phases.py, for where the time goes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from bench.load import far_load
from bench.outage import Probe
from bench.phases import phases_of
from bench.systems.cluster import NODES, ClusterSystem
from bench.systems.servers import let_in
from bench.systems.system import Plan
from dev.services import start

OUTAGES = ("hand_over", "rolling", "failover")
"""How the cases that are times begin."""
SERVED_SECONDS_MAX = 60.0

Report = Callable[[str], None]
Rates = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Size:
    """What is lost and taken over.

    Attributes:
        partitions: of the topic.
        lanes: partitions that are each sent to all the time while it is handed over.
        lease_ms: of brokers; None = as it is by default.
    """

    partitions: int
    rows: int
    lanes: int
    lease_ms: int | None = None


def outages_postgresql(rates: Rates, size: Size, plan: Plan, report: Report) -> None:
    """Journals on PostgreSQL, agreement on etcd: a broker leaves, another is killed."""
    let_in(plan.folder)
    os.environ["DEJAQ_SERVICES_ROOT"] = str(plan.folder)
    with ExitStack() as stack:
        journal = stack.enter_context(start("postgresql")).url
        coordinator = stack.enter_context(start("etcd")).url
        system = ClusterSystem(journal, coordinator, lease_ms=size.lease_ms)
        system.start(plan.folder)
        stack.callback(system.stop)
        topic = filled_topic(system, system.name_for(NODES[0]), size, report)
        hand_over(system, topic, size, "hand_over_postgresql", rates, report)
        rolling(system, topic, size, "rolling_postgresql", rates, report)
        failover(system, topic, "failover_postgresql", size, rates, report)


def outages_jetstream(rates: Rates, size: Size, plan: Plan, report: Report) -> None:
    """JetStream beside each broker: one that leads nothing of the facts, then the one that does."""
    with ExitStack() as stack:
        system = ClusterSystem(lease_ms=size.lease_ms)
        system.start(plan.folder)
        stack.callback(system.stop)
        name = system.name_for(system.leader(), other_than=True)
        topic = filled_topic(system, name, size, report)
        hand_over(system, topic, size, "hand_over_jetstream", rates, report)
        rolling(system, topic, size, "rolling_jetstream", rates, report)
        if system.owner(topic) != system.leader():  # it may have come to lead meanwhile
            killed = failover(system, topic, "failover_jetstream", size, rates, report)
            system.serve(killed)
            system.wait_for_members(NODES)
        topic = filled_topic(system, system.name_for(system.leader()), size, report)
        case = "failover_jetstream_leader"
        failover(system, topic, case, size, rates, report, with_server=True)


def filled_topic(system: ClusterSystem, name: str, size: Size, report: Report) -> str:
    """A topic with scheduled messages in all of its partitions."""
    began = time.perf_counter()
    system.client.create_topic(name, partitions=size.partitions)
    made = time.perf_counter() - began
    load = far_load(size.rows, system.clock.now_ms(), 1)
    filled = system.fill(name, load, SERVED_SECONDS_MAX)
    if filled.rows != size.rows:
        raise AssertionError(f"{filled.rows} of {size.rows} messages were sent")
    took = time.perf_counter() - began
    report(
        f"{size.partitions} partitions, {size.rows:,} messages: {made:.1f} + {took - made:.1f} s"
    )
    return name


def hand_over(
    system: ClusterSystem, topic: str, size: Size, case: str, rates: Rates, report: Report
) -> None:
    """Stop the owner, start it again: its partitions go to others, and come back."""
    with _probe(system, topic, size) as probe:
        _note(
            probe, _restart(system, topic, system.owner(topic), probe, report), case, rates, report
        )


def rolling(
    system: ClusterSystem, topic: str, size: Size, case: str, rates: Rates, report: Report
) -> None:
    """Stop each broker and start it again, one after the other."""
    with _probe(system, topic, size) as probe:
        since = time.monotonic()
        for node in NODES:
            _restart(system, topic, node, probe, report)
        _note(probe, since, case, rates, report)


def _probe(system: ClusterSystem, topic: str, size: Size) -> Probe:
    step = size.partitions // size.lanes
    return Probe(system.url, topic, [[lane * step] for lane in range(size.lanes)])


def _restart(system: ClusterSystem, topic: str, node: str, probe: Probe, report: Report) -> float:
    """Stop a broker and start it again, and wait until it has its part; when that began."""
    owner, since, since_utc = system.owner(topic), time.monotonic(), system.clock.utc_us() / 1e6
    system.leave(node)
    left = time.monotonic() - since
    probe.wait_served(time.monotonic(), SERVED_SECONDS_MAX)
    others = {one: system.log_text(one) for one in NODES if one != node}
    report(f"{node} ends in {left:.2f} s: " + phases_of(since_utc, others, topic))
    since_utc = system.clock.utc_us() / 1e6
    system.serve(node)
    system.wait_for_members(NODES)
    deadline = time.monotonic() + SERVED_SECONDS_MAX
    while system.owner(topic) != owner and time.monotonic() < deadline:
        time.sleep(0.1)
    probe.wait_served(time.monotonic(), SERVED_SECONDS_MAX)
    report(f"{node} is back: " + phases_of(since_utc, {node: system.log_text(node)}, topic))
    return since


def failover(
    system: ClusterSystem,
    topic: str,
    case: str,
    size: Size,
    rates: Rates,
    report: Report,
    *,
    with_server: bool = False,
) -> str:
    """Kill the owner; which broker that was."""
    node = system.owner(topic)
    with Probe(system.url, topic, [range(size.partitions)], 0.05) as probe:
        since, since_utc = time.monotonic(), system.clock.utc_us() / 1e6
        system.kill(node, with_server=with_server)
        probe.wait_served(since, SERVED_SECONDS_MAX)
        others = {one: system.log_text(one) for one in NODES if one != node}
        report(f"{node} is killed: " + phases_of(since_utc, others, topic))
        _note(probe, since, case, rates, report)
    return node


def _note(probe: Probe, since: float, case: str, rates: Rates, report: Report) -> None:
    sends, messages = probe.gaps(since)
    rates.setdefault(case, []).append(max(*sends, *messages))
    report(
        f"{case}: {max(sends):.2f} s without an answer (half of the lanes {median(sends):.2f}), "
        f"{max(messages):.2f} s without a message (half of the partitions {median(messages):.2f})"
    )
