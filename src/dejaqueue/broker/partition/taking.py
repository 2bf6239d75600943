"""Taking requests: what waits is applied in its order, small batches together.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: requests are applied in the order in which they came, also if one has to wait until a server
was asked for stored rows; a look sees what is durable, and all that was asked before it.
See: partition.py, whose step calls it; enqueueing.py, renaming.py and settling.py, which apply.
"""

from __future__ import annotations

from functools import partial

from dejaqueue import limits
from dejaqueue.broker.partition.admission import Admission
from dejaqueue.broker.partition.enqueueing import enqueue
from dejaqueue.broker.partition.inbox import Inbox
from dejaqueue.broker.partition.renaming import rename
from dejaqueue.broker.partition.requests import (
    ChangeRequest,
    EnqueueRequest,
    LookRequest,
    RenameRequest,
    SettleRequest,
)
from dejaqueue.broker.partition.settling import settle
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.stored_rows import RowsAwaited
from dejaqueue.errors import BadRequest, DejaQError, TryLater
from dejaqueue.wire.frames import Reply

# Batches smaller than this are joined: that costs less than an entry for each.
MERGE_ROWS_MAX = 256
MERGE_BYTES_MAX = 64 << 10
# Requests taken in one step; the rest waits for the next one, so that due messages are not kept.
STEP_REQUESTS_MAX = 1_024
# No request is taken in a step that has taken them for so long: other partitions have the same
# worker. What is applied meanwhile still becomes durable together.
STEP_US_MAX = 2_000


class _SmallBatches:
    """Small batches that follow on one another and become one command."""

    def __init__(self, core: PartitionCore, inbox: Inbox, admission: Admission) -> None:
        self._core, self._inbox, self._admission = core, inbox, admission
        self._requests: list[EnqueueRequest] = []
        self._rows = 0

    def takes(self, request: EnqueueRequest) -> bool:
        """Keep a batch for the command; False if it is not one for it."""
        rows = request.columns.rows
        is_small = (
            request.stage is None
            and rows < MERGE_ROWS_MAX
            and request.byte_count < MERGE_BYTES_MAX
            # Who may replace which key is decided once for a command.
            and (not self._requests or self._requests[0].owner == request.owner)
        )
        if not is_small or self._rows + rows > limits.BATCH_ROWS_MAX:
            return False
        self._requests.append(request)
        self._rows += rows
        return True

    def apply(self) -> None:
        """Bring in what was kept: before anything else is applied, as it came before."""
        if self._requests:
            requests, self._requests, self._rows = self._requests, [], 0
            enqueue(self._core, self._inbox, self._admission, requests)


def take_requests(core: PartitionCore, inbox: Inbox, admission: Admission) -> None:
    """Apply what waits, until the group is full or a request has to wait for the journal."""
    if core.stored.is_awaited:
        return
    try:
        _take(core, inbox, admission)
    except RowsAwaited:
        inbox.put_back()  # the journal's server is asked beside the worker, and rings
    else:
        core.stored.forget()


def _take(core: PartitionCore, inbox: Inbox, admission: Admission) -> None:
    small = _SmallBatches(core, inbox, admission)
    rows = 0
    bounds, began_us = core.settings.dispatch, core.clock.now_us()
    for number in range(STEP_REQUESTS_MAX):
        is_full = rows >= bounds.group_rows_max or core.commits.group.is_full(bounds)
        if is_full or inbox.is_empty:
            break
        if number and core.clock.now_us() - began_us >= STEP_US_MAX:
            break
        if isinstance(inbox.first, LookRequest):
            small.apply()
            if not core.commits.settles():
                break
        request = inbox.take()
        if isinstance(request, EnqueueRequest):
            if request.goes_back is not None and request.goes_back(request, core):
                inbox.forget(request)
                continue
            rows += request.columns.rows
            if small.takes(request):
                continue
        small.apply()
        if isinstance(request, EnqueueRequest):
            enqueue(core, inbox, admission, [request])
        elif isinstance(request, LookRequest):
            # What it sees must be durable, and it may append on its own.
            core.commits.commit_all()
            inbox.forget(request)
            try:
                request.look(core)
            except RowsAwaited:
                inbox.put_back(request)
                raise
        else:
            inbox.guarded([request], partial(_apply, core, inbox, admission, request))
    small.apply()


def _apply(
    core: PartitionCore,
    inbox: Inbox,
    admission: Admission,
    request: RenameRequest | SettleRequest | ChangeRequest,
) -> None:
    match request:
        case RenameRequest():
            rename(core, inbox, request)
        case SettleRequest():
            settle(core.seen(request.subscription), inbox, admission, request)
        case ChangeRequest():
            _change(core, inbox, request)


def _change(core: PartitionCore, inbox: Inbox, request: ChangeRequest) -> None:
    error: DejaQError | None = None
    try:
        request.change(core)
    except (BadRequest, TryLater) as refused:
        error = refused
    inbox.answer(request, Reply(request.number, error=error), "all")
