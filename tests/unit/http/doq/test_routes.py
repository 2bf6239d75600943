"""DOQ's calls, one by one: what they answer, and with which status.

Not covered here: a real process and curl (tests/cli/test_doq.py), roles.
"""

from __future__ import annotations

from typing import Any

import pytest
from httpx import Client

from dejaqueue.broker.broker import Broker
from dejaqueue.model import Topic, TopicKind
from dejaqueue.testing.virtual_clock import VirtualClock


def make(http: Client, kind: str = "delayed", **settings: Any) -> None:
    body: dict[str, Any] = {"name": "q", "type": kind}
    if settings:
        body["settings"] = settings
    assert http.post("/queues", json=body).status_code == 200


def put(http: Client, content: str, priority: int = 10, **more: Any) -> str:
    body = {"content": content, "priority": priority, **more}
    answer = http.post("/queues/q/messages", json=body)
    assert answer.status_code == 200, answer.text
    found: str = answer.json()["id"]
    return found


def take(http: Client, *, ack: bool = False) -> dict[str, Any]:
    answer = http.get("/queues/q/messages", params={"ack": str(ack).lower()})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def is_empty(http: Client) -> bool:
    answer = http.get("/queues/q/messages")
    if answer.status_code == 200:
        return False
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"] == [{"message": "queue is empty"}]
    return True


def test_a_queue_is_made_changed_listed_and_deleted(http: Client) -> None:
    settings = {"strategy": "weighted", "max_unacked": 7, "ack_timeout": 600}
    body = {"name": "q", "type": "fair", "settings": settings}
    shown = settings | {"strategy": "WEIGHTED"}
    answer = http.post("/queues", json=body)
    assert answer.status_code == 200
    assert answer.json() == {"status": "CREATED", "name": "q", "type": "fair", "settings": shown}
    assert http.post("/queues", json=body).status_code == 200, "once more is fine"
    assert http.post("/queues", json={"name": "q", "type": "delayed"}).status_code == 409

    empty = {"enqueue_rps": 0.0, "dequeue_rps": 0.0, "ack_rps": 0.0, "nack_rps": 0.0}
    empty |= {"ready": 0, "unacked": 0, "total": 0}
    found = {"name": "q", "type": "fair", "settings": shown, **empty}
    assert http.get("/queues/q").json() == found
    assert http.get("/queues").json() == {"queues": [found]}

    changed = {"settings": {"strategy": "ROUND_ROBIN", "ack_timeout": 61}}
    answer = http.put("/queues/q", json=changed)
    shown = {"strategy": "ROUND_ROBIN", "max_unacked": 7, "ack_timeout": 61}
    assert answer.json() == {"status": "UPDATED", "name": "q", "settings": shown}
    assert http.get("/queues/q").json()["settings"] == shown

    assert http.delete("/queues/q").json() == {"status": "DELETED"}
    assert http.delete("/queues/q").status_code == 400
    assert http.get("/queues").json() == {"queues": []}


def test_what_is_missing_has_the_status_of_the_call(http: Client) -> None:
    message = {"content": "", "priority": 1}
    calls: list[tuple[str, str, Any, int]] = [
        ("GET", "/queues/q", None, 400),
        ("PUT", "/queues/q", {"settings": {}}, 409),
        ("DELETE", "/queues/q", None, 400),
        ("POST", "/queues/q/messages", message, 409),
        ("GET", "/queues/q/messages", None, 400),
        ("GET", "/queues/q/messages/1", None, 400),
        ("DELETE", "/queues/q/messages/1", None, 400),
        ("POST", "/queues/q/messages/1/ack", {}, 400),
        ("POST", "/queues/q/messages/1/nack", {}, 400),
        ("POST", "/queues/q/messages/1/touch", {}, 400),
        ("PUT", "/queues/q/messages/1/priority", {"priority": 1}, 409),
    ]
    for _ in range(2):  # without the queue, then with it
        for method, path, body, status in calls:
            answer = http.request(method, path, json=body)
            assert answer.status_code == status, (method, path)
            assert {"title", "status", "detail", "errors"} <= answer.json().keys()
        make(http)
        calls = [call for call in calls if "/1" in call[1]]


