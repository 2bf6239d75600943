"""Loads of clients that are not batches of ours: AWS's SDK, plain HTTP, the clients for Go and
Java, transactions, and subscriptions of one topic. Each notes what it was told, and
judges it in the end.

What was not answered may have happened or not, and nobody is blamed for it.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from dejaqueue import Client
from dejaqueue.client import Message
from dejaqueue.clock import SystemClock
from dejaqueue.model import RowStatus
from tests.clients.drivers import Driver
from tests.mixture.places import Place
from tests.patience import PATIENCE_SECONDS

CLOCK = SystemClock()
LEASE_MS = 4_000
FORGOTTEN = 0.05
"""So many are taken and never acked: they come again."""
PAUSE_SECONDS = 0.3
RETRY_MS = 120_000
"""So long a client of another language tries again what may be repeated."""
MUCH = 20


class Foreign(ABC):
    """A producer and two consumers of one topic.

    Args:
        where: the brokers.
        settings: of the topic.
    """

    def __init__(
        self, where: Place, name: str, draw: random.Random, settings: dict[str, Any]
    ) -> None:
        self.where, self.name, self.draw = where, name, draw
        self.settings = settings
        self.sent: dict[str, float] = {}
        """Answered, and when each is due."""
        self.tried: set[str] = set()
        self.got: Counter[str] = Counter()
        self.tried_acks: set[str] = set()
        self.acked: dict[str, float] = {}
        self.faults: list[str] = []
        self.errors: Counter[str] = Counter()
        self._turn = 0
        self._lock = threading.Lock()
        self._sent_all, self._done = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []

    @abstractmethod
    def make(self) -> None:
        """Make the topic."""

    @abstractmethod
    def produce(self) -> None:
        """Send some, each with `note_sent` when it is answered."""

    @abstractmethod
    def consume(self) -> None:
        """Take some; each is `taken`, and `acked` when that was answered."""

    def begin(self) -> None:
        """Make the topic and begin."""
        self.make()
        works = [(self.produce, self._sent_all), *[(self.consume, self._done)] * 2]
        for work, end in works:
            thread = threading.Thread(target=self._run, args=(work, end), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _run(self, work: Any, end: threading.Event) -> None:
        while not end.is_set():
            try:
                work()
            except Exception as error:  # noqa: BLE001 - accidents happen; they are shown in the end
                self.errors[f"{type(error).__name__}: {str(error)[:120]}"] += 1
                end.wait(PAUSE_SECONDS)

    def keys(self, most: int) -> list[str]:
        """Names of a few new messages."""
        self._turn += 1
        found = [f"{self._turn}-{place}" for place in range(self.draw.randint(1, most))]
        self.tried |= set(found)
        return found

    def note_sent(self, key: str, due: float) -> None:
        with self._lock:
            self.sent[key] = due

    def taken(self, key: str) -> None:
        now = CLOCK.now_us() / 1e6
        with self._lock:
            self.got[key] += 1
            due = self.sent.get(key, 0)
            if now < due:
                self.faults.append(f"{key} came {due - now:.4f} s early")
            if key in self.acked:
                self.faults.append(f"{key} came {now - self.acked[key]:.3f} s after its ack")
            if key not in self.tried:
                self.faults.append(f"nobody sent {key}")

    def note_acked(self, key: str) -> None:
        with self._lock:
            self.acked[key] = CLOCK.now_us() / 1e6

    def ack(self, message: Message, key: str) -> None:
        """By our client. LEASE_LOST may mean that an ack before the break was carried out."""
        self.tried_acks.add(key)
        if message.ack(wait=True) is RowStatus.OK:
            self.note_acked(key)

    def _left(self) -> list[str]:
        """What nobody has tried to ack: it has to come, or to come again."""
        with self._lock:
            return [key for key in self.sent if key not in self.tried_acks]

    def send_no_more(self) -> None:
        """Have the producer stop, soon."""
        self._sent_all.set()

    def end(self) -> None:
        """Send no more, have everything taken, and stop."""
        self.send_no_more()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and self._left():
            self._done.wait(PAUSE_SECONDS)
        self._done.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            if thread.is_alive():
                self.faults.append("a thread does not end")

    def judged(self) -> list[str]:
        """What was wrong, and beside it what calls raised."""
        found = [f"{self.name}: {fault}" for fault in self.faults[:5]]
        lost = [key for key in self.sent if not self.got[key]]
        left = self._left()
        if lost:
            found.append(f"{self.name}: {len(lost)} are lost, as {lost[:3]}")
        elif left:
            found.append(f"{self.name}: {len(left)} did not come again, as {left[:3]}")
        if len(self.sent) < MUCH:
            found.append(f"{self.name}: {len(self.sent)} sent")
        return [*found, f"{self.name}: {dict(self.errors.most_common(5))}"] if found else []


class Sqs(Foreign):
    """Amazon's SDK for Python."""

    is_fifo = False

    def _client(self) -> Any:
        config = Config(retries={"max_attempts": 1}, read_timeout=30, connect_timeout=5)
        return boto3.client(
            "sqs",
            endpoint_url=f"http://127.0.0.1:{self.where.http_port}/sqs",
            region_name="none",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=config,
        )

    def make(self) -> None:
        attributes = {"VisibilityTimeout": str(LEASE_MS // 1_000)}
        if self.is_fifo:
            self.name += ".fifo"
            attributes |= {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        self._client().create_queue(QueueName=self.name, Attributes=attributes)

    def produce(self) -> None:
        client = self._client()
        url = client.get_queue_url(QueueName=self.name)["QueueUrl"]
        while not self._sent_all.wait(PAUSE_SECONDS):
            keys, delay = self.keys(10), 0 if self.is_fifo else self.draw.choice([0, 0, 1, 3])
            entries: list[dict[str, Any]] = []
            for place, key in enumerate(keys):
                body = key + " " * self.draw.choice([0, 10, 3_000])
                entry: dict[str, Any] = {"Id": str(place), "MessageBody": body}
                if self.is_fifo:
                    entry["MessageGroupId"] = f"g{self.draw.randrange(3)}"
                else:
                    entry["DelaySeconds"] = delay
                entries.append(entry)
            due = CLOCK.now_us() / 1e6 + delay
            answer = client.send_message_batch(QueueUrl=url, Entries=entries)
            for one in answer.get("Successful", []):
                self.note_sent(keys[int(one["Id"])], due)

    def consume(self) -> None:
        client = self._client()
        url = client.get_queue_url(QueueName=self.name)["QueueUrl"]
        while not self._done.is_set():
            answer = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            # A receipt whose time is over deletes what others have by then: as at SQS, that is no
            # promise. So what comes after its deletion is blamed only if it was deleted in time.
            until = time.monotonic() + LEASE_MS / 2_000
            messages = answer.get("Messages", [])
            bodies = [one["Body"].split()[0] for one in messages]
            for key in bodies:
                self.taken(key)
            if not messages or self.draw.random() < FORGOTTEN:
                continue
            self.tried_acks |= set(bodies)
            done = client.delete_message_batch(
                QueueUrl=url,
                Entries=[
                    {"Id": str(place), "ReceiptHandle": one["ReceiptHandle"]}
                    for place, one in enumerate(messages)
                ],
            )
            if time.monotonic() < until:
                for one in done.get("Successful", []):
                    self.note_acked(bodies[int(one["Id"])])


class SqsFifo(Sqs):
    """The same, in order within a group."""

    is_fifo = True


class Http(Foreign):
    """Nothing but Python's own library."""

    def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.where.http_port}/v1/topics/{self.name}/{path}",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=40) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def make(self) -> None:
        with Client(self.where.url) as client:
            client.create_topic(self.name, lease_ms=LEASE_MS, **self.settings)

    def produce(self) -> None:
        keys, delay = self.keys(5), self.draw.choice([0, 0.7])
        due = CLOCK.now_us() / 1e6 + delay
        rows = [{"payload": key, "delay_ms": int(delay * 1_000)} for key in keys]
        self._call("messages", {"messages": rows})
        for key in keys:
            self.note_sent(key, due)
        self._sent_all.wait(PAUSE_SECONDS / 3)

    def consume(self) -> None:
        messages = self._call("lease", {"max": 20, "wait_ms": 500})["messages"]
        for one in messages:
            self.taken(one["payload"])
        if not messages or self.draw.random() < FORGOTTEN:
            return
        self.tried_acks |= {one["payload"] for one in messages}
        rows = [{"id": one["id"], "attempt": one["attempt"]} for one in messages]
        done = self._call("ack", {"messages": rows})
        for message, one in zip(messages, done["messages"], strict=True):
            if one["status"] == "OK":
                self.note_acked(message["payload"])


class OtherLanguage(Foreign):
    """A client of another language; each thread has a process of its own."""

    language = ""

    @contextmanager
    def _client(self) -> Iterator[Driver]:
        with tempfile.TemporaryDirectory() as folder:
            driver = Driver(self.language, Path(folder) / "log")
            try:
                driver.call("connect", url=self.where.url, retry_ms=RETRY_MS)
                yield driver
            finally:
                driver.end()

    def make(self) -> None:
        with Client(self.where.url) as client:
            client.create_topic(self.name, lease_ms=LEASE_MS, **self.settings)

    def produce(self) -> None:
        with self._client() as driver:
            while not self._sent_all.wait(PAUSE_SECONDS / 3):
                keys, due_ms = self.keys(10), CLOCK.now_ms() + self.draw.choice([0, 0, 700])
                rows = [key.encode() for key in keys]
                statuses = driver.send(self.name, *rows, due_ms=due_ms)["statuses"]
                for key, status in zip(keys, statuses, strict=True):
                    if status == "OK":
                        self.note_sent(key, due_ms / 1_000)

    def consume(self) -> None:
        with self._client() as driver:
            while not self._done.is_set():
                driver.call("consume", topic=self.name, credit=50)
                for _ in range(10):
                    self._take(driver)
                driver.call("close_consumer")  # what it forgot goes back

    def _take(self, driver: Driver) -> None:
        found = {row["id"]: row["payload"].decode() for row in driver.receive(20, wait_ms=200)}
        for key in found.values():
            self.taken(key)
        if not found or self.draw.random() < FORGOTTEN:
            return
        self.tried_acks |= set(found.values())
        statuses = driver.call("ack", ids=list(found))["statuses"]
        for key, status in zip(found.values(), statuses, strict=True):
            if status == "OK":
                self.note_acked(key)


class Go(OtherLanguage):
    """The client for Go."""

    language = "go"


class Java(OtherLanguage):
    """The client for Java."""

    language = "java"


class Transactions(Foreign):
    """Messages go from one topic into another one, by transactions."""

    def make(self) -> None:
        with Client(self.where.url) as client:
            for name in (self.name, self.behind):
                client.create_topic(name, lease_ms=LEASE_MS, **self.settings)

    @property
    def behind(self) -> str:
        """The topic into which they go."""
        return f"{self.name}-behind"

    def produce(self) -> None:
        with Client(self.where.url) as client:
            while not self._sent_all.wait(PAUSE_SECONDS / 3):
                keys, due = self.keys(5), CLOCK.now_us() / 1e6
                transaction = client.transaction()
                for key in keys:
                    transaction.send(self.name, key, delay=self.draw.choice([0, 0.5]))
                if self.draw.random() < FORGOTTEN:
                    transaction.abort()
                    self.tried -= set(keys)
                    continue
                transaction.commit()
                for key in keys:
                    self.note_sent(key, due)

    def consume(self) -> None:
        with Client(self.where.url) as client:
            for message in client.consume(self.name, idle_ms=300, max_messages=50, prefetch=20):
                with client.transaction() as transaction:
                    transaction.send(self.behind, message.payload)
                    transaction.ack(message)
            for message in client.consume(self.behind, idle_ms=300, max_messages=50):
                key = message.payload.decode()
                self.taken(key)
                if self.got[key] > 1 and message.attempt == 1:
                    self.faults.append(f"{key} was carried on twice")
                self.ack(message, key)


class Subscriptions(Foreign):
    """One topic, two subscriptions: one in order of due times, one in order of arrival."""

    def make(self) -> None:
        with Client(self.where.url) as client:
            client.create_topic(self.name, lease_ms=LEASE_MS, **self.settings)
            client.create_subscription(self.name, "due")
            client.create_subscription(self.name, "log", order="arrival")

    def produce(self) -> None:
        with Client(self.where.url) as client:
            while not self._sent_all.wait(PAUSE_SECONDS):
                keys, now_ms = self.keys(20), CLOCK.now_ms()
                self.tried |= {f"{key}@{name}" for key in keys for name in ("due", "log")}
                due_ms = now_ms + self.draw.choice([0, 0, 1_500])
                rows = [{"payload": b"", "key": key, "due": due_ms} for key in keys]
                statuses = client.send_batch(self.name, rows).statuses.tolist()
                for key, status in zip(keys, statuses, strict=True):
                    if status == RowStatus.OK:
                        self.note_sent(f"{key}@due", due_ms / 1_000)
                        self.note_sent(f"{key}@log", now_ms / 1_000)

    def consume(self) -> None:
        with Client(self.where.url) as client:
            for name in ("due", "log"):
                for message in client.consume(
                    self.name, subscription=name, idle_ms=300, max_messages=100
                ):
                    key = f"{message.key}@{name}"
                    self.taken(key)
                    if self.draw.random() >= FORGOTTEN:
                        self.ack(message, key)


LOADS: dict[str, type[Foreign]] = {
    "sqs": Sqs,
    "sqs-fifo": SqsFifo,
    "http": Http,
    "go": Go,
    "java": Java,
    "transactions": Transactions,
    "subscriptions": Subscriptions,
}
