"""Bugs that are planted in what happens to deliveries when topics move; see mutants.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic import handing_over
from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.consuming.open_rows import OpenRows
from dejaqueue.client.consuming.release import Release
from dejaqueue.wire.frames import Settle

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Mutant] = {}


def mutant(function: Mutant) -> Mutant:
    """Register a planted bug."""
    MUTANTS[function.__name__] = function
    return function


@mutant
def what_is_on_its_way_is_not_read_before_its_journal_is_closed(patch: pytest.MonkeyPatch) -> None:
    """As it was: threads that send come too late, and leases run out."""

    def keep(core: PartitionCore) -> None:
        pass

    patch.setattr(handing_over, "_keep_unread", keep)


@mutant
def who_closes_while_a_topic_moves_gives_nothing_back(patch: pytest.MonkeyPatch) -> None:
    """As it was: what it has is said to nobody, or to a partition that is closed."""

    def send(self: Release, releases: list[Settle]) -> None:
        pass

    patch.setattr(Release, "send_elsewhere", send)


@mutant
def what_came_by_an_earlier_stream_is_not_given_back(patch: pytest.MonkeyPatch) -> None:
    """As it was: the broker that has the topic now does not know who has what."""
    inner = OpenRows.left

    def left(self: OpenRows, *, before: int | None = None) -> Slice | None:
        return None if before is not None else inner(self)

    patch.setattr(OpenRows, "left", left)
