"""ViewCore: one named view of a partition, as what works on a partition sees it.

Room: broker. On the partition's worker alone, as the core that it belongs to.
Holds: what is applied here is applied to this view alone, by an entry in the partition's journal
that says so; journal, groups and time are the partition's.
See: core.py; partition/view.py, which attaches it; engine/views.py.
"""

from __future__ import annotations

from collections.abc import Callable

from dejaqueue.broker.counting import PartitionCounts
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import (
    Ack,
    Bury,
    Command,
    Configure,
    Extend,
    InView,
    Lease,
    Nack,
    Seek,
)
from dejaqueue.engine.effects import Effects, Leased
from dejaqueue.engine.views import NamedView
from dejaqueue.errors import InternalError
from dejaqueue.journal.interface import Entry
from dejaqueue.model import Topic


class ViewCore(PartitionCore):
    """One named view.

    Args:
        main: the partition, with its unnamed view.
        name: of the subscription.
        topic: its settings, as the subscription sees them.
        counting: what is counted of this view.
    """

    def __init__(
        self,
        main: PartitionCore,
        name: str,
        topic: Callable[[], Topic],
        counting: PartitionCounts,
    ) -> None:
        super().__init__(topic, main.number, main.clock, main.settings, counting, main.ring)
        self.main = main
        self.name = name
        self.payloads = None if main.payloads is None else main.payloads.seen_by(name)
        self._number = 0

    def attach(self, view: NamedView) -> None:
        """Go on with what was just read, or has just begun."""
        main = self.main
        self._number, self.engine = view.number, view.engine
        self.views, self.journal, self.commits = main.views, main.journal, main.commits
        self.stored, self.time, self.read_from = main.stored, main.time, main.read_from
        self.unread = main.unread
        self.counting.loaded(view.engine, main.journal)

    @property
    def mean_payload_bytes(self) -> int:
        """That of the partition: what is sent, is sent to all views."""
        return self.main.mean_payload_bytes

    def apply(self, command: Command, entry: Entry | None = None) -> Effects:
        """Apply a command to this view. Raises InternalError for one that is for all of them."""
        if entry is not None or not isinstance(
            command, Lease | Ack | Nack | Extend | Configure | Bury | Seek
        ):
            raise InternalError(f"{type(command).__name__} is for all views")
        return self.main.apply(InView(command.now_ms, self._number, command))

    def apply_lease(self, command: Lease) -> Leased | None:
        """Apply a lease; if it changed nothing it leaves no trace."""
        inside = InView(command.now_ms, self._number, command)
        effects = self.views.apply(inside)
        if not effects.is_void:
            self._enter_lease(inside, effects)
        return effects.leased
