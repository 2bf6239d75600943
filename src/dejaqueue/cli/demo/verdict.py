"""The verdict: what should have been delivered, computed from the input, against what was.

Room: cli. Columns in, figures out; no broker, no clock.
Holds: nothing here is told by the broker but the answers to moves and cancels; times of arrival
come from the consumers' own clocks, due times from the flights.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.cli.demo.flights import Flights
from dejaqueue.cli.demo.plan import Change, Plan
from dejaqueue.model import RowStatus
from dejaqueue.schema import arrow_calls as pc

Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]

NOT_TOLD = 255
"""In place of a RowStatus: nothing was asked of the broker about this flight."""
UNSURE = 254
"""A change was sent again after a broken connection, and it was too late for the second call.
Whether the first had done it, nobody was told. For a cancel, what was received tells; a move is
counted as too late, and either of its times is right.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The report, in the order in which it is printed. Counts of messages unless a unit is named.

    Attributes:
        delivered: different messages that arrived.
        lost: should have arrived and did not.
        early: arrived before their due time.
        duplicate: arrived again after their ack was confirmed (without --kill: arrived again).
        redelivered: with --kill: arrived again because the ack was on its way when the broker died.
        resurrected: cancelled, and arrived.
        wrong_due, wrong_payload: arrived with another time or payload than they should have.
        unknown: arrived and were never sent.
    """

    scheduled: int
    moved: int
    cancelled: int
    delivered: int
    lost: int
    early: int
    duplicate: int
    redelivered: int
    resurrected: int
    wrong_due: int
    wrong_payload: int
    unknown: int
    moved_too_late: int
    cancelled_too_late: int
    lateness_p50_ms: float
    lateness_p99_ms: float
    lateness_p999_ms: float
    lateness_max_ms: float
    messages_per_second: float

    @property
    def is_good(self) -> bool:
        """True if nothing was lost, early, delivered twice, wrong or back from the dead."""
        return not (
            self.lost
            or self.early
            or self.duplicate
            or self.resurrected
            or self.wrong_due
            or self.wrong_payload
            or self.unknown
        )

    def lines(self) -> list[str]:
        """One `name value` a line."""
        return [f"{name} {_show(value)}" for name, value in self.figures().items()]

    def figures(self) -> dict[str, int | float]:
        """Each figure by its printed name."""
        return {
            field.name.replace("p999", "p99.9"): getattr(self, field.name) for field in fields(self)
        }


@dataclass(frozen=True, slots=True)
class Arrivals:
    """First arrivals, for the charts.

    Attributes:
        received_us: UTC microseconds, int64 array, shape (m,).
        latenesses_us: behind the due time, the same shape.
    """

    received_us: Int64s
    latenesses_us: Int64s


def _show(value: float) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def judge(
    flights: Flights,
    plan: Plan,
    start_ms: int,
    statuses: UInt8s,
    received: pa.Table,
    *,
    killed: bool = False,
) -> tuple[Verdict, Arrivals]:
    """Compare what was received with what the flights and the answers to changes demand.

    Args:
        start_ms: the instant at which the replay's clock began.
        statuses: per flight, the RowStatus of its change, NOT_TOLD or UNSURE.
        received: columns key, due, attempts, payload, received_us and acked, a row a delivery.
        killed: the broker was killed on the way: see `Verdict.duplicate`.
    """
    if killed:
        # The client may have sent a change twice itself: the second call finds nothing.
        statuses = np.where(statuses == RowStatus.NOT_FOUND, np.uint8(UNSURE), statuses)
    indices, unknown = _find(flights.keys, received["key"])
    known = received.filter(pa.array(~unknown)) if unknown.any() else received
    received_us = known["received_us"].to_numpy()
    counts = np.bincount(indices, minlength=len(flights))

    moves = plan.changes == Change.MOVE
    cancels = plan.changes == Change.CANCEL
    moved = moves & (statuses == RowStatus.OK)
    cancelled = cancels & ((statuses == RowStatus.OK) | ((statuses == UNSURE) & (counts == 0)))
    unsure = moves & (statuses == UNSURE)
    dues_ms = start_ms + np.where(moved, plan.departs_ms, plan.scheduled_ms)
    dues_ms[unsure] = start_ms + np.minimum(plan.departs_ms, plan.scheduled_ms)[unsure]

    firsts = _first_arrivals(indices, received_us)
    acked_again = _again_after_ack(indices, received_us, known["acked"].to_numpy())
    again = len(indices) - len(firsts)
    duplicate = acked_again if killed else again
    latenesses_us = received_us[firsts] - dues_ms[indices[firsts]] * 1_000
    # A message that came back is due when it came back: only first attempts show the sender's time.
    attempts = known["attempts"].to_numpy()
    shown_ms = known["due"].to_numpy()
    wrong_due = (attempts == 1) & (shown_ms != dues_ms[indices]) & ~unsure[indices]
    expected_payloads = flights.payloads.take(pa.array(indices))
    same_payload = pc.equal(known["payload"].combine_chunks(), expected_payloads)
    p50, p99, p999, most = _quantiles_ms(latenesses_us)
    verdict = Verdict(
        scheduled=len(flights),
        moved=int(moved.sum()),
        cancelled=int(cancelled.sum()),
        delivered=len(firsts),
        lost=int((~cancelled & (counts == 0)).sum()),
        early=int((received_us < dues_ms[indices] * 1_000).sum()),
        duplicate=duplicate,
        redelivered=again - duplicate,
        resurrected=int((cancelled & (counts > 0)).sum()),
        wrong_due=int(wrong_due.sum()),
        wrong_payload=len(indices) - int(pc.sum(same_payload).as_py() or 0),
        unknown=int(unknown.sum()),
        moved_too_late=int((moves & ~moved & (statuses != NOT_TOLD)).sum()),
        cancelled_too_late=int((cancels & ~cancelled & (statuses != NOT_TOLD)).sum()),
        lateness_p50_ms=p50,
        lateness_p99_ms=p99,
        lateness_p999_ms=p999,
        lateness_max_ms=most,
        messages_per_second=_rate(received_us[firsts]),
    )
    return verdict, Arrivals(received_us[firsts], latenesses_us)


def _find(keys: pa.Array, received: pa.ChunkedArray) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Index of the flight of each delivery that has one, and the mask of those that have none."""
    found = pc.index_in(received, value_set=keys)
    unknown = pc.is_null(found).to_numpy()
    return found.drop_null().to_numpy().astype(np.int64), unknown


