"""A real browser on the console of a real broker: headless Chromium, driven by Playwright.

The browser is the system's (scripts/install_servers.sh); Playwright brings none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    sync_playwright,
)

from tests.hostile import browser as chromium
from tests.integration.access_fixture import Site, running
from tests.patience import PATIENCE_SECONDS

AXE = (Path(__file__).parent / "axe/axe.min.js").read_text(encoding="utf-8")
PATIENCE_MS = PATIENCE_SECONDS * 1_000
HOUR_MS = 3_600_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A broker without keys."""
    with running() as site:
        yield site


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """One browser for all tests of a file: while it is there, an event loop runs in this thread,
    and nobody else's asyncio does."""
    program = chromium.program()
    if program is None:
        pytest.skip("not installed: chromium (scripts/install_servers.sh)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=FLAGS,
        )
        yield browser
        browser.close()


class Viewer:
    """A page of a browser, and everything that went wrong in it.

    Attributes:
        wrong: errors of scripts, what the policy refused, dialogs that opened, requests elsewhere.
    """

    def __init__(self, chrome: Browser, url: str, *, dark: bool = False, wide: int = 1_440) -> None:
        self.context = chrome.new_context(
            base_url=url,
            color_scheme="dark" if dark else "light",
            viewport={"width": wide, "height": 900},
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.wrong: list[str] = []
        self._url = url
        self.page.on("console", self._said)
        self.page.on("pageerror", self._failed)
        self.page.on("dialog", self._opened)
        self.page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _opened(self, dialog: Dialog) -> None:
        self.wrong.append(dialog.message)
        dialog.dismiss()

    def _failed(self, error: Error) -> None:
        self.wrong.append(str(error))

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self._url, "data:")):
            self.wrong.append(f"asked {request.url}")

    def go(self, path: str) -> Page:
        """Show a page of the console, its scripts included."""
        self.page.goto(f"/console{path}", wait_until="load")
        return self.page

    def log_in(self, key: str | None) -> None:
        """Type a key into the form."""
        page = self.go("/login")
        page.get_by_label("API key").fill(key or "")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(re.compile("/console$"))

    def violations(self) -> list[str]:
        """What axe finds that the rules for accessibility forbid."""
        self.page.evaluate(AXE)
        found = self.page.evaluate(
            "async () => (await axe.run(document, {resultTypes: ['violations'], runOnly: "
            "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})).violations.map("
            "one => `${one.id}: ${one.nodes.map(node => node.html).join(' | ')}`)"
        )
        return list(found)

    def close(self) -> None:
        """End it."""
        self.context.close()


@pytest.fixture
def viewer(chrome: Browser, site: Site) -> Iterator[Viewer]:
    viewer = Viewer(chrome, site.http_url)
    yield viewer
    viewer.close()
