"""DOQ's calls on a broker: ids, turns of partitions, what is sent anew. HTTP: test_routes.py."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import BadRequest, DejaQError, DuplicateKey, Refused, TopicUnknown, TryLater
from dejaqueue.http import gather
from dejaqueue.http.doq import messages as module
from dejaqueue.http.doq.ids import Ids
from dejaqueue.http.doq.messages import Messages
from dejaqueue.http.doq.rows import Row
from dejaqueue.http.doq.shapes import DoqNewMessage
from dejaqueue.model import GroupOrder, OnDuplicate, Topic, TopicKind
from dejaqueue.testing.virtual_clock import VirtualClock

Answer = TypeVar("Answer")


@pytest.fixture
def messages(broker: Broker, clock: VirtualClock) -> Messages:
    kept = OnDuplicate.KEEP  # as DOQ's own call makes them
    broker.create_topic(Topic("q", on_duplicate=kept))
    broker.create_topic(Topic("fair", kind=TopicKind.FAIR, on_duplicate=kept))
    broker.create_topic(Topic("wide", partitions=3, on_duplicate=kept))
    return Messages(broker, Ids(clock))


def run(call: Coroutine[Any, Any, Answer]) -> Answer:
    return asyncio.run(call)


async def put(messages: Messages, content: str, queue: str = "q", **more: Any) -> Row:
    message = DoqNewMessage(content=content, **({"priority": 1} | more))
    return await messages.enqueue(queue, message, NOBODY)


def test_an_id_is_made_or_is_the_producers__and_one_id_is_one_message(messages: Messages) -> None:
    async def send() -> list[Row]:
        made = [await put(messages, content) for content in "ab"]
        named = [await put(messages, content, id="77") for content in "cd"]
        return [*made, *named, await messages.get("q", "77")]

    first, second, third, again, found = run(send())
    assert first.id != second.id
    assert third.id == "77"
    assert again == found, "it is the one that lives"
    assert (again.content, third.content) == ("c", "c")


def test_a_topic_that_was_made_to_reject_says_which_message_has_the_id(
    messages: Messages, broker: Broker
) -> None:
    """And a message of its own is not said to be another sender's."""
    broker.create_topic(Topic("strict"))

    async def send() -> list[Row]:
        return [await put(messages, content, "strict", id="77") for content in "ab"]

    with pytest.raises(DuplicateKey, match=r"the key '77', its id is \d+$") as refused:
        run(send())
    assert refused.value.id >= 0
    assert run(messages.get("strict", "77")).content == "a"


