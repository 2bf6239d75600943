"""Covers: each role on each page: what may be done there has a button, what may not has none,
and what may not be seen is refused. Not covered: what the buttons do (test_actions.py), that the
API refuses (tests/integration/test_authorisation.py)."""

from __future__ import annotations

from playwright.sync_api import Browser

from tests.console.keyed import LETTERS, MINE, furnish
from tests.integration.access_fixture import running

REFUSED, HIDDEN = 403, 404
TOPIC = ("Change", "Delete", "Grow", "Pause", "Purge")
CHART = ("Cancel 1", "Move 1", "Spread 1")
LETTER = ("Send back", "Throw away")
KEYS = ("Make", "Revoke")
PAGES = ("topic", "messages", "message", "send", "letters", "chart", "access", "audit", "theirs")
NOT = REFUSED
SEES: dict[str, tuple[object, ...]] = {
    "root": (TOPIC, (), ("Cancel", "Move"), ("Send",), LETTER, CHART, KEYS, (),
             TOPIC),
    "manage mine": (TOPIC, (), (), (), LETTER, CHART, NOT, NOT, NOT),
    "observe mine": ((), (), (), (), (), (), NOT, NOT, NOT),
    "produce mine": ((), NOT, NOT, ("Send",), NOT, NOT, NOT, NOT, NOT),
    "consume mine": ((), NOT, NOT, (), NOT, NOT, NOT, NOT, NOT),
    "manage.own mine": ((), (), HIDDEN, (), NOT, (), NOT, NOT, NOT),
}  # fmt: skip
"""By role, page by page: the buttons there, or with which status the page is refused."""


def test_each_role_has_its_buttons_and_no_others(chrome: Browser) -> None:
    found: dict[str, tuple[object, ...]] = {}
    with running() as site:
        api = furnish(site)
        [one] = api.ask("GET", f"/topics/{MINE}/messages")["messages"]
        api.http.close()
        of = f"/topics/{MINE}"
        paths = (
            of, f"{of}/messages", f"{of}/messages/{one['id']}", f"{of}/send",
            f"/topics/{LETTERS}/letters",
            f"/future/selection?topic={MINE}&due_from=0&due_to=99999999999999", "/access",
            "/audit", "/topics/theirs",
        )  # fmt: skip
        assert len(paths) == len(PAGES)
        for who in SEES:
            # Without scripts, which have no say in this: so the pages are there sooner.
            context = chrome.new_context(base_url=site.http_url, java_script_enabled=False)
            page = context.new_page()
            page.goto("/console/login")
            page.get_by_label("API key").fill(site.keys[who] or "")
            page.get_by_role("button", name="Log in").click()
            seen: list[object] = []
            for path in paths:
                answer = page.goto(f"/console{path}", wait_until="commit")
                assert answer is not None
                page.wait_for_load_state("domcontentloaded")
                texts = page.locator("form[method=post] button").all_text_contents()
                texts = sorted({text for text in texts if not text.startswith("Log out")})
                seen.append(tuple(texts) if answer.status == 200 else answer.status)
            found[who] = tuple(seen)
            context.close()
    assert found == SEES
