"""A partition of a standby: it applies entries of an archive, answers looks, and refuses the rest.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: entries have the positions that they have at the active site, without a gap, so the journal
itself says how far the partition is; nothing of its own is appended while it follows.
See: partition.py, whose step calls it; standby/follower.py, who brings the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dejaqueue.broker.partition.inbox import Inbox
from dejaqueue.broker.partition.requests import ChangeRequest, LookRequest
from dejaqueue.broker.shard import entries
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import OpenEpoch
from dejaqueue.errors import DejaQError, JournalDamaged
from dejaqueue.journal.interface import Entry


@dataclass(slots=True)
class FollowRequest(ChangeRequest):
    """Apply entries of an archive; the reply says that they are durable here."""


def follow(core: PartitionCore, found: Sequence[tuple[int, Entry]]) -> None:
    """Apply entries of the active site that are not here yet.

    Args:
        found: each behind its position, in order.

    Raises:
        JournalDamaged: one is missing in between; those before it are applied.
    """
    for position, entry in found:
        expected = core.next_position()
        if position < expected:
            continue
        if position > expected:
            raise JournalDamaged(
                f"{core.journal}: entry {expected} is not in the archive, which goes on at "
                f"{position}"
            )
        core.apply(entries.to_command(entry, position), entry)


def refuse_changes(core: PartitionCore, inbox: Inbox, refusal: Callable[[], DejaQError]) -> None:
    """Turn away what waits and is neither a look nor of the archive: who asked for it had a stream
    open before this was a standby."""
    while not inbox.is_empty:
        request = inbox.take()
        if not isinstance(request, LookRequest | FollowRequest):
            inbox.refuse(request, refusal(), getattr(request, "rows", 0))
    inbox.put_back()  # what is in hand still


def begin_epoch(core: PartitionCore) -> None:
    """Follow no more: what is appended from now on is of this site."""
    core.commits.commit_all()
    command = OpenEpoch(core.now_ms(), core.views.unnamed.epoch + 1)
    core.follows = False
    core.commits.epoch = command.epoch
    core.apply(command)
