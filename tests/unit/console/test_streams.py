"""Streams: an open page hears what has changed, until its key or the server ends."""

from __future__ import annotations

import json
import re

import httpx

from tests.integration.access_fixture import give_keys, make_topics, running
from tests.unit.console.conftest import Browser, send


def test_a_stream_tells_what_changed_alone__and_ends_with_its_key() -> None:
    with running() as site:
        make_topics(site.broker)
        browser = Browser(site.http_url)
        page = browser.get("")
        found = re.search(r'data-seen="([^"]+)"', page)
        assert found is not None
        with browser.http.stream("GET", "/console/live", params={"seen": found[1]}) as answer:
            lines = answer.iter_lines()
            assert next(line for line in lines if line.startswith("event:")) == "event: hello"
            send(browser, "mine", {"payload": "x", "delay_ms": 3_600_000})
            event = next(line for line in lines if line.startswith("event:"))
            told = json.loads(next(lines).removeprefix("data: "))
        assert event == "event: parts"
        assert list(told["parts"]) == ["topic-mine"]
        assert told["parts"]["topic-mine"].startswith("<tr ")
        give_keys(site)
        browser.log_in(site.keys["observe mine"])
        with browser.http.stream("GET", "/console/live?seen=x.1") as answer:
            lines = (line for line in answer.iter_lines() if line.startswith("event:"))
            # The page is not of this broker's life: it is told to load its parts anew.
            assert [next(lines), next(lines)] == ["event: hello", "event: again"]
            [key] = [key for key in site.broker.keys.all() if key.name == "observe.m"]
            site.broker.keys.revoke(key.id)
            assert list(lines)[-1] == "event: ended"
        browser.http.close()


def test_a_stream_ends_with_the_server() -> None:
    with running() as site:
        browser = Browser(site.http_url)
        with browser.http.stream("GET", "/console/live") as answer:
            lines = answer.iter_lines()
            assert next(lines)
            site.http.stop()
            try:
                rest = list(lines)
            except httpx.RemoteProtocolError:
                rest = []
        assert "event: ended" not in rest
        browser.http.close()
