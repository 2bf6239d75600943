"""Batches that wait for a part of what the shards of a topic may take together.

Room: broker. At the owner of one shard; any thread, and nothing here blocks.
Holds: batches go on in the order in which they came; one question about the backlog is on its way,
and an answer to an earlier one is void; rows that were paid for at the home are used once.
See: home_allotments.py, shard/allotment.py; rates.py for what one producer may send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from dejaqueue import limits
from dejaqueue.broker.shard.allotment import Allotment
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.broker.topic.homes import BACKLOG, RATE, Homes
from dejaqueue.errors import DejaQError, ResourceExhausted, Unavailable
from dejaqueue.model import Topic

WAITING_MAX = 10_000
"""Batches that wait; more are refused."""

Producer = tuple[str, str]
"""The names of a sender and of its producer."""


@dataclass(frozen=True, slots=True)
class DurableBacklog:
    """What a shard's partitions say, once it is durable.

    Attributes:
        epoch: of its owner; the next one's is higher.
        live: in all of them.
    """

    epoch: int
    live: Backlog


@dataclass(slots=True)
class Waiter:
    """A batch that wants in.

    Attributes:
        producer: for whose rate it counts; None = for nobody's.
        send, refuse: what is to become of it; one of them is called once, on any thread.
        is_paid: its rows were taken from the producer's rate.
        was_asked: the home was asked for room for it; now its partitions decide.
    """

    rows: int
    byte_count: int
    producer: Producer | None
    send: Callable[[], None]
    refuse: Callable[[DejaQError], None]
    is_paid: bool = False
    was_asked: bool = False


class AllotmentQueue:
    """The batches of one shard.

    Args:
        shard: its name.
        topic: its settings, read at each use.
        learn: reads all partitions of the shard; done when what was applied to them is durable.
        later: runs something on a thread that may wait, in order.
    """

    def __init__(
        self,
        shard: str,
        topic: Callable[[], Topic],
        allotment: Allotment,
        homes: Homes,
        learn: Callable[[], Future[DurableBacklog]],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._shard = shard
        self._topic = topic
        self._allotment = allotment
        self._homes = homes
        self._learn = learn
        self._later = later
        self._lock = allotment.lock
        # Under the lock, as the allotment's part.
        self._waiting: deque[Waiter] = deque()
        self._leaving = 0
        self._paid: dict[Producer, int] = {}
        self._is_asking = False
        self._is_going_on = False
        self._serial = 0

    def admit(self, waiter: Waiter) -> None:
        """Have a batch sent as soon as it may be; at once if it may now."""
        topic = self._topic()
        if not (topic.producer_rate_max or topic.max_backlog_count or topic.max_backlog_bytes):
            waiter.send()
            return
        with self._lock:
            is_first = not self._waiting and not self._leaving
            goes_now = is_first and self._question(waiter) is None
            is_full = len(self._waiting) >= WAITING_MAX
            if not goes_now and not is_full:
                self._waiting.append(waiter)
        if goes_now:
            waiter.send()
        elif is_full:
            waiter.refuse(ResourceExhausted(f"{WAITING_MAX} batches wait for room", 1_000))
        else:
            self._go_on()

    def give_back(self, by: Backlog) -> Future[Backlog]:
        """Keep less, as the home asks; what is kept. Done when what made room is durable: else the
        next owner might find more than that."""
        kept: Future[Backlog] = Future()
        with self._lock:
            self._serial += 1  # what it was asked meanwhile is void
            self._allotment.lower(by)
            part = self._allotment.part

        def learned(answer: Future[DurableBacklog]) -> None:
            error = _error_of(answer)
            if error is not None:
                kept.set_exception(error)
                return
            found = answer.result()
            with self._lock:
                if part is None and self._allotment.part is None:
                    self._allotment.part = found.live
            kept.set_result(found.live if part is None else part)

        self._learn().add_done_callback(learned)
        return kept

    def begin_anew(self) -> None:
        """The topic's limits are others: take nothing before the home has said how much."""
        with self._lock:
            self._serial += 1
            self._allotment.part = None

    # --- the one that is first -------------------------------------------------------------------

    def _question(self, waiter: Waiter) -> str | None:
        """What has to be asked before it may go. Under the lock."""
        topic, producer = self._topic(), waiter.producer
        if topic.producer_rate_max and producer is not None and not waiter.is_paid:
            paid = self._paid.get(producer, 0)
            if paid < waiter.rows:
                return RATE
            self._pay(producer, paid - waiter.rows)
            waiter.is_paid = True
        if not waiter.was_asked and self._allotment.lacks(topic, waiter.rows, waiter.byte_count):
            return BACKLOG
        return None

    def _pay(self, producer: Producer, left: int) -> None:
        self._paid.pop(producer, None)
        if left:
            self._paid[producer] = left
            if len(self._paid) > limits.PRODUCERS_MAX:
                self._paid.pop(next(iter(self._paid)))

    def _go_on(self) -> None:
        """Send whoever may go, until something has to be asked. One thread at a time: an answer
        that comes while it asks is seen by the loop that asked."""
        with self._lock:
            if self._is_going_on:
                return
            self._is_going_on = True
        while True:
            with self._lock:
                if self._is_asking or not self._waiting:
                    self._is_going_on = False
                    return
                waiter = self._waiting[0]
                about = self._question(waiter)
                if about is None:
                    self._waiting.popleft()
                    self._leaving += 1
                else:
                    self._is_asking = True
            if about == RATE:
                self._ask_rate(waiter)
            elif about == BACKLOG:
                self._ask_backlog()
            else:
                self._send(waiter)

    def _send(self, waiter: Waiter) -> None:
        def send() -> None:
            try:
                waiter.send()
            finally:
                with self._lock:
                    self._leaving -= 1

        try:
            self._later(send)
        except DejaQError as closed:
            with self._lock:
                self._leaving -= 1
            waiter.refuse(closed)

    def _answered(self, waiters: list[Waiter], error: DejaQError | None) -> None:
        """A question was answered: those whom it was for go on, or are refused."""
        with self._lock:
            self._is_asking = False
            gone = [one for one in waiters if error is not None and one in self._waiting]
            for waiter in gone:
                self._waiting.remove(waiter)
        for waiter in gone:
            assert error is not None
            waiter.refuse(error)
        self._go_on()

    # --- what is asked -------------------------------------------------------------------------

    def _ask_rate(self, waiter: Waiter) -> None:
        producer = waiter.producer
        assert producer is not None

        def answered(answer: Future[dict[str, Any]]) -> None:
            error = _error_of(answer)
            if error is None:
                with self._lock:
                    paid = self._paid.get(producer, 0) + int(answer.result()["rows"])
                    self._pay(producer, paid)
            self._answered([waiter], error)

        given = {"sender": producer[0], "producer": producer[1], "rows": waiter.rows}
        self._homes.ask(self._shard, RATE, given).add_done_callback(answered)

    def _ask_backlog(self) -> None:
        self._learn().add_done_callback(self._learned)

    def _learned(self, answer: Future[DurableBacklog]) -> None:
        error = _error_of(answer)
        if error is not None:
            with self._lock:
                waiters = list(self._waiting)
            self._answered(waiters, error)
            return
        found = answer.result()
        with self._lock:
            if self._allotment.part is None:  # no other owner appends any more: it has what is live
                self._allotment.part = found.live
            has = self._allotment.part
            self._serial += 1
            serial, waiters = self._serial, list(self._waiting)
            rows = sum(waiter.rows for waiter in waiters)
            byte_count = sum(waiter.byte_count for waiter in waiters)
        given = {
            "epoch": found.epoch,
            "serial": serial,
            "has": [has.count, has.byte_count],
            "wants": [rows, byte_count],
        }
        asked = self._homes.ask(self._shard, BACKLOG, given)
        asked.add_done_callback(partial(self._given, serial, waiters))

    def _given(self, serial: int, waiters: list[Waiter], answer: Future[dict[str, Any]]) -> None:
        error = _error_of(answer)
        with self._lock:
            is_void = serial != self._serial
            if not is_void and error is None:
                given = answer.result()
                part = Backlog(int(given["count"]), int(given["byte_count"]))
                self._allotment.part = part
                for waiter in waiters:
                    waiter.was_asked = True
        self._answered(waiters, None if is_void else error)


def _error_of(answer: Future[Any]) -> DejaQError | None:
    """Why there is no answer; None = there is one."""
    if answer.cancelled():
        return Unavailable("the home of the topic is gone", 100)
    error = answer.exception()
    if error is None or isinstance(error, DejaQError):
        return error
    return Unavailable(f"the home of the topic does not answer: {error!r}", 100)
