"""Growing: where keys and batches of a topic are whose partitions became more.

Room: broker. Any thread; what is asked of a partition runs on its worker.
Holds: a key is live in one partition only, and found there, however often the topic grew; a batch
sent again is recognised by the partition that stored it.
See: docs/guides/growing.md; routing.py, which routes by it.

A key's home follows from its hash and the number of partitions. After a raise new messages go to
the new home, once the older homes were asked and do not have the key. An older home never takes a
key that it does not have, so its answer "not here" stays true. Every request carries the route it
was made by, and a partition sends back what was routed before the raise.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.keys import find_in
from dejaqueue.engine.arrays import Int64s, Mask
from dejaqueue.engine.producers import Answer
from dejaqueue.errors import BadRequest, DejaQError, Unavailable

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition
    from dejaqueue.broker.runtime import TopicRuntime

WAIT_SECONDS = 60


class Route:
    """How keys find their partition; another one after each raise.

    Attributes:
        counts: how many partitions there have been, the last is how many there are.
        clear: partitions that have no live key whose home is elsewhere now.
    """

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = counts
        self.clear: set[int] = set()
        self.asks: Counter[int] = Counter()

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return self.counts[-1]

    @property
    def has_grown(self) -> bool:
        """True if there were fewer partitions once."""
        return len(self.counts) > 1


def split_rows(part_of_row: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """(partition, its rows in order) for every partition that has rows."""
    order = np.argsort(part_of_row, kind="stable")
    parts, starts = np.unique(part_of_row[order], return_index=True)
    return list(zip(parts.tolist(), np.split(order, starts[1:]), strict=True))


def has_strays(place: Partition, count: int) -> bool:
    """True if a live key of the partition has its home elsewhere. Cost: O(live messages)."""
    table = place.engine.state.table
    if "key_hashes" not in table.uses:
        return False
    for places in table.live_places():
        hashes = table.key_hashes[places]
        hashes = hashes[hashes != 0]
        if (place.places.homes(hashes, count) != place.number).any():
            return True
    return False


def find_old_homes(
    topic: TopicRuntime, route: Route, keys: pa.StringArray, key_hashes: Int64s, homes: Int64s
) -> Mask:
    """Ask the older homes of keys; where one has a live key, `homes` is set to it.

    Args:
        homes: for each row its partition as of now, -1 = do not ask; changed in place.

    Returns:
        Which rows are in an older home.
    """
    found_mask = np.zeros(homes.size, dtype=np.bool_)
    for count in reversed(route.counts[:-1]):
        old = topic.partitions.homes(key_hashes, count)
        asked = (key_hashes != 0) & (homes >= 0) & (old != homes) & ~found_mask
        asked &= ~np.isin(old, np.array(sorted(route.clear), dtype=np.int64))
        rows_asked = np.flatnonzero(asked)
        for partition, picked in split_rows(old[rows_asked]) if rows_asked.size else []:
            rows = rows_asked[picked]
            here = _ask(topic, route, partition, keys.take(pa.array(rows)), key_hashes[rows])
            found_mask[rows[here]] = True
            homes[rows[here]] = partition
    return found_mask


def _ask(
    topic: TopicRuntime, route: Route, partition: int, keys: pa.StringArray, hashes: Int64s
) -> Mask:
    """Which of these keys are live in the partition."""
    route.asks[partition] += 1
    asks = route.asks[partition]
    # Seldomer and seldomer: it walks over all that is live.
    look_for_strays = asks & (asks - 1) == 0

    def ask(place: Partition) -> tuple[Mask, bool]:
        live = find_in(place, keys, hashes)
        here = np.zeros(len(hashes), dtype=np.bool_) if live is None else live >= 0
        return here, look_for_strays and not has_strays(place, route.count)

    here, is_clear = topic.look(partition, ask).result(WAIT_SECONDS)
    if is_clear:
        route.clear.add(partition)
    return here


def part_name(route: Route, producer: str, count: int, turn: int = 0) -> str:
    """The name by which partitions remember a part of what a producer sent while they were so many.

    Args:
        turn: how many other parts of the same batch were remembered there before, at this count.
    """
    if not producer or (count == route.counts[0] and not turn):
        return producer
    return f"{producer}\n{count}\n{turn}" if turn else f"{producer}\n{count}"


PARTS_MAX = 8
"""Parts of one batch that one partition remembers for each number of partitions there were. Each
more than the first takes a raise, or a key that went, while the batch was on its way."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A part of a batch that a partition has.

    Attributes:
        name: by which it remembers it.
        count: how many partitions there were when it was routed.
    """

    partition: int
    name: str
    count: int
    answer: Answer


Known: TypeAlias = dict[int, list[Stored]]
"""Number of a batch → its parts that are stored."""


def known_batches(topic: TopicRuntime, route: Route, producer: str) -> Known:
    """The batches of a producer that partitions remember, as durable as they are."""
    found: Known = {}
    names = {
        part_name(route, producer, count, turn): count
        for count in route.counts
        for turn in range(PARTS_MAX)
    }

    def ask(place: Partition) -> list[tuple[int, Stored]]:
        by_name = place.engine.state.producers.by_name
        return [
            (number, Stored(place.number, name, count, answer))
            for name, count in names.items()
            if name in by_name
            for number, answer in by_name[name].answers.items()
        ]

    waits = [topic.look(partition, ask) for partition in topic.partitions.numbers_of(route.count)]
    for wait in waits:
        for number, stored in wait.result(WAIT_SECONDS):
            found.setdefault(number, []).append(stored)
    return found


def rows_of(part: Stored, homes: Int64s, number: int) -> Int64s:
    """Which rows of a batch a part has.

    Args:
        homes: where the rows belonged when it was routed.

    Raises:
        BadRequest: it is of another batch with this number.
    """
    here_mask = homes == part.partition
    strays = np.array(part.answer.strays, dtype=np.int64)
    if not strays.size or strays[-1] < homes.size:
        here_mask[strays] ^= True
        rows = np.flatnonzero(here_mask)
        if rows.size == part.answer.rows:
            return rows
    limit = f"another one: {part.answer.rows} other rows were sent with this number before"
    raise BadRequest("number", limit, number)


class Sending(NamedTuple):
    """A sending that waits for its turn: it begins, or is refused, and calls `end` then."""

    begin: Callable[[], None]
    refuse: Callable[[DejaQError], None]


class Turns:
    """Sendings of a producer's batch in a topic that grew: one at a time, so that what one finds
    stored is all there is. Any thread.

    Args:
        again: runs a call on a thread that may wait.
    """

    def __init__(self, again: Callable[[Callable[[], None]], None]) -> None:
        self._again = again
        self._lock = Lock()
        self._waiting: dict[tuple[str, int], deque[Sending]] = {}
        self._last: dict[str, object] = {}

    def begin(self, producer: str, number: int, sending: Sending) -> bool:
        """True: the caller may send now, and calls `end`. False: `sending` begins in its turn, or
        is refused."""
        with self._lock:
            waiting = self._waiting.get((producer, number))
            if waiting is None:
                self._waiting[producer, number] = deque()
                return True
            waiting.append(sending)
            return False

    def end(self, producer: str, number: int, sender: object) -> None:
        """All of the batch is answered: the next sending of it begins."""
        with self._lock:
            self._note(producer, sender)
            waiting = self._waiting[producer, number]
            following = waiting.popleft() if waiting else None
            if following is None:
                del self._waiting[producer, number]
        if following is None:
            return
        try:
            self._again(following.begin)
        except Unavailable as closed:
            following.refuse(closed)

    def is_of(self, producer: str, sender: object) -> bool:
        """True if nobody else sent in the producer's name since this sender asked last."""
        with self._lock:
            same = self._last.get(producer) is sender
            self._note(producer, sender)
            return same

    def _note(self, producer: str, sender: object) -> None:
        self._last.pop(producer, None)
        self._last[producer] = sender
        if len(self._last) > limits.PRODUCERS_MAX:
            del self._last[next(iter(self._last))]
