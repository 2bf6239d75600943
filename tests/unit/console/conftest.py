"""A broker behind HTTP with its console, and a browser that knows cookies and forms, no scripts.

Not covered here: scripts, styles, what a real browser makes of it (tests/console).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import httpx
import pytest

from tests.integration.access_fixture import Site, make_topics, running


class Browser:
    """One browser on a console."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(
            base_url=url, timeout=30, trust_env=False, follow_redirects=True,
            headers={"user-agent": "Mozilla/5.0 (a test)"},
        )  # fmt: skip

    def get(self, path: str, status: int = 200) -> str:
        """A page's text, escapes undone."""
        answer = self.http.get(f"/console{path}")
        assert answer.status_code == status, answer.text
        return unescape(answer.text)

    @property
    def token(self) -> str:
        """What a form of the newest page brings."""
        found = re.search(r'name="csrf" content="(\w+)"', self.http.get("/console/login").text)
        assert found is not None
        return found[1]

    def post(self, path: str, status: Any = 200, **form: Any) -> str:
        """What comes of a form, after redirects."""
        answer = self.http.post(f"/console{path}", data={"csrf": self.token, **form})
        assert answer.status_code == status, answer.text
        return unescape(answer.text)

    def log_in(self, key: str | None, to: str = "/console", status: int = 200) -> str:
        """The page after logging in."""
        return self.post("/login", status, key=key or "", to=to)

    def work(self, page: str) -> str:
        """The page of a change, once it is over."""
        found = re.search(r"/console/works/([\w-]+)", page)
        while found is not None:
            page = self.get(f"/works/{found[1]}")
            found = re.search(r'hx-get="/console/works/([\w-]+)', page)
        return page


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One broker for a file."""
    with running() as site:
        make_topics(site.broker)
        yield site


@pytest.fixture
def browser(site: Site) -> Iterator[Browser]:
    browser = Browser(site.http_url)
    yield browser
    browser.http.close()


def send(browser: Browser, topic: str, *messages: dict[str, Any]) -> list[str]:
    """Send messages; their ids."""
    ids = []
    for message in messages:
        answer = browser.http.post(f"/v1/topics/{topic}/messages", json=message, headers=PROGRAM)
        assert answer.status_code == 201, answer.text
        ids.append(str(answer.json()["id"]))
    return ids


def fields_of(page: str) -> dict[str, str]:
    """What a browser would send of the last form of a page: of a textarea an empty first line is
    gone, and line ends are CRLF."""
    form = _main_form(page)
    fields = {}
    for tag, inside in re.findall(r"<(input|textarea|select) ([^>]*)>", form):
        named = re.search(r'name="([^"]*)"', inside)
        if named is None:
            continue
        name = named[1]
        if tag == "input":
            found = re.search(r'value="([^"]*)"', inside)
        elif tag == "textarea":
            found = re.search(rf'<textarea name="{name}"[^>]*>\n?(.*?)</textarea>', form, re.S)
        else:
            chosen = re.search(rf'<select name="{name}".*?</select>', form, re.S)
            assert chosen is not None
            found = re.search(r'value="([^"]*)" selected', chosen[0])
        text = found[1] if found else ""
        fields[name] = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
    fields.pop("csrf", None)
    return fields


def _main_form(page: str) -> str:
    """The last form of a page that is not the one which closes the list of keys."""
    forms: list[str] = re.findall(r"<form.*?</form>", page, re.S)
    return next(form for form in reversed(forms) if 'method="dialog"' not in form)


PROGRAM = {"user-agent": "a program"}
__all__ = ["PROGRAM", "Browser", "fields_of", "send"]
