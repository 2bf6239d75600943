"""Subscriptions on the page of their topic: how far each is; paused and resumed by itself."""

from __future__ import annotations

from tests.integration.access_fixture import MINE, give_keys, make_topics, running
from tests.unit.console.conftest import PROGRAM, Browser, send


def test_each_is_shown_with_its_numbers__and_paused_alone(browser: Browser) -> None:
    assert "<h2>Subscriptions</h2>" not in browser.get("/topics/mine")
    for name, order in (("mail", "due"), ("log", "arrival")):
        path = f"/v1/topics/mine/subscriptions/{name}"
        assert browser.http.put(path, json={"order": order}, headers=PROGRAM).is_success
    send(browser, "mine", {"payload": "x", "delay_ms": 3_600_000})
    page = browser.get("/topics/mine")
    assert '<th scope="row">mail</th><td>due</td><td>1</td><td>0</td>' in page
    assert '<th scope="row">log</th><td>arrival</td><td>1</td><td>1</td>' in page
    assert "the others go on" in browser.post("/topics/mine/subscriptions/log", verb="pause")
    page = browser.get("/topics/mine")
    assert "log <small>paused" in page
    assert "mail <small>paused" not in page
    assert "Resume log" in page
    assert "Pause mail" in page
    assert "delivers again" in browser.post("/topics/mine/subscriptions/log", verb="resume")
    assert "<small>paused" not in browser.get("/topics/mine")
    browser.post("/topics/mine/subscriptions/log", 400, verb="drop")
    browser.post("/topics/nobody/subscriptions/log", 404, verb="pause")


def test_whoever_may_not_manage_has_no_button() -> None:
    with running() as site:
        make_topics(site.broker)
        give_keys(site)
        browser = Browser(site.http_url)
        key = {"authorization": f"Bearer {site.keys['root']}"}
        path = f"/v1/topics/{MINE}/subscriptions/mail"
        assert browser.http.put(path, json={}, headers=PROGRAM | key).is_success
        page = browser.log_in(site.keys["observe mine"], to="/console/topics/mine")
        assert '<th scope="row">mail</th>' in page
        assert "Pause mail" not in page
        browser.post("/topics/mine/subscriptions/mail", 403, verb="pause")
        browser.http.close()
