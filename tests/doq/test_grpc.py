"""A real `dejaq serve` with DOQ's gRPC API, and DOQ's generated Python client: every call, both
streams.

Not covered: keys, roles, TLS, quotas (tests/integration/test_doq_grpc.py); what is no message at
all (tests/hostile/test_doq_grpc.py); the Go client (test_go.py).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.doq.grpc_client import request, stub_of
from tests.patience import PATIENCE_SECONDS

CODE = grpc.StatusCode


@pytest.fixture
def doq(served: dict[str, Any]) -> Iterator[Any]:
    """The client of a broker without queues."""
    with grpc.insecure_channel(served["doq_address"]) as channel:
        stub = stub_of(channel)
        for one in stub.GetQueues(request("GetQueues"), timeout=PATIENCE_SECONDS).queues:
            stub.DeleteQueue(request("DeleteQueue", name=one.name), timeout=PATIENCE_SECONDS)
        yield stub


def call(doq: Any, name: str, /, **fields: Any) -> Any:
    return getattr(doq, name)(request(name, **fields), timeout=PATIENCE_SECONDS)


def refused(doq: Any, name: str, /, **fields: Any) -> tuple[Any, str]:
    """Status and text."""
    with pytest.raises(grpc.RpcError) as error:
        call(doq, name, **fields)
    return error.value.code(), error.value.details()


def make(doq: Any, kind: str = "fair", **settings: Any) -> None:
    assert call(doq, "CreateQueue", name="q", type=kind, settings=settings).success


def put(doq: Any, content: str, priority: int = 1, **more: Any) -> Any:
    return call(doq, "Enqueue", queueName="q", content=content, priority=priority, **more)


def take(doq: Any, *, ack: bool = True) -> Any:
    return call(doq, "Dequeue", queueName="q", ack=ack)


def contents(doq: Any) -> list[str]:
    """All that is due, in order."""
    found = []
    while True:
        try:
            found.append(take(doq).content)
        except grpc.RpcError as error:
            assert error.code() == CODE.NOT_FOUND
            return found


def test_a_queue_is_made_shown_changed_listed_and_deleted(doq: Any) -> None:
    make(doq, strategy="WEIGHTED", max_unacked=7, ack_timeout=90)
    make(doq, strategy="WEIGHTED")  # once more is fine
    shown = call(doq, "GetQueue", name="q")
    assert (shown.name, shown.type, shown.ready, shown.unacked, shown.total) == (
        "q",
        "fair",
        0,
        0,
        0,
    )
    kept = shown.settings
    assert (kept.strategy, kept.max_unacked, kept.ack_timeout) == (2, 7, 90)
    call(doq, "UpdateQueue", name="q", settings={"strategy": "ROUND_ROBIN", "ack_timeout": 60})
    kept = call(doq, "GetQueue", name="q").settings
    assert (kept.strategy, kept.max_unacked, kept.ack_timeout) == (1, 0, 60), "all is replaced"
    call(doq, "CreateQueue", name="later", type="delayed")
    assert [one.name for one in call(doq, "GetQueues").queues] == ["later", "q"]
    assert [one.name for one in call(doq, "GetQueues", type="delayed").queues] == ["later"]
    assert call(doq, "DeleteQueue", name="q").success
    assert refused(doq, "GetQueue", name="q")[0] is CODE.NOT_FOUND
    assert refused(doq, "DeleteQueue", name="q")[0] is CODE.NOT_FOUND


def test_a_message_is_put_read_taken_and_settled(doq: Any) -> None:
    make(doq)
    sent = put(doq, "a", 5, group="g", metadata={"n": "1"})
    assert (sent.success, sent.content, sent.group, sent.priority) == (True, "a", "g", 5)
    assert sent.id
    assert dict(sent.metadata) == {"n": "1"}
    assert call(doq, "Get", queueName="q", id=sent.id).content == "a"
    assert refused(doq, "Ack", queueName="q", id=sent.id)[0] is CODE.NOT_FOUND, "nobody has it"
    taken = take(doq, ack=False)
    assert (taken.id, dict(taken.metadata)) == (sent.id, {"n": "1"})
    shown = call(doq, "GetQueue", name="q")
    assert (shown.ready, shown.unacked, shown.total) == (0, 1, 1)
    assert shown.stats.enqueueRPS > 0
    assert call(doq, "Touch", queueName="q", id=sent.id).success
    status, _ = refused(doq, "UpdatePriority", queueName="q", id=sent.id, priority=1)
    assert status is CODE.FAILED_PRECONDITION, "a consumer has it"
    assert call(doq, "Nack", queueName="q", id=sent.id, metadata={"n": "2"}).success
    again = take(doq, ack=False)
    assert (again.id, dict(again.metadata), again.priority) == (sent.id, {"n": "2"}, 5)
    assert call(doq, "Ack", queueName="q", id=sent.id).success
    other = put(doq, "b")
    assert call(doq, "Delete", queueName="q", id=other.id).success
    assert refused(doq, "Get", queueName="q", id=other.id) == (CODE.NOT_FOUND, "message not found")
    assert refused(doq, "Dequeue", queueName="q") == (CODE.NOT_FOUND, "queue is empty")


def test_an_id_that_was_generated_makes_a_message_once(doq: Any) -> None:
    make(doq)
    first, second = call(doq, "GenerateIDs", number=2).ids
    assert [put(doq, content, id=first).content for content in "ab"] == ["a", "a"]
    assert put(doq, "c", id=second).id == second
    assert contents(doq) == ["a", "c"]
    assert refused(doq, "GenerateIDs", number=1_001)[0] is CODE.INVALID_ARGUMENT


def test_groups_take_turns_and_each_goes_by_priority__that_changes_and_nacks_change(
    doq: Any,
) -> None:
    make(doq)
    for content, priority, group in (
        ("a9", 9, "a"),
        ("a1", 1, "a"),
        ("b5", 5, "b"),
        ("a5", 5, "a"),
    ):
        put(doq, content, priority, group=group)
    last = put(doq, "b7", 7, group="b")
    assert call(doq, "UpdatePriority", queueName="q", id=last.id, priority=2).success
    first = take(doq, ack=False)
    assert first.content == "a1"
    call(doq, "Nack", queueName="q", id=first.id, priority=7)
    assert contents(doq) == ["b7", "a5", "b5", "a1", "a9"]


def test_a_delayed_queue_goes_by_priority_as_time(doq: Any) -> None:
    make(doq, "delayed")
    far = 4_000_000_000
    for content, priority in (("late", far), ("c", 30), ("a", 10), ("b", 20)):
        put(doq, content, priority)
    assert contents(doq) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("name", "fields", "status"),
    [
        ("CreateQueue", {"name": "x", "type": "other"}, CODE.INVALID_ARGUMENT),
        ("CreateQueue", {"name": "ü", "type": "fair"}, CODE.INVALID_ARGUMENT),
        ("CreateQueue", {"name": "q", "type": "delayed"}, CODE.FAILED_PRECONDITION),
        ("CreateQueue", {"name": "x", "type": "fair", "settings": {"strategy": 9}},
         CODE.INVALID_ARGUMENT),
        ("CreateQueue", {"name": "x", "type": "fair", "settings": {"ack_timeout": 4_000_000_000}},
         CODE.INVALID_ARGUMENT),
        ("Enqueue", {"queueName": "q", "content": "a", "priority": -1}, CODE.INVALID_ARGUMENT),
        ("Enqueue", {"queueName": "q", "content": "a" * 1_100_000}, CODE.INVALID_ARGUMENT),
        ("Enqueue", {"queueName": "none", "content": "a"}, CODE.NOT_FOUND),
        ("UpdatePriority", {"queueName": "q", "id": 1, "priority": 65_535}, CODE.INVALID_ARGUMENT),
        ("Nack", {"queueName": "q", "id": 1}, CODE.NOT_FOUND),
    ],
)  # fmt: skip
def test_what_is_refused_says_why(doq: Any, name: str, fields: dict[str, Any], status: Any) -> None:
    make(doq)
    code, text = refused(doq, name, **fields)
    assert code is status, text
    assert text


class Asked:
    """The requests of a stream, one when it is said; ended at the end of the test."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._requests.get, None)

    def say(self, name: str, /, **fields: Any) -> None:
        self._requests.put(request(name, **fields))

    def end(self) -> None:
        self._requests.put(None)


