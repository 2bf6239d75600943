"""What a consumer holds: leased messages, those that are not handed over yet, acks that wait.

Room: client. No connections and no clock: `now_s` is an argument, monotonic seconds.
Holds: a message is handed over once, and only while its lease lasts; what is settled is not
extended any more.
See: _aio/leases.py, which asks the broker.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dejaqueue_client.errors import DejaQError
from dejaqueue_client.inputs import payload_in
from dejaqueue_client.model import RowStatus

Named = dict[str, Any]
"""Id and attempt of a message, as a request has them."""


@dataclass(frozen=True)
class Fate:
    """What becomes of leased messages.

    Attributes:
        op: `ack`, `nack` or `extend`.
        more: the fields of the request besides, as pairs.
    """

    op: str
    more: tuple[tuple[str, Any], ...] = ()


ACKED = Fate("ack")
RETURNED = Fate("nack", (("delay_ms", 0), ("released", True)))
"""Back at once: nobody has worked on it, so the delivery is not counted."""


class Leased:
    """A leased message as the broker gave it.

    Attributes:
        ends_s: when its lease ends, in monotonic seconds of this machine.
        late_us: from its due time until it was leased, microseconds.
        taken_s: when it came here.
    """

    __slots__ = ("attempt", "ends_s", "half_s", "id", "late_us", "payload", "taken_s", "values")

    def __init__(self, values: dict[str, Any], lease_ms: int, now_s: float) -> None:
        self.values = values
        self.id = int(values["id"])
        self.attempt = int(values["attempt"])
        self.payload = payload_in(values) or b""
        self.taken_s = now_s
        leased_ms = values.get("lease_end_ms", 0) - lease_ms
        self.late_us = max(leased_ms - values["due"], 0) * 1_000
        self.extend(lease_ms, now_s)

    def extend(self, lease_ms: int, now_s: float) -> None:
        """Its lease ends so long from now."""
        self.ends_s = now_s + lease_ms / 1_000
        self.half_s = now_s + lease_ms / 2_000

    def named(self) -> Named:
        """Id and attempt."""
        return {"id": str(self.id), "attempt": self.attempt}


class Held:
    """The leased messages of one consumer. Any thread may call.

    Attributes:
        lease_ms: how long each lease is.
        is_acked: they were acked when they were leased: there is no lease that could end.
        error: of something that nobody waited for.
    """

    def __init__(self, *, is_acked: bool = False) -> None:
        self.lease_ms = 0
        self.is_acked = is_acked
        self.error: DejaQError | None = None
        self._mutex = threading.Lock()
        self._waiting: deque[Leased] = deque()
        self._open: dict[tuple[int, int], Leased] = {}
        self._fates: dict[Fate, list[Leased]] = {}

    # --- in and out ----------------------------------------------------------------------------

    def add(self, rows: Sequence[dict[str, Any]], now_s: float) -> None:
        """Messages that came just now."""
        leased = [Leased(row, self.lease_ms, now_s) for row in rows]
        with self._mutex:
            self._waiting.extend(leased)
            self._open.update({(one.id, one.attempt): one for one in leased})

    def take(self, rows_max: int, now_s: float) -> list[Leased]:
        """Messages to hand over, in the order they came; those whose lease has ended are gone."""
        taken: list[Leased] = []
        with self._mutex:
            while self._waiting and len(taken) < rows_max:
                one = self._waiting.popleft()
                lasts = self.is_acked or one.ends_s > now_s
                if lasts and (one.id, one.attempt) in self._open:
                    taken.append(one)
                else:
                    self._open.pop((one.id, one.attempt), None)
        return taken

    def has(self, leased: Leased) -> bool:
        """True if it is not settled, and its lease was not lost."""
        return (leased.id, leased.attempt) in self._open

    def open_count(self) -> int:
        """Messages that are not settled yet."""
        return len(self._open)

    def forget(self, leased: Sequence[Leased]) -> None:
        """They are settled, or somebody else's: not to be extended any more."""
        with self._mutex:
            for one in leased:
                self._open.pop((one.id, one.attempt), None)

    def put_back(self, *, also_open: bool) -> list[Leased]:
        """Take out what was not handed over; or all that is not settled."""
        with self._mutex:
            back = list(self._open.values()) if also_open else list(self._waiting)
            self._waiting.clear()
            for one in back:
                self._open.pop((one.id, one.attempt), None)
        return back

    # --- leases --------------------------------------------------------------------------------

    def next_extension_s(self) -> float | None:
        """When the first lease is half over; None = nothing is held."""
        if self.is_acked:
            return None
        with self._mutex:
            return min((one.half_s for one in self._open.values()), default=None)

    def due_for_extension(self, now_s: float) -> list[Leased]:
        """Messages whose lease is half over, and those whose lease soon is: they go together."""
        soon_s = now_s + self.lease_ms / 8_000
        with self._mutex:
            if not any(one.half_s <= now_s for one in self._open.values()):
                return []
            return [one for one in self._open.values() if one.half_s <= soon_s]

    def extended(
        self, leased: Sequence[Leased], statuses: Sequence[RowStatus], now_s: float
    ) -> None:
        """What the broker answered to an extension that was asked for at `now_s`."""
        with self._mutex:
            for one, status in zip(leased, statuses, strict=True):
                if status is RowStatus.OK:
                    one.extend(self.lease_ms, now_s)
                else:
                    self._open.pop((one.id, one.attempt), None)

    # --- acks that wait ------------------------------------------------------------------------

    def settle_soon(self, fate: Fate, leased: Leased) -> int:
        """Keep what becomes of a message for the next request; how many wait now."""
        with self._mutex:
            self._open.pop((leased.id, leased.attempt), None)
            self._fates.setdefault(fate, []).append(leased)
            return sum(map(len, self._fates.values()))

    def gathered(self) -> dict[Fate, list[Leased]]:
        """Take out what waits."""
        with self._mutex:
            fates, self._fates = self._fates, {}
        return fates

    def fail(self, error: DejaQError) -> None:
        """Keep an error that nobody could be told of yet."""
        self.error = self.error or error

    def raise_error(self) -> None:
        """Raise the error that was kept, once."""
        error, self.error = self.error, None
        if error is not None:
            raise error