def test_low_priorities_come_first_and_equal_ones_as_they_came(http: Client) -> None:
    make(http)
    for content, priority in (("c", 60), ("a", 1), ("d", 60), ("b", 59)):
        put(http, content, priority)
    assert [take(http, ack=True)["content"] for _ in range(4)] == ["a", "b", "c", "d"]
    assert is_empty(http)


def test_a_priority_that_is_a_time_waits_for_it(http: Client, clock: VirtualClock) -> None:
    make(http)
    second = clock.now_ms() // 1_000 + 5
    put(http, "later", second)
    assert is_empty(http)
    clock.advance(ms=second * 1_000 - clock.now_ms() - 1)
    assert is_empty(http)
    clock.advance(ms=1)
    assert take(http)["priority"] == second


def test_a_message_carries_what_it_was_sent_with(http: Client) -> None:
    make(http)
    number = put(http, '{"user_id": 1}', 60, group="g", metadata={"retry": "0"})
    found = take(http)
    assert found == {
        "status": "DEQUEUED",
        "id": number,
        "group": "default",
        "priority": 60,
        "content": '{"user_id": 1}',
        "metadata": {"retry": "0"},
    }
    assert http.get(f"/queues/q/messages/{number}").json() == found | {"status": "GOT"}
    answer = http.post(f"/queues/q/messages/{number}/ack")
    assert answer.json() == {"status": "ACKNOWLEDGED", "id": number}
    assert http.post(f"/queues/q/messages/{number}/ack").status_code == 400
    assert http.get(f"/queues/q/messages/{number}").status_code == 400


def test_acked_at_once_is_gone(http: Client) -> None:
    make(http)
    number = put(http, "a")
    assert take(http, ack=True)["content"] == "a"
    assert http.post(f"/queues/q/messages/{number}/ack").status_code == 400
    assert http.get("/queues/q").json()["total"] == 0


def test_unacked_comes_back_after_the_timeout(http: Client, clock: VirtualClock) -> None:
    make(http, ack_timeout=60)
    number = put(http, "a", 7)
    assert take(http)["id"] == number
    clock.advance(ms=59_999)
    assert is_empty(http)
    clock.advance(ms=1)
    assert http.post(f"/queues/q/messages/{number}/ack").status_code == 400, "too late"
    again = take(http)
    assert (again["id"], again["priority"]) == (number, 7)
    assert http.post(f"/queues/q/messages/{number}/ack").status_code == 200


def test_what_timed_out_goes_to_its_old_place(http: Client, clock: VirtualClock) -> None:
    make(http, ack_timeout=60)
    for content, priority in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        put(http, content, priority)
    taken = [take(http) for _ in range(3)]
    first, second, third = (f"/queues/q/messages/{message['id']}" for message in taken)
    clock.advance(ms=30_000)
    http.post(f"{second}/touch")
    http.post(f"{third}/nack", json={"priority": 9})
    clock.advance(ms=30_000)
    assert [take(http)["content"] for _ in range(3)] == ["a", "d", "c"]
    clock.advance(ms=30_000)
    assert take(http)["content"] == "b"
    assert http.post(f"{first}/ack").status_code == 200
    clock.advance(ms=90_000)
    found = [take(http, ack=True) for _ in range(3)]
    assert [(m["content"], m["priority"]) for m in found] == [("b", 2), ("d", 4), ("c", 9)]
    assert is_empty(http)


def test_touch_begins_the_timeout_anew(http: Client, clock: VirtualClock) -> None:
    make(http, ack_timeout=60)
    number = put(http, "a")
    assert http.post(f"/queues/q/messages/{number}/touch").status_code == 400, "nobody has it"
    take(http)
    clock.advance(ms=40_000)
    answer = http.post(f"/queues/q/messages/{number}/touch", json={})
    assert answer.json() == {"status": "TOUCHED", "id": number}
    clock.advance(ms=59_999)
    assert http.post(f"/queues/q/messages/{number}/ack").status_code == 200


