"""One answer of several: a request whose rows went to more than one partition.

Room: broker. Any thread; partitions answer on their workers.
Holds: the caller is answered once, when every part was; if one of them failed, all of it failed, as
nobody can tell the rows apart then; Elsewhere, which says that nothing was done, is not the answer
if something was.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from dejaqueue.broker.replies import ReplyTo
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import DejaQError, Elsewhere, Unavailable
from dejaqueue.wire.frames import Reply


class JoinedReply:
    """Makes one reply of the replies of several partitions.

    Args:
        indices: for each part the rows of the batch that it answers.
        ids, statuses: what is known of the rows that no part answers; filled in.
    """

    def __init__(
        self,
        number: int,
        rows: int,
        indices: list[npt.NDArray[np.int64]],
        reply: ReplyTo,
        ids: Int64s | None = None,
        statuses: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        self._number = number
        self._indices = indices
        self._reply = reply
        self._ids = np.full(rows, -1, dtype=np.int64) if ids is None else ids
        self._statuses = np.zeros(rows, dtype=np.uint8) if statuses is None else statuses
        self._error: DejaQError | None = None
        self._is_elsewhere = True  # so far nothing of it was done
        self._left = len(indices)
        self._lock = threading.Lock()

    def part(self, index: int) -> ReplyTo:
        """Where the partition of part `index` replies to."""

        def answered(reply: Reply) -> None:
            with self._lock:
                self._is_elsewhere &= isinstance(reply.error, Elsewhere)
                if reply.error is not None:
                    self._error = reply.error
                else:
                    self._ids[self._indices[index]] = reply.all_ids()
                    self._statuses[self._indices[index]] = reply.all_statuses()
                self._left -= 1
                done = self._left == 0
            if done:
                self.finish()

        return answered

    def finish(self) -> None:
        """Reply. By itself once all parts are answered; to be called if there are none."""
        rows = len(self._ids)
        error = self._error
        if isinstance(error, Elsewhere) and not self._is_elsewhere:
            error = Unavailable(f"{error}, and some of it was done", error.retry_after_ms)
        if error is not None:
            self._reply(Reply(self._number, rows, error=error))
            return
        statuses = self._statuses if self._statuses.any() else None
        self._reply(Reply(self._number, rows, -1, self._ids, statuses))
