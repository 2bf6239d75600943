"""Covers: appends by one script, in calls of bounded size; objects whole or not at all.

Not covered: the scripts themselves, which only a server runs (tests/conformance/
test_records_redis.py), and what its errors mean (tests/unit/connections/test_redis.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal.records import redis as records
from dejaqueue.journal.records.redis import APPEND, DROP, PUT, RedisRecordLog, RedisRecordStore
from tests.unit.journal.records.log_cases import LogCases, contents

redis = pytest.importorskip("redis")


class Client:
    """A server that knows streams, lists and a hash, and does what the scripts say."""

    def __init__(self) -> None:
        self.streams: dict[str, tuple[str, dict[int, bytes]]] = {}
        self.lists: dict[str, list[bytes]] = {}
        self.expiring: set[str] = set()
        self.objects: dict[str, bytes] = {}
        self.knows_script = True
        self.calls: list[str] = []

    # --- streams

    def register_script(self, text: str) -> Any:
        assert text == APPEND
        return SimpleNamespace(sha="sha of it")

    def evalsha(self, sha: str, count: int, key: str, *arguments: Any) -> int:
        self.calls.append("evalsha")
        if not self.knows_script:
            raise redis.exceptions.NoScriptError("no such script")
        assert sha == "sha of it"
        return self._append(key, *arguments)

    def eval(self, text: str, count: int, key: str, *arguments: Any) -> int:
        self.calls.append("eval")
        if text == APPEND:
            return self._append(key, *arguments)
        if text == PUT:
            return self._put(*arguments)
        assert text == DROP
        for name in arguments[1:]:
            before = self.objects.pop(name, None)
            if before is not None:
                self.lists.pop(arguments[0] + before.decode().split(" ")[0], None)
        return 1

    def _append(self, key: str, last: str, *more: Any) -> int:
        known, found = self.streams.get(key, ("0-0", {}))
        if known != last:
            return 0
        found = dict(found)
        for name, content in zip(more[::2], more[1::2], strict=True):
            found[int(name.partition("-")[0])] = content
            known = name
        self.streams[key] = known, found
        return 1

    def xinfo_stream(self, key: str) -> dict[str, bytes]:
        if key not in self.streams:
            raise redis.exceptions.ResponseError("no such key")
        return {"last-generated-id": self.streams[key][0].encode()}

    def xrange(self, key: str, first: str, last: str, *, count: int) -> list[Any]:
        self.calls.append("xrange")
        _, found = self.streams.get(key, ("0-0", {}))
        low, high = (int(text.partition("-")[0]) for text in (first, last))
        numbers = sorted(number for number in found if low <= number <= high)[:count]
        return [(b"%d-0" % number, {b"r": found[number]}) for number in numbers]

    def xtrim(self, key: str, *, minid: str, approximate: bool) -> None:
        assert not approximate
        known, found = self.streams[key]
        low = int(minid.partition("-")[0])
        self.streams[key] = known, {n: one for n, one in found.items() if n >= low}

    def scan_iter(self, *, match: str, count: int) -> Iterator[str]:
        return iter([key for key in self.streams if key.startswith(match.rstrip("*"))])

    def unlink(self, *keys: str) -> None:
        for key in keys:
            del self.streams[key]

    # --- objects

    def rpush(self, key: str, content: bytes) -> None:
        self.lists.setdefault(key, []).append(content)

    def expire(self, key: str, seconds: int) -> None:
        assert seconds > 0
        self.expiring.add(key)

    def _put(self, name: str, facts: str, pieces: str, beginning: str) -> int:
        if pieces:
            if pieces not in self.lists:
                return 0
            self.expiring.discard(pieces)
        before = self.objects.get(name)
        self.objects[name] = facts.encode()
        if before is not None:
            self.lists.pop(beginning + before.decode().split(" ")[0], None)
        return 1

    def hget(self, key: str, name: str) -> bytes | None:
        return self.objects.get(name)

    def lrange(self, key: str, first: int, last: int) -> list[bytes]:
        return self.lists.get(key, [])[first : last + 1]

    def hscan_iter(self, key: str, *, match: str, count: int) -> Iterator[tuple[bytes, bytes]]:
        beginning = match.rstrip("*")
        found = [(name.encode(), b"") for name in self.objects if name.startswith(beginning)]
        return iter([*found, *found])  # a server may give a name twice


class Connection:
    """A connection to that server."""

    summary, prefix = "played 1", "one"

    def __init__(self) -> None:
        self.client = Client()

    @contextmanager
    def answers(self, what: str) -> Iterator[None]:
        yield

    def close(self) -> None:
        pass


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> RedisRecordStore:
    monkeypatch.setattr(records, "RedisConnection", lambda url: Connection())
    return RedisRecordStore("redis://h")


@pytest.fixture
def client(store: RedisRecordStore) -> Client:
    found = store._connection.client
    assert isinstance(found, Client)
    return found


@pytest.fixture
def log(store: RedisRecordStore) -> RedisRecordLog:
    opened = store.open("t", 0)
    assert isinstance(opened, RedisRecordLog)
    return opened


# --- records


class TestLog(LogCases):
    """The cases of every log; what is this server's own is below."""


