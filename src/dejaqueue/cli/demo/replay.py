"""The replay: schedules the flights, then moves and cancels them as the clock runs.

Room: cli. Talks through the public client; waits only through the clock.
Holds: nothing loops over flights, only over batches; every answer to a change is kept, per flight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.cli.demo.flights import Flights
from dejaqueue.cli.demo.plan import Change, Plan
from dejaqueue.cli.demo.verdict import NOT_TOLD, UNSURE
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import InternalError, TryLater
from dejaqueue.model import RowStatus

if TYPE_CHECKING:
    from dejaqueue import Client

SEND_ROWS = 10_000
TICK_MS = 20
"""How often changes that became known are sent: together, as an airport's system would."""
RETRY_MS = 100
"""Pause before a change is sent again that found no broker."""


class Replay:
    """One run over one topic.

    Attributes:
        start_ms: the instant at which the replay's clock begins; may be shifted by `schedule`.
        statuses: per flight, the answer to its change (uint8): RowStatus, NOT_TOLD or UNSURE.
        scheduled_count, told_count: for progress.
    """

    def __init__(
        self, client: Client, topic: str, flights: Flights, plan: Plan, clock: Clock
    ) -> None:
        self._client, self._topic, self._clock = client, topic, clock
        self._flights, self._plan = flights, plan
        self._order = plan.in_order_of_notice()
        self._notices_ms = plan.notices_ms[self._order]
        self._wake = Wake()
        self.start_ms = 0
        self.statuses: npt.NDArray[np.uint8] = np.full(len(flights), NOT_TOLD, dtype=np.uint8)
        self.scheduled_count = 0
        self.told_count = 0

    @property
    def change_count(self) -> int:
        """Flights that are moved or cancelled."""
        return len(self._order)

    def schedule(self, margin_ms: int, lead_ms: int, on_progress: Callable[[], None]) -> None:
        """Send every flight, in batches, before the clock begins.

        Args:
            margin_ms: how long this is thought to take. If it takes longer, everything that was
                sent is moved by as much.
            lead_ms: how long before the clock begins it must be done, for changes to be told.
        """
        self.start_ms = self._clock.now_ms() + margin_ms + lead_ms
        ids = np.empty(len(self._flights), dtype=np.int64)
        for first in range(0, len(self._flights), SEND_ROWS):
            rows = slice(first, first + SEND_ROWS)
            batch = pa.table(
                {
                    "payload": self._flights.payloads[rows],
                    "due": self.start_ms + self._plan.scheduled_ms[rows],
                    "key": self._flights.keys[rows],
                }
            )
            sent = self._client.send_batch(self._topic, batch)
            sent.raise_for_status()
            ids[rows] = sent.ids
            self.scheduled_count += len(sent)
            on_progress()
        self._shift_if_late(ids, margin_ms, lead_ms)

    def _shift_if_late(self, ids: npt.NDArray[np.int64], margin_ms: int, lead_ms: int) -> None:
        """Move the whole year while scheduling it has taken longer than was thought.

        Nobody consumes yet, so nothing can be too late.
        """
        while (late_ms := self._clock.now_ms() + lead_ms - self.start_ms) > 0:
            self.start_ms += late_ms + margin_ms
            for first in range(0, len(ids), SEND_ROWS):
                rows = slice(first, first + SEND_ROWS)
                dues_ms = self.start_ms + self._plan.scheduled_ms[rows]
                moved = self._client.move(self._topic, ids=ids[rows], due=dues_ms)
                moved.raise_for_status()
            margin_ms *= 2

    def run(self, on_progress: Callable[[], None]) -> None:
        """Tell every change when it becomes known; returns when the last one is told."""
        told = 0
        while told < len(self._order):
            now_ms = self._clock.now_ms() - self.start_ms
            known = int(np.searchsorted(self._notices_ms, now_ms, side="right"))
            if known > told:
                self._tell(self._order[told:known])
                told = self.told_count = known
            on_progress()
            if told < len(self._order):
                next_ms = max(int(self._notices_ms[told]), now_ms + TICK_MS)
                # Not longer than a tick's worth of progress: bars stand still otherwise.
                next_ms = min(next_ms, now_ms + 10 * TICK_MS)
                self.wait_until_ms(self.start_ms + next_ms)

    def wait_until_ms(self, instant_ms: int) -> None:
        """Wait for an instant."""
        self._clock.wait_until(instant_ms * 1_000, self._wake)

    def _tell(self, indices: npt.NDArray[np.int64]) -> None:
        """Send the moves, then the cancels, of these flights, by key."""
        changes = self._plan.changes[indices]
        moving = indices[changes == Change.MOVE]
        if len(moving):
            keys = self._flights.keys.take(pa.array(moving))
            dues_ms = self.start_ms + self._plan.departs_ms[moving]
            self._ask(
                moving, lambda: self._client.move(self._topic, keys=keys, due=dues_ms).statuses
            )
        cancelling = indices[changes == Change.CANCEL]
        if len(cancelling):
            keys = self._flights.keys.take(pa.array(cancelling))
            self._ask(cancelling, lambda: self._client.cancel(self._topic, keys=keys).statuses)

    def _ask(
        self,
        indices: npt.NDArray[np.int64],
        call: Callable[[], npt.NDArray[np.uint8]],
    ) -> None:
        """Call, again if the broker is away, and keep the answers."""
        answers = None
        unsure = False
        while answers is None:
            try:
                answers = call()
            except TryLater:
                # The first call may have been done before the connection broke.
                unsure = True
                self.wait_until_ms(self._clock.now_ms() + RETRY_MS)
        if len(answers) != len(indices):
            raise InternalError(f"{len(answers)} answers to {len(indices)} changes")
        if unsure:
            answers = np.where(answers == RowStatus.OK, answers, np.uint8(UNSURE))
        self.statuses[indices] = answers
