"""What a seed of a cluster is about, beside its topics and its faults.

Its dice are its own: what a seed draws elsewhere does not depend on it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from dejaqueue.coordinator.bells import TTL_MS_MIN
from dejaqueue.model import Topic

LEASE_MS = 1_000
PATIENCE_SECONDS = 2.0
LATE_US_MAX = 4_000_000
CLOCKS, BEGINNINGS, SLEEPS = "clocks", "beginnings", "sleeps"
"""Clocks that are far off; appends of which the beginning alone arrives; leases that are slept out.
See faults.py, aimed.py."""


@dataclass(frozen=True)
class Plan:
    """What a cluster is like.

    Attributes:
        append_us_max: how long an append is on its way, and its answer; 0 = they take no time.
        facts_us_max: the same for a call of the coordinator, for one in twenty; the others take
            3 ms at most.
        coordinator: memory, sqlite, etcd, or one of SERVED; see coordinators.py.
        outage: when the coordinator is restored from an older copy, all brokers have died.
        moves: brokers join and leave for good, and clocks drift.
        is_apart: appends run beside the worker, as in the product. In seeds that found something
            before the simulation knew that they do not.
        aims: faults are aimed at moments that chance seldom meets (aimed.py), and the topic that is
            deleted while its journal hangs is in use. Not in seeds that found something before.
        hangs: now and then the server answers nothing about one journal.
        surely: faults that this seed has whatever its dice say, by their names: CLOCKS, BEGINNINGS,
            SLEEPS.
        haste: it is so many times shorter, things break so many times as often and for a time that
            is so many times shorter, and so are leases of brokers and what a broker waits.
    """

    append_us_max: int = 0
    facts_us_max: int = 0
    moves: bool = False
    coordinator: str = "memory"
    outage: bool = False
    is_apart: bool = False
    aims: bool = False
    hangs: bool = False
    surely: frozenset[str] = frozenset()
    haste: int = 1

    @property
    def lease_ms(self) -> int:
        """Of brokers. A fact may not vanish sooner."""
        return max(TTL_MS_MIN, LEASE_MS // self.haste)

    @property
    def patience_seconds(self) -> float:
        """How long a broker waits for the server until it gives up on an append."""
        return PATIENCE_SECONDS / self.haste

    @property
    def late_us_max(self) -> int:
        """How late a call arrives at the server at most that its sender has given up on."""
        return LATE_US_MAX // self.haste


PLAIN = Plan()
SERVED_FROM = 8_000_000
"""Seeds below go on as they did, those that once found something among them."""
SERVED = ("redis", "parent", "jetstream", "zookeeper")
"""What brokers agree by in half of the other seeds."""


FIRST_SHARDS = 11_000_000
"""Seeds below go on as they did, those that once found something among them."""


def has_shards(seed: int) -> bool:
    """Whether topics may be in shards."""
    return seed >= FIRST_SHARDS


def in_shards(seed: int, topic: Topic) -> Topic:
    """A topic as it is; of half of the newer seeds, in two or three shards."""
    dice = random.Random(f"{seed} shards")
    if not has_shards(seed) or dice.random() < 0.5:
        return topic
    spread = dice.choice([2, 3])
    return replace(topic, spread=spread, partitions=spread * dice.choice([1, 1, 2]))


def choose_plan(seed: int, haste: int = 1) -> Plan:
    """The plan of a seed: two in five are plain."""
    hangs = random.Random(f"{seed} hangs").random() < 0.3
    dice = random.Random(f"{seed} plan")
    served = random.Random(f"{seed} served")
    if seed >= SERVED_FROM and served.random() < 0.5:
        return replace(_plan(dice, hangs, haste), coordinator=served.choice(SERVED))
    return _plan(dice, hangs, haste)


def _plan(dice: random.Random, hangs: bool, haste: int) -> Plan:
    if dice.random() < 0.4:
        return Plan(haste=haste, is_apart=True, aims=True, hangs=hangs)
    return Plan(
        is_apart=True,
        aims=True,
        hangs=hangs,
        append_us_max=dice.choice([0, 2_000, 50_000]),
        facts_us_max=dice.choice([0, 3_000, 60_000, 300_000]) // haste,
        moves=dice.random() < 0.5,
        coordinator=dice.choice(["memory", "memory", "sqlite", "etcd"]),
        outage=dice.random() < 0.7,
        haste=haste,
    )
