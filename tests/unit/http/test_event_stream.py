"""Streams of events: what is sent, acked, given back, and when a stream ends.

Covered: with a client of our own, which shows each event. Not covered: curl, keys, brokers that die
(tests/integration/test_event_streams.py); parameters (../routes/test_events.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from dejaqueue.http import event_stream
from tests.patience import until
from tests.unit.http.conftest import Api

PATH = "/v1/topics/t/events"


class Events:
    """Events of an answer, one by one."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        self._lines = answer.iter_lines()
        self.last_id = ""
        self.retries: list[int] = []
        self.comments = 0

    def next(self) -> dict[str, Any] | None:
        """The next event's data; None = the stream is over."""
        data: dict[str, Any] | None = None
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "retry":
                self.retries.append(int(value))
            elif name == "data":
                data = json.loads(value)
            elif name == "":
                self.comments += bool(value)
                if data is not None:
                    return data
        return None

    def payloads(self) -> list[str]:
        """Those of all events until the stream is over."""
        found = []
        while (event := self.next()) is not None:
            found.append(event["payload"])
        return found


@contextmanager
def stream(api: Api, last_id: str = "", path: str = PATH, **parameters: Any) -> Iterator[Events]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with api.http.stream("GET", path, params=parameters, headers=headers) as answer:
        yield Events(answer)


def stats(api: Api, topic: str = "t") -> dict[str, Any]:
    found: dict[str, Any] = api.broker.call("stats", {"topic": topic})
    return found


def test_messages_are_events_as_they_become_due(api: Api) -> None:
    first = api.send("a\nb", key="k")
    with stream(api) as events:
        event = events.next()
        assert event is not None
        assert (event["id"], event["attempt"], event["payload"]) == (first, 1, "a\nb")
        assert event["key"] == "k"
        assert events.last_id == f"{first}-1"
        second = api.send("c", delay_ms=30)
        event = events.next()
        assert event is not None
        assert event["payload"] == "c"
        assert event_ids(events.last_id) == {first, second}
    assert events.retries == [event_stream.LOST_MS]


def event_ids(last_id: str) -> set[str]:
    from dejaqueue.http.event_ids import parse_event_id

    return {str(message_id) for message_id, _ in parse_event_id(last_id)}


def test_who_comes_back_acks_what_it_got(api: Api) -> None:
    for payload in "abcde":
        api.send(payload)
    with stream(api, max=3) as events:
        assert events.payloads() == ["a", "b", "c"]  # full: it ends by itself
        assert events.retries == [event_stream.LOST_MS, event_stream.AGAIN_MS]
    assert stats(api)["acked"] == 0
    with stream(api, events.last_id, max=3, idle_ms=1) as events:
        assert events.payloads() == ["d", "e"]
    assert stats(api)["acked"] == 3
    with stream(api, events.last_id, idle_ms=1) as events:
        assert events.payloads() == []
    assert (stats(api)["acked"], stats(api)["leased"]) == (5, 0)


def test_what_was_sent_to_a_client_that_is_gone_waits_for_it_a_moment(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "RETURN_MS", 200)
    api.send("a")
    with stream(api, lease_ms=3_600_000) as events:
        assert events.next() is not None
    # Its lease would be an hour.
    [again] = api.lease(wait_ms=20_000)
    assert (again["payload"], again["attempt"]) == ("a", 2)
    with stream(api, events.last_id, idle_ms=1) as events:  # it came too late: it is another's
        assert events.payloads() == []
    assert api.settle("ack", [again]) == ["OK"]


def test_a_client_that_is_back_in_time_acks(api: Api) -> None:
    api.send("a")
    with stream(api, lease_ms=3_600_000) as events:
        assert events.next() is not None
    with stream(api, events.last_id, idle_ms=1) as events:
        assert events.payloads() == []
    assert (stats(api)["acked"], stats(api)["redelivered"]) == (1, 0)


def test_what_was_not_sent_goes_back_at_once(api: Api) -> None:
    with stream(api, lease_ms=3_600_000) as events:
        until(lambda: any(one["credit"] for one in stats(api)["consumers"]))
    assert events.last_id == ""
    until(lambda: not any(one["credit"] for one in stats(api)["consumers"]))
    api.send("a")
    [found] = api.lease()
    assert found["attempt"] == 1


def test_a_stream_ends_before_a_lease_of_it_does(api: Api) -> None:
    api.send("a")
    with stream(api, lease_ms=400) as events:
        assert events.payloads() == ["a"]
    assert api.lease() == []  # half of the lease is left for the client to come back
    with stream(api, events.last_id, idle_ms=1) as events:
        events.payloads()
    assert stats(api)["acked"] in (0, 1)  # 1, unless this machine took 200 ms for it


def test_auto_acks_before_it_sends_and_goes_on(api: Api) -> None:
    for payload in "abc":
        api.send(payload)
    with stream(api, ack="auto", max=1, idle_ms=50) as events:
        assert events.payloads() == ["a", "b", "c"]
    assert events.last_id == ""
    assert (stats(api)["acked"], stats(api)["leased"]) == (3, 0)


def test_a_silent_stream_says_so(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "SILENCE_MS", 5)
    with stream(api, idle_ms=60) as events:
        assert events.payloads() == []
    assert events.comments >= 2


def test_a_subscription_is_streamed_by_its_name(api: Api) -> None:
    for name in ("a", "b"):
        api.ask("PUT", f"/v1/topics/t/subscriptions/{name}", {"order": "arrival"})
    api.send("x", delay_ms=3_600_000)
    for name in ("a", "b"):
        with stream(api, path=f"/v1/topics/t@{name}/events", idle_ms=1) as events:
            assert events.payloads() == ["x"]
        with stream(api, events.last_id, f"/v1/topics/t@{name}/events", idle_ms=1) as events:
            assert events.payloads() == []
        assert stats(api, f"t@{name}")["acked"] == 1
    assert stats(api)["scheduled"] == 1


def test_a_topic_that_is_deleted_is_told(api: Api) -> None:
    with stream(api) as events:
        until(lambda: any(one["credit"] for one in stats(api)["consumers"]))
        api.broker.delete_topic("t")
        told = events.next()
        assert told is not None
        assert told["title"] == "TopicUnknown"
        assert events.next() is None
