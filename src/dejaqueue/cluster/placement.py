"""Which broker should serve what: rendezvous hashing.

Room: cluster. Pure.
Holds: every broker that knows the same nodes comes to the same answer; when a node joins or leaves,
only what it gets or had moves.
See: D. Thaler, C. Ravishankar: Using name-based mappings to increase hit rates (1998).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import xxhash

from dejaqueue.model import DEAD_ENDING, Topic, parse_shard, shard_name


def preferred(unit: str, nodes: Iterable[str]) -> str | None:
    """The node that should serve a unit, None if there is no node.

    Shards of one topic are dealt: no node gets one more before each has as many.
    """
    shard = parse_shard(unit)
    left = list(nodes)
    if shard is not None and left:
        topic, number, spread = shard
        for before in range(number // len(left) * len(left), number):
            left.remove(_heaviest(shard_name(topic, before, spread), left))
    return _heaviest(unit, left) if left else None


def _heaviest(unit: str, nodes: Iterable[str]) -> str:
    return max(nodes, key=lambda node: (_weight(unit, node), node))


def _weight(unit: str, node: str) -> int:
    return xxhash.xxh3_64_intdigest(f"{node}\0{unit}".encode())


def unit_of(name: str, topics: Mapping[str, Topic]) -> str:
    """The unit of a topic: topics of one unit are served by one broker.

    Dead letters travel between topics in one step, so a topic goes where its dead-letter topic is,
    and a shard of it where the same shard of that one is.
    """
    if (shard := parse_shard(name)) is not None:
        return shard_name(unit_of(shard[0], topics), *shard[1:])
    seen: list[str] = []
    while name not in seen:
        seen.append(name)
        topic = topics.get(name)
        if topic is None or not topic.dead_letter:
            # Without a name of its own: as the dead-letter topic that it would get.
            while name.endswith(DEAD_ENDING) and name != DEAD_ENDING:
                name = name.removesuffix(DEAD_ENDING)
            return Topic(name).dead_letter_name.removesuffix(DEAD_ENDING)
        name = topic.dead_letter
    return min(seen[seen.index(name) :])  # a ring: whoever begins finds the same one
