"""Covers: what is asked of etcd's gateway and made of its answers, pages, leases, and the stream.

Not covered: a server (tests/conformance/test_coordinator_etcd.py), the gateway itself
(tests/unit/connections/test_etcd.py).
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dejaqueue.connections.etcd import OUT_OF_RANGE, EtcdGateway
from dejaqueue.coordinator import etcd
from dejaqueue.coordinator.etcd import EtcdCoordinator
from dejaqueue.coordinator.interface import Conflict, Fact
from dejaqueue.errors import BadRequest, Unavailable

SECONDS_MAX = 10.0


def pack(text: bytes) -> str:
    return base64.b64encode(text).decode()


def unpack(text: str) -> bytes:
    return base64.b64decode(text)


class Gateway:
    """An etcd of one process: keys with revisions, leases, a stream that a test writes."""

    summary = "played 1"

    def __init__(self) -> None:
        self.address = SimpleNamespace(namespace="one/")
        self.revision = 1
        self.rows: dict[bytes, tuple[bytes, int, str]] = {}
        self.leases: dict[str, int] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.compacted_once = False
        self.streams: list[list[dict[str, Any]]] = []
        self.opened: list[dict[str, Any]] = []
        self.left = 0
        self.is_closed = False
        self.went_on = threading.Semaphore(0)

    def call(
        self, path: str, body: dict[str, Any], *, reads: bool = False, expects: Any = ()
    ) -> dict[str, Any]:
        self.asked.append((path, body))
        name = path.rpartition("/")[2]
        found: dict[str, Any] = getattr(self, name)(body)
        assert not found.get("code") or found["code"] in expects
        return found

    def range(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.compacted_once and body.get("revision", "0") != "0":
            self.compacted_once = False
            return {"code": OUT_OF_RANGE}
        first = unpack(body["key"])
        end = unpack(body["range_end"]) if "range_end" in body else first + b"\0"
        keys = sorted(key for key in self.rows if first <= key < end)
        limit = int(body.get("limit", 1 << 30))
        kvs = [
            {
                "key": pack(key),
                "mod_revision": str(self.rows[key][1]),
                # An empty value is left out.
                **({"value": pack(self.rows[key][0])} if self.rows[key][0] else {}),
            }
            for key in keys[:limit]
        ]
        more = {"more": True} if len(keys) > limit else {}
        return {"header": {"revision": str(self.revision)}, "kvs": kvs} | more

    def txn(self, body: dict[str, Any]) -> dict[str, Any]:
        for compared in body["compare"]:
            has = self.rows.get(unpack(compared["key"]), (b"", 0, ""))[1]
            if str(has) != compared["mod_revision"]:
                return {"header": {"revision": str(self.revision)}}
        [change] = body["success"]
        self.revision += 1
        answer: dict[str, Any] = {"header": {"revision": str(self.revision)}, "succeeded": True}
        if "request_put" in change:
            put = change["request_put"]
            value = unpack(put["value"])
            self.rows[unpack(put["key"])] = value, self.revision, put.get("lease", "")
            return answer | {"responses": [{"response_put": {}}]}
        gone = self.rows.pop(unpack(change["request_delete_range"]["key"]), None)
        deleted = {} if gone is None else {"deleted": "1"}
        return answer | {"responses": [{"response_delete_range": deleted}]}

    def grant(self, body: dict[str, Any]) -> dict[str, Any]:
        lease = str(100 + len(self.leases))
        self.leases[lease] = int(body["TTL"])
        return {"ID": lease}

    def keepalive(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"TTL": str(self.leases[body["ID"]])} if body["ID"] in self.leases else {}

    @contextmanager
    def stream(self, path: str, body: dict[str, Any]) -> Iterator[Any]:
        self.opened.append(body["create_request"])
        if not self.streams:
            self.went_on.acquire()
            raise Unavailable("nobody there")
        lines = [json.dumps(one) for one in self.streams.pop(0)]
        yield SimpleNamespace(iter_lines=lambda: iter(lines), extensions={})

    def leave_current(self) -> None:
        self.left += 1

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
def one(gateway: Gateway) -> EtcdCoordinator:
    return EtcdCoordinator(cast(EtcdGateway, gateway))


def test_a_fact_comes_back_with_its_revision__also_an_empty_one(
    one: EtcdCoordinator, gateway: Gateway
) -> None:
    assert one.get("a/b") is None
    for value in (b"\x00value", b""):
        revision = one.put("a/b", value)
        assert one.get("a/b") == Fact("a/b", value, revision)
    assert list(gateway.rows) == [b"one/a/b"], "below the namespace"


def test_a_change_upon_another_revision_is_a_conflict__one_without_a_revision_is_none(
    one: EtcdCoordinator,
) -> None:
    first = one.put("a", b"1", 0)
    for wrong in (0, first + 5):
        with pytest.raises(Conflict, match=rf"a has not the revision {wrong}"):
            one.put("a", b"2", wrong)
        with pytest.raises(Conflict):
            one.delete("a", wrong)
    second = one.put("a", b"2", first)
    assert one.put("a", b"3") > second > first
    assert one.delete("a")
    assert not one.delete("a")


def test_a_list_of_many_is_as_of_one_moment(
    one: EtcdCoordinator, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages after the first ask for the revision of the first."""
    monkeypatch.setattr(etcd, "PAGE_FACTS", 3)
    for number in range(8):
        one.put(f"k/{number}", b"x")
    one.put("k0", b"behind all of k/")
    gateway.asked.clear()
    assert [fact.key for fact in one.list("k/")] == [f"k/{number}" for number in range(8)]
    revisions = [body["revision"] for _, body in gateway.asked]
    assert revisions == ["0", str(gateway.revision), str(gateway.revision)]


