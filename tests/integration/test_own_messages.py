"""Grants of one's own messages, on every door that names messages: Flight, HTTP, DOQ, the client.

Which calls such a grant opens is in test_authorisation.py, what it keeps apart in tests/rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from dejaqueue.access.senders import Requester, Sender
from dejaqueue.client import Client
from dejaqueue.errors import Forbidden
from dejaqueue.model import RowStatus, Topic
from tests.integration.access_fixture import Site, running
from tests.patience import PATIENCE_SECONDS

TOPIC = "t"


@pytest.fixture
def site() -> Iterator[Site]:
    with running() as found:
        found.broker.create_topic(Topic(TOPIC))
        make = found.broker.keys.create
        found.keys["root"] = make("root", ["admin:*"])[1]
        for name in ("a", "b"):
            grants = [f"produce:own:{TOPIC}", f"manage:own:{TOPIC}"]
            found.keys[name] = make(name, grants)[1]
        found.keys["plain"] = make("plain", [f"produce:{TOPIC}"])[1]
        yield found


@pytest.fixture
def clients(site: Site) -> Iterator[dict[str, Client]]:
    opened = {name: Client(site.flight.url, api_key=key) for name, key in site.keys.items()}
    yield opened
    for client in opened.values():
        client.close()


def call(site: Site, caller: str, method: str, path: str, body: Any = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {site.keys[caller]}"}
    return httpx.request(
        method, site.http_url + path, json=body, headers=headers, timeout=PATIENCE_SECONDS
    )


def left(site: Site) -> list[bytes]:
    found = next(site.broker.read("peek", {"topic": TOPIC})[1]).column("payload").to_pylist()
    return sorted(found)


def test_over_flight__by_id_key_and_filter(site: Site, clients: dict[str, Client]) -> None:
    ids = {name: clients[name].send(TOPIC, name.encode(), key=name, delay=60) for name in "ab"}
    a = clients["a"]
    for by in ("ids", "keys"):
        names = [ids["b"], ids["a"]] if by == "ids" else ["b", "a"]
        moved = a.move(TOPIC, **{by: names}, due=[site.broker.clock.now_ms() + 90_000] * 2)
        assert moved.statuses.tolist() == [RowStatus.NOT_FOUND, RowStatus.OK]
    assert a.peek(TOPIC)["payload"].to_pylist() == [b"a"]
    assert a.counts(TOPIC)["scheduled"] == 1
    assert a.cancel_where(TOPIC) == 1
    assert left(site) == [b"b"]
    assert clients["plain"].cancel(TOPIC, keys=["b"]).statuses.tolist() == [RowStatus.OK]
    with pytest.raises(Forbidden, match="manage"):
        clients["plain"].cancel_where(TOPIC)
    for administer in (a.stats, a.pause_topic, a.delete_topic):
        with pytest.raises(Forbidden, match="manage"):
            administer(TOPIC)


def test_over_http__by_id_key_and_filter(site: Site) -> None:
    path = f"/v1/topics/{TOPIC}"
    ids = {}
    for name in "ab":
        message = {"payload": name, "key": name, "delay_ms": 60_000}
        ids[name] = call(site, name, "POST", f"{path}/messages", message).json()["id"]
    for by in ("id", "key"):
        names = [{by: (ids if by == "id" else {"a": "a", "b": "b"})[name]} for name in "ba"]
        body = {"messages": [one | {"priority": 5} for one in names]}
        moved = call(site, "a", "POST", f"{path}/move", body).json()["messages"]
        assert [one["status"] for one in moved] == ["NOT_FOUND", "OK"]
    never = str(int(ids["b"]) + 99)
    for one in (ids["b"], never):
        assert call(site, "a", "GET", f"{path}/messages/{one}").status_code == 404
    page = call(site, "a", "GET", f"{path}/messages").json()["messages"]
    assert [one["id"] for one in page] == [ids["a"]]
    counts = call(site, "a", "GET", f"{path}/counts").json()["rows"]
    assert [row["count"] for row in counts if row["state"] == "scheduled"] == [1]
    assert call(site, "a", "GET", f"{path}/counts?by=group").status_code == 400
    span = "?due_from=0&due_to=9000000000000&bucket_ms=9000000000000"
    assert call(site, "a", "GET", f"{path}/histogram{span}").json()["counts"] == [1]
    assert call(site, "a", "POST", f"{path}/cancel", {"where": {}}).json()["count"] == 1
    assert left(site) == [b"b"]
    # Its key is taken: said, and no more.
    again = {"payload": "x", "key": "b"}
    refused = call(site, "a", "POST", f"{path}/messages", again)
    assert refused.status_code == 409
    assert (refused.json()["id"], "another one" in refused.text) == ("-1", True)


def test_over_doq(site: Site) -> None:
    call(site, "root", "POST", "/API/v1/queues", {"name": "q", "type": "delayed"})
    for name in ("c", "d"):
        site.keys[name] = site.broker.keys.create(name, ["produce:own:q"])[1]
    path, message = "/API/v1/queues/q/messages", {"content": "x", "priority": 4_000_000_000}
    found = call(site, "c", "POST", path, message).json()["id"]
    taken = call(site, "d", "POST", path, message | {"id": found, "content": "y"})
    assert taken.status_code == 409
    assert '"x"' not in taken.text
    changed, never = {"priority": 4_000_000_001}, str(int(found) + 9)
    for method, where, body in (("PUT", "/priority", changed), ("DELETE", "", None)):
        gone = call(site, "d", method, f"{path}/{never}{where}", body)
        refused = call(site, "d", method, f"{path}/{found}{where}", body)
        assert (refused.status_code, refused.json()) == (gone.status_code, gone.json())
    assert call(site, "c", "PUT", f"{path}/{found}/priority", changed).status_code == 200
    assert call(site, "c", "DELETE", f"{path}/{found}").status_code == 204


def test_over_doq__other_metadata_leave_a_message_its_senders(site: Site) -> None:
    call(site, "root", "POST", "/API/v1/queues", {"name": "q", "type": "fair"})
    site.keys["c"] = site.broker.keys.create("c", ["produce:own:q"])[1]
    site.keys["taker"] = site.broker.keys.create("taker", ["consume:q"])[1]
    path = "/API/v1/queues/q/messages"
    found = call(site, "c", "POST", path, {"content": "x", "priority": 1}).json()["id"]
    assert call(site, "taker", "GET", path).json()["id"] == found
    returned = {"priority": 1, "metadata": {"tries": "1"}}
    assert call(site, "taker", "POST", f"{path}/{found}/nack", returned).status_code == 200
    again = next(site.broker.read("peek", {"topic": "q"}, Requester(Sender("c", own=True)))[1])
    assert again.num_rows == 1


def test_a_key_made_again_under_its_name_has_its_messages(
    site: Site, clients: dict[str, Client]
) -> None:
    clients["a"].send(TOPIC, b"a", key="k", delay=60)
    site.broker.keys.revoke("a")
    _, text = site.broker.keys.create("a", [f"produce:own:{TOPIC}"])
    with Client(site.flight.url, api_key=text) as again:
        assert again.cancel(TOPIC, keys=["k"]).statuses.tolist() == [RowStatus.OK]
