"""How fast are the turns of a fair partition alone: nanoseconds a message, without journal or wire?

Question: what adding, taking and giving back cost a message in dispatches of `--dispatch`, for (a)
many groups whose backlogs are unequal, (b) two groups, (c) groups of one message each, (d) groups
within groups, (e) as (a) and (f) as (b), with ten priorities within each group, (g) and (h) the
same, priority before turns; and Jain's index of what equal groups got while all of them had
messages.

    PYTHONPATH=src python bench/fair_parts.py [--messages N] [--dispatch N]
"""

from __future__ import annotations

import argparse
import platform
import time
from dataclasses import replace

import numpy as np

from dejaqueue.engine.arrays import Words
from dejaqueue.engine.commands import Ack, Configure, Enqueue, Lease
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.rules import Rules
from dejaqueue.model import GroupOrder, TopicKind

BATCH_ROWS = 10_000


def zipf_groups(group_count: int, message_count: int) -> np.ndarray:
    """The group of each message: group g has about 1 / (g + 1) as many as the first, at least 1."""
    rng = np.random.default_rng(1)
    shares = 1 / np.arange(1, group_count + 1)
    chosen = rng.choice(group_count, message_count - group_count, p=shares / shares.sum())
    groups = np.concatenate([np.arange(group_count), chosen])
    rng.shuffle(groups)
    return groups


def jain(counts: np.ndarray) -> float:
    """Jain's index of fairness: 1 = all the same, 1 / n = one has all."""
    return float(counts.sum()) ** 2 / (counts.size * float((counts.astype(float) ** 2).sum()))


def run(rules: Rules, names: list[str], groups: np.ndarray, dispatch: int) -> dict[str, float]:
    """Processor nanoseconds a message of each command, and of all."""
    engine = Engine(0)
    engine.apply(Configure(0, rules.to_text()))
    by_priority = rules.group_order is not GroupOrder.ARRIVAL
    levels = np.random.default_rng(2).integers(0, 10, BATCH_ROWS).astype(np.uint16)
    took = {"add": 0.0, "lease": 0.0, "ack": 0.0}
    for position, first in enumerate(range(0, groups.size, BATCH_ROWS)):
        part = groups[first : first + BATCH_ROWS]
        unique, indices = np.unique(part, return_inverse=True)
        words = Words(tuple(names[code] for code in unique.tolist()), indices.astype(np.int32))
        dues_ms = np.zeros(part.size, dtype=np.int64)
        priorities = levels[: part.size] if by_priority else None
        began = time.thread_time()
        engine.apply(Enqueue(0, position, dues_ms, (), priorities=priorities, groups=words))
        took["add"] += time.thread_time() - began
    lease_id, left = 1 << 40, groups.size
    longest = 0.0
    while left:
        lease_id += 1
        began = time.thread_time()
        leased = engine.apply(Lease(1, lease_id, 1, dispatch, 1 << 50)).leased
        between = time.thread_time()
        engine.apply(Ack(1, lease_id))
        took["lease"] += between - began
        longest = max(longest, between - began)
        took["ack"] += time.thread_time() - between
        assert leased is not None
        left -= leased.sequences.size
    found = {name: 1e9 * seconds / groups.size for name, seconds in took.items()}
    return found | {"all": sum(found.values()), "longest lease us": 1e6 * longest}


def fairness(group_count: int, messages: int, dispatch: int) -> float:
    """Jain's index of what groups got, from dispatches while all of them have messages."""
    engine = Engine(0)
    engine.apply(Configure(0, Rules(TopicKind.FAIR).to_text()))
    groups = np.concatenate(
        [np.tile(np.arange(group_count), 3), zipf_groups(group_count, messages)]
    )
    names = tuple(str(code) for code in range(group_count))
    dues_ms = np.zeros(groups.size, dtype=np.int64)
    words = Words(names, groups.astype(np.int32))
    engine.apply(Enqueue(0, 1, dues_ms, (), groups=words))
    counts = np.zeros(group_count, dtype=np.int64)
    for number in range(4 * group_count // dispatch):  # the smallest groups have four messages
        leased = engine.apply(Lease(1, 2 + number, 1, dispatch, 1 << 50)).leased
        assert leased is not None
        np.add.at(counts, groups[leased.sequences], 1)
    return jain(counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--dispatch", type=int, default=1_000)
    arguments = parser.parse_args()
    messages, dispatch = arguments.messages, arguments.dispatch
    print(f"{platform.machine()}, numpy {np.__version__}, {messages:,} messages, by {dispatch}")
    many = min(10_000, messages // 10)
    flat = [f"g{code}" for code in range(max(many, messages // 10))]
    nested = [f"t{code % 100}.g{code}" for code in range(many)]
    zipf = zipf_groups(many, messages)
    few = np.arange(messages) % 2
    singles = np.arange(messages // 10)
    fair, timeline = Rules(TopicKind.FAIR), Rules()
    ordered = replace(fair, group_order=GroupOrder.PRIORITY)
    first = replace(fair, group_order=GroupOrder.PRIORITY_FIRST)
    for name, rules, names, groups in (
        ("timeline", timeline, flat, zipf),
        ("(a) many groups", fair, flat, zipf),
        ("(b) two groups", fair, flat, few),
        ("(c) groups of one", fair, flat, singles),
        ("(d) nested groups", fair, nested, zipf),
        ("(e) many, priority", ordered, flat, zipf),
        ("(f) two, priority", ordered, flat, few),
        ("(g) many, first", first, flat, zipf),
        ("(h) two, first", first, flat, few),
    ):
        found = run(rules, names, groups, dispatch)
        columns = "  ".join(f"{part} {value:8.1f}" for part, value in found.items())
        print(f"{name:18} ns a message: {columns}")
    print(f"Jain's index of {many:,} groups: {fairness(many, messages, dispatch):.4f}")


if __name__ == "__main__":
    main()