def test_nacked_goes_back_to_its_place(http: Client) -> None:
    make(http)
    number = put(http, "first", 1)
    put(http, "second", 2)
    assert take(http)["id"] == number
    answer = http.post(f"/queues/q/messages/{number}/nack", json={})
    assert answer.json() == {"status": "UNACKNOWLEDGED", "id": number, "priority": 0}
    assert take(http)["id"] == number
    assert http.post(f"/queues/q/messages/{number}/nack", json={"priority": 3}).status_code == 200
    assert take(http)["content"] == "second"
    again = take(http)
    assert (again["id"], again["priority"]) == (number, 3)


@pytest.mark.parametrize("kind", ["delayed", "fair"])
def test_nack_can_bring_other_metadata(http: Client, kind: str) -> None:
    make(http, kind)
    number = put(http, "a", 5, metadata={"retry": "0"})
    for retry in ("1", "2", "3"):
        take(http)
        answer = http.post(f"/queues/q/messages/{number}/nack", json={"metadata": {"retry": retry}})
        assert answer.json()["metadata"] == {"retry": retry}
        found = http.get(f"/queues/q/messages/{number}").json()
        assert (found["metadata"], found["priority"]) == ({"retry": retry}, 5)
    assert http.get("/queues/q").json()["total"] == 1
    assert take(http)["id"] == number
    assert http.post(f"/queues/q/messages/{number}/ack").status_code == 200
    assert is_empty(http)


def test_priority_can_be_changed_while_it_waits(http: Client, clock: VirtualClock) -> None:
    make(http, ack_timeout=60)
    put(http, "a", 1)
    number = put(http, "b", 2)
    path = f"/queues/q/messages/{number}"
    answer = http.put(f"{path}/priority", json={"priority": 0})
    assert answer.json() == {"status": "UPDATED", "id": number, "priority": 0}
    found = take(http)
    assert (found["id"], found["priority"]) == (number, 0)
    assert http.put(f"{path}/priority", json={"priority": 9}).status_code == 409
    clock.advance(ms=60_000)
    assert http.get(path).json()["priority"] == 0, "it is known although its lease is over"


def test_deleted_is_gone_whether_it_waits_or_is_taken(http: Client) -> None:
    make(http)
    waiting, taken = put(http, "a", 2), put(http, "b", 1)
    assert take(http)["id"] == taken
    for number in (waiting, taken):
        answer = http.delete(f"/queues/q/messages/{number}")
        assert (answer.status_code, answer.content) == (204, b"")
        assert http.delete(f"/queues/q/messages/{number}").status_code == 400
    assert http.get("/queues/q").json()["total"] == 0


def test_an_id_of_the_producer_is_taken_once(http: Client) -> None:
    make(http)
    given = http.post("/ids", json={"number": 3}).json()["ids"]
    assert len(set(given)) == 3
    for _ in range(2):
        assert put(http, "a", id=given[0]) == given[0]
    assert put(http, "b", id="7") == "7"
    assert [take(http)["id"] for _ in range(2)] == [given[0], "7"]
    assert is_empty(http)
    for number in (given[0], "7"):
        assert http.get(f"/queues/q/messages/{number}").json()["id"] == number
        assert http.post(f"/queues/q/messages/{number}/ack").status_code == 200


def test_zero_is_no_id_but_asks_for_one(http: Client) -> None:
    make(http)
    made_here = {put(http, "a", id=number) for number in ("0", "0", "00", "")}
    assert len(made_here) == 4
    assert "0" not in made_here
    assert http.get("/queues/q").json()["ready"] == 4


def test_no_two_live_messages_have_one_id__whoever_named_them(http: Client) -> None:
    make(http)
    first = put(http, "made here")
    # What is made here would be next, by the number of the message and by time.
    named = [str(n) for n in range(1, 30)] + [str(int(first) + n) for n in range(1, 30)]
    for number in named:
        assert put(http, "named", id=number) == number
    made_here = [put(http, "made here") for _ in range(30)]
    assert len({first, *named, *made_here}) == 1 + len(named) + 30
    for number in (first, *named, *made_here):
        assert http.delete(f"/queues/q/messages/{number}").status_code == 204
    assert is_empty(http)


