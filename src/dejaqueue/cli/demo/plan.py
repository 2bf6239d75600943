"""The plan: when, on the compressed timeline, each message is due, moved or cancelled.

Room: cli. Arithmetic on columns; no clock, no broker.
Holds: integers only; every change is told at least `notice_ms_min` before the earlier of the two
times it is between, so that no correct broker can answer that it came too late.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from dejaqueue.cli.demo.flights import MINUTE_MS, Flights
from dejaqueue.errors import BadRequest

Int64s = npt.NDArray[np.int64]


class Change(IntEnum):
    """What becomes known about a flight after it was scheduled (uint8)."""

    NONE = 0
    MOVE = 1
    CANCEL = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """All times are real milliseconds from the start of the replay's clock, shape (n,).

    Attributes:
        scheduled_ms: when each message is first scheduled for.
        departs_ms: when each flight really left; where it never left, as scheduled.
        changes: Change of each flight (uint8).
        notices_ms: when the change is told; may be below 0, as soon as the clock starts then.
        length_ms: when the last message is due.
        speed: how many simulated milliseconds pass in a real one.
    """

    scheduled_ms: Int64s
    departs_ms: Int64s
    changes: npt.NDArray[np.uint8]
    notices_ms: Int64s
    length_ms: int
    speed: float

    def __len__(self) -> int:
        return len(self.scheduled_ms)

    def in_order_of_notice(self) -> Int64s:
        """Indices of the flights that change, in the order in which that is told."""
        changing = np.flatnonzero(self.changes)
        return changing[np.argsort(self.notices_ms[changing], kind="stable")]


def make_plan(flights: Flights, length_ms: int, *, notice_minutes: int, notice_ms_min: int) -> Plan:
    """Lay the flights on a timeline of `length_ms` real milliseconds.

    A flight whose real departure falls on the same compressed millisecond as the scheduled one is
    not moved: there is nothing to tell.

    Args:
        length_ms: from the first departure to the last.
        notice_minutes: simulated minutes before departure at which a change becomes known.
        notice_ms_min: at least this many real milliseconds before; in a year compressed to a
            minute, 30 simulated minutes are 3 ms, which no network could make.
    """
    if length_ms < 1:
        raise BadRequest("--seconds", "more than 0", length_ms / 1_000)
    departed_ms = np.where(flights.cancelled_mask, flights.scheduled_ms, flights.departed_ms)
    first_ms = int(min(flights.scheduled_ms.min(), departed_ms.min()))
    last_ms = int(max(flights.scheduled_ms.max(), departed_ms.max()))
    span_ms = max(last_ms - first_ms, 1)

    scheduled = (flights.scheduled_ms - first_ms) * length_ms // span_ms
    departs = (departed_ms - first_ms) * length_ms // span_ms
    changes = np.where(scheduled != departs, np.uint8(Change.MOVE), np.uint8(Change.NONE))
    changes[flights.cancelled_mask] = Change.CANCEL
    notice_ms = max(notice_minutes * MINUTE_MS * length_ms // span_ms, notice_ms_min)
    return Plan(
        scheduled_ms=scheduled,
        departs_ms=departs,
        changes=changes,
        notices_ms=np.minimum(scheduled, departs) - notice_ms,
        length_ms=int(max(scheduled.max(), departs.max())),
        speed=span_ms / length_ms,
    )
