"""Covers: what is asked of the scripts and made of their answers, and who may renew a fact.

Not covered: the scripts, which only a server runs (tests/conformance/test_coordinator_redis.py),
and when bells ring (test_counted.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from dejaqueue.connections.redis import RedisConnection
from dejaqueue.coordinator import redis as facts
from dejaqueue.coordinator.counted import Told
from dejaqueue.coordinator.interface import Conflict, Fact
from dejaqueue.coordinator.redis import RedisCoordinator
from dejaqueue.errors import BadRequest

NAMES = ("values", "revisions", "ttls", "deadlines", "names", "counter")


class Server:
    """A server that knows what the scripts mean, and a channel."""

    def __init__(self) -> None:
        self.counter = 0
        self.facts: dict[str, tuple[bytes, int, str]] = {}
        self.renewed: list[str] = []
        self.keys: set[tuple[str, ...]] = set()
        self.words: list[bytes] = []
        self.subscribed: list[str] = []
        self.is_closed = False

    def register_script(self, text: str) -> Callable[..., Any]:
        assert text.startswith(facts._BEGIN), "what has vanished is dropped first, by each of them"
        name = next(
            name
            for name in ("_GET", "_LIST", "_PUT", "_RENEW", "_DELETE", "_COUNT")
            if text == facts._BEGIN + getattr(facts, name)
        )

        def run(*, keys: Sequence[str], args: Sequence[Any]) -> Any:
            self.keys.add(tuple(keys))
            channel, *arguments = args
            assert channel == "one:facts:changed"
            return getattr(self, name)(*arguments)

        return run

    def _GET(self, key: str) -> list[Any]:
        fact = self.facts.get(key)
        return [None, None] if fact is None else [fact[0], b"%d" % fact[1]]

    def _LIST(self, prefix: str) -> list[Any]:
        found: list[Any] = []
        for key in sorted(self.facts):
            if key.startswith(prefix):
                value, revision, _ = self.facts[key]
                found += [key.encode(), value, b"%d" % revision]
        return found

    def _differs(self, key: str, revision: str) -> bool:
        return revision != "" and revision != str(self.facts.get(key, (b"", 0, ""))[1])

    def _PUT(self, key: str, revision: str, value: bytes, ttl: str) -> int:
        if self._differs(key, revision):
            return -1
        self.counter += 1
        self.facts[key] = value, self.counter, ttl
        return self.counter

    def _RENEW(self, key: str, revision: str) -> int:
        if key not in self.facts or str(self.facts[key][1]) != revision:
            return 0
        self.renewed.append(key)
        return 1

    def _DELETE(self, key: str, revision: str) -> int:
        if self._differs(key, revision):
            return -1
        return int(self.facts.pop(key, None) is not None)

    def _COUNT(self) -> int:
        return self.counter

    def pubsub(self, *, ignore_subscribe_messages: bool) -> Server:
        assert ignore_subscribe_messages
        return self

    def subscribe(self, name: str) -> None:
        self.subscribed.append(name)

    def get_message(self, *, timeout: float) -> dict[str, bytes] | None:
        return {"data": self.words.pop(0)} if self.words else None

    def close(self) -> None:
        self.is_closed = True


class Connection:
    summary, prefix = "played 1", "one"

    def __init__(self) -> None:
        self.client = Server()
        self.asked: list[str] = []

    @contextmanager
    def answers(self, what: str) -> Iterator[None]:
        self.asked.append(what)
        yield

    def close(self) -> None:
        self.client.is_closed = True


@pytest.fixture
def connection() -> Connection:
    return Connection()


def opened(connection: Connection) -> RedisCoordinator:
    return RedisCoordinator(cast(RedisConnection, connection))


@pytest.fixture
def one(connection: Connection) -> RedisCoordinator:
    return opened(connection)


def test_a_fact_comes_back_with_its_revision__also_an_empty_one(one: RedisCoordinator) -> None:
    assert one.get("a/b") is None
    for value in (b"\x00value", b""):
        revision = one.put("a/b", value)
        assert one.get("a/b") == Fact("a/b", value, revision)


def test_facts_are_listed_by_how_they_begin(one: RedisCoordinator) -> None:
    revisions = {key: one.put(key, key.encode()) for key in ("b/2", "a", "b/1")}
    assert one.list("b/") == [
        Fact("b/1", b"b/1", revisions["b/1"]),
        Fact("b/2", b"b/2", revisions["b/2"]),
    ]
    assert one.list("c") == []


def test_a_change_upon_another_revision_is_a_conflict__one_without_a_revision_is_none(
    one: RedisCoordinator,
) -> None:
    first = one.put("a", b"1", 0)
    for wrong in (0, first + 5):
        with pytest.raises(Conflict, match=rf"a has not the revision {wrong}"):
            one.put("a", b"2", wrong)
        with pytest.raises(Conflict):
            one.delete("a", wrong)
    second = one.put("a", b"2", first)
    assert one.put("a", b"3") > second > first


def test_deleting_says_whether_it_was_there(one: RedisCoordinator) -> None:
    revision = one.put("a", b"1")
    assert one.delete("a", revision)
    assert not one.delete("a")


def test_only_who_put_a_fact_last_renews_it(one: RedisCoordinator, connection: Connection) -> None:
    """By the revision it got: another one that put it since has it now."""
    other = opened(connection)
    one.put("a", b"1", ttl_ms=1_000)
    assert one.renew("a")
    assert not other.renew("a")
    other.put("a", b"2", ttl_ms=1_000)
    assert not one.renew("a")
    assert other.renew("a")
    assert not one.renew("never")
    assert connection.client.renewed == ["a", "a"]


def test_a_time_to_live_goes_along__none_is_for_ever(
    one: RedisCoordinator, connection: Connection
) -> None:
    one.put("a", b"1", ttl_ms=1_500)
    one.put("b", b"1")
    assert [connection.client.facts[key][2] for key in ("a", "b")] == ["1500", ""]


def test_all_scripts_have_the_same_keys__below_the_prefix(
    one: RedisCoordinator, connection: Connection
) -> None:
    one.put("a", b"1")
    one.get("a")
    one.count()
    assert connection.client.keys == {tuple(f"one:facts:{name}" for name in NAMES)}


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one.get(""),
        lambda one: one.put("a b", b""),
        lambda one: one.put("a", b"x" * ((1 << 20) + 1)),
        lambda one: one.put("a", b"", -1),
        lambda one: one.put("a", b"", ttl_ms=1),
        lambda one: one.list("ä"),
        lambda one: one.delete("a*"),
        lambda one: one.renew(""),
    ],
)
def test_what_no_server_would_take_is_refused_before_it_is_asked(
    one: RedisCoordinator, connection: Connection, call: Callable[[RedisCoordinator], object]
) -> None:
    with pytest.raises(BadRequest):
        call(one)
    assert connection.asked == []


def test_a_channel_tells_number_and_key__or_that_several_changed(
    one: RedisCoordinator, connection: Connection
) -> None:
    channel = one.listen()
    connection.client.words = [b"7 a/b", b"8 "]
    assert [channel.hear(0), channel.hear(0), channel.hear(0)] == [
        Told(7, "a/b"),
        Told(8, ""),
        None,
    ]
    assert connection.client.subscribed == ["one:facts:changed"]
    channel.close()
    assert connection.client.is_closed


def test_the_count_is_that_of_the_last_change(one: RedisCoordinator) -> None:
    assert one.count() == 0
    assert one.put("a", b"1") == one.count() == 1


def test_closing_leaves_the_facts(one: RedisCoordinator, connection: Connection) -> None:
    one.put("a", b"1")
    one.close()
    assert connection.client.is_closed
    assert opened(connection).get("a") is not None
