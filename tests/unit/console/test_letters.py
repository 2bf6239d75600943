"""Dead letters: by reason; sent back, or thrown away."""

from __future__ import annotations

from typing import Any

from dejaqueue.model import Topic
from tests.integration.access_fixture import Site
from tests.patience import until
from tests.unit.console.conftest import PROGRAM, Browser, send


def test_letters_are_grouped_sent_back_and_thrown_away(site: Site, browser: Browser) -> None:
    site.broker.create_topic(Topic("dying", max_attempts=1))
    assert "No dead letters" in browser.get("/topics/dying/letters")
    send(browser, "dying", *({"payload": f"p{n}"} for n in range(3)))
    leased: list[dict[str, Any]] = []

    def has_all() -> bool:  # a lease is answered with what is due by then, which may be the first
        path, body = "/v1/topics/dying/lease", {"max": 3, "wait_ms": 1_000}
        answer = browser.http.post(path, json=body, headers={"user-agent": "a program"})
        leased.extend(answer.json()["messages"])
        return len(leased) == 3

    until(has_all)
    rows = [{"id": one["id"], "attempt": one["attempt"]} for one in leased]
    body = {"messages": rows, "reason": "<i>mail is down</i>"}
    answer = browser.http.post("/v1/topics/dying/nack", json=body)
    assert answer.status_code == 200, answer.text
    until(lambda: "3: <q>" in browser.get("/topics/dying/letters"))
    page = browser.get("/topics/dying/letters")
    form = {"has_reason": "yes", "reason": body["reason"], "shown": 3}
    assert "mail is down" in page
    assert "<q><i>" not in browser.http.get("/console/topics/dying/letters").text
    browser.post("/topics/dying/letters", 400, verb="purge", typed="dying", **form)
    browser.post("/topics/dying/letters", 400, verb="drop", **form)
    page = browser.work(browser.post("/topics/dying/letters", verb="redrive", to="mine", **form))
    assert "3 of 3 messages: done" in page
    assert "No dead letters" in browser.get("/topics/dying/letters")
    stats = "/v1/topics/mine/stats"  # letters depart first, and arrive a moment later
    until(lambda: browser.http.get(stats).json()["scheduled"] == 3, "they are in the other topic")


def test_all_go_at_once_whatever_the_reason__or_those_of_a_group(browser: Browser) -> None:
    body = {"name": "many", "max_attempts": 1}
    assert browser.http.post("/v1/topics", json=body, headers=PROGRAM).is_success
    for number in range(4):
        send(browser, "many", {"payload": "x", "group": f"g{number % 2}"})
        path, asked = "/v1/topics/many/lease", {"wait_ms": 60_000}
        [one] = browser.http.post(path, json=asked, headers=PROGRAM).json()["messages"]
        named = [{"id": one["id"], "attempt": one["attempt"]}]
        nack = {"messages": named, "reason": f"why {number}"}
        assert browser.http.post("/v1/topics/many/nack", json=nack, headers=PROGRAM).is_success
    until(lambda: browser.get("/topics/many/letters").count("<q>why") == 4)
    page = browser.get("/topics/many/letters?group=g1")
    assert (page.count("<q>why"), "Send all back" in page) == (2, True)
    assert "of this group" in browser.get("/topics/many/letters?group=nobody")
    page = browser.work(
        browser.post("/topics/many/letters", verb="redrive", to="theirs", group="g1")
    )
    assert "2 of 0 messages: done" in page
    left = browser.get("/topics/many/letters")
    assert [f"<q>why {number}" in left for number in range(4)] == [True, False, True, False]
    browser.post("/topics/many/letters", 400, verb="purge", typed="many")
    browser.work(browser.post("/topics/many/letters", verb="purge", typed="many.dead", shown=2))
    assert "No dead letters" in browser.get("/topics/many/letters")
