"""What calls with many rows answer: one status per row.

Room: client. Values only.
See: model.RowStatus, in order of precedence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dejaqueue.errors import DuplicateKey, Refused
from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import Reply


def status_counts(statuses: npt.NDArray[np.uint8]) -> dict[RowStatus, int]:
    """How many rows have each status."""
    values, counts = np.unique(statuses, return_counts=True)
    return {RowStatus(int(v)): int(n) for v, n in zip(values, counts, strict=True)}


def _shown(kind: type, statuses: npt.NDArray[np.uint8]) -> str:
    """The answer as a person reads it: a million numbers say less than two counts."""
    counts = ", ".join(f"{status.name}={n}" for status, n in status_counts(statuses).items())
    return f"{kind.__name__}({counts})"


@dataclass(frozen=True, slots=True, repr=False)
class Settled:
    """The answer to ack, nack, extend, move and cancel of many messages.

    Attributes:
        statuses: RowStatus per row, uint8 array, shape (n,), in the order of the call.

    >>> Settled(np.array([0, 3], dtype=np.uint8))
    Settled(OK=1, LEASE_LOST=1)
    """

    statuses: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.statuses)

    def __repr__(self) -> str:
        return _shown(type(self), self.statuses)

    @property
    def ok(self) -> bool:
        """True if every row is OK."""
        return not bool(self.statuses.any())

    @property
    def ok_count(self) -> int:
        """Rows that are OK."""
        return len(self.statuses) - int(np.count_nonzero(self.statuses))

    def counts(self) -> dict[RowStatus, int]:
        """How many rows have each status."""
        return status_counts(self.statuses)

    def only(self) -> RowStatus:
        """The status of the one row that there is."""
        assert len(self.statuses) == 1, len(self.statuses)
        return RowStatus(int(self.statuses[0]))

    def raise_for_status(self) -> None:
        """Raise Refused if any row is not OK; the text counts them by status."""
        if not self.ok:
            shown = ", ".join(f"{n} {s.name}" for s, n in self.counts().items() if s)
            raise Refused(f"{shown} of {len(self)} rows")


@dataclass(frozen=True, slots=True)
class Redriven:
    """The answer to redrive.

    Attributes:
        moved: letters that are on their way, durably.
        left: letters that were meant but stay: they have no origin, a live message there has their
            key, or a consumer has them.
    """

    moved: int
    left: int


@dataclass(frozen=True, slots=True, repr=False)
class SendResult:
    """The answer to send_batch.

    Attributes:
        ids: id per row, int64 array, shape (n,); of a DUPLICATE or KEPT row the id of the live
            message with its key; -1 where there is none (with acks="none").
        statuses: RowStatus per row, uint8 array, shape (n,): OK, KEPT or DUPLICATE.

    >>> SendResult(np.array([7, 3]), np.array([0, 4], dtype=np.uint8))
    SendResult(OK=1, DUPLICATE=1)
    """

    ids: npt.NDArray[np.int64]
    statuses: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return _shown(type(self), self.statuses)

    @property
    def ok(self) -> bool:
        """True if every row is a live message now, or its key has one that was kept."""
        return not bool(self._failed().any())

    def _failed(self) -> npt.NDArray[np.bool_]:
        mask: npt.NDArray[np.bool_] = self.statuses != RowStatus.OK
        mask &= self.statuses != RowStatus.KEPT
        return mask

    def counts(self) -> dict[RowStatus, int]:
        """How many rows have each status."""
        return status_counts(self.statuses)

    def raise_for_status(self) -> None:
        """Raise DuplicateKey for the first row that is neither OK nor KEPT."""
        if self.ok:
            return
        at = int(np.flatnonzero(self._failed())[0])
        status = RowStatus(int(self.statuses[at]))
        if status is RowStatus.DUPLICATE:
            raise DuplicateKey(f"of row {at}", int(self.ids[at]))
        raise Refused(f"row {at}: {status.name}")


def by_row(reply: Reply, count: int) -> Reply:
    """The reply to a settle, with a status for each row.

    It may leave out how many rows there are when all are OK; and of a whole lease that has ended
    the broker may know the one thing only, that it is lost.
    """
    if reply.statuses is not None and len(reply.statuses) == 1 < count:
        return replace(reply, rows=count, statuses=np.repeat(reply.statuses, count))
    return reply if reply.rows else replace(reply, rows=count)
