"""What clients were told, and what must follow from that: who sent, got and acked what, and when.

What got no answer may have happened or not. Nothing else is left open: what was acknowledged by an
instant is there as of it, what was acked by then is not, and nothing is there twice, or in part.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dejaqueue import Client, DejaQError
from dejaqueue.errors import NotActive
from dejaqueue.model import RowStatus

FAR = 3_600
SLACK_MS = 5
"""Between a clock that is read here and one that is read in a broker, of one machine."""
SINGLES, LEFT, RIGHT = "singles", "left", "right"
SCRATCH_ROWS, SCRATCH_BYTES = 40, 9_000
"""Of a topic that is deleted: more than a file of the journal has."""
AGAIN_SECONDS = 0.02
PAUSE_SECONDS = 0.003
"""Between two things of one thread: a disaster is about order, not about load."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 - the broker's is the machine's


@dataclass
class Told:
    """One thing that was asked for: when, and when its answer had come; None = it had none."""

    began_ms: int
    answered_ms: int | None = None

    def is_answered_by(self, at_ms: int) -> bool:
        return self.answered_ms is not None and self.answered_ms < at_ms


@dataclass
class Ledger:
    """What was asked for, by payload.

    Attributes:
        sent, acked, pairs: single messages, their acks, transactions.
        handed: (when, payload) of deliveries.
        deleted: topics.
    """

    sent: dict[bytes, Told] = field(default_factory=dict)
    acked: dict[bytes, Told] = field(default_factory=dict)
    pairs: dict[bytes, Told] = field(default_factory=dict)
    handed: list[tuple[int, bytes]] = field(default_factory=list)
    deleted: dict[str, Told] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Found) -> Ledger:
        """From now on, all that a broker has counts as acknowledged, and nothing else does."""
        return cls(
            sent={payload: Told(0, 0) for payload in found.singles},
            pairs={payload: Told(0, 0) for payload in found.left},
        )

    def faults(self, found: Found, until_ms: int, *, is_exact: bool = False) -> list[str]:
        """What is wrong with what is there as of an instant.

        Args:
            is_exact: what was begun later is not there.
        """
        singles, left = set(found.singles), set(found.left)
        wanted = {one for one, told in self.sent.items() if told.is_answered_by(until_ms)}
        maybe = {
            one
            for one, told in self.acked.items()
            if not is_exact or told.began_ms <= until_ms + SLACK_MS
        }
        done = {one for one, told in self.acked.items() if told.is_answered_by(until_ms)}
        pairs = {one for one, told in self.pairs.items() if told.is_answered_by(until_ms)}
        ends = {one for one, told in self.deleted.items() if told.is_answered_by(until_ms)}
        texts = [
            _told("sent and lost", wanted - maybe - singles, len(wanted)),
            _told("acked and back", done & singles, len(done)),
            _told("committed and lost", pairs - left, len(pairs)),
            _told("in one of two topics", left ^ set(found.right), len(left)),
            _told("nobody's", (singles - self.sent.keys()) | (left - self.pairs.keys()), 0),
            _told("there twice", _twice(found.singles) | _twice(found.left), 0),
            _told("topics that were deleted", ends & set(found.topics), len(ends)),
        ]
        if is_exact:
            late = until_ms + SLACK_MS
            young = {one for one, told in self.sent.items() if told.began_ms > late} & singles
            young |= {one for one, told in self.pairs.items() if told.began_ms > late} & left
            texts.append(_told("of later", young, 0))
        return [text for text in texts if text]


def _twice(payloads: Sequence[bytes]) -> set[bytes]:
    return {payload for payload, count in Counter(payloads).items() if count > 1}


def _told(what: str, wrong: set[Any], of: int) -> str:
    return f"{len(wrong)} {what} (of {of}): {sorted(wrong)[:3]}" if wrong else ""


@dataclass
class Found:
    """What a broker has."""

    singles: list[bytes]
    left: list[bytes]
    right: list[bytes]
    topics: list[str]

    @classmethod
    def at(cls, url: str) -> Found:
        """Of a broker that serves. Raises DejaQError."""
        with Client(url) as client:
            topics = [one.name for one in client.topics()]
            singles, left, right = (payloads(client, name) for name in (SINGLES, LEFT, RIGHT))
            return cls(singles, left, right, topics)


def payloads(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = client.peek(topic, limit=1_000_000).column("payload").to_pylist()
    return found


class Work:
    """Threads that send, consume, and commit, until they are told to end.

    Args:
        url: of the broker; called for each connection.
        name: what its payloads begin with.
        deletes: topics are made, filled and deleted, too.

    Attributes:
        refused: the first NotActive that each thread got.
        errors: what is no error of ours.
    """

    def __init__(self, url: Callable[[], str], ledger: Ledger, name: str, *, deletes: bool) -> None:
        self._url, self._ledger, self._name = url, ledger, name
        self._ends = threading.Event()
        self.refused: list[NotActive] = []
        self.errors: list[str] = []
        works = [self._send, self._consume, self._transact, *([self._delete] if deletes else [])]
        self._threads = [threading.Thread(target=self._again, args=(one,)) for one in works]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Return when nobody asks for anything any more."""
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _again(self, work: Callable[[Client], None]) -> None:
        while not self._ends.is_set():
            try:
                with Client(self._url(), retry_ms_max=0) as client:
                    work(client)
            except NotActive as refused:
                self.refused.append(refused)
                return
            except DejaQError:
                self._ends.wait(AGAIN_SECONDS)
            except Exception as wrong:  # noqa: BLE001 - it is a fault, and told as one
                self.errors.append(f"{work.__name__}: {wrong!r}")
                return

    def _payloads(self, kind: str) -> Any:
        number = 0
        while not self._ends.is_set():
            yield f"{self._name}-{kind}-{now_ms()}-{number}".encode()
            number += 1
            self._ends.wait(PAUSE_SECONDS)

    def _send(self, client: Client) -> None:
        for number, payload in enumerate(self._payloads("single")):
            told = self._ledger.sent[payload] = Told(now_ms())
            client.send(SINGLES, payload, delay=FAR if number % 2 else 0)
            told.answered_ms = now_ms()

    def _consume(self, client: Client) -> None:
        while not self._ends.is_set():
            with client.consume(SINGLES, idle_ms=200, prefetch=20) as messages:
                for message in messages:
                    began_ms = now_ms()
                    self._ledger.handed.append((began_ms, message.payload))
                    told = self._ledger.acked.setdefault(message.payload, Told(began_ms))
                    if message.ack(wait=True) is RowStatus.OK:  # else its lease had ended
                        told.answered_ms = told.answered_ms or now_ms()
                    if self._ends.is_set():
                        break

    def _transact(self, client: Client) -> None:
        for payload in self._payloads("pair"):
            told = self._ledger.pairs[payload] = Told(now_ms())
            with client.transaction() as transaction:
                transaction.send(LEFT, payload, delay=FAR)
                transaction.send(RIGHT, payload, delay=FAR)
            told.answered_ms = now_ms()

    def _delete(self, client: Client) -> None:
        for payload in self._payloads("scratch"):
            name = payload.decode()
            client.create_topic(name, partitions=2)
            rows = [{"payload": bytes(SCRATCH_BYTES), "delay": FAR}] * SCRATCH_ROWS
            client.send_batch(name, rows).raise_for_status()
            told = self._ledger.deleted[name] = Told(now_ms())
            client.delete_topic(name)
            told.answered_ms = now_ms()
            self._ends.wait(AGAIN_SECONDS)