def test_a_list_whose_moment_was_compacted_away_begins_again(
    one: EtcdCoordinator, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd, "PAGE_FACTS", 2)
    for number in range(5):
        one.put(f"k/{number}", b"x")
    gateway.compacted_once = True
    assert [fact.key for fact in one.list("k/")] == [f"k/{number}" for number in range(5)]


@pytest.mark.parametrize(("ttl_ms", "seconds"), [(500, 1), (1_000, 1), (1_001, 2), (7_500, 8)])
def test_a_time_to_live_is_a_lease_of_whole_seconds__never_shorter(
    one: EtcdCoordinator, gateway: Gateway, ttl_ms: int, seconds: int
) -> None:
    one.put("a", b"1", ttl_ms=ttl_ms)
    [(_, _, lease)] = gateway.rows.values()
    assert gateway.leases == {lease: seconds}


def test_only_who_put_a_fact_last_renews_it(one: EtcdCoordinator, gateway: Gateway) -> None:
    other = EtcdCoordinator(cast(EtcdGateway, gateway))
    one.put("a", b"1", ttl_ms=1_000)
    assert one.renew("a")
    assert not other.renew("a")
    other.put("a", b"2", ttl_ms=1_000)
    assert not one.renew("a"), "its lease lives, but the fact is another's"
    assert other.renew("a")
    other.delete("a")
    assert not other.renew("a")


def test_a_lease_that_ended_renews_nothing(one: EtcdCoordinator, gateway: Gateway) -> None:
    one.put("a", b"1", ttl_ms=1_000)
    gateway.leases.clear()
    assert not one.renew("a")
    one.put("b", b"1")
    assert not one.renew("b"), "it has none"


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 501])
def test_what_no_server_would_take_is_refused_before_it_is_asked(
    one: EtcdCoordinator, gateway: Gateway, key: str
) -> None:
    for call in (one.get, one.delete, one.renew, lambda key: one.put(key, b"")):
        with pytest.raises(BadRequest):
            call(key)
    assert gateway.asked == []


# --- the stream of changes


def created(revision: int) -> dict[str, Any]:
    return {"result": {"created": True, "header": {"revision": str(revision)}}}


def changed(key: str, revision: int) -> dict[str, Any]:
    event = {"kv": {"key": pack(b"one/" + key.encode()), "mod_revision": str(revision)}}
    return {"result": {"header": {"revision": str(revision)}, "events": [event]}}


def heard(gateway: Gateway, one: EtcdCoordinator, streams: int) -> list[str]:
    """What bells rang when so many streams were opened, and the last one waits."""
    rings: list[str] = []
    ended = threading.Event()
    one.watch("a/", lambda: rings.append("a/"))
    one.watch("b/", lambda: rings.append("b/"))
    deadline = threading.Event()
    for _ in range(1_000):
        if len(gateway.opened) > streams:
            ended.set()
            break
        deadline.wait(0.01)
    assert ended.is_set(), "the streams were not opened"
    gateway.went_on.release(1_000)
    one.close()
    return rings


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "AGAIN_S", 0.001)


def test_every_bell_rings_once_it_listens__then_those_below_whose_prefix_something_changed(
    gateway: Gateway, one: EtcdCoordinator
) -> None:
    gateway.streams = [[created(5), changed("a/1", 6), changed("c/1", 7), changed("b/1", 8)]]
    rings = heard(gateway, one, 1)
    assert rings[-2:] == ["a/", "b/"]
    assert gateway.opened[0] == {"key": pack(b"one/"), "range_end": pack(b"one0")}


def test_after_a_stream_that_broke_every_bell_rings_again(
    gateway: Gateway, one: EtcdCoordinator
) -> None:
    """What was told meanwhile is not known; and another endpoint may do better."""
    gateway.streams = [[created(5), changed("a/1", 6)], [created(9)]]
    rings = heard(gateway, one, 2)
    assert rings.count("b/") >= 1
    assert rings[-1] == "b/"
    assert gateway.left >= 2
    assert "start_revision" not in gateway.opened[1]


@pytest.mark.parametrize(
    "message", [{"result": {"canceled": True}}, {"error": "compacted"}, {"result": None}]
)
def test_a_stream_that_the_server_ended_is_opened_anew(
    gateway: Gateway, one: EtcdCoordinator, message: dict[str, Any]
) -> None:
    gateway.streams = [[created(5), message, changed("a/1", 6)], [created(9)]]
    heard(gateway, one, 2)
    assert len(gateway.opened) >= 2
    assert gateway.is_closed
