"""Groups on their way into the journal: what is told when. Crashes: tests/crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dejaqueue.broker.consumers.dispatch import Consumer, Push
from dejaqueue.broker.shard.committer import Committer
from dejaqueue.broker.shard.listener import Listener
from dejaqueue.engine.commands import Ack, Cancel, Lease
from dejaqueue.errors import InternalError, ResourceExhausted, Unavailable
from dejaqueue.journal.appending import append_together
from dejaqueue.journal.interface import Append
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import Reply
from tests.unit.broker.cores import Served, Sink, sequences


class ByHand(Committer):
    """Appends when the test says so."""

    def __init__(self, *, is_apart: bool = False) -> None:
        self.appends: list[Append] = []
        self.is_apart = is_apart

    def submit(self, append: Append) -> None:
        self.appends.append(append)

    def wait(self, landed: Any, is_landed: Callable[[], bool]) -> None:
        while not is_landed():
            append_together([self.appends.pop(0)])


class Hears(Listener):
    """Notes what is durable."""

    def __init__(self) -> None:
        self.groups: list[tuple[int, int, int]] = []

    def durable(self, first: int, last: int, changes: Any, pushes: Any) -> None:
        self.groups.append((first, last, len(pushes)))


def cancel(served: Served) -> None:
    served.core.apply(Cancel(served.core.now_ms(), sequences(9)))


def answer(served: Served, number: int) -> None:
    served.core.commits.group.replies.append((served.replies.append, Reply(number)))


def leased(served: Served, *, done: bool = False) -> tuple[Consumer, Sink, Push]:
    """A message that is leased and waits to be pushed."""
    served.send([b"a"])
    sink = Sink()
    consumer = served.dispatcher.add(ConsumeStream("t"), sink, served.clock.now_us(), 0)
    now_ms, core = served.core.now_ms(), served.core
    position = core.next_position()
    lease = core.apply_lease(Lease(now_ms, position, now_ms, 1, now_ms + 1_000))
    assert lease is not None
    if done:
        core.apply(Ack(now_ms, position))
    push = Push(0, core.journal, lease, 10, done)
    core.commits.group.pushes.append((consumer, push))
    return consumer, sink, push


def test_nothing_is_told_before_it_is_durable__and_then_all_of_it() -> None:
    committer, hears = ByHand(), Hears()
    served = Served(committer=committer, listener=hears)
    consumer, sink, push = leased(served)
    answer(served, 7)
    served.replies.clear()
    hears.groups.clear()
    served.core.commits.commit(behind=True)
    assert (served.replies, sink.pushes, hears.groups) == ([], [], [])
    assert served.core.commits.in_flight
    append_together([committer.appends.pop()])
    assert [reply.number for reply in served.replies] == [7]
    assert sink.pushes == [push]
    assert hears.groups == [(3, 3, 1)]
    assert list(consumer.leases) == [(0, push.leased.lease_id)]


def test_what_is_durable_is_published_before_anybody_hears_of_it() -> None:
    committer = ByHand()
    served = Served(committer=committer)
    commits, heard = served.core.commits, list[tuple[int, int]]()

    class Publishing:
        has_ended = False

        def published(self, tail: int) -> None:
            heard.append((tail, len(served.replies)))

        def end(self) -> None:
            self.has_ended = True

    publication: Any = Publishing()
    commits._ports = replace(commits._ports, publication=publication)
    served.replies.clear()
    for is_behind in (True, False):
        cancel(served)
        answer(served, 7)
        commits.commit(behind=is_behind)
        if is_behind:
            append_together([committer.appends.pop()])
    assert heard == [(commits.tail - 1, 0), (commits.tail, 1)]
    assert len(served.replies) == 2
    answer(served, 8)
    commits.commit(behind=False)
    assert len(heard) == 2, "nothing was appended"
    commits.abandon(Unavailable("it ends"))
    assert publication.has_ended


def test_one_group_is_on_its_way_at_a_time__the_next_one_grows_meanwhile() -> None:
    committer = ByHand()
    served = Served(committer=committer)
    commits = served.core.commits
    cancel(served)
    commits.commit(behind=True)
    cancel(served)
    commits.commit(behind=True)
    cancel(served)
    assert (len(committer.appends), len(commits.group.entries)) == (1, 2)
    assert (served.core.position, served.core.next_position()) == (1, 5)
    commits.commit_all()
    assert (served.core.position, commits.is_settled, commits.append_count) == (4, True, 2)


def test_after_an_append_that_failed_nothing_is_answered_or_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served()
    consumer, sink, _push = leased(served)
    answer(served, 7)
    served.replies.clear()

    def full(appends: Sequence[Append]) -> None:
        for one in appends:
            one.error = ResourceExhausted("the disk is full", 1_000)

    monkeypatch.setattr(served.core.journal.log, "append_all", full)
    commits = served.core.commits
    with pytest.raises(ResourceExhausted):
        commits.commit(behind=False)
    assert commits.is_broken
    with pytest.raises(ResourceExhausted):
        commits.commit(behind=False)
    before = consumer.credit
    commits.abandon(Unavailable("read again"))
    assert [str(reply.error) for reply in served.replies] == ["read again"]
    assert sink.pushes == []
    assert consumer.credit == before + 1


def test_a_reply_that_raises_is_our_bug__the_others_are_answered_by_who_abandons() -> None:
    served = Served()

    def breaks(_reply: Reply) -> None:
        raise ValueError("a reply must not raise")

    cancel(served)
    served.core.commits.group.replies.append((breaks, Reply(1)))
    answer(served, 2)
    with pytest.raises(InternalError):
        served.core.commits.commit_all()
    served.core.commits.abandon(Unavailable("read again"))
    assert [reply.number for reply in served.replies] == [2]


@pytest.mark.parametrize("done", [True, False])
def test_who_may_not_own_it_any_more_sends_only_what_is_done(*, done: bool) -> None:
    served = Served(is_owner=lambda: False)
    consumer, sink, _push = leased(served, done=done)
    before = consumer.credit
    served.core.commits.commit_all()
    assert len(sink.pushes) == (1 if done else 0)
    assert consumer.credit == before + (0 if done else 1)


def test_what_is_done_is_read_before_its_rows_are_freed() -> None:
    served = Served()
    _, sink, _ = leased(served, done=True)
    served.core.commits.commit_all()
    [push] = sink.pushes
    assert push.kept
    assert push.kept[0].column("payload").to_pylist() == [b"a"]


def test_for_a_server_nobody_waits__who_needs_all_durable_is_held_up() -> None:
    served = Served(committer=ByHand())
    cancel(served)
    assert served.core.commits.settles()  # the worker waits for a disk
    committer = ByHand(is_apart=True)
    apart = Served(committer=committer)
    assert apart.core.commits.settles()
    cancel(apart)
    assert not apart.core.commits.settles()
    assert apart.core.commits.is_held_up
    apart.core.commits.commit(behind=True)
    assert not apart.core.commits.is_settled
    append_together([committer.appends.pop()])
    assert apart.core.commits.settles()


def test_a_group_is_full_by_rows_or_by_bytes() -> None:
    served = Served()
    bounds = served.core.settings.dispatch
    group = served.core.commits.group
    assert not group.is_full(bounds)
    group.byte_count = bounds.group_bytes_max
    assert group.is_full(bounds)
    group.byte_count, group.rows = 0, bounds.group_rows_max
    assert group.is_full(bounds)
