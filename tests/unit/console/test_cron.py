"""Cron entries: made, shown with their firings, run, paused, deleted."""

from __future__ import annotations

from tests.patience import until
from tests.unit.console.conftest import PROGRAM, Browser

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
