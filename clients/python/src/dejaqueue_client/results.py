"""What calls with many rows answer.

Room: client. Values only.
See: model.RowStatus, in order of precedence. DejaQ's other client has the same names, and numpy's
arrays where lists are here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dejaqueue_client.errors import DuplicateKey, Refused
from dejaqueue_client.model import RowStatus


def statuses_in(rows: Sequence[dict[str, Any]]) -> list[RowStatus]:
    """The status of each row of an answer."""
    return [RowStatus[row["status"]] for row in rows]


def _shown(kind: type, statuses: Sequence[RowStatus]) -> str:
    """The answer as a person reads it: a million rows say less than two counts."""
    counts = ", ".join(f"{status.name}={n}" for status, n in sorted(Counter(statuses).items()))
    return f"{kind.__name__}({counts})"


@dataclass(frozen=True, repr=False)
class Settled:
    """The answer to ack, nack, extend, move and cancel of many messages.

    Attributes:
        statuses: of each row, in the order of the call.

    >>> Settled([RowStatus.OK, RowStatus.LEASE_LOST])
    Settled(OK=1, LEASE_LOST=1)
    """

    statuses: list[RowStatus]

    def __len__(self) -> int:
        return len(self.statuses)

    def __repr__(self) -> str:
        return _shown(type(self), self.statuses)

    @property
    def ok(self) -> bool:
        """True if every row is OK."""
        return not any(self.statuses)

    @property
    def ok_count(self) -> int:
        """Rows that are OK."""
        return self.statuses.count(RowStatus.OK)

    def counts(self) -> dict[RowStatus, int]:
        """How many rows have each status."""
        return dict(sorted(Counter(self.statuses).items()))

    def only(self) -> RowStatus:
        """The status of the one row that there is."""
        [status] = self.statuses
        return status

    def raise_for_status(self) -> None:
        """Raise Refused if any row is not OK; the text counts them by status."""
        if not self.ok:
            shown = ", ".join(f"{n} {s.name}" for s, n in self.counts().items() if s)
            raise Refused(f"{shown} of {len(self)} rows")


@dataclass(frozen=True)
class Redriven:
    """The answer to redrive.

    Attributes:
        moved: letters that are on their way, durably.
        left: letters that were meant but stay: they have no origin, a live message there has their
            key, or a consumer has them.
    """

    moved: int
    left: int


class SeekResult(NamedTuple):
    """What a seek did.

    Attributes:
        replayed: messages that were done and came back.
        passed: messages that waited and are done now.
    """

    replayed: int
    passed: int


@dataclass(frozen=True)
class DueHistogram:
    """How many messages are due in each stretch of time.

    Attributes:
        due_from_ms: when the first stretch begins, UTC milliseconds.
        bucket_ms: how long each is.
        counts: messages due in each.
        error_max: by how much the sum of the counts may be too high; 0 = they are exact.
    """

    due_from_ms: int
    bucket_ms: int
    counts: list[int]
    error_max: int = 0

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def dues_ms(self) -> list[int]:
        """When each stretch begins, UTC milliseconds."""
        return [self.due_from_ms + self.bucket_ms * step for step in range(len(self.counts))]


@dataclass(frozen=True, repr=False)
class SendResult:
    """The answer to send_batch.

    Attributes:
        ids: of each row; of a DUPLICATE or KEPT row the id of the live message with its key; -1
            where that one is not to be told.
        statuses: of each row: OK, KEPT or DUPLICATE.

    >>> SendResult([7, 3], [RowStatus.OK, RowStatus.DUPLICATE])
    SendResult(OK=1, DUPLICATE=1)
    """

    ids: list[int]
    statuses: list[RowStatus]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return _shown(type(self), self.statuses)

    @property
    def ok(self) -> bool:
        """True if every row is a live message now, or its key has one that was kept."""
        return all(status.ok for status in self.statuses)

    def counts(self) -> dict[RowStatus, int]:
        """How many rows have each status."""
        return dict(sorted(Counter(self.statuses).items()))

    def raise_for_status(self) -> None:
        """Raise DuplicateKey for the first row that is neither OK nor KEPT."""
        for row, status in enumerate(self.statuses):
            if status is RowStatus.DUPLICATE:
                raise DuplicateKey(f"of row {row}", self.ids[row])
            if not status.ok:
                raise Refused(f"row {row}: {status.name}")


def sent_rows(rows: Sequence[dict[str, Any]]) -> SendResult:
    """The answer to messages that were sent."""
    ids = [-1 if row["id"] is None else int(row["id"]) for row in rows]
    return SendResult(ids, statuses_in(rows))