def test_a_log_begins_with_its_first_append(log: RedisRecordLog) -> None:
    assert (log.last(), contents(log)) == (0, [])
    log.append(0, [[b"a", b"b"], [memoryview(b"c")]])
    assert (log.last(), contents(log)) == (2, [(1, b"ab"), (2, b"c")])


def test_one_call_has_a_most_of_bytes__and_numbers_go_on(
    log: RedisRecordLog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "CALL_BYTES", 10)
    sizes = [6, 4, 1, 20, 3]
    log.append(0, [[b"x" * size] for size in sizes])
    assert [(n, len(one)) for n, one in contents(log)] == list(enumerate(sizes, 1))
    assert client.calls.count("evalsha") == 4


def test_another_owner_between_two_calls_leaves_the_outcome_unknown(
    log: RedisRecordLog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the append is there: whoever made it must find out, not begin again."""
    monkeypatch.setattr(records, "CALL_BYTES", 1)
    append = client._append

    def interrupted(key: str, last: str, *more: Any) -> int:
        if last == "1-0":
            append(key, "1-0", "2-0", b"of another owner")
        return append(key, last, *more)

    monkeypatch.setattr(client, "_append", interrupted)
    with pytest.raises(Unavailable, match="behind a part of this append"):
        log.append(0, [[b"a"], [b"b"]])
    assert contents(log) == [(1, b"a"), (2, b"of another owner")]


def test_a_server_that_forgot_the_script_is_told_it_again(
    log: RedisRecordLog, client: Client
) -> None:
    """It did not run, so it may be sent again: no other answer may."""
    client.knows_script = False
    log.append(0, [[b"a"]])
    assert client.calls == ["evalsha", "eval"]
    assert log.last() == 1


def test_reading_goes_on_by_the_size_of_what_came(
    log: RedisRecordLog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "CALL_BYTES", 100)
    log.append(0, [[b"x" * 10]] * 25)
    client.calls.clear()
    assert [number for number, _ in log.read(3, 24)] == list(range(3, 24))
    assert client.calls.count("xrange") <= 5
    assert list(log.read(26, 99)) == []


def test_dropping_a_topic_takes_all_its_logs_and_no_other(store: RedisRecordStore) -> None:
    for topic, partition in (("t", 0), ("t", 1), ("t2", 0)):
        store.open(topic, partition).append(0, [[b"x"]])
    store.drop("t")
    assert [store.open(*name).last() for name in (("t", 0), ("t", 1), ("t2", 0))] == [0, 0, 1]


# --- objects


@pytest.mark.parametrize("size", [0, 1, 4, 5, 23])
def test_an_object_comes_back_whatever_its_size(
    store: RedisRecordStore, client: Client, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(records, "PIECE_BYTES", 4)
    monkeypatch.setattr(records, "CALL_BYTES", 8)
    content = bytes(range(size))
    store.put_object("name", content)
    assert store.get_object("name") == content
    assert client.expiring == set(), "what has a name stays"
    store.put_object("name", b"other")
    assert store.get_object("name") == b"other"
    assert len(client.lists) == 1, "what was before takes no room"


def test_pieces_of_a_writer_that_died_vanish(store: RedisRecordStore, client: Client) -> None:
    client.eval = None  # type: ignore[method-assign,assignment]
    with pytest.raises(TypeError):
        store.put_object("name", b"content")
    assert client.expiring == set(client.lists)
    assert store.get_object("name") is None


def test_pieces_that_vanished_before_they_were_named_are_said(
    store: RedisRecordStore, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "expire", lambda key, seconds: client.lists.clear())
    with pytest.raises(Unavailable, match="vanished before they were named"):
        store.put_object("name", b"content")


def test_an_object_that_is_not_what_was_stored_is_refused(
    store: RedisRecordStore, client: Client
) -> None:
    store.put_object("name", b"content")
    [pieces] = client.lists.values()
    pieces[0] = b"cOntent"
    with pytest.raises(JournalDamaged, match=r"object name in played 1: not what was stored"):
        store.get_object("name")


def test_an_object_that_is_replaced_while_it_is_read_is_read_again(
    store: RedisRecordStore, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_object("name", b"before")
    hget = client.hget

    def then_replaced(key: str, name: str) -> bytes | None:
        facts = hget(key, name)
        monkeypatch.setattr(client, "hget", hget)
        store.put_object("name", b"after")
        return facts

    monkeypatch.setattr(client, "hget", then_replaced)
    assert store.get_object("name") == b"after"


def test_names_come_once_and_sorted__and_those_that_are_dropped_do_not(
    store: RedisRecordStore, client: Client
) -> None:
    for name in ("a/2", "b", "a/1"):
        store.put_object(name, b"x")
    assert store.object_names("a/") == ["a/1", "a/2"]
    store.drop_objects(["a/1", "none"])
    assert store.object_names("") == ["a/2", "b"]
    assert len(client.lists) == 2
