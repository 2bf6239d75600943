"""A partition: its engine, its journal, and the one order in which things happen to them.

Room: broker. Runs on its worker's thread alone; other threads only put requests into the inbox.
Holds: nothing is answered or sent to a consumer before it is durable (rule 1); the engine is never
ahead of the journal when a step ends, or it is thrown away and read again; whatever breaks off,
each request is answered.
See: core.py, what a partition is; worker.py, which calls `step`; docs/internals.

    step = take requests → apply them to the engine → lease what is due → append once → answer all
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dejaqueue.broker import news
from dejaqueue.broker.consumers.dispatch import Dispatcher
from dejaqueue.broker.partition.admission import Admission
from dejaqueue.broker.partition.following import begin_epoch, refuse_changes
from dejaqueue.broker.partition.inbox import Inbox
from dejaqueue.broker.partition.leasing import dispatch, outlook
from dejaqueue.broker.partition.requests import Request
from dejaqueue.broker.partition.taking import take_requests
from dejaqueue.broker.partition.view import PartitionView, follow_subscriptions
from dejaqueue.broker.shard.allotment import Allotment
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.broker.shard.chore import Chore, Chores
from dejaqueue.broker.shard.commit import CommitPorts, Commits
from dejaqueue.broker.shard.committer import Committer
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.listener import Listener
from dejaqueue.broker.shard.maintenance import Maintenance
from dejaqueue.broker.shard.opening import JournalDoor, Opened, Opening, read_again
from dejaqueue.broker.shard.resting import Rest
from dejaqueue.broker.shard.turn_hold import Publication
from dejaqueue.engine.commands import Configure
from dejaqueue.engine.rules import Rules
from dejaqueue.errors import (
    DejaQError,
    Fenced,
    InternalError,
    JournalDamaged,
    NotActive,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.journal.interface import Journal
from dejaqueue.model import Topic, TopicKind

RETRY_US = 500_000
"""A partition on a server that was away, or that had another owner, is tried again so often."""
UNREAD_RETRY_US = 100_000
"""… while requests wait for it."""
CRON_RETRY_US = 1_000_000
"""… of a cron topic, whose entries fire though nobody asks for anything."""
_AT_ONCE = 0
"""Before any time that a clock says: the last step ended with something left to do."""


@dataclass(frozen=True, slots=True)
class Duties:
    """What one partition does beside answering requests, as broker.py puts it together.

    Attributes:
        maintenance: its snapshots and compaction.
        listener: hears what is in its journal.
        chores: what else, in the order in which it is done; before maintenance.
        view_chores: what is done in each of its named views.
        publish: begins to say what is durable in its journal, behind its tail; None = nobody asks.
    """

    maintenance: Maintenance
    listener: Listener = field(default_factory=Listener)
    chores: Sequence[Chore] = ()
    view_chores: Callable[[], Sequence[Chore]] = tuple
    publish: Callable[[Journal, int], Publication] | None = None


class Partition:
    """One partition of a topic on this broker.

    Args:
        door: the way to its journal, which is opened when the partition is first used.
        committer: appends for it while the worker goes on.
        dispatcher: the consumers of its topic.
        allotment: what the partitions of the topic may hold.
        ids_from: the sequence of its first message.
        landed: has `go_on` called soon, by the worker; any thread may call it. None = it is rung.

    Attributes:
        core: its engine and journal, and the way into them.
        inbox: what it is asked.
        maintenance: its snapshots.
        listener: hears what is in its journal.
        views: what it does for the topic's subscriptions; replaced when there are others.
        view_chores: as in Duties.
        loaded: the engine is there, and as far as the journal.
        was_read: there is an engine, though it may be given up by now.
        opening: the journal is being read by another thread; None = it is not.
    """

    def __init__(
        self,
        core: PartitionCore,
        door: JournalDoor,
        committer: Committer,
        dispatcher: Dispatcher,
        allotment: Allotment,
        duties: Duties,
        ids_from: int = 0,
        landed: Callable[[], None] | None = None,
    ) -> None:
        self.core = core
        self._landed = core.ring if landed is None else landed
        self.number = core.number
        self.inbox = Inbox(core)
        self.maintenance = duties.maintenance
        self.listener = duties.listener
        self.views: tuple[PartitionView, ...] = ()
        self.view_chores = duties.view_chores
        self._publish = duties.publish
        self.loaded = False
        self.was_read = False
        self.opening: Opening | None = None
        self._ids_from = ids_from
        self._door = door
        self._committer = committer
        self._dispatcher = dispatcher
        self._admission = Admission(allotment)
        # Maintenance comes last: what it does by the way must not delay what somebody waits for.
        self._chores = self._all_chores = Chores([*duties.chores, duties.maintenance, Rest()])
        self._closed: DejaQError | None = None
        """Once it is closed: what is said to whoever comes later."""
        self._failed: DejaQError | None = None
        self._unreadable: DejaQError | None = None
        self._configured: Topic | None = None
        self._waits = False
        self._look_us: int | None = _AT_ONCE

    # --- any thread -------------------------------------------------------------------------

    def put(self, request: Request) -> None:
        """Leave a request for the worker. The caller rings the worker."""
        self.inbox.put(request)

    def ring(self) -> None:
        """Have it stepped soon."""
        self.core.ring()

    def unpublish(self) -> None:
        """It is not to be served here any more, though what hangs may hold up its end."""
        if self.was_read:
            self.core.commits.unpublish()

    @property
    def backlog(self) -> Backlog:
        """What is live in it, as of its last step."""
        return self.core.backlog

    @property
    def failure(self) -> DejaQError | None:
        """Why this partition will not be read again before the broker is started anew."""
        return self._failed

    # --- the worker's thread ----------------------------------------------------------------

    def step(self, *, busy: bool = False) -> int | None:
        """Do what there is to do.

        Args:
            busy: the worker has not slept since the last step: let the committer do the append.

        Returns:
            When to be called again, in clock µs; None = when rung.
        """
        seen, self._waits = self._dispatcher.waiting.round, False
        views = self.views
        for view in views:
            view.begin(is_asked=not self.inbox.is_empty)
        if not self.inbox.is_empty:
            self._dispatcher.waiting.occupy(self.number)  # before anything is answered
        try:
            return self._step(busy=busy)
        finally:
            self._dispatcher.looked(self.number, seen, waits=self._waits)
            for view in views:
                view.end()

    def wants_step(self, now_us: int) -> bool:
        """Whether there is something to do when it wanted to be called again.

        What a chore wanted may have come about without it: then `later_us` says when to call.
        """
        if not self.loaded or self.views or not self.inbox.is_empty:
            return True
        if self._look_us is not None and self._look_us <= now_us:
            return True
        return self._chores.wants_step(self.core, now_us)

    @property
    def later_us(self) -> int | None:
        """When to be called again, clock µs, as it was after the last step; None = when rung."""
        wakes_us = (self._look_us, self._chores.later_us())
        return min((wake_us for wake_us in wakes_us if wake_us is not None), default=None)

    def go_on(self, *, is_due: bool, busy: bool) -> int | None:
        """Do what follows an append that has landed, or has failed.

        A step for that alone would ask all again that was asked when the append began.

        Args:
            is_due: a step is to follow, whatever is found.
            busy: as for `step`, whose result is returned, too.
        """
        core = self.core
        is_usual = self.loaded and not self.views
        if not is_usual or core.commits.is_broken or core.commits.is_held_up:
            return self.step(busy=busy)
        try:
            has_more = self._after_append()
        except DejaQError as error:
            self._fail(error)
        except Exception as wrong:  # noqa: BLE001 - our bug: the engine may be ahead of the journal
            self._break_off(wrong)
        if not self.loaded:
            return self._next_try_after_failure_us()
        if is_due:
            next_us = self.step(busy=busy)
            return self._at_once() if has_more else next_us
        group = core.commits.group
        has_more |= bool(group.entries or group.replies) or not self.inbox.is_empty
        if has_more or core.engine.is_taking_over:
            return self._at_once()
        wakes_us = (self._look_us, self._chores.next_us(core))
        return min((wake_us for wake_us in wakes_us if wake_us is not None), default=None)

    def _at_once(self) -> int:
        """A step is wanted now, whatever `wants_step` would find: it knows of no group that waits
        for the append before."""
        self._look_us = _AT_ONCE
        return self.core.clock.now_us()

    def _step(self, *, busy: bool) -> int | None:
        self._look_us = _AT_ONCE
        if self._closed:  # rung just before it was closed: loading would open the journal again
            self.inbox.turn_away(self._closed)
            return None
        if not self.loaded and not self._load():
            # It is tried again when somebody has credit.
            self._waits = self.opening is None and self._failed is None
            for view in self.views:
                view.waits = self._waits
            return self._next_try_us()
        has_more = False
        try:
            if self.core.commits.is_held_up and not self._go_on():
                return None  # the append that is waited for rings when it has landed
            has_more = self._step_loaded(busy=busy)
        except DejaQError as error:
            self._fail(error)
        except Exception as wrong:  # noqa: BLE001 - our bug: the engine may be ahead of the journal
            self._break_off(wrong)
        if not self.loaded:
            return self._next_try_after_failure_us()
        self.core.backlog = self.core.live()
        commits = self.core.commits
        if not self.inbox.is_empty and not self.core.stored.is_awaited:
            full = commits.is_held_up or commits.group.is_full(self.core.settings.dispatch)
            return None if full and commits.in_flight else self.core.clock.now_us()
        return self.core.clock.now_us() if has_more else self._next_us()

    def _step_loaded(self, *, busy: bool) -> bool:
        """The step itself; True if a chore has more to do at once."""
        core = self.core
        if core.follows and not self._door.stands_by():
            self._become_active()
        if core.follows:
            return self._step_following(busy=busy)
        chores = self._chores
        core.keep_time()
        if core.topic() is not self._configured:
            self._configure()
        commits = core.commits
        if not commits.group.is_full(core.settings.dispatch):
            take_requests(core, self.inbox, self._admission)
            chores.step(core)
            dispatch(core, self._dispatcher)
            for view in self.views:
                view.step()
        chores.before_append(core)
        for view in self.views:
            view.before_append()
        commits.commit(behind=busy or commits.is_apart)
        if commits.in_flight and not self.views:
            return False  # `go_on` does what follows
        return self._after_append()

    def _step_following(self, *, busy: bool) -> bool:
        """The step while an archive is followed; as `_step_loaded`."""
        core = self.core
        refuse_changes(core, self.inbox, lambda: NotActive("this broker is a standby"))
        take_requests(core, self.inbox, self._admission)
        for view in self.views:
            view.show()
        core.commits.commit(behind=busy)
        return self._chores.after_append(core, is_idle=self.inbox.is_empty)

    def _become_active(self) -> None:
        """The archive is followed no more."""
        core = self.core
        self.maintenance.wait_written(core)
        begin_epoch(core)
        core.time.loaded()
        self._chores, self._configured = self._all_chores, None
        self._chores.loaded(core)

    def _after_append(self) -> bool:
        """The chores that follow an append; True if one of them has more to do at once."""
        is_idle = self.inbox.is_empty
        has_more = self._chores.after_append(self.core, is_idle=is_idle)
        for view in self.views:
            has_more |= view.after_append(is_idle=is_idle)
        return has_more

    def _go_on(self) -> bool:
        """Something waits for what was applied to be durable: whether it is, and was done."""
        commits = self.core.commits
        commits.commit(behind=True)
        if not commits.is_settled:
            return False
        commits.is_held_up = False
        # Before anything is applied again: else it would find things unsettled for ever.
        self._after_append()
        return True

    def _next_us(self) -> int | None:
        """When there is something to lease, or a chore to do, clock µs; None = when rung."""
        if self.core.follows:
            self._look_us = None
            return self._chores.next_us(self.core)
        found = outlook(self.core, self._dispatcher)
        self._waits = found.waits
        if found.is_empty:
            self._dispatcher.waiting.leave(self.number)
        else:
            self._dispatcher.waiting.occupy(self.number)
        self._look_us = found.wake_us
        commits = self.core.commits
        if commits.in_flight and not commits.is_apart and not self.views:
            return found.wake_us  # in a moment `go_on` asks the chores
        wakes_us = [found.wake_us, self._chores.next_us(self.core)]
        wakes_us += [view.next_us() for view in self.views]
        return min((wake_us for wake_us in wakes_us if wake_us is not None), default=None)

    def _configure(self) -> None:
        """The topic's settings changed, or the partition was just read: tell the engine."""
        core, topic = self.core, self.core.topic()
        piece = core.settings.dispatch.take_over_rows_max
        # One that was restored under the name of a topic that was deleted begins with its own ids.
        known = core.engine.rules.ids_from if core.engine.counts.enqueued else self._ids_from
        rules = Rules.of(topic, known, take_over_rows_max=piece)
        if rules != core.engine.rules:
            core.apply(Configure(core.now_ms(), rules.to_text()))
        follow_subscriptions(core, topic)
        for view in self.views:
            view.attach()
        self._chores.configured(core)
        self._configured = topic

    # --- loading and failing ----------------------------------------------------------------

    @property
    def door_to_read(self) -> JournalDoor | None:
        """The way to its journal, if its next step would read it on the worker's thread."""
        is_read = self.loaded or self._closed is not None or self.opening is not None
        door = self._door
        if is_read or self._failed is not None or door.executor is not None:
            return None
        return door if door.ownership.refusal() is None else None

    def _load(self) -> bool:
        """Read snapshot and journal. False: not yet, or it can't be; then who waits was told."""
        if self.opening is not None and not self.opening.is_done:
            return False
        opening, self.opening = self.opening, None
        if self._failed is not None:
            self.inbox.turn_away(self._failed)
            return False
        refusal = self._door.ownership.refusal()
        if refusal is not None:
            if opening is not None:
                opening.let_go()
            self.inbox.turn_away(refusal)
            return False
        if opening is None and self._door.executor is not None:
            self.opening = Opening.begin(self.core, self._door, self._door.executor)
            return False
        try:
            self._begin(read_again(self.core, self._door) if opening is None else opening.result())
        except Exception as wrong:  # noqa: BLE001 - if it is not one of ours, it is our bug
            error = wrong if isinstance(wrong, DejaQError) else InternalError(repr(wrong))
            self._locate(error)
            if isinstance(error, Unavailable) and error.is_final:
                self._failed = error  # a sync failed while it was read, or before, of a neighbour
            if str(error) != str(self._unreadable):  # it is tried ten times a second
                final = self._failed is not None
                news.failed(self.core.topic().name, self.number, error, final=final)
            self._unreadable = error
            self.inbox.turn_away(error)
            return False
        self._unreadable = None
        self.loaded = True
        return True

    def _begin(self, opened: Opened) -> None:
        """Serve what was read."""
        core, door, topic_name = self.core, self._door, self.core.topic().name
        opened.journal.place = self._place
        door.comes_back = door.comes_back or opened.journal.reopens
        self._configured = None
        ports = CommitPorts(
            core.clock,
            self._committer,
            topic_name,
            self.number,
            core.counting,
            self._landed,
            door.listener,
            lambda: door.ownership.refusal() is None,
        )
        if core.payloads is not None:
            ports = replace(ports, ended=core.payloads.ended)
        if self._publish is not None and not opened.follows:
            ports = replace(ports, publication=self._publish(opened.journal, opened.tail))
        commits = Commits(opened.journal, opened.tail, opened.epoch, ports)
        core.follows = opened.follows
        core.serve(opened.views, opened.journal, commits, opened.read_from)
        self.was_read = True
        entry_count = opened.tail - opened.read_from - (not opened.follows)
        ahead_count = max(opened.ahead - opened.read_from, 0)
        news.recovered(topic_name, self.number, entry_count, opened.duration_ms, ahead_count)
        news.mended(topic_name, self.number, opened.journal)
        self._chores = self._all_chores
        if opened.follows:
            self._chores = Chores([self.maintenance, Rest()])
        self._chores.loaded(core)

    def _break_off(self, wrong: Exception) -> None:
        """Called where it is handled: a bug of ours ended what was being done."""
        news.broke_off(self.core.topic().name, self.number)
        self._fail(InternalError(f"{type(wrong).__name__}: {wrong}"))

    def _fail(self, error: DejaQError) -> None:
        """The step broke off: its outcome is not known to anybody yet; throw the engine away."""
        core = self.core
        # A full disk or another owner: reading again may help. A failed sync is final (duty 8).
        may_help = isinstance(error, ResourceExhausted | Fenced | InternalError)
        if not may_help and not core.journal.reopens:
            self._failed = error
        if isinstance(error, Fenced):
            self._door.ownership.fenced()
        core.commits.abandon(error)
        self.loaded = False
        self._locate(error)
        self._unreadable = error
        self.inbox.give_up(error)
        core.journal.close()
        if self._failed is not None:
            self.inbox.turn_away(self._failed)
        news.failed(core.topic().name, self.number, error, final=self._failed is not None)

    @property
    def _place(self) -> str:
        return f"{self.core.topic().name}/{self.number}"

    def _locate(self, error: DejaQError) -> None:
        """Who called hears of the partition; the log of the file."""
        if isinstance(error, JournalDamaged) and not error.outside:
            error.found_at(self._place)

    def _next_try_after_failure_us(self) -> int | None:
        """When to read it again after a step that broke off."""
        now_us = self.core.clock.now_us()
        if not self.inbox.is_empty:
            return now_us + UNREAD_RETRY_US
        if self.core.topic().kind is TopicKind.CRON:
            return now_us + CRON_RETRY_US
        return self._next_try_us()

    def _next_try_us(self) -> int | None:
        """When to read it again though nobody asks: a server may be back, or we its owner again."""
        if self.opening is not None:
            return None  # it rings
        if self._failed is None and self._door.comes_back:
            return self.core.clock.now_us() + RETRY_US
        return None

    def check_loaded(self) -> None:
        """Raise Unavailable, or why it failed, if the partition is not read. For looks."""
        if not self.loaded:
            unknown = Unavailable("the partition can't be read now", 1_000)
            known = None if self._closed else self._failed or self._unreadable
            raise known or unknown

    # --- the end ----------------------------------------------------------------------------

    def close(self, reason: DejaQError | None = None) -> None:
        """Answer what waits, and what still comes, and close the journal.

        Args:
            reason: why nothing of that is done; None = the broker stops, or the topic is deleted.
        """
        self._closed = reason or Unavailable("the topic is closed", 1_000)
        self._door.is_closed = True
        if self.opening is not None:
            self.opening.let_go()
        was_loaded, self.loaded = self.loaded, False
        self.inbox.turn_away(reason or Unavailable("the broker is stopping", 1_000))
        if was_loaded:
            self.core.commits.abandon(Unavailable("the broker is stopping", 1_000))
            self.core.journal.close()
            self._chores.closed()
