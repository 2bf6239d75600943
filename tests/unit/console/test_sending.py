"""A small file by rows: looked at, then sent whole or not at all, and once."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from dejaqueue.access import audit
from tests.integration.access_fixture import give_keys, running
from tests.unit.console.conftest import Browser

PLACE = "/topics/mine/rows"
ROWS = (
    "payload,due,key\nhello <b>,2035-01-01T00:00:00Z,{name}-1\nyou,2035-01-02T00:00:00Z,{name}-2\n"
)


def looked(browser: Browser, text: str, **more: str) -> dict[str, str]:
    """The fields that send what was looked at."""
    page = browser.post(PLACE, rows=text, verb="preview", **more)
    found = {name: re.search(rf'name="{name}" value="([^"]+)"', page) for name in ("seen", "word")}
    fields = {name: match[1] for name, match in found.items() if match is not None}
    assert len(fields) == 2, page
    return {"rows": text, "verb": "send", **fields, **more}


def with_key(browser: Browser, name: str) -> list[dict[str, Any]]:
    answer = browser.http.get("/v1/topics/mine/messages", params={"key": [name]})
    return list(answer.json()["messages"])


def test_a_file_is_looked_at_before_it_is_sent__and_then_sent_once(browser: Browser) -> None:
    text = ROWS.format(name="once")
    assert "Send a file to mine" in browser.get(PLACE)
    page = browser.post(PLACE, rows=text, verb="preview")
    for part in ("2 messages, CSV", "Send 2 messages", "once-1", "hello <b>", "2035"):
        assert part in page, part
    assert "at once" not in page
    assert with_key(browser, "once-1") == []
    fields = looked(browser, text)
    for _ in range(2):  # the button is pressed twice
        assert "2 sent" in browser.post(PLACE, **fields)
    [message] = with_key(browser, "once-2")
    assert (message["payload"], message["due"]) == ("you", 2_051_308_800_000)
    lines = audit.newest(20, action="console send", topic="mine")
    assert [(line["count"], line["rows"], line["outcome"]) for line in lines[:1]] == [
        (2, 2, "done")
    ]


def test_a_key_that_is_taken_is_told_with_its_line(browser: Browser) -> None:
    text = ROWS.format(name="taken")
    browser.post(PLACE, **looked(browser, text))
    page = browser.post(PLACE, **looked(browser, text + "new,2035-01-01T00:00:00Z,taken-3\n"))
    assert "1 sent" in page
    assert "2 not taken: a live message has the key" in page
    assert f"/messages/{with_key(browser, 'taken-1')[0]['id']}" in page


def test_nothing_is_sent_of_a_file_with_a_wrong_line(browser: Browser) -> None:
    text = ROWS.format(name="wrong") + "late,soon,wrong-3\n"
    page = browser.post(PLACE, 400, rows=text, verb="preview")
    assert "1 line is wrong" in page
    assert '<th scope="row">4</th>' in page
    browser.post(PLACE, 400, rows=text, verb="send", seen="x", word="y")
    assert with_key(browser, "wrong-1") == []


def test_what_was_not_looked_at_is_not_sent(browser: Browser) -> None:
    fields = looked(browser, ROWS.format(name="seen"))
    page = browser.post(PLACE, **(fields | {"rows": ROWS.format(name="other")}))
    assert "another one now" in page
    assert with_key(browser, "other-1") == []


def test_what_the_api_refuses_is_told_with_its_line__and_nothing_is_sent(browser: Browser) -> None:
    text = "payload,payload_base64,key\na,,first\n,wrong!,second\n"
    page = browser.post(PLACE, 400, **looked(browser, text))
    assert "Nothing was sent. Line 3: payload_base64 of row 1" in page
    assert with_key(browser, "first") == []


def test_a_file_of_a_mebibyte_goes_through_the_form(browser: Browser) -> None:
    row = "é" * 47 + ",2035-01-01T00:00:00Z\n"
    text = "payload,due\n" + row * 8_000
    assert "8,000 sent" in browser.post(PLACE, **looked(browser, text))
    browser.post("/topics", 413, name="x" * (1 << 20))


@pytest.mark.parametrize("key", ["observe mine", "consume mine"])
def test_who_may_not_send_has_no_form__and_is_refused(key: str) -> None:
    with running() as site:
        browser = Browser(site.http_url)
        browser.post("/topics", name="mine")
        give_keys(site)
        browser.log_in(site.keys[key])
        assert "takes the role" in browser.get(PLACE)
        text = ROWS.format(name="no")
        seen = hashlib.sha256(f"mine\0due\0{text}".encode()).hexdigest()  # as if it was looked at
        page = browser.post(PLACE, 403, rows=text, verb="send", seen=seen, word="w")
        assert "takes the role" in page
        browser.http.headers["authorization"] = f"Bearer {site.keys['root']}"
        assert with_key(browser, "no-1") == []
        browser.http.close()
