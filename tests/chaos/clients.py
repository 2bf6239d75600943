"""Clients of a cluster in trouble: they send, move, cancel, consume and settle, and note it all."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial

from dejaqueue import Client, DejaQError
from dejaqueue.client._sync.consumer import Message
from dejaqueue.errors import BadRequest
from dejaqueue.model import RowStatus
from tests.chaos.clocks import CLOCK
from tests.chaos.notes import Notes, noted
from tests.checker.history import Cancel, Move, Outcome, Send, Settle
from tests.patience import PATIENCE_SECONDS

CONSUMER_LEASE_MS = 2_000
KEYS = 40
KNOWN = 300


class Clients:
    """Producers and consumers of some topics.

    Args:
        url: of all brokers.
        pause_s: of a producer between two batches.
    """

    def __init__(
        self, url: str, notes: Notes, topics: list[str], seed: int, pause_s: float = 0.04
    ) -> None:
        self._url, self.notes, self.topics = url, notes, topics
        self._seed, self._pause_s = seed, pause_s
        self._stop_producing, self._stop_consuming = threading.Event(), threading.Event()
        self._producers: list[threading.Thread] = []
        self._consumers: list[threading.Thread] = []
        self.careless = 1.0
        """Of consumers: how much of what they can do wrong they do; 0 = they ack everything."""

    def client(self, retry_ms_max: int) -> Client:
        """A client that may go to any broker."""
        return Client(transport=noted(self._url, self.notes), retry_ms_max=retry_ms_max)

    def begin(self) -> None:
        """Begin to work."""
        for topic in self.topics:
            self._producers.append(self._run(_Producer(self, topic, self._seed).work))
            for number in range(2):
                consumer = _Consumer(self, topic, self._seed, number)
                self._consumers.append(self._run(consumer.work))

    def _run(self, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - shown at the end
                self.notes.unexpected.append(f"{work.__self__}: {error!r}")  # type: ignore[attr-defined]

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def stop_producing(self) -> None:
        """Send no more; return when nothing is on its way."""
        self._stop_producing.set()
        self._join(self._producers)

    def stop_consuming(self) -> None:
        """Take no more."""
        self._stop_consuming.set()
        self._join(self._consumers)

    def _join(self, threads: list[threading.Thread]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                self.notes.unexpected.append(f"a client does not end: {thread.name}")

    def produces(self, pause_s: float) -> bool:
        """Pause; False if no more is to be sent."""
        return not self._stop_producing.wait(pause_s)

    def consumes(self, pause_s: float = 0.0) -> bool:
        """Pause; False if no more is to be taken."""
        return not self._stop_consuming.wait(pause_s)


class _Producer:
    """Sends batches with numbers of their own, moves and cancels what it has sent."""

    def __init__(self, clients: Clients, topic: str, seed: int) -> None:
        self._clients, self._notes, self._topic = clients, clients.notes, topic
        self._random = random.Random(f"{seed} producer {topic}")
        self._known: list[int] = []
        self._count = 0
        self._history = self._notes.histories[topic]

    def work(self) -> None:
        """Until it is to stop."""
        with self._clients.client(retry_ms_max=20_000) as client:
            while self._clients.produces(self._clients._pause_s):
                self._send(client)
                chance = self._random.random()
                if self._known and chance < 0.2:
                    self._move(client)
                elif self._known and chance < 0.35:
                    self._cancel(client)

    def _send(self, client: Client) -> None:
        now_us, notes, messages = CLOCK.now_us(), [], []
        for _ in range(self._random.choice([1, 1, 3, 10])):
            self._count += 1
            token = f"{self._topic}-{self._count}"
            due_ms = now_us // 1_000 + self._random.randint(-100, 2_000)
            key = f"k{self._random.randint(1, KEYS)}" if self._random.random() < 0.1 else ""
            notes.append(Send(now_us, token=token, due_ms=due_ms, key=key))
            messages.append({"payload": token.encode(), "due": due_ms, "key": key or None})
        with self._notes.guard:
            self._history.sends += notes
        try:
            result = client.send_batch(self._topic, messages)
        except DejaQError as error:
            self._unknown(error)
            return
        ids, statuses = result.ids.tolist(), result.statuses.tolist()
        answered_us = CLOCK.now_us()
        broker_us = self._notes.highest_us(answered_us)
        with self._notes.guard:
            for note, message_id, status in zip(notes, ids, statuses, strict=True):
                fine = status == RowStatus.OK
                note.answer(answered_us, Outcome.OK if fine else Outcome.REFUSED, broker_us)
                if fine:
                    note.id = message_id
                    self._known.append(message_id)
                else:
                    note.told_id = message_id
        del self._known[:-KNOWN]

    def _unknown(self, error: DejaQError) -> None:
        if isinstance(error, BadRequest):
            raise error

    def _move(self, client: Client) -> None:
        now_us = CLOCK.now_us()
        ids = self._random.sample(self._known, min(len(self._known), self._random.randint(1, 3)))
        dues = [now_us // 1_000 + self._random.randint(-100, 2_000) for _ in ids]
        notes = [Move(now_us, id=i, due_ms=due) for i, due in zip(ids, dues, strict=True)]
        with self._notes.guard:
            self._history.moves += notes
        for note in notes:  # one due time each
            note.called_us = CLOCK.now_us()
            try:
                answer = client.move(self._topic, ids=[note.id], due=note.due_ms)
            except DejaQError as error:
                self._unknown(error)
                continue
            self._answer(note, answer.statuses[0] == RowStatus.OK)

    def _cancel(self, client: Client) -> None:
        ids = self._random.sample(self._known, min(len(self._known), self._random.randint(1, 3)))
        notes = [Cancel(CLOCK.now_us(), id=i) for i in ids]
        with self._notes.guard:
            self._history.cancels += notes
        try:
            answer = client.cancel(self._topic, ids=ids)
        except DejaQError as error:
            self._unknown(error)
            return
        for note, status in zip(notes, answer.statuses.tolist(), strict=True):
            self._answer(note, status == RowStatus.OK)

    def _answer(self, note: Move | Cancel, fine: bool) -> None:
        now_us = CLOCK.now_us()
        outcome = Outcome.OK if fine else Outcome.REFUSED
        with self._notes.guard:
            note.answer(now_us, outcome, self._notes.highest_us(now_us))


class _Consumer:
    """Takes messages one at a time: acks, gives back, extends, forgets them, or acks too late."""

    def __init__(self, clients: Clients, topic: str, seed: int, number: int) -> None:
        self._clients, self._notes, self._topic = clients, clients.notes, topic
        self._random = random.Random(f"{seed} consumer {topic} {number}")
        self._name = f"{topic}-{number}"
        self._history = self._notes.histories[topic]
        self._later: list[tuple[float, Message]] = []

    def work(self) -> None:
        """Until it is to stop; now and then as a new consumer."""
        with self._clients.client(retry_ms_max=4_000) as client:
            while self._clients.consumes():
                try:
                    self._consume(client)
                except DejaQError:
                    self._clients.consumes(0.2)

    def _consume(self, client: Client) -> None:
        turns = self._random.randint(50, 2_000)
        with client.consume(
            self._topic,
            name=self._name,
            prefetch=self._random.choice([5, 50]),
            lease_ms=CONSUMER_LEASE_MS,
            auto_extend=False,
            idle_ms=500,
        ) as messages:
            for message in messages:
                self._notes.hand_over(self._topic, message.id, message.attempt)
                self._act(message)
                self._catch_up()
                turns -= 1
                if turns < 0 or not self._clients.consumes():
                    return
            self._catch_up()

    def _act(self, message: Message) -> None:
        chance = self._random.random() / max(self._clients.careless, 1e-9)
        if chance < 0.03:
            return  # forgotten: it comes back when its lease ends
        if chance < 0.06:
            delay_ms = self._random.randint(0, 1_000)
            self._settle("nack", message, lambda: message.nack(delay=delay_ms / 1_000))
        elif chance < 0.10:
            seconds = self._random.uniform(0.1, 2 * CONSUMER_LEASE_MS / 1_000)
            self._later.append((time.monotonic() + seconds, message))
        elif chance < 0.13:
            self._settle("extend", message, lambda: message.extend(3.0), 3_000)
            seconds = self._random.uniform(0.1, 4.0)
            self._later.append((time.monotonic() + seconds, message))
        else:
            self._settle("ack", message, partial(message.ack, wait=True))

    def _catch_up(self) -> None:
        """Ack what was left for later; some of it too late."""
        now = time.monotonic()
        due = [message for at, message in self._later if at <= now]
        self._later = [(at, message) for at, message in self._later if at > now]
        for message in due:
            self._settle("ack", message, partial(message.ack, wait=True))

    def _settle(
        self, op: str, message: Message, call: Callable[[], object], length_ms: int = 0
    ) -> None:
        note = Settle(CLOCK.now_us(), op=op, id=message.id, attempt=message.attempt)
        d = self._notes.handed[self._topic, message.id, message.attempt]
        if length_ms:
            # At least: what its broker's clock showed when it sent the message, and so long more.
            note.lease_end_ms = d.pushed_broker_us // 1_000 + length_ms
        with self._notes.guard:
            self._history.settles.append(note)
        try:
            answer = call()
        except DejaQError:
            return
        now_us = CLOCK.now_us()
        fine = answer.ok  # type: ignore[attr-defined]
        # Where the stream broke it was sent again; a refusal may be the first one's doing.
        if not fine and d.consumer in self._notes.ended:
            return
        with self._notes.guard:
            outcome = Outcome.OK if fine else Outcome.REFUSED
            note.answer(now_us, outcome, self._notes.highest_us(now_us))
