"""PartitionCore: what a partition is while it is served: its engine, its journal, and the way in.

Room: broker. Used on the partition's worker alone, but for what says otherwise.
Holds: the engine changes by `apply` alone, which puts the command's entry into the group that will
be appended; time never runs backwards from one command to the next.
See: partition.py, which makes steps of it; docs/adr/0031-partition-core-and-chores.md.

It is the one port between the rooms of the journal (shard: commit, opening, maintenance) and those
of the requests (partition), and all that the functions which work on a partition are given.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakSet

from dejaqueue.broker import news
from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.broker.counting import PartitionCounts
from dejaqueue.broker.payloads.partition_payloads import PartitionPayloads
from dejaqueue.broker.shard import entries
from dejaqueue.broker.shard.archive_floor import ArchiveFloor
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.broker.shard.cold_index import ColdIndex
from dejaqueue.broker.shard.commit import Commits
from dejaqueue.broker.shard.spike import Spike
from dejaqueue.broker.shard.stored_rows import StoredRows
from dejaqueue.broker.shard.timekeeping import Timekeeping
from dejaqueue.clock import Clock
from dejaqueue.engine.commands import Cancel, Command, InView, Lease
from dejaqueue.engine.effects import Effects, Leased
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.views import PartitionViews
from dejaqueue.errors import TopicUnknown
from dejaqueue.journal.format import check_entry
from dejaqueue.journal.interface import Entry, Journal
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings
from dejaqueue.topic_names import subscription_name


class PartitionCore:
    """One partition of a topic, without its requests.

    Attributes:
        engine, journal, commits: as they were read last; there are none before `serve`.
        views: what every view makes of the messages; `engine` is that of the unnamed one.
        seen_as: the named views that are served, by name (view_core.py).
        stored: what is in the journal, for the worker.
        read_from: position of the snapshot that the engine was restored from; 0 = of none.
        time: its time, where the clock was wrong.
        backlog: what is live as of its last step; any thread may read it.
        lacks_room: somebody was turned away since the disk is full; who makes room clears it.
        payloads: where those are that are not in the journal; None = all are.
        cold: which of them are cold.
        unread: pushes whose rows somebody is still to read, from where they were when leased.
        spike: what is to be leased further ahead than usual, as it was found last; None = nothing.
        take_over_steps: steps that took over pieces of what is due, since it was made.
        floor: up to where backups have it: later entries stay for them.
        is_held: a backup reads the journal: nothing that is in it is given back, and no snapshot is
            begun, until `let_go`.
        follows: entries come from an archive alone; nothing of its own may be appended.

    Args:
        topic: read at each use, so that changed settings hold at once.
        number: of the partition within its topic.
        counting: what it counts of itself.
        ring: has it stepped soon; any thread may call it.

    >>> from dejaqueue.testing.virtual_clock import VirtualClock
    >>> core = PartitionCore(lambda: Topic("orders"), 0, VirtualClock())
    >>> core.mean_payload_bytes, core.backlog.count
    (0, 0)
    """

    engine: Engine
    views: PartitionViews
    journal: Journal
    commits: Commits
    stored: StoredRows

    def __init__(
        self,
        topic: Callable[[], Topic],
        number: int,
        clock: Clock,
        settings: BrokerSettings | None = None,
        counting: PartitionCounts | None = None,
        ring: Callable[[], None] = lambda: None,
    ) -> None:
        self.topic = topic
        self.number = number
        self.clock = clock
        self.settings = BrokerSettings() if settings is None else settings
        self.counting = PartitionCounts() if counting is None else counting
        self.ring = ring
        self.time = Timekeeping(clock)
        self.read_from = 0
        self.backlog = Backlog()
        self.lacks_room = False
        self.seen_as: dict[str, PartitionCore] = {}
        self.floor = ArchiveFloor(
            lambda: bool(self.settings.backup.url) and not self.follows, clock.now_ms
        )
        self.is_held = self.follows = False
        self.payloads: PartitionPayloads | None = None
        self.cold = ColdIndex()
        self.unread: WeakSet[Push] = WeakSet()
        self.spike: Spike | None = None
        self.take_over_steps = 0
        self._payload_bytes_sum = 0
        self._payload_rows_sum = 0

    def serve(
        self, views: PartitionViews, journal: Journal, commits: Commits, read_from: int = 0
    ) -> None:
        """Go on with what was just read."""
        self.views, self.journal, self.commits = views, journal, commits
        self.engine = views.unnamed
        self.stored = StoredRows(journal, commits, self.ring)
        self.read_from = read_from
        self.counting.loaded(self.engine, journal)
        self.time.loaded()

    def seen(self, subscription: str) -> PartitionCore:
        """This partition as one view of it; "" = the unnamed one. Raises TopicUnknown."""
        if not subscription:
            return self
        if subscription not in self.seen_as:
            raise TopicUnknown(subscription_name(self.topic().name, subscription))
        return self.seen_as[subscription]

    # --- where it is --------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The partition's time: the clock's, but never before the last command's."""
        return max(self.time.utc_ms(), self.views.now_ms)

    @property
    def position(self) -> int:
        """Position of the last entry that is durable."""
        return self.commits.tail

    def next_position(self) -> int:
        """Position that the next entry of this step gets."""
        return self.commits.next_position

    # --- what it does -------------------------------------------------------------------------

    def apply(self, command: Command, entry: Entry | None = None) -> Effects:
        """Apply a command, for the group that is being filled.

        Args:
            entry: of a command with texts; None = it is made of the command.

        Raises:
            BadRequest, UnicodeError: no entry can be made of it; nothing has changed.
        """
        entry = entries.to_entry(command) if entry is None else entry
        check_entry(entry)
        effects = self.views.apply(command)
        self.commits.group.add(entry, effects)
        return effects

    def apply_unnamed(self, command: Cancel) -> Effects:
        """Apply to the unnamed view alone what would be for all."""
        if not self.views.named:
            return self.apply(command)
        return self.apply(InView(command.now_ms, 0, command))

    def apply_lease(self, command: Lease) -> Leased | None:
        """Apply a lease; if it changed nothing it leaves no trace."""
        effects = self.views.apply(command)
        if not effects.is_void:
            self._enter_lease(command, effects)
        return effects.leased

    def _enter_lease(self, command: Lease | InView, effects: Effects) -> None:
        taken = 0 if effects.leased is None else len(effects.leased.sequences)
        self.commits.group.add(entries.to_entry(command, taken), effects)

    def keep_time(self) -> None:
        """Put the partition's time right, if its clock was or its journal is far ahead."""
        by_step_ms = self.settings.clock.step_ms_max
        command = self.time.correction(self.views.now_ms, by_step_ms)
        if command is not None:
            self.apply(command)
            news.time_set(self.topic().name, self.number, command.by_ms)

    def hold(self) -> None:
        """Keep all that is in the journal from now on, for a backup."""
        self.is_held = True
        self.commits.hold()

    def let_go(self) -> None:
        """Give back again what is not needed."""
        self.is_held = False
        self.commits.let_go()
        self.ring()

    # --- how much it holds --------------------------------------------------------------------

    def sent(self, rows: int, payload_bytes: int) -> None:
        """Note new messages and the bytes of their payloads."""
        self._payload_bytes_sum += payload_bytes
        self._payload_rows_sum += rows

    @property
    def mean_payload_bytes(self) -> int:
        """Mean payload of what was sent since the partition was loaded; 0 = not known."""
        return self._payload_bytes_sum // max(1, self._payload_rows_sum)

    def live(self) -> Backlog:
        """What is live now. Messages that came before the topic had a limit of bytes count with
        the mean, as their sizes were not noted."""
        return Backlog(*self.views.backlog(self.mean_payload_bytes))

    def fullest(self) -> str:
        """The named subscription that has most of what is live; "" = the unnamed one has."""
        mean_bytes, name = self.mean_payload_bytes, ""
        most = self.engine.backlog(mean_bytes)
        for view in self.views.named.values():
            if view.engine.backlog(mean_bytes) > most:
                most, name = view.engine.backlog(mean_bytes), view.name
        return name

    def has_room(self, rows: int, byte_count: int = 0) -> bool:
        """True if the disk has room for so many rows; if not, some is made soon."""
        if self.journal.has_room(byte_count + ENTRY_ROW_BYTES * rows):
            return True
        self.lacks_room = True
        return False


ENTRY_ROW_BYTES = 128
"""What a row takes in the journal beside its payload, rather too much than too little: columns,
offsets, key, headers as they usually are."""