def test_what_is_answered_is_what_is_kept(http: Client) -> None:
    make(http)
    sent = {"content": "first", "priority": 5, "id": "7", "metadata": {"a": "b"}}
    kept = http.post("/queues/q/messages", json=sent).json()
    again = http.post("/queues/q/messages", json=sent | {"content": "other", "priority": 9}).json()
    assert again == kept
    assert http.get("/queues/q/messages/7").json() == kept | {"status": "GOT"}
    grouped = http.post("/queues/q/messages", json=sent | {"id": "8", "group": "g"}).json()
    assert http.get("/queues/q/messages/8").json() == grouped | {"status": "GOT"}


def test_groups_take_turns(http: Client) -> None:
    make(http, "fair")
    for content in ("a1", "a2", "a3", "b1"):
        put(http, content, 1, group=content[0])
    first = [take(http, ack=True) for _ in range(4)]
    assert {message["content"] for message in first[:2]} == {"a1", "b1"}
    assert [message["content"] for message in first[2:]] == ["a2", "a3"]
    assert {message["group"] for message in first} == {"a", "b"}


def test_a_group_has_no_more_unacked_than_it_may(http: Client) -> None:
    make(http, "fair", max_unacked=1)
    put(http, "a1", group="a")
    put(http, "a2", group="a")
    held = take(http)["id"]
    assert is_empty(http)
    assert http.post(f"/queues/q/messages/{held}/ack").status_code == 200
    assert take(http)["content"] == "a2"


