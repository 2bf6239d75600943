"""Messages: found by what they are; shown with their reason; sent, moved and cancelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dejaqueue import Client
from dejaqueue.broker.calls import calls
from dejaqueue.errors import Unavailable
from dejaqueue.model import Topic, TopicKind
from dejaqueue.setting_groups import ConsoleSettings
from dejaqueue.settings import HistorySettings
from tests.integration.access_fixture import Site, give_keys, running
from tests.unit.console.conftest import PROGRAM, Browser, fields_of, send

XSS = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def test_messages_are_found_by_filters_page_by_page(browser: Browser) -> None:
    browser.post("/topics", name="found")
    ids = send(
        browser, "found",
        *({"payload": f"p{n}", "key": f"k{n}", "group": f"g{n % 2}", "delay_ms": 60_000}
          for n in range(60)),
    )  # fmt: skip
    page = browser.get("/topics/found/messages")
    assert page.count("/console/topics/found/messages/") == 50
    assert 'rel="next"' in page
    for query, count in (("key=k7", 1), (f"id={ids[3]}", 1), ("group=g1", 30), ("state=leased", 0)):
        page = browser.get(f"/topics/found/messages?{query}")
        assert page.count("/console/topics/found/messages/") == count, query
    assert "No live message fits" in page


def test_what_a_producer_wrote_is_text_on_every_page(browser: Browser) -> None:
    browser.post("/topics", name="xss", kind="fair")
    [made] = send(
        browser, "xss",
        {"payload": XSS, "key": XSS, "group": XSS, "tags": ["<b>tag</b>"], "headers": {"h": XSS}},
    )  # fmt: skip
    for path in ("", "/messages", f"/messages/{made}", f"/send?like={made}", "/letters"):
        text = browser.http.get(f"/console/topics/xss{path}").text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "<b>tag" not in text
    assert XSS in browser.get(f"/topics/xss/messages/{made}")


def test_a_message_is_sent_moved_and_cancelled(browser: Browser) -> None:
    page = browser.post(
        "/topics/mine/send", payload='{"a": 1}', delay="2", unit="3600000", key="one",
        tags="red, blue", headers="trace: 7",
    )  # fmt: skip
    assert "The message is sent" in page
    for text in ("Due in 1 h", '"a": 1', "red, blue", "trace", "nobody gets it before"):
        assert text in page, text
    [message] = browser.http.get("/v1/topics/mine/messages?key=one").json()["messages"]
    place = f"/topics/mine/messages/{message['id']}"
    browser.post(place, verb="move", by="60", unit="1000")
    [moved] = browser.http.get("/v1/topics/mine/messages?key=one").json()["messages"]
    assert moved["due"] == message["due"] + 60_000
    browser.post(place, 400, verb="drop")
    browser.post(place, verb="cancel")
    assert browser.http.get("/v1/topics/mine/messages?key=one").json()["messages"] == []
    browser.get(place, 404)


def test_bytes_are_shown_as_hex__and_payloads_not_to_observers() -> None:
    with running() as site:
        browser = Browser(site.http_url)
        browser.post("/topics", name="mine")
        [made] = send(browser, "mine", {"payload_base64": "/wAB", "delay_ms": 60_000})
        assert "00000000  ff 00 01" in browser.get(f"/topics/mine/messages/{made}")
        give_keys(site)
        browser.log_in(site.keys["observe mine"])
        page = browser.get(f"/topics/mine/messages/{made}")
        assert "not shown to your roles" in page
        assert "ff 00" not in page
        browser.http.close()


def test_a_group_at_its_cap_is_named(site: Site, browser: Browser) -> None:
    site.broker.create_topic(Topic("capped", kind=TopicKind.FAIR, group_in_flight_max=1))
    both = send(browser, "capped", *({"payload": "x", "group": "vip"} for _ in range(2)))
    with (
        Client(f"dejaq://127.0.0.1:{site.flight.port}") as client,
        client.consume_batches("capped") as consumer,
    ):
        batch = next(iter(consumer))
        [waiting] = set(both) - {str(one) for one in batch.ids.tolist()}
        page = browser.get(f"/topics/capped/messages/{waiting}")
    assert "its group vip is at its cap: it may have 1 messages in flight" in page


def test_a_copy_has_the_payload_to_the_byte__binary_or_with_odd_lines(browser: Browser) -> None:
    browser.post("/topics", name="copied")
    for content in (
        {"payload_base64": "/wAB"},
        {"payload": "\n a\r\nb\rc\n"},
        {"payload": "x\x00"},
    ):
        more = {"tags": ["a, b"], "headers": {"h": " 1 "}, "key": "k"}
        [first] = send(browser, "copied", {**content, **more, "delay_ms": 60_000})
        form = browser.get(f"/topics/copied/send?like={first}")
        page = browser.post("/topics/copied/send", **fields_of(form) | {"delay": "60"})
        assert "The message is sent" in page
        messages = browser.http.get("/v1/topics/copied/messages").json()["messages"]
        both = [
            {name: value for name, value in message.items() if name not in ("id", "due", "key")}
            for message in messages
        ]
        assert len(both) == 2
        assert both[0] == both[1]
        purged = browser.http.post("/v1/topics/copied/purge", headers=PROGRAM)
        assert purged.is_success


def test_a_copy_that_was_edited_has_what_was_typed(browser: Browser) -> None:
    browser.post("/topics", name="edited")
    [first] = send(browser, "edited", {"payload_base64": "/wAB", "delay_ms": 60_000})
    browser.post("/topics/edited/send", like=first, payload="", payload_base64="/w==", delay="60",
                 unit="1000")  # fmt: skip
    messages = browser.http.get("/v1/topics/edited/messages").json()["messages"]
    assert [message["payload_base64"] for message in messages] == ["/wAB", "/w=="]
    browser.post("/topics/edited/send", 404, like="77", payload="x")


def test_the_life_of_a_message_is_on_its_page__also_when_it_is_done(tmp_path: Path) -> None:
    with running(history=HistorySettings(directory=str(tmp_path))) as site:
        browser = Browser(site.http_url)
        site.broker.create_topic(Topic("kept", history=True))
        [made] = send(browser, "kept", {"payload": "x"})
        lease = browser.http.post(
            "/v1/topics/kept/lease", json={"consumer": XSS[:40]}, headers=PROGRAM
        ).json()
        [message] = lease["messages"]
        raw = browser.http.get(f"/console/topics/kept/messages/{made}").text
        assert "<script>alert" not in raw
        page = browser.get(f"/topics/kept/messages/{made}")
        for text in (f"Leased by {XSS[:40]} for attempt 1", f"Leased by consumer {XSS[:40]}",
                     "its lease ends at", "Lease ends</dt>", ": Sent, due"):  # fmt: skip
            assert text in page, text
        named = {"id": message["id"], "attempt": message["attempt"]}
        browser.http.post("/v1/topics/kept/ack", json={"messages": [named]}, headers=PROGRAM)
        page = browser.get(f"/topics/kept/messages/{made}")
        assert "It is not live any more" in page
        assert "Acked: it is done" in page
        assert "Payload</h2>" not in page
        browser.get("/topics/kept/messages/77", 404)
        browser.http.close()


def test_where_nothing_is_recorded_the_page_says_how_to_switch_it_on(browser: Browser) -> None:
    browser.post("/topics", name="unkept")
    [made] = send(browser, "unkept", {"payload": "x", "delay_ms": 60_000})
    page = browser.get(f"/topics/unkept/messages/{made}")
    assert "dejaq topic alter unkept --history" in page
    assert "Its trace" not in page


def test_a_message_with_a_trace_leads_to_it__if_somebody_said_where() -> None:
    console = ConsoleSettings(trace_url="https://tracing.example/{trace_id}?a=1&b=2")
    with running(console=console) as site:
        browser = Browser(site.http_url)
        browser.post("/topics", name="traced")
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        for parent, is_linked in (
            (f"00-{trace}-00f067aa0ba902b7-01", True),
            ("javascript:alert(1)", False),
            (f"00-{'0' * 32}-00f067aa0ba902b7-01", False),
        ):
            message = {"payload": "x", "delay_ms": 60_000, "headers": {"traceparent": parent}}
            [made] = send(browser, "traced", message)
            page = browser.get(f"/topics/traced/messages/{made}")
            link = f'<a href="https://tracing.example/{trace}?a=1&b=2"'
            assert (link in page) == is_linked, parent
            assert ("Its trace" in page) == is_linked, parent
        browser.http.close()


def test_what_happened_that_cannot_be_told_is_said(
    site: Site, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.post("/topics", name="untold")
    [made] = send(browser, "untold", {"payload": "x", "delay_ms": 60_000})

    def fails(*_: object) -> dict[str, Any]:
        raise Unavailable("its disk does not answer")

    monkeypatch.setitem(calls._FUNCTIONS, "message_history", fails)
    page = browser.get(f"/topics/untold/messages/{made}")
    assert "What happened to it cannot be told now: " in page
    assert "its disk does not answer" in page
    assert "Nothing is recorded of it" not in page
    assert "Why not yet?" in page, "the rest of the page is there"


def test_a_message_of_a_subscription_leads_to_the_history_of_its_topic(
    site: Site, browser: Browser
) -> None:
    site.broker.create_topic(Topic("news", subscriptions={"mail": {}}))
    [made] = send(browser, "news", {"payload": "x", "delay_ms": 60_000})
    page = browser.get(f"/topics/news@mail/messages/{made}")
    assert "A subscription has no history of its own" in page
    assert f'href="/console/topics/news/messages/{made}#history"' in page
