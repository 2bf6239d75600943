"""Which broker should serve what: topics lie in slots, and slots are dealt to brokers.

Room: cluster. Pure.
Holds: every broker that knows the same nodes comes to the same answer; no node gets more than its
part, rounded up; when a node joins or leaves, hardly more moves than what it gets or had.
See: docs/adr/0035; D. Thaler, C. Ravishankar: Using name-based mappings to increase hit rates
(1998); V. Mirrokni, M. Thorup, M. Zadimoghaddam: Consistent hashing with bounded loads (2016).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from dejaqueue.model import DEAD_ENDING, Topic
from dejaqueue.topic_names import parse_shard


class PlacedTopic(Protocol):
    """A topic, and where its first shard lies."""

    @property
    def topic(self) -> Topic:
        """Its settings."""

    @property
    def start(self) -> int:
        """The slot of its first shard, unless it lies where its dead-letter topic does."""


def dealt(nodes: Iterable[str], slots: int, planned: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The node that should have each slot; empty if there is no node.

    Args:
        planned: all nodes that there will ever be, where that is known: slots are theirs in turn,
            and only those of one that is away are dealt among the others.
    """
    return _dealt(tuple(sorted(nodes)), slots, planned)


@lru_cache(maxsize=8)
def _dealt(nodes: tuple[str, ...], slots: int, planned: tuple[str, ...]) -> tuple[str, ...]:
    if not nodes:
        return ()
    most = -(-slots // len(nodes))
    room = [most] * len(nodes)
    places = {node: place for place, node in enumerate(nodes)}
    taken = [-1] * slots
    if planned:
        taken = [places.get(planned[slot % len(planned)], -1) for slot in range(slots)]
    for place in taken:
        if place >= 0:
            room[place] -= 1
    # By weight, the highest first; of equal ones the first node by name.
    weights = np.stack([_weights(node, slots) for node in nodes])
    ranked = np.argsort(~weights, axis=0, kind="stable").T
    for slot in [slot for slot, place in enumerate(taken) if place < 0]:
        place = next(place for place in ranked[slot].tolist() if room[place] > 0)
        room[place] -= 1
        taken[slot] = place
    return tuple(nodes[place] for place in taken)


@lru_cache(maxsize=1_024)
def _weights(node: str, slots: int) -> npt.NDArray[np.uint64]:
    """Of each slot for a node. Another member changes nothing of it, and a hundred of them are a
    third of a second at 4,096 slots: so long would everybody wait after a death."""
    return np.array([_weight(slot, node) for slot in range(slots)], dtype=np.uint64)


def _weight(slot: int, node: str) -> int:
    return xxhash.xxh3_64_intdigest(f"{node}\0{slot}".encode())


def slot_of(name: str, placed: Mapping[str, PlacedTopic], slots: int) -> int:
    """The slot that a topic, or a shard of one, lies in.

    Dead letters travel between topics in one step, so a topic lies where its dead-letter topic
    does, and a shard of it where the same shard of that one does. Shards lie side by side.
    """
    shard = parse_shard(name)
    topic, number = (name, 0) if shard is None else shard[:2]
    root = root_of(topic, placed)
    found = placed.get(root)
    start = hashed_slot(root, slots) if found is None else found.start
    return (start + number) % slots


def hashed_slot(name: str, slots: int) -> int:
    """The slot of a name that has none of its own."""
    return int(xxhash.xxh3_64_intdigest(name.encode()) % slots)


def root_of(name: str, placed: Mapping[str, PlacedTopic]) -> str:
    """The name of the topic by which a topic is placed, whether or not there is such a topic."""
    seen: list[str] = []
    while name not in seen:
        seen.append(name)
        found = placed.get(name)
        if found is None or not found.topic.dead_letter:
            # Without a name of its own: as the dead-letter topic that it would get.
            while name.endswith(DEAD_ENDING) and name != DEAD_ENDING:
                name = name.removesuffix(DEAD_ENDING)
            return Topic(name).dead_letter_name.removesuffix(DEAD_ENDING)
        name = found.topic.dead_letter
    return min(seen[seen.index(name) :])  # a ring: whoever begins finds the same one


def start_for(
    topic: Topic, placed: Mapping[str, PlacedTopic], nodes: Iterable[str], slots: int
) -> int:
    """Where the first shard of a new topic should lie: where its shards come to as many nodes as
    can be, and no node gets one more before each has as many."""
    first = hashed_slot(topic.name, slots)
    owners = dealt(nodes, slots)
    if not owners or topic.spread == 1 or _is_root(topic.name, placed):
        return first
    starts = [(first + step) % slots for step in range(slots)]
    return min(starts, key=lambda start: _unevenness(owners, start, topic.spread))


def _is_root(name: str, placed: Mapping[str, PlacedTopic]) -> bool:
    """True if other topics are placed by this name already."""
    return any(root_of(other, placed) == name for other in placed if other != name)


def _unevenness(owners: tuple[str, ...], start: int, spread: int) -> int:
    mine = [owners[(start + shard) % len(owners)] for shard in range(spread)]
    counts = [mine.count(node) for node in set(owners)]
    return max(counts) - min(counts)
