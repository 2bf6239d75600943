"""Quotas: how much of a broker one principal may have at once.

Room: access. Asked by both servers and by partitions, from any thread; knows no sockets.
Holds: what one principal does is counted apart from all others; a refusal names the quota, its
limit and what was wanted, changes nothing, and is counted and logged, the log at a bounded rate.
See: settings.QuotaSettings; docs/guides/security.md, "Quotas". What a topic may hold, and how fast
one producer may send to it, is in broker/quotas.py.

A principal is an API key, or an address where there is none. Programs on the broker's own machine
that need no key are its operator's: they may have all of it, and are counted all the same.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dejaqueue import limits
from dejaqueue.access.administration import is_near
from dejaqueue.access.crowding import CROWDING
from dejaqueue.access.roles import Principal
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import ResourceExhausted
from dejaqueue.metrics import Tallies
from dejaqueue.settings import BrokerSettings

log = logging.getLogger("dejaqueue.quotas")

STREAMS, CONNECTIONS, TRANSACTIONS = "streams_max", "connections_max", "transactions_max"
OPENINGS, ROWS, SENT = "openings_per_s", "rows_per_s", "bytes_per_s"
BYTES = "bytes_in_flight_max"

WHOLE: dict[str, Callable[[BrokerSettings], int]] = {
    STREAMS: lambda _: limits.FLIGHT_STREAMS_EXPECTED,
    OPENINGS: lambda _: limits.FLIGHT_OPENINGS_PER_S,
    CONNECTIONS: lambda settings: settings.server.http_connections_max,
    TRANSACTIONS: lambda _: limits.TRANSACTIONS_OPEN_MAX,
    BYTES: lambda settings: settings.dispatch.workers * settings.dispatch.inbox_bytes_max,
    ROWS: lambda settings: settings.dispatch.workers * settings.dispatch.partition_rows_per_s,
    SENT: lambda _: limits.INGRESS_BYTES_PER_S,
}
"""Of each quota what all principals together may have, or what a broker is expected to do."""

PATIENCE_MS = 5_000
"""How long a stream that is opened too soon, or a batch that is too much for now, waits."""
RETRY_MS = 1_000
CLOSING_PAUSE_MS = 2
"""Between two closes of a principal's streams, if one waits for the other. A close is some 0.3 ms
of Python: others get the interpreter for the rest."""
PRINCIPALS_MAX = 10_000
"""Principals known at once; those that have nothing open are forgotten first."""
LABELS_MAX = 100
"""Principals that have a name of their own in the metrics; others are counted together."""
OTHERS = "others"
LOG_MS = 10_000
"""A principal's refusals by one quota are one line in such a time."""
LATELY_MINUTES = 5
"""Refusals are told apart for so long, and forgotten then; totals are in the metrics."""
_MINUTE_MS = 60_000
_PARTS = 1_000_000
"""Credit is counted in millionths: a rate of n a second adds n of them each µs."""