def _first_arrivals(indices: Int64s, received_us: Int64s) -> Int64s:
    """Places of the first delivery of each message."""
    order = np.lexsort((received_us, indices))
    ordered = indices[order]
    return np.sort(order[_starts_mask(ordered)])


def _again_after_ack(indices: Int64s, received_us: Int64s, acked: npt.NDArray[np.bool_]) -> int:
    """Deliveries of a message after one of which the ack was confirmed."""
    if not len(indices):
        return 0
    order = np.lexsort((received_us, indices))
    starts = _starts_mask(indices[order])
    acks = acked[order].astype(np.int64)
    before = np.cumsum(acks) - acks
    group = np.cumsum(starts) - 1
    return int((before > before[starts][group]).sum())


def _starts_mask(ordered: Int64s) -> npt.NDArray[np.bool_]:
    """True where a run of equal values begins."""
    starts = np.ones(len(ordered), dtype=np.bool_)
    starts[1:] = ordered[1:] != ordered[:-1]
    return starts


def _quantiles_ms(latenesses_us: Int64s) -> tuple[float, float, float, float]:
    if not len(latenesses_us):
        return (0.0, 0.0, 0.0, 0.0)
    p50, p99, p999, most = np.quantile(latenesses_us, [0.5, 0.99, 0.999, 1.0]) / 1_000
    return (float(p50), float(p99), float(p999), float(most))


def _rate(received_us: Int64s) -> float:
    if len(received_us) < 2:
        return 0.0
    span_us = int(received_us.max() - received_us.min())
    return len(received_us) / max(span_us, 1) * 1e6
