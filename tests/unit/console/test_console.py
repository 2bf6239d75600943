"""The console as an application: what is where, and what every answer says to the browser."""

from __future__ import annotations

import pytest

from dejaqueue.access import audit
from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.console.views import VIEWS
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.setting_groups import ConsoleSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.integration.access_fixture import give_keys, running
from tests.unit.console.conftest import Browser


def test_the_root_leads_to_the_console(browser: Browser) -> None:
    answer = browser.http.get("/")
    assert answer.url.path == "/console"
    assert "<h1>Overview</h1>" in answer.text


def test_the_icon_that_browsers_ask_for_beside_any_page_needs_no_key() -> None:
    with running() as site:
        give_keys(site)
        browser = Browser(site.http_url)
        answer = browser.http.get("/favicon.ico")
        assert (answer.status_code, answer.headers["content-type"]) == (
            200,
            "image/svg+xml; charset=utf-8",
        )
        assert browser.http.post("/favicon.ico").status_code == 404
        assert audit.newest(1, action="favicon") == []
        browser.http.close()


def test_what_is_not_there_is_said(browser: Browser) -> None:
    assert "there is no such page" in browser.get("/nowhere", 404)
    assert "topic" in browser.get("/topics/none", 404)
    assert browser.http.request("PUT", "/console/future").status_code == 405


def test_every_page_forbids_scripts_of_its_own_and_others(browser: Browser) -> None:
    for method, path, _ in VIEWS:
        if method == "GET":
            place = path.format(topic="mine", id="7", number="x", name="n")
            answer = browser.http.get(f"/console{place}")
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
            assert "unsafe" not in policy
            assert answer.headers["cache-control"] == "no-store"
            assert "<script>" not in answer.text
            assert "style=" not in answer.text


def test_every_post_wants_its_token(browser: Browser) -> None:
    for method, path, _ in VIEWS:
        if method == "POST":
            place = path.format(topic="mine", id="7", number="x", name="n")
            assert browser.http.post(f"/console{place}").status_code == 403, place


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"x=" + b"a" * (1 << 20), "application/x-www-form-urlencoded", 413),
        (b"&".join(b"x%d=" % n for n in range(300)), "application/x-www-form-urlencoded", 400),
        (b"{}", "application/json", 415),
    ],
)
def test_an_odd_form_is_refused(browser: Browser, body: bytes, kind: str, status: int) -> None:
    answer = browser.http.post("/console/topics", content=body, headers={"content-type": kind})
    assert answer.status_code == status


def test_a_broker_may_have_none() -> None:
    settings = BrokerSettings(
        journal=JournalSettings(url="memory:"), console=ConsoleSettings(enabled=False)
    )
    broker = Broker(settings)
    broker.start()
    server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    try:
        browser = Browser(f"http://127.0.0.1:{server.port}")
        for path in ("/", "/console", "/console/files/x/console.js"):
            assert browser.http.get(path).status_code == 404
        browser.http.close()
    finally:
        server.stop()
        broker.stop()
