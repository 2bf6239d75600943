"""Requests are answered once, whatever breaks off."""

from __future__ import annotations

import pytest

from dejaqueue.broker.partition.requests import LookRequest
from dejaqueue.engine.commands import Cancel
from dejaqueue.errors import InternalError, Unavailable
from dejaqueue.wire.frames import Reply
from tests.unit.broker.cores import Served, sequences


@pytest.fixture
def served() -> Served:
    return Served()


def test_what_waits_is_weighed_and_taken_in_its_order(served: Served) -> None:
    inbox, requests = served.inbox, [served.request([b"a" * 10]), served.request([b"b"])]
    for request in requests:
        inbox.put(request)
    assert inbox.byte_count == sum(request.byte_count for request in requests) > 10
    assert inbox.first is requests[0]
    assert [inbox.take(), inbox.take()] == requests
    assert (inbox.is_empty, inbox.byte_count) == (True, 0)


@pytest.mark.parametrize(
    ("acks", "now", "durable"), [("all", 0, 1), ("leader", 1, 1), ("none", 0, 0)]
)
def test_an_answer_comes_when_it_was_asked_for(
    served: Served, acks: str, now: int, durable: int
) -> None:
    served.inbox.put(served.request([b"a"]))
    request = served.inbox.take()
    assert not isinstance(request, LookRequest)
    served.inbox.answer(request, Reply(1, 1, 5), acks)
    assert len(served.replies) == now
    served.core.commits.commit_all()
    assert len(served.replies) == durable


def test_a_step_that_breaks_off_answers_what_is_in_hand_and_not_what_was_answered(
    served: Served,
) -> None:
    looks: list[object] = []
    for request in [served.request([b"a"]), served.request([b"b"])]:
        served.inbox.put(request)
    served.inbox.put(LookRequest(looks.append))
    first = served.inbox.take()
    assert not isinstance(first, LookRequest)
    served.inbox.refuse(first, Unavailable("full"))
    served.inbox.take()
    served.inbox.give_up(InternalError("broke off"))
    served.inbox.turn_away(Unavailable("closed"))
    assert [str(reply.error) for reply in served.replies][:1] == ["full"]
    assert len(served.replies) == 2
    assert looks == [served.core]  # a look asks by itself what is wrong


def test_what_fails_before_the_engine_changed_is_the_request_s_own_fault(served: Served) -> None:
    inbox = served.inbox
    inbox.put(served.request([b"a", b"b"]))
    inbox.put(served.request([b"c"]))
    both = [inbox.take(), inbox.take()]

    def breaks() -> None:
        raise KeyError("key")

    def breaks_late() -> None:
        served.core.apply(Cancel(served.core.now_ms(), sequences(1)))
        raise KeyError("key")

    assert not inbox.guarded(both, breaks)  # type: ignore[arg-type]
    assert served.replies == []
    assert inbox.guarded(both[:1], breaks)  # type: ignore[arg-type]
    [reply] = served.replies
    assert isinstance(reply.error, InternalError)
    assert reply.rows == 2
    with pytest.raises(KeyError):  # nobody knows what that left behind
        inbox.guarded(both[1:], breaks_late)  # type: ignore[arg-type]
