"""Partitions that have something to lease and found nobody to take it, woken when credit comes.

Room: broker. Part of the dispatcher; knows partitions by number, and their workers as lanes.
Holds: whoever waits is woken after credit has come, once for each time that it comes; a partition
that has nothing, or has all the credit it needs, is not; `wake` is called without the lock.
See: dispatch.py; leasing.py, which says what a partition waits for.

Credit that comes wakes one partition of each lane, the one that has waited longest, and each that
was woken wakes the next of its lane while credit is left. So credit for a thousand rows does not
step five thousand partitions, and a worker that hangs holds up its own partitions alone. Who was
woken and came too late, since another lane took the credit, is the first of its lane next time:
otherwise those that lose once may lose each time, while the others go round.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable


class CreditQueue:
    """The partitions of one topic.

    Args:
        wake: has a partition stepped soon; False = there is nothing in it, and it was not.
        lane_of: which partitions are stepped one after the other, by the same thread.

    Attributes:
        round: how often credit came; a partition reads it before it looks for some.

    >>> woken = []
    >>> queue = CreditQueue(lambda number: woken.append(number) or True, lambda _number: 0)
    >>> queue.looked(3, queue.round, waits=True, has_credit=bool)
    >>> queue.looked(5, queue.round, waits=True, has_credit=bool)
    >>> queue.credit_came()
    >>> queue.looked(3, queue.round, waits=False, has_credit=lambda: True)
    >>> woken
    [3, 5]
    """

    def __init__(self, wake: Callable[[int], bool], lane_of: Callable[[int], object]) -> None:
        self._wake = wake
        self._lane_of = lane_of
        self._lock = threading.Lock()
        self.round = 0
        # By lane: the partition, and as of which round it found no credit; the longest first.
        self._lanes: dict[object, OrderedDict[int, int]] = defaultdict(OrderedDict)
        self._woken: set[int] = set()
        self._given: set[int] = set()  # those that got credit since they were woken
        self._late: dict[object, list[int]] = defaultdict(list)
        self._occupied: set[int] = set()
        self._used: set[int] = set()  # those that were ever occupied while they are served

    @property
    def occupied(self) -> list[int]:
        """Partitions that may have something in them, in the order of their numbers."""
        return sorted(self._occupied.copy())

    def expect(self, number: int) -> None:
        """Nobody has looked yet what is in this partition."""
        self._occupied.add(number)

    def occupy(self, number: int) -> None:
        """A request came to the partition, or it has something in it. On its worker."""
        self._used.add(number)
        self._occupied.add(number)

    def was_used(self, number: int) -> bool:
        """Whether a request came to the partition since it is served."""
        return number in self._used

    def leave(self, number: int) -> None:
        """The partition has nothing in it. On its worker."""
        self._occupied.discard(number)

    def look_again(self) -> None:
        """Consumers take something else than before: all that have something wait for credit."""
        with self._lock:
            self.round += 1
            for number in sorted(self._occupied.copy()):
                self._lanes[self._lane_of(number)].setdefault(number, self.round - 1)

    def give(self, number: int) -> None:
        """The partition gets credit, in the step that it makes."""
        self._given.add(number)

    def credit_came(self) -> None:
        """Somebody can take rows who could not before."""
        with self._lock:
            self.round += 1
            for lane, late in self._late.items():
                for number in reversed(late):
                    if number in self._lanes[lane]:
                        self._lanes[lane].move_to_end(number, last=False)
                late.clear()
            lanes = [lane for lane, waiting in self._lanes.items() if waiting]
        # In turns: the first one often takes all of a little credit.
        first = self.round % len(lanes) if lanes else 0
        for lane in lanes[first:] + lanes[:first]:
            self._wake_next(lane)

    def looked(
        self, number: int, seen: int, *, waits: bool, has_credit: Callable[[], bool]
    ) -> None:
        """A partition was stepped.

        Args:
            seen: `round` as it was before the step.
            waits: it found nobody for what it has.
            has_credit: whether anybody has credit left.
        """
        lane = self._lane_of(number)
        if not waits and number not in self._woken and number not in self._lanes.get(lane, ()):
            self._given.discard(number)
            return
        with self._lock:
            waiting = self._lanes[lane]
            before = waiting.pop(number, -1)
            was_woken, was_given = number in self._woken, number in self._given
            self._woken.discard(number)
            self._given.discard(number)
            # Credit came while it looked; or consumers did, and it has not looked for them.
            looks_again = seen < self.round and (waits or before >= seen)
            if waits and not looks_again:
                waiting[number] = seen
        if looks_again:
            self._wake(number)
        # Whoever was not woken for credit has nobody to pass it on to, so nobody is asked.
        if was_woken and has_credit():
            self._wake_next(lane)
        elif was_woken and waits and not looks_again and not was_given:
            with self._lock:
                self._late[lane].append(number)

    def _wake_next(self, lane: object) -> None:
        """Wake the one of a lane that waits longest, if credit has come since it looked."""
        while True:
            with self._lock:
                waiting = self._lanes[lane]
                number, seen = next(iter(waiting.items()), (-1, self.round))
                if seen >= self.round:
                    return
                del waiting[number]
                self._woken.add(number)
            if self._wake(number):
                return
            self._occupied.discard(number)
            if number in self._used:  # something came meanwhile
                self._occupied.add(number)
            with self._lock:
                self._woken.discard(number)
