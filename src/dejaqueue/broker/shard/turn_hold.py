"""Turns of brokers that have no memory in common: answers wait until all have begun one.

A turn is a cut if nobody hears of what was published in it before every broker has begun it: what
that caused elsewhere is then published in the turn there, too. So a broker that begins a turn says
where its partitions end, and keeps the answers to what comes behind until it is told that all have
begun. It does not keep them for long, whoever is silent.

Room: broker. Any thread.
Holds: where partitions end when a turn begins is of one moment, and nothing behind it is answered
before the turn is ended, or HOLD_SECONDS_MAX are over: `end` tells which it was.
See: commit.py, who publishes; backup/cluster_cuts.py, who begins turns; docs/adr/0095.
"""

from __future__ import annotations

import threading
from typing import Final

from dejaqueue.clock import Clock
from dejaqueue.errors import Unavailable
from dejaqueue.journal.interface import Journal
from dejaqueue.journal.segments.store import PARTITION_BITS

HOLD_SECONDS_MAX: Final = 0.4
"""No answer waits longer than this for a turn: more than who begins it is patient."""


def log_name(topic: int, partition: int) -> str:
    """What a partition is called among what is archived; `topic` is the number of its topic."""
    return f"{topic}/{partition}"


class Publication:
    """What one partition has published since it was read; made by a TurnHold.

    Attributes:
        log: what the partition is called among others.
        number: of the partition, as entries in a log of several have it.
        journal: which it is read from.
        tail: position of the last entry that anybody may hear of.
        has_ended: it is not served here any more, or is read again.
    """

    __slots__ = ("_hold", "has_ended", "journal", "log", "number", "tail")

    def __init__(self, hold: TurnHold, log: str, number: int, journal: Journal, tail: int) -> None:
        self._hold = hold
        self.log, self.number, self.journal, self.tail = log, number, journal, tail
        self.has_ended = False

    def published(self, tail: int) -> None:
        """Entries are durable up to this one; returns when they may be answered."""
        self._hold.publish(self, tail)

    def end(self) -> None:
        """It is not served here any more; twice is fine."""
        self._hold.forget(self)


class TurnHold:
    """The turns of one broker.

    Args:
        seconds_max: so long an answer waits at most.

    Attributes:
        changed_us: when something was published that `take_changed` has not told yet; 0 = nothing.
    """

    def __init__(self, clock: Clock, seconds_max: float = HOLD_SECONDS_MAX) -> None:
        self._clock, self._seconds_max = clock, seconds_max
        self._changed = threading.Condition()
        self._published: dict[str, Publication] = {}
        self._turn = ""
        """That answers wait for; "" = they wait for none."""
        self._said: dict[str, int] = {}
        """Where partitions ended when it began."""
        self.changed_us = 0

    # --- who appends --------------------------------------------------------------------------

    def open(self, topic: int, partition: int, journal: Journal, tail: int) -> Publication:
        """A partition was read; its epoch keeps others out, so that what is there is published. It
        may be more than a turn has said that is not ended: then this returns when it is.

        Args:
            topic: the number of its topic.
        """
        log, number = log_name(topic, partition), topic << PARTITION_BITS | partition
        found = Publication(self, log, number, journal, tail)
        with self._changed:
            self._published[log] = found
            self.changed_us = self.changed_us or self._clock.now_us()
            if log in self._said:
                self._wait()
        return found

    def publish(self, one: Publication, tail: int) -> None:
        """See Publication.published."""
        with self._changed:
            one.tail = tail
            self.changed_us = self.changed_us or self._clock.now_us()
            self._wait()

    def _wait(self) -> None:
        """With the guard: return when the turn is ended that it is, or takes too long."""
        turn = self._turn
        if turn and not self._changed.wait_for(lambda: self._turn != turn, self._seconds_max):
            self._let_go()

    def forget(self, one: Publication) -> None:
        """See Publication.end."""
        with self._changed:
            one.has_ended = True
            if self._published.get(one.log) is one:
                del self._published[one.log]

    def forget_all(self) -> None:
        """Nothing is served here any more, though it may take a while until all is closed."""
        with self._changed:
            for one in self._published.values():
                one.has_ended = True
            self._published = {}

    # --- who takes cuts -----------------------------------------------------------------------

    def begin(self, turn: str) -> dict[str, int]:
        """Begin a turn; where partitions ended then, by their names.

        Raises:
            Unavailable: answers wait for another one.
        """
        with self._changed:
            if self._turn:
                raise Unavailable("answers wait for another turn", 100)
            self._turn = turn
            self._said = {log: one.tail for log, one in self._published.items()}
            return dict(self._said)

    def end(self, turn: str) -> bool:
        """Answers go on; whether all that came behind the begin of this turn waited till now."""
        with self._changed:
            if self._turn != turn:
                return False
            self._let_go()
            return True

    def _let_go(self) -> None:
        self._turn, self._said = "", {}
        self._changed.notify_all()

    # --- who archives -------------------------------------------------------------------------

    def published(self) -> dict[str, Publication]:
        """What is served here, by name."""
        with self._changed:
            return dict(self._published)

    def take_changed(self) -> int:
        """Since when something is published that this has not told yet, clock µs; 0 = nothing."""
        with self._changed:
            changed_us, self.changed_us = self.changed_us, 0
            return changed_us
