"""A view's core: what it does is done in its view alone, by entries that say so."""

from __future__ import annotations

import pytest

from dejaqueue.broker.counting import PartitionCounts
from dejaqueue.broker.partition.view import follow_subscriptions
from dejaqueue.broker.shard.view_core import ViewCore
from dejaqueue.engine.commands import Ack, Cancel, Lease
from dejaqueue.errors import InternalError, TopicUnknown
from dejaqueue.journal.interface import EntryKind
from dejaqueue.model import Topic
from tests.unit.broker.cores import Served, sequences


def test_leases_and_acks_are_entries_of_the_view() -> None:
    served = Served(Topic("t", subscriptions={"a": {"born": 1}}).check())
    main = served.core
    follow_subscriptions(main, served.topic)
    core = ViewCore(main, "a", lambda: served.topic.subscribed("a"), PartitionCounts())
    named = main.views.find("a")
    assert named is not None
    core.attach(named)
    served.send([b"x"])
    now_ms, position = core.now_ms(), core.next_position()
    leased = core.apply_lease(Lease(now_ms, position, now_ms, 1, now_ms + 1_000))
    assert leased is not None
    assert core.apply_lease(Lease(now_ms, position + 1, now_ms, 1, now_ms + 1_000)) is None
    entries = list(main.commits.group.entries)
    assert [entry.kind for entry in entries] == [EntryKind.IN_VIEW]  # nothing of the void one
    assert core.apply(Ack(now_ms, leased.lease_id)).statuses is None
    assert (core.engine.counts.acked, main.engine.counts.acked) == (1, 0)
    assert core.mean_payload_bytes == main.mean_payload_bytes == 1
    with pytest.raises(InternalError, match="for all views"):
        core.apply(Cancel(now_ms, sequences(0)))
    with pytest.raises(TopicUnknown, match="t@b"):
        main.seen("b")
    assert main.seen("") is main
