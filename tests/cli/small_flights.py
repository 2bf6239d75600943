"""A handful of flights for the tests of the demo: on time, late, early, and one that never left."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dejaqueue.cli.demo.flights import MINUTE_MS, Flights

DAY_MS = 1_440 * MINUTE_MS
# Minutes of the day: 0 is the first departure, 1,000 the last.
SCHEDULED = np.array([0, 100, 200, 300, 1_000], dtype=np.int64) * MINUTE_MS
DEPARTED = np.array([0, 150, 190, 0, 1_000], dtype=np.int64) * MINUTE_MS
CANCELLED = np.array([False, False, False, True, False])


def small_flights() -> Flights:
    """Flights A to E; times from 1970 on."""
    names = ["A", "B", "C", "D", "E"]
    return Flights(
        keys=pa.array(names),
        payloads=pa.array([f'{{"flight":"{name}"}}'.encode() for name in names], pa.binary()),
        scheduled_ms=SCHEDULED,
        departed_ms=DEPARTED,
        cancelled_mask=CANCELLED,
    )