class Bucket:
    """What may be done in one second, filled again at a rate. Not for two threads at once."""

    __slots__ = ("_since_us", "_used")

    def __init__(self) -> None:
        self._used = 0
        self._since_us = 0

    def take(self, rate: int, count: int, now_us: int, ahead_ms: int = 0) -> tuple[bool, int]:
        """Take `count` out of it; of a full one more than a second's worth, and owe the rest.

        Args:
            rate: of a second.
            ahead_ms: how long before they are there.

        Returns:
            Whether they were taken, and in how many milliseconds they are there, rounded up.
        """
        room, wanted = rate * _PARTS, count * _PARTS
        used = max(0, self._used - max(0, now_us - self._since_us) * rate)
        missing = used + min(wanted, room) - room
        wait_ms = -(-missing // (rate * 1_000)) if missing > 0 else 0
        taken = wait_ms <= ahead_ms
        if taken:
            self._used, self._since_us = used + wanted, now_us
        return taken, wait_ms

    def give_back(self, count: int) -> None:
        """What was taken just now was not used."""
        self._used -= count * _PARTS

    def is_full(self, rate: int, now_us: int) -> bool:
        """True if nothing of it is used."""
        return self._used <= max(0, now_us - self._since_us) * rate


@dataclass(slots=True)
class _Refusals:
    """Of one quota: when they were logged last, and how many there were since."""

    logged_ms: int = -LOG_MS
    left_out: int = 0


@dataclass(slots=True)
class _RecentRefusals:
    """Refusals of one principal by one quota in the last minutes.

    Attributes:
        limit: what it was at the last one.
        last_ms: when that was, UTC.
        minutes: how many there were, by the number of the minute since 1970, the oldest first.
    """

    limit: int = 0
    last_ms: int = 0
    minutes: dict[int, int] = field(default_factory=dict)

    def add(self, limit: int, now_ms: int) -> None:
        self.limit, self.last_ms = limit, now_ms
        minute = now_ms // _MINUTE_MS
        self.minutes[minute] = self.minutes.get(minute, 0) + 1
        self.forget(now_ms)

    def forget(self, now_ms: int) -> None:
        first = now_ms // _MINUTE_MS - LATELY_MINUTES + 1
        for minute in [one for one in self.minutes if one < first]:
            del self.minutes[minute]


@dataclass(slots=True, eq=False)
class _Waiter:
    """A request that waits for room for its bytes."""

    byte_count: int
    wake: Wake = field(default_factory=Wake)


class Account:
    """What one principal has of a broker.

    Attributes:
        holder: what it is known by: the id of its key, or its address.
        name: what it is called in refusals, logs and metrics.
        is_bounded: it has quotas; False = it may have all there is.
        streams, connections, bytes_in_flight: what is open, or not answered yet.
    """

    def __init__(self, quotas: Quotas, holder: str, name: str, *, is_bounded: bool) -> None:
        self._quotas = quotas
        self._mutex = threading.Lock()
        self._openings, self._rows, self._sent = Bucket(), Bucket(), Bucket()
        self._waiters: deque[_Waiter] = deque()
        self._refusals: dict[str, _Refusals] = {}
        self.holder = holder
        self.name = name
        self.is_bounded = is_bounded
        self.streams = self.connections = self.bytes_in_flight = 0

    @property
    def is_idle(self) -> bool:
        """True if nothing is open."""
        return not (self.streams or self.connections or self.bytes_in_flight)

    def limit(self, quota: str) -> int:
        """How much it may have; 0 = as much as there is."""
        return self._quotas.limit(quota, self.name) if self.is_bounded else 0

    def refused(
        self, quota: str, limit: int, got: int, retry_ms: int = RETRY_MS
    ) -> ResourceExhausted:
        """Why it gets no more, counted and logged."""
        error = ResourceExhausted(
            f"quotas.{quota}: at most {limit} for {self.name}, got: {got}", retry_ms
        )
        self._quotas.count_refusal(quota, self.name, limit)
        now_ms = self._quotas.clock.now_ms()
        with self._mutex:
            refusals = self._refusals.setdefault(quota, _Refusals())
            is_logged = now_ms - refusals.logged_ms >= LOG_MS
            left_out = refusals.left_out
            refusals.left_out = 0 if is_logged else left_out + 1
            if is_logged:
                refusals.logged_ms = now_ms
        if is_logged:
            facts = {"principal": self.name} | ({"left_out": left_out} if left_out else {})
            log.warning("refused: %s", error, extra=facts)
        return error

    # --- streams --------------------------------------------------------------------------------

    def enter_stream(self) -> int:
        """A stream is to be opened; until `leave_stream`. Raises ResourceExhausted.

        Returns:
            How many milliseconds it waits first: they are opened too fast.
        """
        limit, rate = self.limit(STREAMS), self.limit(OPENINGS)
        now_us, taken, wait_ms = self._quotas.clock.now_us(), True, 0
        with self._mutex:
            got = self.streams + 1
            is_over = bool(limit) and got > limit
            if rate and not is_over:
                taken, wait_ms = self._openings.take(rate, 1, now_us, PATIENCE_MS)
            if taken and not is_over:
                self.streams = got
        if is_over:
            raise self.refused(STREAMS, limit, got)
        if not taken:
            raise self.refused(OPENINGS, rate, rate + rate * wait_ms // 1_000, wait_ms)
        return wait_ms

    def leave_stream(self) -> None:
        """It is closed."""
        with self._mutex:
            self.streams -= 1

    # --- connections ----------------------------------------------------------------------------

    def open_connection(self) -> bool:
        """A connection is open, until `close_connection`; False = it is one too many."""
        limit = self.limit(CONNECTIONS)
        with self._mutex:
            got = self.connections + 1
            if limit and got > limit:
                return False
            self.connections = got
            return True

    def refused_connection(self) -> ResourceExhausted:
        """Why one that is too many is not answered."""
        return self.refused(CONNECTIONS, self.limit(CONNECTIONS), self.connections + 1)

    def close_connection(self) -> None:
        """One connection less."""
        with self._mutex:
            self.connections -= 1

    # --- what is sent ---------------------------------------------------------------------------

    def take_sent(self, rows: int, byte_count: int, *, wait: bool = True) -> None:
        """Count sent messages and their bytes. Waits until the bytes may be sent.

        Args:
            rows: 0 = what is sent is no messages.
            wait: False = the bytes may be sent now, or all is refused.

        Raises:
            ResourceExhausted: says when they may be; nothing was taken.
        """
        if not wait:
            self.reserve_sent(rows, byte_count, 0)
            return
        clock = self._quotas.clock
        now_us = clock.now_us()
        wait_ms = self.reserve_sent(rows, byte_count)
        if wait_ms:
            clock.wait_until(now_us + wait_ms * 1_000, Wake())

    def reserve_sent(self, rows: int, byte_count: int, ahead_ms: int = PATIENCE_MS) -> int:
        """As `take_sent`, for a caller that waits by itself: in how many milliseconds the bytes may
        be sent, at most `ahead_ms`. Raises ResourceExhausted."""
        row_rate, byte_rate = self.limit(ROWS), self.limit(SENT)
        if not (row_rate or byte_rate):
            return 0
        now_us, taken, row_wait_ms, wait_ms = self._quotas.clock.now_us(), True, 0, 0
        with self._mutex:
            if row_rate:
                taken, row_wait_ms = self._rows.take(row_rate, rows, now_us)
            if taken and byte_rate:
                taken, wait_ms = self._sent.take(byte_rate, byte_count, now_us, ahead_ms)
                if not taken and row_rate:
                    self._rows.give_back(rows)
        if row_wait_ms:
            raise self.refused(ROWS, row_rate, rows, row_wait_ms)
        if not taken:
            raise self.refused(SENT, byte_rate, byte_count, wait_ms)
        return wait_ms

    def hold_bytes(self, byte_count: int, own: int = 0, *, wait: bool = True) -> None:
        """Count bytes as held here until `give_bytes`. Waits for room. Raises ResourceExhausted.

        More than the limit is let in when nothing else is here: it must come in some time.

        Args:
            own: bytes that are here already of the same batch or body.
            wait: False = there is room now, or it is refused.
        """
        limit = self.limit(BYTES)
        with self._mutex:
            got = self.bytes_in_flight + byte_count
            has_room = not limit or got <= limit or self.bytes_in_flight <= own
            if has_room and not self._waiters:
                self.bytes_in_flight = got
                return
            waiter = _Waiter(byte_count)
            if wait:
                self._waiters.append(waiter)
        if wait:
            clock = self._quotas.clock
            clock.wait_until(clock.now_us() + PATIENCE_MS * 1_000, waiter.wake)
            with self._mutex:
                if waiter not in self._waiters:
                    return  # its bytes were counted by whoever made room
                self._waiters.remove(waiter)
        raise self.refused(BYTES, limit, got)

    def give_bytes(self, byte_count: int) -> None:
        """They were answered."""
        limit = self.limit(BYTES)
        let_in = []
        with self._mutex:
            self.bytes_in_flight -= byte_count
            while self._waiters:
                first = self._waiters[0]
                got = self.bytes_in_flight + first.byte_count
                if limit and got > limit and self.bytes_in_flight:
                    break
                let_in.append(self._waiters.popleft())
                self.bytes_in_flight = got
        for one in let_in:
            one.wake.ring()


class _Turns:
    """Of the streams that one key has, or nobody's, one is being opened at a time, one closed."""

    __slots__ = ("closing", "opening")

    def __init__(self) -> None:
        self.opening, self.closing = threading.Lock(), threading.Lock()


class Opening:
    """A stream: a `with` block around all of it.

    A thousand streams that are opened or closed at once would each wait for the interpreter, and
    everybody else with them, for seconds. So they wait for a lock, first of all, which costs
    nothing: one is between entering the block and `opened`, one between `closing` and `closed`.

    Attributes:
        account: whose it is; known inside the block.
    """

    account: Account

    def __init__(self, quotas: Quotas, turns: _Turns, principal: Principal, peer: str) -> None:
        self._quotas = quotas
        self._turns = turns
        self._principal = principal
        self._peer = peer
        self._held: threading.Lock | None = None
        self._is_free = False

    def __enter__(self) -> Opening:
        """Waits its turn, and while its principal's streams are opened too fast. Raises
        ResourceExhausted."""
        self._hold(self._turns.opening)
        try:
            self.account = self._quotas.of(self._principal, self._peer)
            wait_ms = self.account.enter_stream()
        except BaseException:
            self._let_go()
            raise
        if wait_ms:
            self._let_go()
            clock = self._quotas.clock
            clock.wait_until(clock.now_us() + wait_ms * 1_000, Wake())
            self._hold(self._turns.opening)
        return self

    def opened(self) -> None:
        """It is open, or has to wait for its client: others may be opened. Twice is fine."""
        self._let_go()

    def waits(self) -> None:
        """Opening and closing it waits for other brokers: others go on meanwhile."""
        self._is_free = True
        self._let_go()

    def closing(self) -> None:
        """It is being closed, without waiting for anything."""
        self._let_go()
        if not self._is_free and self._hold(self._turns.closing):
            clock = self._quotas.clock
            clock.wait_until(clock.now_us() + CLOSING_PAUSE_MS * 1_000, Wake())

    def closed(self) -> None:
        """That is done, or has to wait. Twice is fine."""
        self._let_go()

    def _hold(self, lock: threading.Lock) -> bool:
        """Whether it had to be waited for."""
        is_crowded = not lock.acquire(blocking=False)
        if is_crowded:
            with CROWDING:
                lock.acquire()
        self._held = lock
        return is_crowded

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.release()

    def __exit__(self, *_: object) -> None:
        self.account.leave_stream()
        self._let_go()


class Quotas:
    """The accounts of a broker.

    Args:
        settings: the broker's, which may change live.

    Attributes:
        refused: refusals by quota and principal.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._mutex = threading.Lock()
        self._accounts: dict[str, Account] = {}
        self._turns: dict[str, _Turns] = {}
        self._labels: set[str] = set()
        self._recent: dict[tuple[str, str], _RecentRefusals] = {}
        self.clock = clock
        self.refused = Tallies()

    def opening(self, principal: Principal, peer: str) -> Opening:
        """A stream of the caller, as a `with` block. Takes no lock: a thousand come at once.

        Args:
            peer: its address, as gRPC writes it.
        """
        turns = self._turns.setdefault(principal.key_id, _Turns())
        return Opening(self, turns, principal, peer)

    def of(self, principal: Principal, peer: str) -> Account:
        """The account of the caller.

        Args:
            peer: its address, as gRPC or a socket writes it.
        """
        if principal.key_id:
            return self._account(principal.key_id, principal.name, is_bounded=True)
        return self.of_address(peer)

    def of_address(self, peer: str) -> Account:
        """The account of an address, whatever keys are used from there."""
        host = host_of(peer)
        return self._account(f"@{host}", host, is_bounded=not is_near(peer))

    def _account(self, holder: str, name: str, *, is_bounded: bool) -> Account:
        with self._mutex:
            account = self._accounts.get(holder)
            if account is None:
                if len(self._accounts) >= PRINCIPALS_MAX:
                    self._accounts = {
                        known: one for known, one in self._accounts.items() if not one.is_idle
                    }
                account = Account(self, holder, name, is_bounded=is_bounded)
                self._accounts[holder] = account
            return account

    def limit(self, quota: str, name: str) -> int:
        """What a principal of this name may have of it; 0 = as much as there is."""
        settings = self._settings.quotas
        own_percent = settings.percents.get(name)
        fixed: int = getattr(settings, quota)
        if own_percent is None and fixed:
            return fixed
        percent = settings.percent if own_percent is None else own_percent
        return 0 if percent == 100 else max(1, WHOLE[quota](self._settings) * percent // 100)

    def count_refusal(self, quota: str, name: str, limit: int) -> None:
        """One more.

        Args:
            limit: how much of it there was to have.
        """
        now_ms = self.clock.utc_ms()
        with self._mutex:
            if name not in self._labels and len(self._labels) < LABELS_MAX:
                self._labels.add(name)
            label = name if name in self._labels else OTHERS
            self._recent.setdefault((quota, label), _RecentRefusals()).add(limit, now_ms)
        self.refused.add((quota, label))

    def lately(self) -> list[dict[str, Any]]:
        """Who was refused what in the last LATELY_MINUTES, the one most often first.

        Returns:
            For each principal and quota `principal`, `quota`, `limit`, `count` and `last_ms`.
        """
        now_ms = self.clock.utc_ms()
        told = []
        with self._mutex:
            for (quota, label), recent in list(self._recent.items()):
                recent.forget(now_ms)
                count = sum(recent.minutes.values())
                if not count:
                    del self._recent[quota, label]
                    continue
                told.append(
                    {"principal": label, "quota": quota, "limit": recent.limit, "count": count,
                     "last_ms": recent.last_ms}
                )  # fmt: skip
        return sorted(told, key=lambda one: (-one["count"], one["principal"], one["quota"]))


def host_of(peer: str) -> str:
    """The address in what gRPC or a socket calls a peer.

    >>> [host_of(p) for p in ("ipv4:10.0.0.1:5000", "ipv6:%5Bfe80::1%5D:5000", "10.0.0.1", "::1")]
    ['10.0.0.1', 'fe80::1', '10.0.0.1', '::1']
    """
    text = peer
    for scheme in ("ipv4:", "ipv6:"):
        if peer.startswith(scheme):
            text = peer.removeprefix(scheme).rpartition(":")[0]
    return text.replace("%5B", "").replace("%5D", "").strip("[]")
