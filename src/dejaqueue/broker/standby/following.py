"""What a standby's broker does with a change or with entries of the site that it follows.

Room: broker. Called by the thread that follows (follower.py), one after the other.
Holds: what the active site did before and after a change of its catalogue is done here, too:
journals are made before a topic counts as used, and dropped before it is forgotten.
See: topic/deleting.py, the steps of the active site; partition/following.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from dejaqueue.broker.partition.following import FollowRequest, follow
from dejaqueue.broker.topic.lone_catalogue import LoneCatalogue
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.catalogue.changes import Change, DeletedTopic, UsedTopic
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import Entry, JournalStore
from dejaqueue.wire.frames import Reply


class FollowingPort(Protocol):
    """A broker, as seen here."""

    store: JournalStore

    def runtime(self, name: str) -> ServedTopic: ...  # noqa: D102
    def catalogue_changed(self, names: Collection[str] | None = None) -> None: ...  # noqa: D102


def follow_change(
    broker: FollowingPort, catalogue: LoneCatalogue, change: Change, revision: int
) -> None:
    """Make a change of the catalogue that the active site has made.

    Raises:
        JournalDamaged: one before it is missing. ResourceExhausted, Unavailable.
    """
    if revision <= catalogue.revision:
        return
    if revision != catalogue.revision + 1:
        raise JournalDamaged(f"the archive: change {catalogue.revision + 1} is missing")
    if isinstance(change, UsedTopic):
        broker.store.make(change.name, catalogue.number(change.name))
    elif isinstance(change, DeletedTopic):
        broker.store.drop(change.name)
    catalogue.follow(change)
    broker.catalogue_changed({change.name})


def follow_entries(
    broker: FollowingPort,
    catalogue: LoneCatalogue,
    topic: str,
    partition: int,
    found: Sequence[tuple[int, Entry]],
) -> Future[None]:
    """Have a partition apply entries of the active site.

    Returns:
        Done when they are durable; with JournalDamaged, Unavailable, ResourceExhausted.
    """
    done: Future[None] = Future()
    if catalogue.row_of(topic) is not None:
        _keep(broker.store, topic, partition, found)
        done.set_result(None)
        return done

    def answered(reply: Reply) -> None:
        if reply.error is None:
            done.set_result(None)
        else:
            done.set_exception(reply.error)

    request = FollowRequest(partial(follow, found=found), answered)
    broker.runtime(topic).submit(partition, request)
    return done


def _keep(
    store: JournalStore, topic: str, partition: int, found: Sequence[tuple[int, Entry]]
) -> None:
    """Append what was last done to a topic that is being deleted: who ends it reads its journals,
    to know which ids it has given and what was decided in it."""
    journal = store.open(topic, partition, only_made=True)
    try:
        left = [entry for position, entry in found if position > journal.tail]
        if left:
            journal.append(left, journal.tail, 0)
    finally:
        journal.close()
