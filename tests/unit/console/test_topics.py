"""The page of a topic: numbers, settings, and what may be done to it."""

from __future__ import annotations

from dejaqueue.model import Topic
from tests.integration.access_fixture import MINE, Site, give_keys, running
from tests.unit.console.conftest import Browser, send


def test_a_topic_is_made_paused_resumed_grown_changed_purged_deleted(browser: Browser) -> None:
    assert "The topic is there" in browser.post("/topics", name="t1", kind="fair", partitions="2")
    send(browser, "t1", {"payload": "a", "group": "<i>vip</i>", "delay_ms": 60_000})
    assert "nothing is handed out" in browser.post("/topics/t1/pause")
    assert "delivers again" in browser.post("/topics/t1/resume")
    assert "more partitions" in browser.post("/topics/t1/grow", partitions="3")
    page = browser.post(
        "/topics/t1/settings", lease_ms="60000", weights="vip=3", backoff_factor="3"
    )
    assert "hold at once" in page
    now = browser.http.get("/v1/topics/t1").json()
    assert (now["lease_ms"], now["weights"], now["backoff_factor"]) == (60_000, {"vip": 3}, 3.0)
    assert "a value like" in browser.post("/topics/t1/settings", 400, lease_ms="soon")
    assert "topic.lease_ms" in browser.post("/topics/t1/settings", 400, lease_ms="-1")
    assert "nothing was changed" in browser.post("/topics/t1/purge", 400, typed="t")
    assert browser.http.get("/v1/topics/t1/stats").json()["scheduled"] == 1
    assert "Cancelled" in browser.post("/topics/t1/purge", typed="t1")
    assert browser.http.get("/v1/topics/t1/stats").json()["scheduled"] == 0
    assert "Overview" in browser.post("/topics/t1/delete", typed="t1")
    assert browser.http.get("/v1/topics/t1").status_code == 404


def test_the_part_that_changes_comes_alone(browser: Browser) -> None:
    answer = browser.http.get("/console/topics/mine", headers={"hx-request": "true"})
    assert "<dt>Scheduled</dt>" in answer.text
    assert "<html" not in answer.text


def test_what_a_role_may_not_do_has_no_button() -> None:
    with running() as site:
        give_keys(site)
        shown = {
            who: _buttons(site, who) for who in ("manage mine", "observe mine", "produce mine")
        }
    assert shown == {
        "manage mine": (True, True),
        "observe mine": (False, True),
        "produce mine": (False, False),
    }


def _buttons(site: Site, who: str) -> tuple[bool, bool]:
    site.broker.create_topic(Topic(MINE), exist_ok=True)
    browser = Browser(site.http_url)
    page = browser.log_in(site.keys[who], to="/console/topics/mine")
    if "/pause" not in page:
        assert browser.post("/topics/mine/pause", 403)
    browser.http.close()
    return "/pause" in page, "<dt>Scheduled</dt>" in page
