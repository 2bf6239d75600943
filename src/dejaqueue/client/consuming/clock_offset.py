"""How far the broker's clock is from the client's, and how sure that is.

Room: client; pure: times come in, nothing is read.
Holds: `earliest_us` is never above the broker's clock, as long as both clocks run at their speed
within `DRIFT_PPM` (rule 2); with a shared clock the offset is certain.
See: rule 16; NTP's on-wire protocol is the idea, of whose samples the one of least error counts.

All times are microseconds. An offset is the broker's clock less the client's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dejaqueue.clock import Clock

SAMPLES_KEPT = 16
"""The best of this many last pings counts."""
DRIFT_PPM = 50
"""How far two undisciplined clocks run apart at worst, in parts per million."""
BROKERS_APART_US = 1_000_000
"""How far the clocks of two brokers may be apart: twice what one that takes topics may be off."""
_STEP_US = 1_000
"""Samples that contradict each other by more tell that the broker's clock was put right."""
UNKNOWN = -1
"""The uncertainty while nothing was measured yet."""


@dataclass(frozen=True, slots=True)
class _Sample:
    offset_us: int
    error_us: int
    at_us: int

    def error_at(self, now_us: int) -> int:
        return self.error_us + (now_us - self.at_us) * DRIFT_PPM // 1_000_000


class ClockOffset:
    """The broker's clock seen from here.

    >>> offset = ClockOffset()
    >>> offset.add_pong(sent_us=1_000, received_us=1_200, broker_us=5_100)
    >>> offset.at(1_200)
    (4000, 100)
    """

    def __init__(self, *, shared: Clock | None = None) -> None:
        self._clock = shared
        self.shared = shared is not None
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_KEPT)
        self._best: _Sample | None = None
        self._bound: _Sample | None = None
        self._former_us = 0
        self._former_lowest: _Sample | None = None

    def add_pong(self, sent_us: int, received_us: int, broker_us: int) -> None:
        """A ping was sent and answered; the broker's clock was read in between."""
        round_trip_us = max(received_us - sent_us, 0)
        middle_us = sent_us + round_trip_us // 2
        new = _Sample(broker_us - middle_us, (round_trip_us + 1) // 2, received_us)
        if self._contradicts(new):  # its clock was put right: what was known is of no use
            self.forget()
        self._samples.append(new)
        # All errors grow alike, so the best one stays so until the next pong.
        self._best = min(self._samples, key=lambda sample: sample.error_at(received_us))

    def _contradicts(self, new: _Sample) -> bool:
        """True if this and what is known cannot both be."""
        at_us, best, bound = new.at_us, self._best, self._bound
        if bound is not None:
            lowest_us = bound.offset_us - bound.error_at(at_us)
            if lowest_us > new.offset_us + new.error_us + _STEP_US:
                return True
        if best is None:
            return False
        apart_us: int = abs(best.offset_us - new.offset_us)
        return apart_us > best.error_at(at_us) + new.error_us + _STEP_US

    def add_head(self, received_us: int, broker_us: int) -> None:
        """A delivery came: the broker's clock was at least this before it was received."""
        new = _Sample(broker_us - received_us, 0, received_us)
        old = self._bound
        # A bound from below alone: how long the delivery was on its way, nobody knows.
        if old is None or new.offset_us >= old.offset_us - old.error_at(received_us):
            self._bound = new

    def forget(self) -> None:
        """The broker may be another one: start anew. Until something is known of its clock, it is
        taken for that of the one before, as far as nothing comes early by that."""
        self._former_us = self.at(0)[0]
        known = [one for one in (self._best, self._bound) if one is not None]
        if known:
            self._former_lowest = max(known, key=lambda sample: sample.offset_us - sample.error_us)
        self._samples.clear()
        self._best = self._bound = None

    def at(self, now_us: int) -> tuple[int, int]:
        """Offset and uncertainty; the uncertainty is UNKNOWN before the first pong."""
        if self._clock is not None:
            return -self._clock.ahead_us, 0
        best = self._best
        if best is None:
            return (self._bound.offset_us if self._bound else self._former_us), UNKNOWN
        return best.offset_us, best.error_at(now_us)

    def lowest_us(self, now_us: int) -> int | None:
        """The least that the offset can be; None if nothing is known."""
        if self._clock is not None:
            return -self._clock.ahead_us
        offset_us, uncertainty_us = self.at(now_us)
        known = None if uncertainty_us == UNKNOWN else offset_us - uncertainty_us
        bound = self._bound
        if bound is not None:
            at_least = bound.offset_us - bound.error_at(now_us)
            known = at_least if known is None else max(known, at_least)
        return known

    def broker_us(self, now_us: int) -> int:
        """The broker's clock, as well as it is known."""
        return now_us + self.at(now_us)[0]

    def earliest_us(self, now_us: int) -> int | None:
        """The broker's clock at least: what is due by it may be handed over."""
        lowest = self.lowest_us(now_us)
        return None if lowest is None else now_us + lowest

    def reached_us(self, now_us: int) -> int:
        """What the broker's clock has reached for sure: what goes back may come again so much later
        than this as it is due later. While nothing was heard of the broker, it is what the one
        before had reached, less what the clocks of two may be apart; 0 if there was none."""
        known = self.earliest_us(now_us)
        former = self._former_lowest
        if known is not None or former is None:
            return known or 0
        return now_us + former.offset_us - former.error_at(now_us) - BROKERS_APART_US

    def release_us(self, due_us: int, now_us: int) -> int | None:
        """The client's time at which a message of this due time may be handed over."""
        lowest = self.lowest_us(now_us)
        return None if lowest is None else due_us - lowest
