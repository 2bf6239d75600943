"""The inbox of a partition: requests that wait for its worker, and those that it has in hand.

Room: broker. Any thread puts requests in; everything else runs on the worker.
Holds: each request is answered once, whatever breaks off: by who did it, when that is durable, or
with the error that ended the step.
See: requests.py; taking.py, which empties it; docs/adr/0022.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock

from dejaqueue.broker.partition.requests import Changing, Request, refusal_of, turn_away
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.stored_rows import RowsAwaited
from dejaqueue.errors import DejaQError
from dejaqueue.wire.frames import Reply


class Inbox:
    """What one partition is asked.

    Attributes:
        byte_count: bytes of what waits; any thread may read it.
    """

    def __init__(self, core: PartitionCore) -> None:
        self._core = core
        self._waiting: deque[Request] = deque()
        self._lock = Lock()
        # By identity, as two requests may be equal: from when one is taken to its answer.
        self._in_hand: dict[int, Request] = {}
        self.byte_count = 0

    # --- any thread ---------------------------------------------------------------------------

    def put(self, request: Request) -> None:
        """Leave a request for the worker. The caller rings it."""
        with self._lock:
            self._waiting.append(request)
            self.byte_count += request.byte_count

    @property
    def is_empty(self) -> bool:
        """True if no request waits."""
        return not self._waiting

    # --- the worker's thread ------------------------------------------------------------------

    @property
    def first(self) -> Request:
        """The request that is taken next; there must be one."""
        return self._waiting[0]

    def take(self) -> Request:
        """Take the first request in hand: it is answered, forgotten or turned away from here."""
        request = self._pop()
        self._in_hand[id(request)] = request
        return request

    def _pop(self) -> Request:
        with self._lock:
            request = self._waiting.popleft()
            self.byte_count -= request.byte_count
        return request

    def put_back(self, *forgotten: Request) -> None:
        """What is in hand waits again, before all that came later; so does what was just
        forgotten."""
        in_hand, self._in_hand = [*self._in_hand.values(), *forgotten], {}
        with self._lock:
            self._waiting.extendleft(reversed(in_hand))
            self.byte_count += sum(request.byte_count for request in in_hand)

    def forget(self, request: Request) -> None:
        """Somebody else answers it: it was taken back, or is a look, which answers for itself."""
        del self._in_hand[id(request)]

    def answer(self, request: Changing, reply: Reply, acks: str) -> None:
        """Answer a request, when what it did is durable unless it asked for less."""
        del self._in_hand[id(request)]
        if acks == "leader":
            request.reply(reply)
        elif acks == "all":
            self._core.commits.group.replies.append((request.reply, reply))

    def refuse(self, request: Changing, error: DejaQError, rows: int = 0) -> None:
        """Answer a request that changed nothing."""
        del self._in_hand[id(request)]
        request.reply(Reply(request.number, rows, error=error))

    def guarded(self, requests: Sequence[Changing], handle: Callable[[], None]) -> bool:
        """Handle requests; what fails before anything has changed is their fault, and refused.

        Whatever can fail on what came from outside is done before the engine is given a command.
        If that fails, the state is as it was, and the partition goes on. If the command itself
        breaks off, nobody knows what it left behind: the step fails.

        Returns:
            False if they failed, and are several: one of them spoils it for the others.

        Raises:
            RowsAwaited: they are not to blame; nothing has changed.
        """
        core = self._core
        began = core.engine.applied_count
        try:
            handle()
        except RowsAwaited:
            raise
        except Exception as wrong:
            has_changed = core.engine.applied_count != began or core.commits.is_broken
            if has_changed or not all(id(request) in self._in_hand for request in requests):
                raise
            if len(requests) > 1:
                return False
            request = requests[0]
            self.refuse(request, refusal_of(wrong), getattr(request, "rows", 0))
        return True

    def turn_away(self, error: DejaQError) -> None:
        """Answer all that waits with an error."""
        while self._waiting:
            turn_away(self._pop(), self._core, error)

    def give_up(self, error: DejaQError) -> None:
        """The step broke off: answer with its error what was in hand and not answered yet."""
        in_hand, self._in_hand = list(self._in_hand.values()), {}
        for request in in_hand:
            turn_away(request, self._core, error)