def test_counts_and_rates(http: Client, clock: VirtualClock) -> None:
    make(http)
    for _ in range(20):
        put(http, "a")
    for _ in range(10):
        take(http, ack=True)
    take(http)
    found = http.get("/queues/q").json()
    assert (found["ready"], found["unacked"], found["total"]) == (9, 1, 10)
    assert (found["enqueue_rps"], found["dequeue_rps"], found["ack_rps"]) == (2.0, 1.1, 1.0)
    clock.advance(ms=11_000)
    assert http.get("/queues").json()["queues"][0]["enqueue_rps"] == 0.0


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/queues", {"name": "q", "type": "cron"}),
        ("POST", "/queues", {"name": "a/b", "type": "fair"}),
        ("POST", "/queues", {"name": "x", "type": "fair", "settings": {"strategy": "best"}}),
        ("POST", "/queues", {"name": "x", "type": "fair", "settings": {"ack_timeout": 1 << 31}}),
        ("POST", "/queues", {"name": "x", "type": "fair", "more": 1}),
        ("POST", "/queues/q/messages", {"priority": 1}),
        ("POST", "/queues/q/messages", {"content": "a"}),
        ("POST", "/queues/q/messages", {"content": "a", "priority": -1}),
        ("POST", "/queues/q/messages", {"content": "a", "priority": 1 << 62}),
        ("POST", "/queues/q/messages", {"content": "a", "priority": "1"}),
        ("POST", "/queues/q/messages", {"content": 1, "priority": 1}),
        ("POST", "/queues/q/messages", {"content": "a", "priority": 1, "id": "x"}),
        ("POST", "/queues/q/messages", {"content": "a" * (2 << 20), "priority": 1}),
        ("POST", "/queues/q/messages", {"content": "a", "priority": 1, "metadata": {"": ""}}),
        ("POST", "/queues/q/messages", {"content": "a", "priority": 1, "metadata": {"a": 1}}),
        ("GET", "/queues/q/messages?ack=perhaps", None),
        ("GET", "/queues/q/messages/one", None),
        ("POST", "/queues/q/messages/18446744073709551616/ack", None),
        ("POST", "/ids", {"number": 0}),
        ("POST", "/ids", {"number": 1_001}),
    ],
)
def test_what_is_wrong_is_named(http: Client, method: str, path: str, body: object) -> None:
    make(http)
    answer = http.request(method, path, json=body)
    assert answer.status_code == 422, answer.text
    found = answer.json()
    assert (found["detail"], found["status"]) == ("validation failed", 422)
    assert found["errors"][0]["location"]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"", 400),
        (b"\xff", 400),
        (b'{"content": "\\ud800", "priority": 1}', 400),
        (b'{"content": "a", "priority": 1e400}', 400),
        (b'{"content": "a", "priority": 1.5}', 422),
        (b'{"content": "a", "priority": NaN}', 400),
        (b"[" * 100_000, 400),
    ],
)
def test_what_is_no_message_is_refused(http: Client, content: bytes, status: int) -> None:
    make(http)
    headers = {"content-type": "application/json"}
    answer = http.post("/queues/q/messages", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_half_a_character_is_no_text(http: Client) -> None:
    headers = {"content-type": "application/json"}
    content = b'{"name": "\\ud800", "type": "delayed"}'
    answer = http.post("/queues", content=content, headers=headers)
    assert answer.status_code == 422


def test_topics_of_other_kinds_are_no_queues(http: Client, broker: Broker) -> None:
    broker.create_topic(Topic("p", TopicKind.PRIORITY))
    broker.create_topic(Topic("t"))
    assert [queue["name"] for queue in http.get("/queues").json()["queues"]] == ["t"]
    assert http.get("/queues/p").status_code == 400
    assert http.post("/queues/p/messages", json={"content": "", "priority": 1}).status_code == 409


def test_many_partitions_are_one_queue(http: Client, broker: Broker) -> None:
    broker.create_topic(Topic("q", partitions=3))
    sent = {put(http, str(number)) for number in range(9)} | {put(http, "n", id="5")}
    taken = [take(http)["id"] for _ in range(10)]
    assert set(taken) == sent
    assert is_empty(http)
    for number in taken:
        assert http.post(f"/queues/q/messages/{number}/ack").status_code == 200
    assert http.get("/queues/q").json()["total"] == 0


def test_a_paused_queue_gives_nothing(http: Client, broker: Broker) -> None:
    make(http)
    put(http, "a")
    broker.alter_topic("q", {"paused": True})
    assert is_empty(http)
    broker.alter_topic("q", {"paused": False})
    assert take(http)["content"] == "a"


def test_a_broker_alone_is_its_own_leader(http: Client) -> None:
    url = str(http.base_url).removesuffix("/API/v1/")
    (found,) = http.get("/cluster/servers").json()["servers"]
    assert found == {
        "id": "alone",
        "addr": url,
        "leader_addr": url,
        "is_leader": True,
        "suffrage": "Voter",
    }
    for probe in ("healthz", "livez", "readyz"):
        assert http.get(f"{url}/{probe}").status_code == 200


def test_a_delayed_queue_has_no_groups_to_set(http: Client) -> None:
    for settings in ({"strategy": "ROUND_ROBIN"}, {"max_unacked": 3}):
        body = {"name": "q", "type": "delayed", "settings": settings}
        assert http.post("/queues", json=body).status_code == 409
    make(http)
    assert http.put("/queues/q", json={"settings": {"max_unacked": 3}}).status_code == 409
    assert http.put("/queues/q", json={"settings": {"max_unacked": 0}}).status_code == 200


def test_a_priority_that_a_fair_queue_answered_is_kept(http: Client) -> None:
    make(http, "fair")
    number = put(http, "a", 5, group="g", metadata={"n": "1"})
    take(http)
    answer = http.post(f"/queues/q/messages/{number}/nack", json={"priority": 7})
    assert answer.json() == {"status": "UNACKNOWLEDGED", "id": number, "priority": 7}
    kept = http.get(f"/queues/q/messages/{number}").json()
    assert (kept["priority"], kept["group"], kept["metadata"]) == (7, "g", {"n": "1"})
    assert http.get("/queues/q").json()["total"] == 1
