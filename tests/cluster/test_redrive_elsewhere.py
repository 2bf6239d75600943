"""Dead letters that are sent to a topic of another broker arrive there: once, as they are.

Not covered: letters that go back to where they came from, which is the same broker's
(test_spread.py, tests/rules/test_rule_18_dead_letters.py on three brokers).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue import Client
from dejaqueue.broker.letters import far_letters
from dejaqueue.errors import TopicUnknown, TryLater, Unavailable
from tests.cluster.spread import NAMES, SpreadCluster
from tests.patience import until

DEAD = "t.dead"


@pytest.fixture
def cluster() -> Iterator[SpreadCluster]:
    with SpreadCluster() as made:
        made.dealt()
        yield made


def _topic_elsewhere(cluster: SpreadCluster, client: Client, **settings: Any) -> str:
    """A topic that another broker serves than the dead letters of "t"."""
    owner = cluster.owner(DEAD)
    for number in range(30):
        client.create_topic(f"other{number}", **settings)
        if cluster.owner(f"other{number}") is not owner:
            return f"other{number}"
    raise AssertionError("all topics at one broker")


def _die(client: Client) -> None:
    """Three messages of "t" become letters."""
    client.create_topic("t", max_attempts=1)
    rows = [
        {"payload": b"a", "key": "k", "group": "g", "priority": 7, "tags": ["x", "y"]},
        {"payload": b"b", "headers": {"trace": "1"}},
        {"payload": b""},
    ]
    client.send_batch("t", rows)
    with client.consume("t", max_messages=3) as messages:
        for message in messages:
            message.nack(reason="no")
    until(lambda: len(_rows(client, DEAD)) == 3, "three letters")


def _rows(client: Client, topic: str) -> list[dict[str, Any]]:
    """What is in a topic; nothing while that is made, or on its way."""
    try:
        rows: list[dict[str, Any]] = client.peek(topic).to_pylist()
    except (TopicUnknown, TryLater):
        return []
    return rows


def _seen(client: Client, topic: str) -> list[tuple[str, Any]]:
    return sorted((row["payload"].decode(), row["key"] or "") for row in _rows(client, topic))


def test_letters_go_to_a_topic_of_another_broker(cluster: SpreadCluster) -> None:
    with cluster.client() as client:
        _die(client)
        other = _topic_elsewhere(cluster, client)
        assert client.redrive(DEAD, to=other).moved == 3
        until(lambda: len(_seen(client, other)) == 3, "the letters at the other broker")
        until(lambda: not _rows(client, DEAD), "none left")
        found = {row["payload"]: row for row in _rows(client, other)}
        first = found[b"a"]
        assert (first["key"], first["group"], first["priority"]) == ("k", "g", 7)
        assert sorted(first["tags"]) == ["x", "y"]
        assert dict(found[b"b"]["headers"]) == {"trace": "1"}
        assert sorted(found) == [b"", b"a", b"b"]


def test_an_answer_that_is_lost_doubles_nothing(
    cluster: SpreadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent again under the number that it had."""
    asked: list[str] = []
    take = far_letters.take

    def losing(open_write: far_letters.OpenWrite, body: dict[str, Any]) -> Future[dict[str, Any]]:
        taken = take(open_write, body)
        asked.append(body["number"])
        if len(asked) > 2:
            return taken
        answer: Future[dict[str, Any]] = Future()
        taken.add_done_callback(lambda _: answer.set_exception(Unavailable("lost", 20)))
        return answer

    monkeypatch.setattr(far_letters, "take", losing)
    with cluster.client() as client:
        _die(client)
        other = _topic_elsewhere(cluster, client)
        assert client.redrive(DEAD, to=other).moved == 3
        until(lambda: len(asked) == 3, "the same parcel, three times")
        assert len(set(asked)) == 1
        assert _seen(client, other) == [("", ""), ("a", "k"), ("b", "")]


def test_a_letter_whose_key_is_taken_there_stays(cluster: SpreadCluster) -> None:
    with cluster.client() as client:
        _die(client)
        other = _topic_elsewhere(cluster, client)
        client.send(other, b"has it", key="k", delay=3_600)
        answer = client.redrive(DEAD, to=other)
        assert (answer.moved, answer.left) == (2, 1)
        until(lambda: len(_seen(client, other)) == 3, "the letters at the other broker")
        assert _seen(client, other) == [("", ""), ("b", ""), ("has it", "k")]
        until(lambda: [row["payload"] for row in _rows(client, DEAD)] == [b"a"], "one stays")


def test_the_owner_of_the_topic_changes__the_letters_follow(cluster: SpreadCluster) -> None:
    with cluster.client() as client:
        _die(client)
        other = _topic_elsewhere(cluster, client)
        [name] = cluster.owners(other)
        [home] = cluster.owners(DEAD)
        door = next(one for one in NAMES if one not in (name, home))
        with cluster.client(door) as asking:
            cluster.stop(name)
            assert asking.redrive(DEAD, to=other).moved == 3
            until(lambda: len(_seen(asking, other)) == 3, "the letters at the next owner")
