"""Stagger: how many messages at most in each second, and who comes when.

Time is a row of slots, the same for everybody: slot s is at floor(s × 1000 / rate) milliseconds
since 1970. So any stretch of 1000 ms has exactly `rate` slots, wherever it begins: a cap that is
kept by giving each message a slot of its own is kept to the message, and the load is even within
the second.

A wave is all messages that may go from the same instant on. Waves take free slots in the order of
those instants; a wave that has to stop for quiet hours goes on after them, and leaves its slots to
others meanwhile.

Room: pipelines. Plain integers over waves, numpy over their parts; never over messages.
Holds: no slot is given twice; no message gets one before its wave's instant, or in quiet hours.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from dejaqueue.pipelines.schedule.zones import Int64s

RATE_MAX = 1_000_000
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000}
_RATE = re.compile(r"(?P<count>\d[\d_]*)\s*(?:/\s*(?P<unit>[smh]))?")


@dataclass(frozen=True, slots=True)
class Rate:
    """So many messages in each stretch of this length.

    Attributes:
        count: from 1 to RATE_MAX.
        per_ms: a second, a minute or an hour.
    """

    count: int
    per_ms: int = 1_000

    @classmethod
    def parse(cls, text: str) -> Rate:
        """The rate 500 or 500/s, 30/m, 1000/h.

        Raises:
            ValueError: it is no such thing.
        """
        match = _RATE.fullmatch(text.strip())
        count = int(match["count"]) if match else 0
        if match is None or not 1 <= count <= RATE_MAX:
            raise ValueError(f"a rate is like 500, 30/m or 1000/h, up to {RATE_MAX}, got: {text!r}")
        return cls(count, _UNITS_MS[match["unit"] or "s"])

    def slot_at(self, instant_ms: int) -> int:
        """The first slot that is not before this instant."""
        return -(-instant_ms * self.count // self.per_ms)

    def slots_at(self, instants_ms: Int64s) -> Int64s:
        """The first slots that are not before these instants."""
        slots: Int64s = -(-instants_ms * self.count // self.per_ms)
        return slots

    def due_ms(self, slot: int) -> int:
        """When a slot is."""
        return slot * self.per_ms // self.count


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some messages of a wave, next to each other in slots.

    Attributes:
        wave: its place in the list of waves.
        first_rank: place of the first of these messages in the wave.
        count: how many.
        first_slot: slot of the first one.
    """

    wave: int
    first_rank: int
    count: int
    first_slot: int


class Slots:
    """Which slots are taken: stretches that do not touch, in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def take(self, first: int, last: int | None, count: int) -> Iterator[tuple[int, int]]:
        """Take the first free slots of [first, last), at most so many; yields (slot, how many)."""
        at = first
        while count > 0 and (last is None or at < last):
            place = bisect_right(self._ends, at)
            if place < len(self._starts) and self._starts[place] <= at:
                at = self._ends[place]
                continue
            until = self._starts[place] if place < len(self._starts) else at + count
            taken = min(count, until - at, count if last is None else last - at)
            self._add(at, at + taken)
            yield at, taken
            count -= taken
            at += taken

    def _add(self, first: int, last: int) -> None:
        """Note that these are taken now; they were free."""
        low = bisect_left(self._ends, first)
        high = bisect_right(self._starts, last)
        if low < high:
            first = min(first, self._starts[low])
            last = max(last, self._ends[high - 1])
        self._starts[low:high] = [first]
        self._ends[low:high] = [last]


def allocate(
    waves: Iterable[tuple[int, int, Iterable[tuple[int, int]] | None]], rate: Rate
) -> list[Stretch]:
    """Slots for waves, in the order in which they are given.

    Args:
        waves: (instant in ms, messages, stretches [first, last) in ms that are free; None = all).
    """
    slots = Slots()
    stretches: list[Stretch] = []
    for number, (instant_ms, count, windows) in enumerate(waves):
        rank = 0
        if windows is None:
            bounds: Iterable[tuple[int, int | None]] = [(rate.slot_at(instant_ms), None)]
        else:
            bounds = ((rate.slot_at(first), rate.slot_at(last)) for first, last in windows)
        for first, last in bounds:
            for slot, taken in slots.take(first, last, count - rank):
                stretches.append(Stretch(number, rank, taken, slot))
                rank += taken
            if rank == count:
                break
    return stretches


def per_second(stretches: Iterable[Stretch], rate: Rate) -> tuple[Int64s, Int64s]:
    """How many messages are due in each second: (seconds since 1970, counts), those with any."""
    columns = np.array([(s.first_slot, s.count) for s in stretches], dtype=np.int64).reshape(-1, 2)
    firsts, counts = columns[:, 0], columns[:, 1]
    begin_s = firsts * rate.per_ms // rate.count // 1_000
    end_s = (firsts + counts - 1) * rate.per_ms // rate.count // 1_000
    lengths = end_s - begin_s + 1
    owners = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    seconds = begin_s[owners] + within
    low = np.maximum(firsts[owners], rate.slots_at(seconds * 1_000))
    high = np.minimum((firsts + counts)[owners], rate.slots_at((seconds + 1) * 1_000))
    unique, places = np.unique(seconds, return_inverse=True)
    summed = np.bincount(places, weights=(high - low).astype(np.float64), minlength=len(unique))
    return unique, summed.astype(np.int64)
