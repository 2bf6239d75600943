"""The overview: problems first, then every topic that the viewer may look at."""

from __future__ import annotations

import pytest

from dejaqueue.cli.top import Looks
from dejaqueue.client import Client
from dejaqueue.console import problems
from dejaqueue.model import Topic, TopicKind
from tests.integration.access_fixture import give_keys, running
from tests.unit.console.conftest import Browser, send


def test_a_topic_that_nobody_consumes_is_a_problem__with_what_to_do(browser: Browser) -> None:
    assert "Nothing is late" in browser.get("")
    send(browser, "theirs", {"payload": "x"})
    page = browser.get("/topics/theirs")
    assert "1 messages are due and nobody consumes" in page
    assert "Start a consumer" in page


def test_a_filter_finds_topics_by_a_part_of_their_name(browser: Browser) -> None:
    page = browser.get("?q=CRON")
    assert "/console/topics/mine.cron" in page
    assert "/console/topics/theirs" not in page
    assert "No topic has “none”" in browser.get("?q=none")


def test_who_may_look_at_some_topics_sees_these() -> None:
    with running() as site:
        browser = Browser(site.http_url)
        assert "There are no topics" in browser.get("")
        for name in ("mine", "theirs"):
            browser.post("/topics", name=name)
        give_keys(site)
        page = browser.log_in(site.keys["observe mine"])
        assert "/console/topics/mine" in page
        assert "theirs" not in page
        page = browser.log_in(site.keys["produce mine"])
        assert "/console/topics/mine" in page  # to send to, without its numbers
        browser.http.close()


def test_a_group_that_starves_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are of tens of seconds: that others are served is told to the page here."""
    monkeypatch.setattr(problems, "may_starve", lambda row, *_values: row["ready"] > 0)
    with running() as site:
        browser = Browser(site.http_url)
        site.broker.create_topic(Topic("turns", kind=TopicKind.FAIR, partitions=2))
        old = {"payload": "x", "group": "slow", "due": "2001-01-01T00:00:00Z"}
        send(browser, "turns", old, {"payload": "y"})
        page = browser.get("")
        assert "The group slow starves: its oldest message waits for" in page
        assert "What has no group starves" not in page
        assert "The group slow starves" in browser.get("/topics/turns")
        browser.http.close()


def test_whom_a_quota_refuses_is_a_problem__also_in_dejaq_top() -> None:
    with running() as site:
        browser = Browser(site.http_url)
        site.broker.quotas.of_address("10.0.0.7").refused("streams_max", 3, 4)
        page = browser.get("")
        assert "10.0.0.7 was refused once in five minutes by its quota streams_max, 3" in page
        with Client(f"dejaq://127.0.0.1:{site.flight.port}") as client:
            [one] = Looks(client, "").take().found
        assert one.title.startswith("10.0.0.7 was refused once")
        browser.http.close()
