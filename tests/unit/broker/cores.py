"""A partition's core on a journal in memory, and requests for it, without worker or broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue.broker.consumers.dispatch import Dispatcher, Push
from dejaqueue.broker.partition.admission import Admission
from dejaqueue.broker.partition.enqueueing import enqueue
from dejaqueue.broker.partition.inbox import Inbox
from dejaqueue.broker.partition.requests import EnqueueRequest
from dejaqueue.broker.shard.allotment import Allotment
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.broker.shard.commit import CommitPorts, Commits
from dejaqueue.broker.shard.committer import Committer
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.entries import hash_column, text_column
from dejaqueue.broker.shard.listener import Listener
from dejaqueue.broker.shard.opening import JournalDoor, read_again
from dejaqueue.engine.commands import Configure
from dejaqueue.engine.rules import Rules
from dejaqueue.errors import DejaQError
from dejaqueue.journal.interface import Journal
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import Topic
from dejaqueue.schema.checks import check_send
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.frames import Reply

TOPIC = Topic("t")


def journals(topic: Topic = TOPIC) -> Callable[[], Journal]:
    """Opens the journal of partition 0; the same one each time."""
    store = MemoryStore()
    store.make(topic.name)
    return lambda: store.open(topic.name, 0)


class Served:
    """A core that is served, and what its parts need."""

    def __init__(
        self,
        topic: Topic = TOPIC,
        open_journal: Callable[[], Journal] | None = None,
        listener: Listener | None = None,
        committer: Committer | None = None,
        settings: BrokerSettings | None = None,
        is_owner: Callable[[], bool] = lambda: True,
    ) -> None:
        self.topic = topic
        self.rings: list[int] = []
        self.clock = VirtualClock()
        self.dispatcher = Dispatcher(10**12, lambda _number: True)
        ring = lambda: self.rings.append(self.clock.now_ms())  # noqa: E731
        self.core = PartitionCore(lambda: self.topic, 0, self.clock, settings, ring=ring)
        door = JournalDoor(open_journal or journals(topic), listener=listener)
        opened = read_again(self.core, door)
        ports = CommitPorts(
            self.clock,
            committer or Committer("test"),
            topic.name,
            listener=door.listener,
            is_owner=is_owner,
        )
        commits = Commits(opened.journal, opened.tail, opened.epoch, ports)
        self.core.serve(opened.views, opened.journal, commits, opened.read_from)
        piece = self.core.settings.dispatch.take_over_rows_max
        rules = Rules.of(topic, take_over_rows_max=piece)
        if rules != opened.views.unnamed.rules:
            self.core.apply(Configure(self.core.now_ms(), rules.to_text()))
        self.inbox = Inbox(self.core)
        self.admission = Admission(Allotment(Backlog))
        self.replies: list[Reply] = []
        self._numbers = itertools.count(1)

    def request(
        self,
        payloads: list[bytes],
        *,
        dues_ms: list[int] | None = None,
        keys: list[str] | None = None,
        producer: str = "",
        **more: Any,
    ) -> EnqueueRequest:
        """A checked batch whose reply is noted."""
        columns: dict[str, Any] = {"payload": pa.array(payloads, pa.binary())}
        if dues_ms is not None:
            columns["due"] = pa.array(dues_ms, pa.int64())
        if keys is not None:
            columns["key"] = pa.array(keys)
        checked = check_send(pa.record_batch(columns), self.topic, self.clock.utc_ms())
        hashes = None if checked.keys is None else hash_column(text_column(checked.keys))
        number = more.pop("number", None) or next(self._numbers)
        return EnqueueRequest(checked, producer, number, "all", self.replies.append, hashes, **more)

    def send(self, payloads: list[bytes], **more: Any) -> None:
        """Bring a batch in, and make it durable."""
        self.bring_in(payloads, **more)
        self.core.commits.commit_all()

    def bring_in(self, payloads: list[bytes], **more: Any) -> None:
        """Bring a batch in; its group is still open."""
        self.inbox.put(self.request(payloads, **more))
        taken = self.inbox.take()
        assert isinstance(taken, EnqueueRequest)
        enqueue(self.core, self.inbox, self.admission, [taken])


class Sink:
    """A consumer's stream that notes what it gets."""

    def __init__(self) -> None:
        self.pushes: list[Push] = []

    def push(self, push: Push) -> None:
        self.pushes.append(push)

    def end(self, error: DejaQError) -> None:
        raise error


def sequences(*numbers: int) -> Any:
    """int64 array."""
    return np.array(numbers, dtype=np.int64)


def attempts(*numbers: int) -> Any:
    """uint16 array."""
    return np.array(numbers, dtype=np.uint16)


def altered(topic: Topic, **changes: Any) -> Topic:
    """The topic with other settings."""
    return replace(topic, **changes)


def served() -> Iterator[Served]:
    """For a fixture."""
    yield Served()
