"""A partition: its engine, its journal, and the one order in which things happen to them.

Room: broker. Runs on its worker's thread alone; other threads only put requests into the inbox.
Holds: nothing is answered or sent to a consumer before it is durable (rule 1); the engine is never
ahead of the journal when a step ends, or it is thrown away and read again; whatever breaks off,
each request is answered.
See: partition_worker.py, which calls `step`; docs/internals/README.md.

    step = take requests → apply them to the engine → lease what is due → append once → answer all
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from dejaqueue import limits
from dejaqueue.broker import entries, news
from dejaqueue.broker.commit import ApartCommitter, Commits, Committer
from dejaqueue.broker.counting import PartitionCounts
from dejaqueue.broker.cron.fire import fire
from dejaqueue.broker.dead_letters import DeadLetters
from dejaqueue.broker.dispatch import Dispatcher
from dejaqueue.broker.enqueueing import enqueue
from dejaqueue.broker.extending import extend_leases
from dejaqueue.broker.keys import find_in
from dejaqueue.broker.leasing import dispatch, next_wake_us
from dejaqueue.broker.opening import Opened, Opening, read_again
from dejaqueue.broker.places import Places
from dejaqueue.broker.quotas import Backlog
from dejaqueue.broker.requests import (
    ChangeRequest,
    Changing,
    EnqueueRequest,
    LookRequest,
    RenameRequest,
    Request,
    SettleRequest,
    refusal_of,
    turn_away,
)
from dejaqueue.broker.resting import Rest
from dejaqueue.broker.staging import refusal
from dejaqueue.broker.timekeeping import Timekeeping
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import Ack, Cancel, Command, Configure, Extend, Move, Nack
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.rules import Rules
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Fenced,
    InternalError,
    ResourceExhausted,
    TryLater,
    Unavailable,
)
from dejaqueue.journal.format import check_entry
from dejaqueue.journal.interface import Entry, Journal
from dejaqueue.model import Topic, TopicKind
from dejaqueue.settings import BrokerSettings
from dejaqueue.wire.frames import Reply, SettleOp

if TYPE_CHECKING:
    from dejaqueue.broker.forecast import ForecastChore
    from dejaqueue.broker.history.recorder import Recorder
    from dejaqueue.broker.maintenance import Maintenance
    from dejaqueue.broker.shared import Shared
    from dejaqueue.broker.staging import StagedWatch
    from dejaqueue.clock import Clock

# Batches smaller than this are joined: that costs less than an entry for each.
MERGE_ROWS_MAX = 256
MERGE_BYTES_MAX = 64 << 10
# A partition on a server that was away, or that had another owner, is tried again so often.
RETRY_US = 500_000
# Requests taken in one step; the rest waits for the next one, so that due messages are not kept.
STEP_REQUESTS_MAX = 1_024


class Partition:
    """One partition of a topic on this broker.

    Args:
        topic: read at each use, so that changed settings hold at once.
        open_journal: opens the partition's journal; called when the partition is first used.
    """

    def __init__(
        self,
        topic: Callable[[], Topic],
        number: int,
        open_journal: Callable[[], Journal],
        clock: Clock,
        settings: BrokerSettings,
        dispatcher: Dispatcher,
        topic_backlog: Callable[[], Backlog],
        committer: Committer,
        ring: Callable[[Partition], None],
    ) -> None:
        self.topic = topic
        self.number = number
        self.dispatcher = dispatcher
        self.settings = settings
        self.clock = clock
        self.counting = PartitionCounts()
        self.time = Timekeeping()
        self.loaded = False
        self._closed = False
        self.backlog = Backlog()
        self.maintenance: Maintenance | None = None
        self.rest = Rest()
        self.dead_letters: DeadLetters | None = None
        self.staged_watch: StagedWatch | None = None
        self.forecast: ForecastChore | None = None
        self.shared: Shared | None = None
        self.served_as = ""
        self.places = Places()
        self.opener: Executor | None = None
        self.apart: ApartCommitter | None = None
        self._is_held_up = False
        self.opening: Opening | None = None
        self._reopens = False
        self.recorder: Recorder | None = None
        self.claimed_dues: dict[int, Int64s] = {}
        self.engine: Engine
        self.journal: Journal
        self.open_journal = open_journal
        self.topic_backlog = topic_backlog
        self._committer = committer
        self._ring = ring
        self._inbox: deque[Request] = deque()
        self._inbox_lock = Lock()
        self._in_hand: dict[int, Request] = {}
        self.inbox_bytes = 0
        self._payload_bytes_sum = 0
        self._payload_rows_sum = 0
        self._failed: DejaQError | None = None
        self._rules_topic: Topic | None = None
        self._commits: Commits

    # --- any thread -------------------------------------------------------------------------

    def put(self, request: Request) -> None:
        """Leave a request for the worker. The caller rings the worker."""
        with self._inbox_lock:
            self._inbox.append(request)
            self.inbox_bytes += request.byte_count

    def ring(self) -> None:
        """Have it stepped soon."""
        self._ring(self)

    # --- the worker's thread ----------------------------------------------------------------

    def step(self, *, busy: bool = False) -> int | None:
        """Do what there is to do.

        Args:
            busy: the worker has not slept since the last step: let the committer do the append.

        Returns:
            When to be called again, in clock µs; None = when rung.
        """
        if self._closed:  # rung just before it was closed: loading would open the journal again
            self._refuse_inbox(Unavailable("the topic is closed", 1_000))
            return None
        if not self.loaded and not self._load():
            return self._next_try_us()
        try:
            if self._is_held_up and not self._go_on():
                return None  # who lands rings
            self.time.keep(self)
            if self.topic() is not self._rules_topic:
                self._configure()
            if not self._commits.group.is_full(self.settings.dispatch):
                self._take_requests()
                fire(self)
                if self.staged_watch is not None:
                    self.staged_watch.step(self)
                if self.forecast is not None:
                    self.forecast.step(self)
                if self.recorder is not None:
                    self.recorder.step(self.clock.utc_ms())
                dispatch(self)
            if self.dead_letters is not None:
                self.dead_letters.bury(self)
            self._commits.commit(behind=busy or self.apart is not None)
            if self.dead_letters is not None:
                self.dead_letters.send(self)
            has_chores = self.maintenance is not None and self.maintenance.step(self)
            self.rest.step(self)
        except DejaQError as error:
            self._fail(error)
        except Exception as wrong:  # noqa: BLE001 - our bug: the engine may be ahead of the journal
            news.broke_off(self.topic().name, self.number)
            self._fail(InternalError(f"{type(wrong).__name__}: {wrong}"))
        if not self.loaded:
            if not self._inbox and self.topic().kind is TopicKind.CRON:
                return self.clock.now_us() + 1_000_000  # its entries go on by themselves
            return self.clock.now_us() + 100_000 if self._inbox else self._next_try_us()
        self.backlog = Backlog.of(self.engine.state, self.mean_payload_bytes)
        if self._inbox:
            full = self._is_held_up or self._commits.group.is_full(self.settings.dispatch)
            return None if full and self._commits.in_flight else self.clock.now_us()
        return self.clock.now_us() if has_chores else next_wake_us(self)

    def keep_apart(self, apart: ApartCommitter | None) -> None:
        """Its journal is on a server: let it hold nobody else if it hangs."""
        self.apart = apart
        self.opener = self.opener or (None if apart is None else apart.executor)

    def settles(self) -> bool:
        """Whether something may be done now that needs all to be durable that was applied.

        The worker waits for a disk. For a server it does not: then nothing more is applied until
        it has answered, and the step that follows may do it.
        """
        if self.apart is None or self._commits.is_settled:
            return True
        self._is_held_up = True
        return False

    def _go_on(self) -> bool:
        """Something waits for what was applied to be durable: whether it is, and was done."""
        self._commits.commit(behind=True)
        if not self._commits.is_settled:
            return False
        self._is_held_up = False
        if self.maintenance is not None:
            self.maintenance.step(self)
        return True

    def _next_try_us(self) -> int | None:
        """When to read it again though nobody asks: a server may be back, or we its owner again."""
        if self.opening is not None:
            return None  # it rings
        if self._failed is None and (self._reopens or self.shared is not None):
            return self.clock.now_us() + RETRY_US
        return None

    def close(self) -> None:
        """Answer what waits with Unavailable and close the journal."""
        self._closed = True
        if self.opening is not None:
            self.opening.let_go()
        self._refuse_inbox(Unavailable("the broker is stopping", 1_000))
        if self.loaded:
            self.loaded = False
            self._commits.abandon(Unavailable("the broker is stopping", 1_000))
            self.journal.close()
            if self.recorder is not None:
                self.recorder.close()

    @property
    def is_closed(self) -> bool:
        """True if it will not be served by this object any more."""
        return self._closed

    @property
    def position(self) -> int:
        """Position of the last entry that is durable."""
        return self._commits.tail

    @property
    def commits(self) -> Commits:
        """How entries get into the journal."""
        return self._commits

    @property
    def idle(self) -> bool:
        """True if no request waits."""
        return not self._inbox

    @property
    def mean_payload_bytes(self) -> int:
        """Mean payload of what was sent since the partition was loaded; 0 = not known."""
        return self._payload_bytes_sum // max(1, self._payload_rows_sum)

    def _configure(self) -> None:
        """The topic's settings changed, or the partition was just read: tell the engine."""
        topic = self.topic()
        rules = Rules.of(topic)
        if rules != self.engine.rules:
            self.apply(Configure(self.now_ms(), rules.to_text()))
        if self.recorder is not None:
            self.engine.note_changes(topic.history)
            self.recorder.turn(topic.history, self.next_position() - 1, self.now_ms())
        self._rules_topic = topic

    def apply(self, command: Command, entry: Entry | None = None) -> Effects:
        """Apply a command, for the group that is on its way.

        Args:
            entry: of a command with texts.

        Raises:
            BadRequest, UnicodeError: no entry can be made of it; nothing has changed.
        """
        entry = entries.to_entry(command) if entry is None else entry
        check_entry(entry)
        effects = self.engine.apply(command)
        self._commits.group.add(entry, effects)
        return effects

    def sent(self, rows: int, payload_bytes: int) -> None:
        """So much came in."""
        self._payload_bytes_sum += payload_bytes
        self._payload_rows_sum += rows

    # --- loading and failing ----------------------------------------------------------------

    def _load(self) -> bool:
        """Read snapshot and journal. False: not yet, or it can't be; then who waits was told."""
        if self.opening is not None and not self.opening.is_done:
            return False
        opening, self.opening = self.opening, None
        if self._failed is not None:
            self._refuse_inbox(self._failed)
            return False
        refusal = self._refusal()
        if refusal is not None:
            if opening is not None:
                opening.let_go()
            self._refuse_inbox(refusal)
            return False
        if opening is None and self.opener is not None:
            self.opening = Opening(self, self.opener)
            return False
        try:
            self._begin(read_again(self) if opening is None else opening.result())
        except Exception as wrong:  # noqa: BLE001 - if it is not one of ours, it is our bug
            error = wrong if isinstance(wrong, DejaQError) else InternalError(repr(wrong))
            if str(error) != str(self._unreadable):  # it is tried ten times a second
                news.failed(self.topic().name, self.number, error, final=False)
            self._unreadable = error
            self._refuse_inbox(error)
            return False
        self._unreadable = None
        self.loaded = True
        return True

    def _refusal(self) -> DejaQError | None:
        return None if self.shared is None else self.shared.refusal(self.served_as)

    def _begin(self, opened: Opened) -> None:
        """Serve what was read."""
        journal, tail = opened.journal, opened.tail
        engine = opened.engine
        self.engine, self.journal = engine, journal
        self._reopens = journal.reopens
        self._rules_topic = None
        self._commits = Commits(
            journal,
            tail,
            opened.epoch,
            self.dispatcher,
            self.number,
            self.clock,
            self.apart or self._committer,
            lambda: self._ring(self),
            self.counting,
            self.topic().name,
            self.recorder,
            lambda: self._refusal() is None,
        )
        read_from = opened.read_from
        entry_count = tail - 1 - read_from
        news.recovered(self.topic().name, self.number, entry_count, opened.duration_ms)
        news.mended(self.topic().name, self.number, journal)
        self.counting.loaded(engine, journal)
        self.time.loaded(self)
        if self.maintenance is not None:
            self.maintenance.loaded(self, read_from)
        if self.dead_letters is not None:
            self.dead_letters.loaded(self)
        if self.staged_watch is not None:
            self.staged_watch.loaded()

    def _fail(self, error: DejaQError) -> None:
        """The step broke off: its outcome is not known to anybody yet; throw the engine away."""
        # A full disk or another owner: reading again may help. A failed sync is final (duty 8).
        may_help = isinstance(error, ResourceExhausted | Fenced | InternalError)
        if not may_help and not self.journal.reopens:
            self._failed = error
        if isinstance(error, Fenced) and self.shared is not None:
            self.shared.fenced(self.served_as)
        self._commits.abandon(error)
        self.loaded = self._is_held_up = False
        self._unreadable = error
        in_hand, self._in_hand = list(self._in_hand.values()), {}
        for request in in_hand:
            turn_away(request, self, error)
        self.journal.close()
        if self._failed is not None:
            self._refuse_inbox(self._failed)
        name, final = self.topic().name, self._failed is not None
        news.failed(name, self.number, error, final=final)

    def _refuse_inbox(self, error: DejaQError) -> None:
        while self._inbox:
            turn_away(self._pop(), self, error)

    @property
    def failure(self) -> DejaQError | None:
        """Why this partition will not be read again before the broker is started anew."""
        return self._failed

    _unreadable: DejaQError | None = None
    """Why it could not be read the last time."""

    def check_loaded(self) -> None:
        """Raise Unavailable if the partition could not be read. For looks."""
        if not self.loaded:
            unknown = Unavailable("the partition can't be read now", 1_000)
            known = None if self._closed else self._failed or self._unreadable
            raise known or unknown

    # --- requests ---------------------------------------------------------------------------

    def _pop(self) -> Request:
        with self._inbox_lock:
            request = self._inbox.popleft()
            self.inbox_bytes -= request.byte_count
        return request

    def _take_requests(self) -> None:
        small: list[EnqueueRequest] = []
        rows = small_rows = 0
        bounds = self.settings.dispatch
        for _ in range(STEP_REQUESTS_MAX):
            is_full = rows >= bounds.group_rows_max or self._commits.group.is_full(bounds)
            if is_full or not self._inbox:
                break
            if isinstance(self._inbox[0], LookRequest):
                if small:
                    enqueue(self, small)
                    small, small_rows = [], 0
                if not self.settles():
                    break
            request = self._pop()
            self._in_hand[id(request)] = request
            if isinstance(request, EnqueueRequest):
                if request.goes_back is not None and request.goes_back(request, self):
                    del self._in_hand[id(request)]
                    continue
                rows += request.columns.rows
                is_small = (
                    request.stage is None
                    and request.columns.rows < MERGE_ROWS_MAX
                    and request.byte_count < MERGE_BYTES_MAX
                )
                is_small = is_small and (not small or small[0].owner == request.owner)
                if is_small and small_rows + request.columns.rows <= limits.BATCH_ROWS_MAX:
                    small.append(request)
                    small_rows += request.columns.rows
                    continue
            if small:
                enqueue(self, small)
                small, small_rows = [], 0
            if isinstance(request, EnqueueRequest):
                enqueue(self, [request])
            elif isinstance(request, LookRequest):
                # What it sees must be durable, and it may append on its own.
                self._commits.commit_all()
                del self._in_hand[id(request)]
                request.look(self)
            else:
                self.guarded([request], partial(self._apply_request, request))
        if small:
            enqueue(self, small)

    def guarded(self, requests: Sequence[Changing], handle: Callable[[], None]) -> bool:
        """Handle requests; what fails before anything has changed is their fault, and refused.

        Whatever can fail on what came from outside is done before the engine is given a command.
        If that fails, the state is as it was, and the partition goes on. If the command itself
        breaks off, nobody knows what it left behind: the step fails.

        Returns:
            False if they failed, and are several: one of them spoils it for the others.
        """
        began = self.engine.applied_count
        try:
            handle()
        except Exception as wrong:
            has_changed = self.engine.applied_count != began or self._commits.is_broken
            if has_changed or not all(id(request) in self._in_hand for request in requests):
                raise
            if len(requests) > 1:
                return False
            self.refuse(requests[0], refusal_of(wrong), getattr(requests[0], "rows", 0))
        return True

    def _apply_request(self, request: RenameRequest | SettleRequest | ChangeRequest) -> None:
        match request:
            case RenameRequest():
                self._rename(request)
            case SettleRequest():
                self._settle(request)
            case ChangeRequest():
                self._change(request)

    def _change(self, request: ChangeRequest) -> None:
        error: DejaQError | None = None
        try:
            request.change(self)
        except (BadRequest, TryLater) as refused:
            error = refused
        self.answer(request, Reply(request.number, error=error), "all")

    def now_ms(self) -> int:
        """The partition's time: the clock's, but never before the last command's."""
        return max(self.time.utc_ms(self), self.engine.now_ms)

    def next_position(self) -> int:
        """Position that the next entry of this step gets."""
        return self._commits.next_position

    def forget(self, request: EnqueueRequest) -> None:
        """It was taken back."""
        del self._in_hand[id(request)]

    def answer(self, request: Changing, reply: Reply, acks: str) -> None:
        """Answer a request, when what it did is durable unless it asked for less."""
        del self._in_hand[id(request)]
        if acks == "leader":
            request.reply(reply)
        elif acks == "all":
            self._commits.group.replies.append((request.reply, reply))

    def refuse(self, request: Changing, error: DejaQError, rows: int = 0) -> None:
        """Answer a request that changed nothing."""
        del self._in_hand[id(request)]
        request.reply(Reply(request.number, rows, error=error))

    # --- move, cancel, ack, nack, extend ------------------------------------------------------

    def _rename(self, request: RenameRequest) -> None:
        sequences = found = request.sequences
        if found is None:
            assert request.key_hashes is not None
            found = find_in(self, request.keys, request.key_hashes)
            if found is None:
                found = np.full(request.rows, -1, dtype=np.int64)
        if request.owner is not None:  # another's message is as one that never was
            found = np.where(self.engine.sent_by(found, request.owner), found, -1)
        if request.cancel:
            effects = self.apply(Cancel(self.now_ms(), found))
        else:
            changes = request.dues_ms, request.priorities, request.groups
            effects = self.apply(Move(self.now_ms(), found, *changes))
        named = found if sequences is None else sequences
        ids = np.where(named >= 0, named | (self.number << limits.SEQUENCE_BITS), -1)
        reply = Reply(request.number, request.rows, -1, ids, effects.statuses)
        self.answer(request, reply, request.acks)

    def _settle(self, request: SettleRequest) -> None:
        now_ms = self.now_ms()
        refused = refusal(self, request.stage) if request.stage is not None else None
        if refused is not None:
            self.refuse(request, refused)
            return
        if request.lease_ids is not None:
            found = extend_leases(self, request.lease_ids, request.argument_ms)
            reply = Reply(request.number, len(found), statuses=found)
            self.answer(request, reply, request.acks)
            return
        rows = (request.lease_id, request.sequences, request.attempts)
        command: Ack | Nack | Extend
        match request.op:
            case SettleOp.ACK:
                command = Ack(now_ms, *rows, request.stage)
            case SettleOp.NACK:
                due_ms = -1 if request.argument_ms < 0 else now_ms + request.argument_ms
                command = Nack(now_ms, due_ms, *rows, request.reason, request.bury, request.release)
            case SettleOp.EXTEND:
                lease_ms = request.argument_ms or self.topic().lease_ms
                command = Extend(now_ms, now_ms + lease_ms, *rows)
        statuses = self.apply(command).statuses
        count = len(request.sequences) if request.sequences is not None else 0
        if statuses is not None:
            count = len(statuses)
        reply = Reply(request.number, count, statuses=statuses)
        self.answer(request, reply, request.acks)
