"""Cron entries: made, shown with their firings, run, paused, deleted."""

from __future__ import annotations

from tests.patience import until
from tests.unit.console.conftest import PROGRAM, Browser, fields_of

TOPIC = "/topics/mine.cron/cron"


def test_an_entry_is_made_run_paused_resumed_and_deleted(browser: Browser) -> None:
    assert "No entries yet" in browser.get(TOPIC)
    page = browser.post(TOPIC, name="morning", cron="0 9 * * *", zone="Europe/Berlin", payload="up")
    assert page.count("<li>20") == 10
    assert "clocks" not in page.partition("<h2>morning")[0]
    assert "paused" in browser.post(f"{TOPIC}/morning", verb="pause")
    assert "paused" not in browser.post(f"{TOPIC}/morning", verb="resume")
    browser.post(f"{TOPIC}/morning", verb="run")
    messages = browser.http.get("/v1/topics/mine.cron/messages").json()["messages"]
    assert [message["payload"] for message in messages] == ["up"]
    assert "cron" in browser.post(TOPIC, 400, name="bad", cron="at nine")
    browser.post(TOPIC, 400, name=" ", cron="0 9 * * *")
    browser.post(f"{TOPIC}/morning", 400, verb="drop")
    assert "No entries yet" in browser.post(f"{TOPIC}/morning", verb="delete")


def test_another_kind_of_topic_has_none(browser: Browser) -> None:
    assert "belong to a topic of the kind" in browser.get("/topics/mine/cron")


def test_what_an_entry_fired_last_is_told__and_how_late_it_is(browser: Browser) -> None:
    path = "/v1/topics/mine.cron/cron/often"
    made = browser.http.put(path, json={"every_ms": 1_000, "payload": "x"}, headers=PROGRAM)
    assert made.is_success, made.text
    assert "It has not fired yet." in browser.get(TOPIC)
    until(lambda: "is scheduled, due" in browser.get(TOPIC))
    until(lambda: "late by" in browser.get(TOPIC))  # nobody consumes
    browser.post(f"{TOPIC}/often", verb="pause")
    assert browser.http.post("/v1/topics/mine.cron/purge", headers=PROGRAM).is_success
    assert "What it fired last is done." in browser.get(TOPIC)
    browser.post(f"{TOPIC}/often", verb="delete")


WHOLE = {
    "cron": "0 9 * * *", "zone": "Europe/Berlin", "payload": "\n a\r\nb", "group": "vip",
    "headers": {"h": " 1 "}, "tags": ["a, b"], "priority": 7, "jitter_ms": 500, "overlap": "skip",
    "misfire": "all", "end_ms": 1_999_999_999_999,
}  # fmt: skip


def test_an_entry_that_is_changed_keeps_all_that_was_not(browser: Browser) -> None:
    path = "/v1/topics/mine.cron/cron/whole"
    for content in ({}, {"payload": None, "payload_base64": "/wAB"}):
        made = browser.http.put(path, json=WHOLE | content, headers=PROGRAM)
        assert made.is_success, made.text
        before = made.json()
        page = browser.get(f"{TOPIC}?edit=whole")
        form = fields_of(page)
        assert form["edit"] == "whole"
        assert form["zone"] == "Europe/Berlin"
        browser.post(TOPIC, **form)
        assert browser.http.get(path).json() == before
        browser.post(TOPIC, **{**form, "cron": "0 8 * * *", "group": ""})
        after = browser.http.get(path).json()
        assert after.pop("next_ms") != before.pop("next_ms")
        assert after == before | {"cron": "0 8 * * *", "group": ""}
        browser.post(TOPIC, edit="whole", jitter_ms="9")  # a form with one field alone
        assert browser.http.get(path).json() | {"next_ms": 0} == after | {
            "next_ms": 0, "jitter_ms": 9,
        }  # fmt: skip
    browser.post(f"{TOPIC}/whole", verb="delete")


def test_an_entry_is_not_made_over_one_that_is_there(browser: Browser) -> None:
    browser.post(TOPIC, name="once", cron="0 9 * * *", payload="first")
    assert "is there already" in browser.post(TOPIC, 409, name="once", cron="0 8 * * *")
    assert browser.http.get("/v1/topics/mine.cron/cron/once").json()["payload"] == "first"
    browser.post(f"{TOPIC}/once", verb="delete")
    browser.post(TOPIC, 404, edit="once", cron="0 8 * * *")


def test_what_is_typed_is_tried_before_it_is_saved(browser: Browser) -> None:
    tried = "/topics/mine.cron/firings"
    page = browser.post(tried, name="new", cron="0 9 * * *", zone="Europe/Berlin")
    assert page.count("<li>") == 10
    assert "<html" not in page
    assert "cron" in browser.post(tried, name="new", cron="at nine")
    assert "jitter_ms" in browser.post(tried, name="new", cron="0 9 * * *", jitter_ms="soon")
    assert "an instant" in browser.post(tried, name="new", cron="0 9 * * *", end="soon")
    assert browser.post(tried, name="new", every_ms="60000").count("<li>") == 10
    assert browser.http.get("/v1/topics/mine.cron/cron").json()["entries"] == []