def test_streams_carry_a_message_each_turn__and_wait_for_those_to_come(doq: Any) -> None:
    make(doq)
    sending, taking = Asked(), Asked()
    sent = doq.EnqueueStream(iter(sending), timeout=PATIENCE_SECONDS)
    taken = doq.DequeueStream(iter(taking), timeout=PATIENCE_SECONDS)
    taking.say("Dequeue", queueName="q", ack=True)
    for number in range(20):
        sending.say("Enqueue", queueName="q", content=str(number), group="g")
        assert next(sent).content == str(number)
        assert next(taken).content == str(number)
        taking.say("Dequeue")
    sending.end()
    assert list(sent) == []
    taken.cancel()


def test_messages_that_were_sent_ahead_are_answered_in_order(doq: Any) -> None:
    make(doq)
    asked = [request("Enqueue", queueName="q", content=str(number)) for number in range(300)]
    answers = list(doq.EnqueueStream(iter(asked), timeout=PATIENCE_SECONDS))
    assert [one.content for one in answers] == [str(number) for number in range(300)]
    assert len({one.id for one in answers}) == 300
    assert contents(doq) == [str(number) for number in range(300)]


def test_a_stream_without_ack_leaves_messages_to_be_settled(doq: Any) -> None:
    make(doq, "delayed")
    taking = Asked()
    taken = doq.DequeueStream(iter(taking), timeout=PATIENCE_SECONDS)
    taking.say("Dequeue", queueName="q")
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(next(taken)))
    waiting.start()
    put(doq, "a", 10)
    waiting.join(PATIENCE_SECONDS)
    assert found[0].content == "a"
    call(doq, "Nack", queueName="q", id=found[0].id)
    taking.say("Dequeue")
    again = next(taken)
    assert (again.id, again.priority) == (found[0].id, 10)
    call(doq, "Ack", queueName="q", id=again.id)
    taking.end()
    assert list(taken) == []
    assert call(doq, "GetQueue", name="q").total == 0


def test_the_first_that_is_refused_ends_a_stream(doq: Any) -> None:
    make(doq)
    wrong = [
        request("Enqueue", queueName="q", content="a"),
        request("Enqueue", queueName="none", content="b"),
        request("Enqueue", queueName="q", content="c"),
    ]
    sent = doq.EnqueueStream(iter(wrong), timeout=PATIENCE_SECONDS)
    assert next(sent).content == "a"
    with pytest.raises(grpc.RpcError) as error:
        next(sent)
    assert error.value.code() is CODE.NOT_FOUND
    taken = doq.DequeueStream(
        iter([request("Dequeue", queueName="none")]), timeout=PATIENCE_SECONDS
    )
    with pytest.raises(grpc.RpcError) as error:
        next(taken)
    assert error.value.code() is CODE.NOT_FOUND
