"""The future: counts for the chart, a stretch, and what is done with all that is in it."""

from __future__ import annotations

import logging
import re

import pytest

from dejaqueue import Client
from dejaqueue.model import Topic
from tests.integration.access_fixture import Site, give_keys, running
from tests.unit.console.conftest import Browser, send

HOUR_MS = 3_600_000
AT_MS = 1_900_000_000_000


def dues(browser: Browser, topic: str) -> list[int]:
    """When the messages of a topic are due."""
    page = browser.http.get(f"/v1/topics/{topic}/messages?limit=10000").json()
    return [message["due"] for message in page["messages"]]


def schedule(browser: Browser, count: int) -> str:
    """A new topic with a message each second; its name."""
    name = f"plan-{AT_MS}-{count}-{len(browser.http.get('/v1/topics').json()['topics'])}"
    browser.post("/topics", name=name)
    rows = [{"payload": "x", "due": AT_MS + 1_000 * n, "key": f"k{n}"} for n in range(count)]
    answer = browser.http.post(f"/v1/topics/{name}/messages", json={"messages": rows})
    assert answer.status_code in (200, 201), answer.text
    return name


def test_the_chart_counts_all_that_is_scheduled(browser: Browser) -> None:
    topic = schedule(browser, 100)
    answer = browser.http.get(
        f"/console/future/counts?topic={topic}&from={AT_MS}&to={AT_MS + HOUR_MS}"
    ).json()
    [series] = answer["series"]
    assert (series["topic"], sum(series["counts"]), series["error_max"]) == (topic, 100, 0)
    assert answer["bucket_ms"] * len(series["counts"]) >= HOUR_MS
    assert browser.http.get("/console/future/counts?from=5&to=5").status_code == 400


def test_a_stretch_is_shifted_spread_and_cancelled(
    browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dejaqueue.audit")
    topic = schedule(browser, 10)
    page = browser.get(f"/future/selection?topic={topic}&due_from={AT_MS}&due_to={AT_MS + 5_000}")
    assert 'data-count="5"' in page
    stretch = {"topic": topic, "due_from": AT_MS, "due_to": AT_MS + 5_000, "shown": 5}
    page = browser.post("/future/change", verb="shift", by="1", unit="3600000", **stretch)
    assert "5 of 5 messages: done" in browser.work(page)
    assert dues(browser, topic)[5:] == [AT_MS + HOUR_MS + 1_000 * n for n in range(5)]
    window = {"to_from": AT_MS, "to_end": AT_MS + 100_000, "topic": topic, "shown": 10}
    page = browser.post("/future/change", verb="spread", **window)
    assert "10 of 10 messages: done" in browser.work(page)
    assert dues(browser, topic) == [AT_MS + 10_000 * n for n in range(10)]
    assert "Spread 10" in browser.get(f"/future/selection?topic={topic}")
    page = browser.post("/future/change", verb="cancel", topic=topic, shown=10)
    assert "10 of 10 messages: done" in browser.work(page)
    assert dues(browser, topic) == []
    lines = [record.getMessage() for record in caplog.records]
    said = [re.findall(r'action="console (\w+)".*count=(\d+)', line) for line in lines]
    assert [one for one in said if one] == [
        [("shift", "5")],
        [("spread", "10")],
        [("cancel", "10")],
    ]


def test_above_a_thousand_the_number_is_typed__and_one_that_grew_is_shown_again(
    browser: Browser,
) -> None:
    topic = schedule(browser, 1_001)
    page = browser.get(f"/future/selection?topic={topic}")
    assert "Type 1001 to confirm" in page
    change = {"verb": "cancel", "topic": topic}
    assert "nothing was changed" in browser.post("/future/change", 400, shown=1_001, **change)
    assert "look again" in browser.post("/future/change", 409, shown=5, **change)
    assert len(dues(browser, topic)) == 1_001
    page = browser.post("/future/change", shown=1_001, typed="1,001", **change)
    assert "1,001 of 1,001 messages: done" in browser.work(page)


@pytest.mark.parametrize(
    "form", [{"verb": "drop"}, {"verb": "shift"}, {"verb": "spread", "to_from": 5, "to_end": 5}]
)
def test_a_change_that_says_nothing_is_refused(browser: Browser, form: dict[str, str]) -> None:
    page = browser.post("/future/change", 400, topic="mine", **form)
    assert "That did not work" in page


def test_who_may_only_look_sees_a_stretch_and_cannot_change_it() -> None:
    with running() as site:
        _check_observer(site)


def _check_observer(site: Site) -> None:
    browser = Browser(site.http_url)
    browser.post("/topics", name="mine")
    send(browser, "mine", {"payload": "x", "delay_ms": HOUR_MS})
    give_keys(site)
    browser.log_in(site.keys["observe mine"])
    page = browser.get("/future/selection?topic=mine&due_from=0")
    assert 'data-count="1"' in page
    assert "takes the role" in page
    browser.post("/future/change", 403, verb="cancel", topic="mine", shown=1)
    browser.http.close()


def test_what_consumers_can_do_is_known_at_the_first_look__to_a_viewer_of_one_topic_too() -> None:
    with running() as site:
        browser = Browser(site.http_url)
        browser.post("/topics", name="mine")
        site.broker.create_topic(Topic("idle"))
        with Client(f"dejaq://127.0.0.1:{site.flight.port}") as client:
            with client.producer("mine") as producer:
                for number in range(50):
                    producer.send(str(number))
            with client.consume("mine") as consumer:
                for _ in range(50):
                    next(iter(consumer)).ack()
        at_ms = 1_900_000_000_000
        rows = [{"payload": "x", "due": at_ms + 60_000, "key": f"k{n}"} for n in range(10_000)]
        for topic in ("mine", "idle"):
            sent = browser.http.post(f"/v1/topics/{topic}/messages", json={"messages": rows})
            assert sent.is_success
        give_keys(site)
        stretch = f"from={at_ms}&to={at_ms + 240_000}"
        browser.log_in(site.keys["observe mine"])
        path = f"/console/future/counts?topic=mine&{stretch}"
        [one] = browser.http.get(path).json()["series"]
        assert one["per_second"] > 0
        # A bucket is a second: what it cannot do of ten thousand is late.
        assert one["late_from_ms"] == at_ms + 60_000
        assert one["late_count"] == pytest.approx(10_000 - one["per_second"], abs=1)
        late_ms = (10_000 - one["per_second"]) / one["per_second"] * 1_000
        assert one["late_ms"] == pytest.approx(late_ms, abs=1)
        assert "<dt>Out/s</dt><dd>0 " not in browser.get("/topics/mine")
        assert "<dt>Lateness p99</dt><dd>≤" in browser.get("/topics/mine")
        browser.log_in(site.keys["root"])
        path = f"/console/future/counts?topic=idle&{stretch}"
        [one] = browser.http.get(path).json()["series"]
        assert (one["per_second"], one["late_count"]) == (0, 0)
        browser.http.close()
