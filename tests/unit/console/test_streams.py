"""Streams: an open page hears when to look again, until its key or the server ends."""

from __future__ import annotations

import httpx

from tests.integration.access_fixture import give_keys, running
from tests.unit.console.conftest import Browser


def test_a_stream_ticks__and_ends_with_its_key() -> None:
    with running() as site:
        give_keys(site)
        browser = Browser(site.http_url)
        browser.log_in(site.keys["observe mine"])
        with browser.http.stream("GET", "/console/live") as answer:
            lines = (line for line in answer.iter_lines() if line.startswith("event:"))
            assert [next(lines), next(lines)] == ["event: hello", "event: tick"]
            [key] = [key for key in site.broker.keys.all() if key.name == "observe.m"]
            site.broker.keys.revoke(key.id)
            assert list(lines) == ["event: ended"]
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
