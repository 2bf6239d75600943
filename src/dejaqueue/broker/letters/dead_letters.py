"""Dead letters: messages that died travel to another topic, and are buried once they are there.

Room: broker. A chore of a partition, on its worker; the carrier reads and sends elsewhere.
Holds: a message is buried only when its letter is durable; a parcel that is sent again is
recognised (rule 10), and so is a letter that is there already, by its key (rule 11); where letters
cannot be sent now, they stay dead, are tried again after a pause, and everything else goes on; so
do messages that are damaged, and no other one waits for them.
See: rule 18; docs/guides/failures.md; carrier.py; redrive.py, which sends letters back.

    engine: dead group → durable → parcel → Carrier → the other topic: durable → Bury in the engine
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.letters.carrier import Carrier
from dejaqueue.broker.letters.parcel import PARCEL_ROWS_MAX, Parcel, RowsDamagedError
from dejaqueue.broker.shard.chore import Chore
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.arrays import Int64s, Words
from dejaqueue.engine.commands import Bury
from dejaqueue.engine.records import DeadGroup
from dejaqueue.errors import DejaQError, Unavailable

log = logging.getLogger("dejaqueue.broker")

# Parcels of one destination that are on their way at once: who dies alone travels alone.
PARCELS_MAX = 256
# Between two attempts to send; doubled each time. What passes by itself (a journal that is away, a
# full disk) is looked at more often than what somebody has to mend.
PAUSE_MS_FIRST = 1_000
PAUSE_MS_MAX = 60_000
PAUSE_MS_MAX_IF_RETRIED = 5_000
# Messages that cannot be read: somebody may put the file back, or give the key.
DAMAGED_US = 60_000_000


@dataclass(slots=True)
class _Group:
    """A group of the dead that waits.

    Attributes:
        number: of the group in the engine.
        position: once entries up to here are durable it may be sent.
        sequences: what is to be sent of it; None = all.
        done: rows of these that arrived, or are damaged.
        on_way: the next rows of it are.
        damaged: those that could not be read.
    """

    number: int
    position: int
    sequences: Int64s | None = None
    done: int = 0
    on_way: bool = False
    damaged: list[Int64s] = field(default_factory=list)

    def left(self, dead: DeadGroup) -> Int64s:
        """What is to be sent yet."""
        return (dead.sequences if self.sequences is None else self.sequences)[self.done :]


@dataclass(slots=True)
class _Lane:
    """What waits for one destination, by number of the group, oldest first.

    Attributes:
        aside: groups of which nothing is sent before a time, clock µs.
    """

    waiting: dict[int, _Group] = field(default_factory=dict)
    aside: dict[int, int] = field(default_factory=dict)
    until_us: int = 0
    failures: int = 0

    @property
    def on_way(self) -> int:
        """How many parcels are on their way."""
        return sum(group.on_way for group in self.waiting.values())


@dataclass(frozen=True, slots=True)
class _Answer:
    """What became of a parcel."""

    load_number: int
    destination: str
    group: int
    rows: int
    error: DejaQError | None


class DeadLetters(Chore):
    """The dead of one core.

    A parcel is of one group: whatever else has died meanwhile, after a restart it is the same, and
    is recognised where it arrived before.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._lanes: dict[str, _Lane] = {}
        self._next_number = 0
        self._load_number = 0
        self._answers: deque[_Answer] = deque()

    def loaded(self, core: PartitionCore) -> None:
        """The partition was read: whoever is dead still is to be sent, maybe once more."""
        self._load_number += 1
        self._lanes = {}
        for number in core.engine.dead:
            self._wait(core, number, 0)
        self._next_number = core.engine.dead_number

    def _wait(self, core: PartitionCore, number: int, position: int) -> None:
        group = core.engine.dead.get(number)
        if group is not None:
            lane = self._lanes.setdefault(group.destination, _Lane())
            lane.waiting[number] = _Group(number, position)

    def before_append(self, core: PartitionCore) -> None:
        """Bury those whose letters arrived."""
        while self._answers:
            answer = self._answers.popleft()
            if answer.load_number != self._load_number:
                continue  # the partition was read again since: they are sent again, and recognised
            lane = self._lanes[answer.destination]
            group = lane.waiting[answer.group]
            group.on_way = False
            if isinstance(answer.error, RowsDamagedError):
                self._set_aside(core, group, answer)
            elif answer.error is not None:
                if lane.until_us <= core.clock.now_us():  # of those that failed together, one
                    self._pause(core, answer.destination, lane, answer.error)
                continue
            else:
                lane.failures = 0
            group.done += answer.rows
            self._finish(core, lane, group)

    @staticmethod
    def _set_aside(core: PartitionCore, group: _Group, answer: _Answer) -> None:
        """Messages that cannot be read stay dead; those behind them go."""
        rows = group.left(core.engine.dead[group.number])[: answer.rows]
        if not group.damaged:
            log.error(
                "topic %s, partition %d: dead messages from id %d on cannot be sent: %s; they are "
                "tried again in %d s",
                core.topic().name,
                core.number,
                int(rows[0]) | (core.number << limits.SEQUENCE_BITS),
                answer.error,
                DAMAGED_US // 1_000_000,
                extra={"topic": core.topic().name, "partition": core.number},
            )
        group.damaged.append(rows)

    @staticmethod
    def _finish(core: PartitionCore, lane: _Lane, group: _Group) -> None:
        """If all of a group was tried, bury it, or go on later with what could not be read."""
        if len(group.left(core.engine.dead[group.number])):
            return
        if not group.damaged:
            del lane.waiting[group.number]
            core.apply(Bury(core.now_ms(), group.number))
            return
        group.sequences, group.done = np.concatenate(group.damaged), 0
        group.damaged = []
        lane.aside[group.number] = core.clock.now_us() + DAMAGED_US

    @staticmethod
    def _pause(core: PartitionCore, destination: str, lane: _Lane, error: DejaQError) -> None:
        """Try again later: soon if that is what the error says, else less and less often."""
        first_ms, most_ms = PAUSE_MS_FIRST, PAUSE_MS_MAX
        if error.retry:
            first_ms = getattr(error, "retry_after_ms", 0) or PAUSE_MS_FIRST
            most_ms = PAUSE_MS_MAX_IF_RETRIED
        pause_ms = min(first_ms << min(lane.failures, 20), most_ms)
        if lane.failures == 0 and not isinstance(error, Unavailable):
            topic = core.topic()
            log.warning(
                "topic %s, partition %d: messages for topic %s wait: %s",
                topic.name,
                core.number,
                destination or topic.dead_letter_name,
                error,
                extra={"topic": topic.name, "partition": core.number},
            )
        lane.failures += 1
        lane.until_us = core.clock.now_us() + pause_ms * 1_000

    def after_append(self, core: PartitionCore, *, is_idle: bool) -> bool:
        """Send whoever is dead for good, that is, durably."""
        self._send_all(core)
        return False

    def _send_all(self, core: PartitionCore) -> None:
        position = core.next_position() - 1
        for number in range(self._next_number, core.engine.dead_number):
            self._wait(core, number, position)
        self._next_number = core.engine.dead_number
        if not self._lanes:
            return
        now_us = core.clock.now_us()
        for destination, lane in list(self._lanes.items()):
            if not lane.waiting:
                del self._lanes[destination]
            elif lane.until_us <= now_us:
                self._send(core, destination, lane)

    def _send(self, core: PartitionCore, destination: str, lane: _Lane) -> None:
        """Have as many groups on their way as travel together."""
        room = PARCELS_MAX - lane.on_way
        rows = 0
        for group in lane.waiting.values():
            if room <= 0 or rows >= PARCEL_ROWS_MAX or group.position > core.position:
                return
            if group.on_way or lane.aside.get(group.number, 0) > core.clock.now_us():
                continue
            lane.aside.pop(group.number, None)
            parcel = self._pack(core, destination, group)
            group.on_way = True
            room -= 1
            rows += len(parcel.sequences)
            arrived = partial(self._came, core, self._load_number, destination, group.number)
            self._carrier.carry(parcel, core.journal, arrived)

    def _came(
        self,
        core: PartitionCore,
        load_number: int,
        destination: str,
        group: int,
        rows: int,
        error: DejaQError | None,
    ) -> None:
        self._answers.append(_Answer(load_number, destination, group, rows, error))
        core.ring()

    @staticmethod
    def _pack(core: PartitionCore, destination: str, waiting: _Group) -> Parcel:
        """The next rows of a group."""
        engine = core.engine
        group = engine.dead[waiting.number]
        rows = waiting.left(group)[:PARCEL_ROWS_MAX]
        return Parcel(
            core.topic(),
            core.number,
            destination,
            rows,
            engine.attempts(rows),
            engine.locators(rows),
            engine.priorities(rows),
            engine.moved_groups(rows),
            Words((group.reason,), np.zeros(len(rows), dtype=np.int32)),
            np.full(len(rows), group.now_ms, dtype=np.int64),
            engine.senders(rows),
        )

    def next_us(self, core: PartitionCore) -> int | None:
        """When what could not be sent is tried again, clock µs; None = nothing has to be."""
        lanes = self._lanes.values()
        times_us = [lane.until_us for lane in lanes if lane.failures and not lane.on_way]
        aside = [lane for lane in lanes if lane.aside and not lane.on_way]
        times_us += [max(lane.until_us, min(lane.aside.values())) for lane in aside]
        return min(times_us, default=None)
