"""Group commit: what a partition has done, made durable, then answered.

Room: broker. A group is appended either by the worker itself, or, when more work is waiting
already, by the worker's committer thread, so that the next group is applied while this one is
synced. Where a server keeps the journal, another thread appends always: it may hang.
Holds: groups of a partition are appended one at a time and in order; nothing of a group is answered
or sent before it is durable (rule 1); after an append that failed nothing more is appended.
See: partition.py, whose steps fill the groups;
docs/adr/0006-the-next-group-while-this-one-syncs.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from dejaqueue.broker import news
from dejaqueue.broker.counting import PartitionCounts
from dejaqueue.broker.dispatch import Consumer, Dispatcher, Push
from dejaqueue.broker.history.noted import Noted
from dejaqueue.broker.reading import delivery_batches
from dejaqueue.broker.requests import ReplyTo
from dejaqueue.clock import Clock
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.effects import Effects
from dejaqueue.errors import DejaQError, InternalError
from dejaqueue.journal.interface import Entry, Journal
from dejaqueue.settings import DispatchSettings
from dejaqueue.wire.frames import Reply

if TYPE_CHECKING:
    from dejaqueue.broker.history.recorder import Recorder


@dataclass(slots=True)
class Group:
    """What is appended at once, and what happens when that is durable."""

    entries: list[Entry] = field(default_factory=list)
    replies: list[tuple[ReplyTo, Reply]] = field(default_factory=list)
    pushes: list[tuple[Consumer, Push]] = field(default_factory=list)
    freed: list[Int64s] = field(default_factory=list)
    noted: list[Noted] = field(default_factory=list)
    rows: int = 0
    byte_count: int = 0
    """Of the texts and payloads in it, about."""

    def is_full(self, bounds: DispatchSettings) -> bool:
        """True if it is to be appended before more comes in."""
        return self.rows >= bounds.group_rows_max or self.byte_count >= bounds.group_bytes_max

    def add(self, entry: Entry, effects: Effects) -> None:
        """An applied command."""
        if effects.changes:
            self.noted.append(Noted.of(len(self.entries), entry, effects))
        self.entries.append(entry)
        self.rows += entry.rows
        self.byte_count += sum(int(column.offsets[-1]) for column in entry.texts.values())
        if len(effects.freed_locators):
            self.freed.append(effects.freed_locators)


class Committer:
    """A thread that appends groups for one worker."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Return when the thread runs."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what was submitted, then return. Twice or before start is fine."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_alive(self) -> bool:
        """True while its thread runs."""
        return self._thread.is_alive()

    def submit(self, append: Callable[[], None]) -> None:
        """Run `append`, which must not raise, after what was submitted before."""
        self._queue.put(append)

    def wait(self, landed: threading.Condition, is_landed: Callable[[], bool]) -> None:
        """Return when what was submitted has come so far; `landed` is notified then."""
        with landed:
            landed.wait_for(is_landed)

    def _run(self) -> None:
        while True:
            append = self._queue.get()
            if append is None:
                return
            append()


