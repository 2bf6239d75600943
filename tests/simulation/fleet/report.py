"""What came of a fleet, for people: what `make sim KIND=fleet` prints.

Facts and bytes, claims and moves are of the simulated world; processor time and memory are this
machine's, of one broker.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.cluster.placement import _dealt, _weights, dealt
from tests.simulation.cluster.server import Server
from tests.simulation.fleet.run import FleetRun, Phase, Size, fill, simulate_fleet

KIB = 1 << 10


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What the catalogue of a fleet takes of one broker.

    Attributes:
        snapshot_bytes: as it is stored.
        resident_bytes: what the process grew by when it was read.
        read_seconds: processor time of reading it.
    """

    topics: int
    partitions: int
    snapshot_bytes: int
    resident_bytes: int
    read_seconds: float


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


def weigh_catalogue(size: Size) -> Catalogue:
    """Read the catalogue of a fleet as a broker does that starts."""
    server = Server(1 << 20)
    fill(server, size)
    stored = {name: b for name, b in server.kept.objects.items() if "/topics." in name}
    content = max(stored.values(), key=len)  # the newest: topics were only added
    gc.collect()
    before_bytes, began = _resident_bytes(), time.process_time()
    state = CatalogueState.from_bytes(content)
    seconds = time.process_time() - began
    gc.collect()
    grown = _resident_bytes() - before_bytes
    partitions = sum(row.topic.partitions for row in state.rows.values())
    return Catalogue(len(state.rows), partitions, len(content), grown, seconds)


def dealing_seconds(size: Size) -> tuple[float, float]:
    """Processor time of dealing the slots for the first time, and after a death."""
    nodes = [f"broker-{number:03d}" for number in range(size.brokers)]
    _dealt.cache_clear()
    _weights.cache_clear()
    found = []
    for there in (nodes, nodes[1:]):
        began = time.process_time()
        dealt(there, size.slots)
        found.append(time.process_time() - began)
    return found[0], found[1]


def lines_of(run: FleetRun) -> list[str]:
    """A line for each phase, and for each fault."""
    return [*(_line(phase, run.size) for phase in run.phases), *(f"FAULT {t}" for t in run.faults)]


def _line(phase: Phase, size: Size) -> str:
    traffic, seconds = phase.traffic, phase.seconds
    facts, read = traffic.facts / seconds, traffic.read_bytes / seconds / KIB
    calls = sum(traffic.calls.values())
    sent = traffic.sent_bytes / seconds / KIB
    text = (
        f"{phase.name}: {seconds:.1f} s, {calls / seconds:,.0f} calls a second, "
        f"{facts:,.0f} facts a second, read {read:,.0f} KiB/s, sent {sent:,.0f} KiB/s, "
        f"{phase.rounds / size.brokers / seconds:.2f} rounds a second and broker, "
        f"{phase.used_us / 1e6 / seconds:.2%} of a core each"
    )
    if phase.moved:
        text += f"; {phase.moved} of {size.slots} slots have another owner"
    if phase.noticed_seconds:
        text += (
            f"; noticed after {phase.noticed_seconds:.2f} s, all claimed "
            f"{phase.claimed_seconds:.2f} s later"
        )
    return text


def show_fleet(seed: int, size: Size, say: Callable[[str], None] = print) -> int:
    """Simulate a fleet and say what came of it; 1 if something was wrong."""
    say(
        f"{size.brokers} brokers, {size.slots:,} slots, {size.topics:,} topics, "
        f"{size.topics * size.partitions:,} partitions; seed {seed}"
    )
    first, after = dealing_seconds(size)
    say(f"dealing slots: {first * 1e3:.0f} ms at first, {after * 1e3:.0f} ms after a death")
    for topics in sorted({size.topics, size.topics * 10}):
        partitions = max(1, size.topics * size.partitions // topics)
        weighed = weigh_catalogue(Size(topics=topics, partitions=partitions, slots=size.slots))
        say(
            f"catalogue of {weighed.topics:,} topics with {weighed.partitions:,} partitions: "
            f"{weighed.resident_bytes / KIB / KIB:.1f} MiB in a broker, "
            f"{weighed.snapshot_bytes / KIB / KIB:.1f} MiB stored, "
            f"read in {weighed.read_seconds:.2f} s of processor time"
        )
    run = simulate_fleet(seed, size, pays_time=True, say=say)
    for line in lines_of(run):
        say(line)
    return int(bool(run.faults))
