"""Group commit: what a partition has done, made durable, then answered.

Room: broker. A group is appended either by the worker itself, or, when more work is waiting
already, by the worker's committer thread, so that the next group is applied while this one is
synced, and groups of partitions that share a log share a sync. Where a server keeps the journal,
another thread appends always: it may hang.
Holds: groups of a partition are appended one at a time and in order; nothing of a group is answered
or sent before it is durable (rule 1); after an append that failed nothing more is appended.
See: partition.py, whose steps fill the groups; committer.py;
docs/adr/0006-the-next-group-while-this-one-syncs.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from dejaqueue.broker import news
from dejaqueue.broker.consumers.dispatch import Consumer, Push
from dejaqueue.broker.consumers.gathering import acked_batch
from dejaqueue.broker.counting import PartitionCounts
from dejaqueue.broker.replies import ReplyTo
from dejaqueue.broker.shard.committer import Committer
from dejaqueue.broker.shard.entry_changes import EntryChanges
from dejaqueue.broker.shard.listener import Listener
from dejaqueue.broker.shard.turn_hold import Publication
from dejaqueue.clock import Clock
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.effects import Effects
from dejaqueue.errors import DejaQError, InternalError
from dejaqueue.journal.appending import append_alone
from dejaqueue.journal.interface import Append, Entry, EntryKind, Journal
from dejaqueue.settings import DispatchSettings
from dejaqueue.wire.frames import Reply


@dataclass(slots=True)
class Group:
    """What is appended at once, and what happens when that is durable."""

    entries: list[Entry] = field(default_factory=list)
    replies: list[tuple[ReplyTo, Reply]] = field(default_factory=list)
    pushes: list[tuple[Consumer, Push]] = field(default_factory=list)
    freed: list[Int64s] = field(default_factory=list)
    ended: list[Int64s] = field(default_factory=list)
    """Those of `freed` that are not stored elsewhere now."""
    changes: list[EntryChanges] = field(default_factory=list)
    rows: int = 0
    byte_count: int = 0
    """Bytes of the texts and payloads in it; columns of numbers are not counted."""

    def is_full(self, bounds: DispatchSettings) -> bool:
        """True if it is to be appended before more comes in."""
        return self.rows >= bounds.group_rows_max or self.byte_count >= bounds.group_bytes_max

    def add(self, entry: Entry, effects: Effects) -> None:
        """An applied command."""
        if effects.changes:
            self.changes.append(EntryChanges.of(len(self.entries), entry, effects))
        self.entries.append(entry)
        self.rows += entry.rows
        self.byte_count += sum(int(column.offsets[-1]) for column in entry.texts.values())
        if len(effects.freed_locators):
            self.freed.append(effects.freed_locators)
            if entry.kind is not EntryKind.RELOCATE:
                self.ended.append(effects.freed_locators)


@dataclass(frozen=True, slots=True)
class CommitPorts:
    """What the groups of a partition meet on their way.

    Attributes:
        topic_name, partition_number: for the log, and for what consumers hold.
        committer: who appends beside the worker.
        landed: called on the committer's thread when a group is durable, or has failed.
        listener: hears what is durable.
        is_owner: False if another broker may own the partition by now. After an append that took
            long, do not send what was leased before it: the next owner may have leased it to
            somebody else.
        ended: told where messages were stored that are done everywhere, durably.
        publication: told what is durable, before anybody else is; it may have that wait. None = no
            other broker has to hear of a turn first.
    """

    clock: Clock
    committer: Committer
    topic_name: str = ""
    partition_number: int = 0
    counting: PartitionCounts = field(default_factory=PartitionCounts)
    landed: Callable[[], None] = lambda: None
    listener: Listener = field(default_factory=Listener)
    is_owner: Callable[[], bool] = lambda: True
    ended: Callable[[Int64s], None] = lambda _: None
    publication: Publication | None = None


class Commits:
    """The groups of one partition on their way into its journal.

    Args:
        tail: position of the journal's last entry.
        epoch: of which all that is appended here is.

    Attributes:
        is_held_up: something waits until all that was applied is durable; until then nothing more
            is applied. Set by `settles`, cleared by who has done it.
    """

    def __init__(self, journal: Journal, tail: int, epoch: int, ports: CommitPorts) -> None:
        self.group = Group()
        self.tail = tail
        self.is_held_up = False
        self.append_count = 0
        self.entry_count = 0
        self.append_us = 0
        self._journal = journal
        self.epoch = epoch
        self._ports = ports
        self._committer = ports.committer
        self._clock = ports.clock
        self._planned_tail = tail
        self._began_us = 0
        self._in_flight: Group | None = None
        self._failed: Group | None = None
        self._landed = threading.Condition()
        self._error: DejaQError | None = None
        self._holds = False
        self._held: list[Int64s] = []

    def hold(self) -> None:
        """Free no rows from now on, until `let_go`: a backup reads them."""
        self._holds = True

    def let_go(self) -> None:
        """Free rows again; those that were held by the next `commit` beside which nothing is on its
        way, so that one thread frees at a time."""
        self._holds = False

    def _free_held(self) -> None:
        held, self._held = self._held, []
        for freed in held:
            self._journal.free(freed)

    def _free(self, freed: Int64s) -> None:
        if self._holds:
            self._held.append(freed)
        else:
            self._journal.free(freed)

    @property
    def next_position(self) -> int:
        """Position that the next entry of the group gets."""
        return self._planned_tail + len(self.group.entries) + 1

    def entry_at(self, position: int) -> Entry | None:
        """An entry that was applied and is not durable yet; None = it is durable, or none."""
        in_flight, ahead = self._in_flight, position - self._planned_tail - 1
        if ahead >= 0:
            return self.group.entries[ahead] if ahead < len(self.group.entries) else None
        if in_flight is not None and ahead >= -len(in_flight.entries):
            return in_flight.entries[ahead]
        return None

    @property
    def in_flight(self) -> bool:
        """True while the committer has a group."""
        return self._in_flight is not None

    @property
    def is_settled(self) -> bool:
        """True if everything that was applied is durable."""
        return self._in_flight is None and not self.group.entries

    @property
    def is_apart(self) -> bool:
        """True if a server keeps the journal: the worker never waits for an append."""
        return self._committer.is_apart

    @property
    def executor(self) -> Executor | None:
        """Does beside the worker what has to ask a server; None = no server keeps the journal."""
        return self._committer.executor

    def settles(self) -> bool:
        """Whether something may be done now that needs all to be durable that was applied.

        The worker waits for a disk. For a server it does not: then nothing more is applied until
        it has answered, and the step that follows may do it.
        """
        if not self.is_apart or self.is_settled:
            return True
        self.is_held_up = True
        return False

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
        if self._held and not self._holds and self._in_flight is None:
            self._free_held()
        group = self.group
        if not group.entries and not group.replies:
            return
        if self._in_flight is not None:
            if behind:
                return
            self._wait()
        self.group = Group()
        self._planned_tail += len(group.entries)
        append = self._begin(group)
        if not behind or not group.entries:
            if group.entries:
                append_alone(append)
                self._publish(append)
            self._follow(group, append)
            if self._error is not None:
                raise self._error
            return
        self._in_flight = group
        self._committer.submit(append)

    def _begin(self, group: Group) -> Append:
        """The append of a group; its time runs from here."""
        self._began_us = self._clock.now_us()
        return Append(self._journal, group.entries, self.tail, self.epoch, self._append_landed)

    def wait_landed(self) -> None:
        """Return when no group is on its way. Does not raise: the next `commit` does."""
        self._wait(quietly=True)

    def commit_all(self) -> None:
        """Return when everything applied so far is durable and answered. Raises DejaQError."""
        self._wait()
        self.commit(behind=False)

    def unpublish(self) -> None:
        """Whatever lands from here on, this partition is another broker's, or is read again. Any
        thread; twice is fine."""
        if self._ports.publication is not None:
            self._ports.publication.end()

    def abandon(self, error: DejaQError) -> None:
        """Answer what is not durable with the error, and give the credit of its pushes back."""
        self._wait(quietly=True)
        self.unpublish()
        groups = [self.group] if self._failed is None else [self._failed, self.group]
        self.group = Group()
        self._failed = None
        for group in groups:
            for reply_to, reply in group.replies:
                reply_to(Reply(reply.number, reply.rows, error=error))
            for consumer, push in group.pushes:
                consumer.dispatcher.give_back(consumer, len(push.leased.sequences))

    def _wait(self, *, quietly: bool = False) -> None:
        self._committer.wait(self._landed, lambda: self._in_flight is None)
        if self._error is not None and not quietly:
            raise self._error

    def _append_landed(self, append: Append) -> None:
        group = self._in_flight
        assert group is not None
        self._publish(append)
        self._follow(group, append)
        with self._landed:
            self._in_flight = None
            self._landed.notify_all()
        self._ports.landed()

    def _publish(self, append: Append) -> None:
        """Say what is durable; returns when it may be answered."""
        publication = self._ports.publication
        if publication is not None and append.error is None:
            publication.published(append.tail)

    def _send(self, consumer: Consumer, push: Push) -> None:
        if push.is_done:
            # Its rows are freed in a moment: the sending thread would come too late to read them.
            # What they have in the payload store stays there for a while.
            push.kept.append(acked_batch(push, self._clock.utc_ms()))
            consumer.dispatcher.hands_over(consumer, len(push.leased.sequences))
        else:
            consumer.dispatcher.holds(consumer, self._ports.partition_number, push.leased)
        consumer.sink.push(push)

    def _keep_back(self, group: Group) -> None:
        """Take out of the group's pushes what another broker may lease to somebody else."""
        for consumer, push in group.pushes:
            if not push.is_done:
                consumer.dispatcher.give_back(consumer, len(push.leased.sequences))
        group.pushes = [(consumer, push) for consumer, push in group.pushes if push.is_done]

    def _follow(self, group: Group, append: Append) -> None:
        """What follows an append: answer and send. Does not raise.

        Args:
            append: of the group; of one without entries nothing was appended.
        """
        ports, counting = self._ports, self._ports.counting
        answered = sent = 0
        try:
            if append.error is not None:
                raise append.error
            if group.entries:
                took_us = self._clock.now_us() - self._began_us
                self.tail = append.tail
                self.append_us += took_us
                news.synced(ports.topic_name, ports.partition_number, len(group.entries), took_us)
                self.append_count += 1
                self.entry_count += len(group.entries)
                counting.topic.appended(took_us, len(group.entries), group.rows)
            for reply_to, reply in group.replies:
                answered += 1
                reply_to(reply)
            if group.pushes and not ports.is_owner():
                self._keep_back(group)
            if group.pushes:
                now_us = self._clock.now_us()
                for _, push in group.pushes:
                    (push.counting or counting).pushed(push.leased, now_us)
            for consumer, push in group.pushes:
                sent += 1
                self._send(consumer, push)
            if group.entries:
                first = self.tail - len(group.entries) + 1
                ports.listener.durable(first, self.tail, group.changes, group.pushes)
            for ended in group.ended:
                ports.ended(ended)
            for freed in group.freed:
                self._free(freed)
        except DejaQError as error:
            left = group.replies[answered:], group.pushes[sent:]
            self._error, self._failed = error, Group(replies=left[0], pushes=left[1])
        except Exception as wrong:  # noqa: BLE001 - our bug: the partition is read again
            self._error = InternalError(f"append: {type(wrong).__name__}: {wrong}")
            left = group.replies[answered:], group.pushes[sent:]
            self._failed = Group(replies=left[0], pushes=left[1])