class ApartCommitter(Committer):
    """Appends of partitions whose journals are on a server: one that hangs holds no other.

    Args:
        executor: with a thread for each of those that may hang at once.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def start(self) -> None:
        """Its threads start when they are needed."""

    def stop(self) -> None:
        """Finish what was submitted. Twice is fine."""
        self.executor.shutdown()

    @property
    def is_alive(self) -> bool:
        """Its threads do not end by themselves."""
        return True

    def submit(self, append: Callable[[], None]) -> None:
        """Run `append` soon. Of one partition there is one at a time, so their order holds."""
        self.executor.submit(append)


class Commits:
    """The groups of one partition on their way into its journal.

    Args:
        tail: position of the journal's last entry.
        committed: called on the committer's thread when a group is durable, or has failed.
        counting: where appends and pushes are counted.
        recorder: keeps the history of what is durable.
        may_send: False if another broker may own the partition by now. Who slept in an append must
            not send what it leased before: the next owner may have given it to somebody else.
    """

    def __init__(
        self,
        journal: Journal,
        tail: int,
        epoch: int,
        dispatcher: Dispatcher,
        partition: int,
        clock: Clock,
        committer: Committer,
        committed: Callable[[], None],
        counting: PartitionCounts | None = None,
        topic: str = "",
        recorder: Recorder | None = None,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        self.group = Group()
        self.tail = tail
        self.append_count = 0
        self.entry_count = 0
        self.append_us = 0
        self._journal = journal
        self._epoch = epoch
        self._dispatcher = dispatcher
        self._partition = partition
        self._topic = topic
        self._recorder = recorder
        self._may_send = may_send
        self._clock = clock
        self._committer = committer
        self._committed = committed
        self._counting = PartitionCounts() if counting is None else counting
        self._planned_tail = tail
        self._in_flight: Group | None = None
        self._landed = threading.Condition()
        self._error: DejaQError | None = None

    @property
    def next_position(self) -> int:
        """Position that the next entry of the group gets."""
        return self._planned_tail + len(self.group.entries) + 1

    @property
    def in_flight(self) -> bool:
        """True while the committer has a group."""
        return self._in_flight is not None

    @property
    def is_settled(self) -> bool:
        """True if everything that was applied is durable."""
        return self._in_flight is None and not self.group.entries

    @property
    def is_broken(self) -> bool:
        """True if an append has failed: what was applied is not durable, and will not be."""
        return self._error is not None

    def commit(self, *, behind: bool) -> None:
        """Have the group appended, answered and sent.

        Args:
            behind: leave it to the committer and return; if that still has the group before, the
                entries stay in the group, which is appended with what comes until then.

        Raises:
            DejaQError: this append failed, or one before; its group was not answered.
        """
        if self._error is not None:
            raise self._error
        group = self.group
        if not group.entries and not group.replies:
            return
        if self._in_flight is not None:
            if behind:
                return
            self._wait()
        self.group = Group()
        self._planned_tail += len(group.entries)
        if not behind or not group.entries:
            self._append(group)
            if self._error is not None:
                raise self._error
            return
        self._in_flight = group
        self._committer.submit(self._append_in_flight)

    def commit_all(self) -> None:
        """Return when everything applied so far is durable and answered. Raises DejaQError."""
        self._wait()
        self.commit(behind=False)

    def abandon(self, error: DejaQError) -> None:
        """Answer what is not durable with the error, and give the credit of its pushes back."""
        self._wait(quietly=True)
        groups = [self.group] if self._failed is None else [self._failed, self.group]
        self.group = Group()
        self._failed = None
        for group in groups:
            for reply_to, reply in group.replies:
                reply_to(Reply(reply.number, reply.rows, error=error))
            for consumer, push in group.pushes:
                self._dispatcher.give_back(consumer, len(push.leased.sequences))

    _failed: Group | None = None

    def _wait(self, *, quietly: bool = False) -> None:
        self._committer.wait(self._landed, lambda: self._in_flight is None)
        if self._error is not None and not quietly:
            raise self._error

    def _append_in_flight(self) -> None:
        group = self._in_flight
        assert group is not None
        self._append(group)
        with self._landed:
            self._in_flight = None
            self._landed.notify_all()
        self._committed()

    def _send(self, consumer: Consumer, push: Push) -> None:
        if push.is_done:
            # Its rows are freed in a moment: the sending thread would come too late to read them.
            push = replace(push, batch=delivery_batches([push])[0])
            self._dispatcher.hands_over(consumer, len(push.leased.sequences))
        else:
            self._dispatcher.holds(consumer, self._partition, push.leased)
        consumer.sink.push(push)

    def _keep_back(self, group: Group) -> None:
        """Take out of the group's pushes what another broker may lease again."""
        for consumer, push in group.pushes:
            if not push.is_done:
                self._dispatcher.give_back(consumer, len(push.leased.sequences))
        group.pushes = [(consumer, push) for consumer, push in group.pushes if push.is_done]

    def _record(self, recorder: Recorder, group: Group) -> None:
        """Leave to the history what the group, durable now, changed."""
        consumers = {push.leased.lease_id: consumer.name for consumer, push in group.pushes}
        first = self.tail - len(group.entries) + 1
        recorder.record(first, self.tail, group.noted, consumers, self._clock.utc_ms())

    def _append(self, group: Group) -> None:
        """Append a group, then answer and send. Does not raise."""
        answered = sent = 0
        try:
            if group.entries:
                began_us = self._clock.now_us()
                self.tail = self._journal.append(group.entries, self.tail, self._epoch)
                took_us = self._clock.now_us() - began_us
                self.append_us += took_us
                news.synced(self._topic, self._partition, len(group.entries), took_us)
                self.append_count += 1
                self.entry_count += len(group.entries)
                self._counting.topic.appended(took_us, len(group.entries), group.rows)
            for reply_to, reply in group.replies:
                answered += 1
                reply_to(reply)
            if group.pushes and not self._may_send():
                self._keep_back(group)
            if group.pushes:
                self._counting.pushed([push for _, push in group.pushes], self._clock.now_us())
            for consumer, push in group.pushes:
                sent += 1
                self._send(consumer, push)
            if self._recorder is not None and group.entries:
                self._record(self._recorder, group)
            for freed in group.freed:
                self._journal.free(freed)
        except DejaQError as error:
            left = group.replies[answered:], group.pushes[sent:]
            self._error, self._failed = error, Group(replies=left[0], pushes=left[1])
        except Exception as wrong:  # noqa: BLE001 - our bug: the partition is read again
            self._error = InternalError(f"append: {type(wrong).__name__}: {wrong}")
            left = group.replies[answered:], group.pushes[sent:]
            self._failed = Group(replies=left[0], pushes=left[1])