def test_an_id_that_was_made_is_made_anew_where_a_topic_rejects_it(
    messages: Messages, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(Topic("strict"))
    ids = iter(["77", "77", "78"])
    monkeypatch.setattr(messages._ids, "take", lambda count: [next(ids)])

    async def send() -> list[str]:
        return [(await put(messages, content, "strict")).id for content in "ab"]

    assert run(send()) == ["77", "78"]


def test_an_id_whose_message_is_gone_can_be_used_again(messages: Messages) -> None:
    async def send() -> Row:
        await put(messages, "a", id="77")
        await messages.dequeue("q", ack=True)
        return await put(messages, "b", id="77")

    assert run(send()).content == "b"


def test_an_id_that_comes_and_goes_is_tried_so_often_and_no_more(
    messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    async def gone(queue_name: str, text: str) -> Row:
        tries.append(text)
        raise Refused("message not found")

    async def send() -> None:
        await put(messages, "a", id="77")
        monkeypatch.setattr(messages, "get", gone)
        await put(messages, "b", id="77")

    with pytest.raises(TryLater, match="77 comes and goes"):
        run(send())
    assert tries == ["77"] * module.ENQUEUE_TRIES


def test_partitions_take_turns__and_those_without_a_message_are_passed_over(
    messages: Messages, broker: Broker
) -> None:
    async def take() -> list[int]:
        for number in range(9):
            await put(messages, str(number), queue="wide")
        rows = [await messages.dequeue("wide", ack=True) for _ in range(9)]
        with pytest.raises(Refused, match="queue is empty"):
            await messages.dequeue("wide", ack=True)
        return [row.message_id >> 47 for row in rows]

    homes = run(take())
    assert len(homes) == 9
    assert len(set(homes)) > 1
    assert all(homes.count(home) < 9 for home in homes)


def test_what_was_taken_at_once_is_done__what_was_not_waits_for_its_ack(
    messages: Messages,
) -> None:
    async def take() -> None:
        for content in "ab":
            await put(messages, content)
        done = await messages.dequeue("q", ack=True)
        held = await messages.dequeue("q", ack=False)
        with pytest.raises(Refused, match="message not found"):
            await messages.ack("q", done.id)
        await messages.touch("q", held.id)
        await messages.ack("q", held.id)
        with pytest.raises(Refused, match="not found"):
            await messages.ack("q", held.id)

    run(take())


def test_a_message_that_nobody_has_cannot_be_acked__one_that_somebody_has_not_be_moved(
    messages: Messages,
) -> None:
    async def change() -> None:
        row = await put(messages, "a")
        with pytest.raises(Refused, match="not found among those that wait for an ack"):
            await messages.ack("q", row.id)
        await messages.dequeue("q", ack=False)
        with pytest.raises(Refused, match="the message is with a consumer"):
            await messages.set_priority("q", row.id, 5, NOBODY)
        await messages.nack("q", row.id, 0, None)
        await messages.set_priority("q", row.id, 5, NOBODY)
        assert (await messages.get("q", row.id)).priority == 5
        await messages.delete("q", row.id, NOBODY)
        with pytest.raises(Refused):
            await messages.get("q", row.id)

    run(change())


def test_a_message_with_a_key_is_not_found_by_the_number_that_the_broker_gave_it(
    messages: Messages,
) -> None:
    async def look() -> None:
        row = await put(messages, "a", id="77")
        assert row.message_id != 77
        with pytest.raises(Refused):
            await messages.get("q", str(row.message_id))
        assert (await messages.get("q", "77")).message_id == row.message_id

    run(look())


def test_other_metadata_means_a_new_message_under_the_old_id(
    messages: Messages, broker: Broker
) -> None:
    async def give_back() -> tuple[Row, Row]:
        await put(messages, "a", id="77", metadata={"retry": "0"})
        taken = await messages.dequeue("q", ack=False)
        await messages.nack("q", "77", 0, {"retry": "1"})
        return taken, await messages.get("q", "77")

    taken, found = run(give_back())
    assert (found.content, found.metadata, found.priority) == ("a", {"retry": "1"}, 1)
    assert found.message_id != taken.message_id
    stats = broker.call("stats", {"topic": "q"})
    assert (stats["scheduled"], stats["leased"], stats["staged"]) == (1, 0, 0)


def test_the_same_metadata_means_the_same_message(messages: Messages) -> None:
    async def give_back() -> tuple[Row, Row]:
        await put(messages, "a", id="77", metadata={"retry": "0"})
        taken = await messages.dequeue("q", ack=False)
        await messages.nack("q", "77", 0, {"retry": "0"})
        return taken, await messages.get("q", "77")

    taken, found = run(give_back())
    assert found.message_id == taken.message_id


def test_what_was_lost_meanwhile_is_not_sent_anew(messages: Messages, broker: Broker) -> None:
    """Both or neither: the lease is over, so the old one is there, and no new one is."""

    async def give_back() -> None:
        await put(messages, "a", id="77", metadata={"retry": "0"})
        with pytest.raises(Refused, match="not found among those that wait"):
            await messages.nack("q", "77", 0, {"retry": "1"})
        assert (await messages.get("q", "77")).metadata == {"retry": "0"}

    run(give_back())
    stats = broker.call("stats", {"topic": "q"})
    assert (stats["scheduled"], stats["staged"], stats["staged_acks"]) == (1, 0, 0)


def test_a_fair_queue_has_its_own_order(messages: Messages) -> None:
    async def change() -> None:
        await put(messages, "a", queue="fair", id="7", group="g")
        with pytest.raises(Refused, match="hands out the messages of a group as they came"):
            await messages.set_priority("fair", "7", 5, NOBODY)
        taken = await messages.dequeue("fair", ack=False)
        await messages.nack("fair", "7", 9, None)
        found = await messages.get("fair", "7")
        assert (found.priority, found.group) == (9, "g")
        assert found.message_id != taken.message_id, "the priority is in a header there"

    run(change())


@pytest.mark.parametrize("text", ["x", "-1", "1.5", str(1 << 64)])
def test_what_is_no_id_is_refused(messages: Messages, text: str) -> None:
    with pytest.raises(BadRequest, match="id: a whole number"):
        run(messages.get("q", text))


def test_a_topic_that_is_no_queue_is_not_there(messages: Messages, broker: Broker) -> None:
    broker.create_topic(Topic("cron", kind=TopicKind.CRON))
    for name in ("cron", "none"):
        with pytest.raises(TopicUnknown):
            messages.topic(name)


def test_queues_that_have_nothing_on_their_way_are_forgotten(
    messages: Messages, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "GATHERS_MAX", 2)

    async def send() -> None:
        for number in range(5):
            broker.create_topic(Topic(f"q{number}"))
            await put(messages, "a", queue=f"q{number}")
            assert len(messages._gathers) <= 2

    run(send())


def test_a_queue_that_is_deleted_is_forgotten(messages: Messages, broker: Broker) -> None:
    async def use() -> None:
        await put(messages, "a")
        await messages.dequeue("q", ack=False)
        broker.call("delete_topic", {"name": "q"})
        broker.create_topic(Topic("q"))
        with pytest.raises(DejaQError):
            await messages.dequeue("q", ack=False)

    run(use())


def test_a_group_of_a_fair_queue_goes_by_priority__which_changes_and_nacks_change(
    messages: Messages, broker: Broker
) -> None:
    ordered = Topic("ordered", TopicKind.FAIR, group_order=GroupOrder.PRIORITY)
    broker.create_topic(ordered)

    async def send() -> list[tuple[str, int]]:
        sent = {}
        for content, priority in (("a", 5), ("b", 70_001), ("c", 1), ("d", 70_000)):
            sent[content] = (await put(messages, content, "ordered", priority=priority)).id
        await messages.set_priority("ordered", sent["a"], 0, NOBODY)
        with pytest.raises(BadRequest, match="65534"):
            await messages.set_priority("ordered", sent["a"], 65_535, NOBODY)
        taken = await messages.dequeue("ordered", ack=False)
        await messages.nack("ordered", taken.id, 9, None)
        second = await messages.dequeue("ordered", ack=False)
        await messages.nack("ordered", second.id, 70_002, None)
        rows = [await messages.dequeue("ordered", ack=True) for _ in range(4)]
        assert rows[0].attempts == 2, "it went back, and was not sent anew"
        return [(row.content, row.priority) for row in rows]

    assert run(send()) == [("a", 9), ("b", 70_001), ("d", 70_000), ("c", 70_002)]


def test_in_a_fair_topic_by_arrival_a_priority_cannot_be_changed(messages: Messages) -> None:
    async def send() -> None:
        row = await put(messages, "a", "fair")
        with pytest.raises(Refused, match="as they came"):
            await messages.set_priority("fair", row.id, 5, NOBODY)

    run(send())
