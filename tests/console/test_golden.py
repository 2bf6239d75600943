"""Covers: each page looks as its picture in git, in both themes, on a phone and at a desk; that the
comparison sees a word that is missing. Not covered: what pages say (the other files of this
folder), charts and numbers, which are masked."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.console import golden
from tests.console.scene import furnish
from tests.integration.access_fixture import Site, running

ANEW = "`python -m tests.console` writes the pictures anew; look at them before they are committed"


def test_pages_look_as_they_did(chrome: Browser) -> None:
    with running() as site:
        paths = furnish(site)
        if golden.fonts_of(chrome, site.http_url) != golden.kept_fonts():
            pytest.skip(f"not comparable: the fonts here are others. {ANEW}")
        page = chrome.new_page()
        wrong, seen = [], set()
        for name, now in golden.taken(chrome, site.http_url, paths):
            seen.add(name)
            path = golden.FOLDER / name
            if not path.exists():
                wrong.append(f"{name} is not kept")
            elif told := golden.difference(page, path.read_bytes(), now):
                wrong.append(f"{name}: {told}")
        page.close()
    assert not wrong, f"{wrong}. {ANEW}"
    assert seen == {path.name for path in golden.FOLDER.glob("*.png")}


def test_a_word_that_is_missing_is_seen(chrome: Browser, site: Site) -> None:
    page = chrome.new_page(base_url=site.http_url, device_scale_factor=golden.SCALE)
    page.goto("/console/checks", wait_until="load")
    page.evaluate(golden.MASK)
    before, again = golden.picture(page, 1_440), golden.picture(page, 1_440)
    assert golden.difference(page, before, again) == ""
    page.evaluate("document.querySelector('nav li:nth-child(4)').remove()")
    assert "pixels differ" in golden.difference(page, before, golden.picture(page, 1_440))
    assert "not" in golden.difference(page, before, golden.picture(page, 390))
    page.close()
