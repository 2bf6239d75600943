"""The console in a real browser, on a broker with messages: what scripts and styles make of it.

Covered: each page in both themes at the width of a phone and of a desk, accessibility by axe, texts
that do harm where they are not escaped, another site's form, a broker that dies and comes back, the
chart. Not covered: what forms do (tests/unit/console).
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from playwright.sync_api import Browser, expect

from dejaqueue.access.gate import Gate
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from tests.console.conftest import PATIENCE_MS, Viewer
from tests.console.scene import HARM, furnish
from tests.integration.access_fixture import Site, give_keys, running

NOT_THERE = "Failed to load resource: the server responded with a status of 404 (Not Found)"


@pytest.fixture(scope="module")
def pages(site: Site) -> dict[str, str]:
    return furnish(site)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("wide", [390, 1_440])
def test_every_page_can_be_read_by_everybody(
    chrome: Browser, site: Site, pages: dict[str, str], dark: bool, wide: int
) -> None:
    viewer = Viewer(chrome, site.http_url, dark=dark, wide=wide)
    found: dict[str, list[str]] = {}
    for name, path in pages.items():
        page = viewer.go(path)
        over = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
        wrong = [text for text in viewer.wrong if text != NOT_THERE or name != "not there"]
        viewer.wrong.clear()
        if wide == 390:  # what axe looks at does not depend on the width, but for what is hidden
            wrong += viewer.violations()
        if over > 0:
            wrong.append(f"{over} px beyond the edge")
        if wrong:
            found[name] = wrong
    viewer.close()
    assert not found, json.dumps(found, indent=1)


def test_what_a_message_says_is_shown_and_never_run(viewer: Viewer, pages: dict[str, str]) -> None:
    for name in ("topic", "messages", "message", "send", "letters", "cron"):
        page = viewer.go(pages[name])
        assert page.locator("script:not([src]), img").count() == 0, name
    viewer.go(pages["message"])
    expect(viewer.page.locator("pre").first).to_have_text(HARM)
    page = viewer.go("/future?topic=jobs")
    page.locator("#select").get_by_label("Due from").fill("1970-01-01T00:00:00Z")
    page.get_by_role("button", name="Look").click()
    expect(page.locator("#selection tbody td").last).to_have_text(HARM)
    assert viewer.wrong == []


def test_a_stretch_of_the_chart_is_selected_and_cancelled(viewer: Viewer, site: Site) -> None:
    site.broker.create_topic(Topic("plan", partitions=2))
    rows = [{"payload": "x", "delay_ms": 60_000 * (5 + n)} for n in range(500)]
    sent = httpx.post(
        f"{site.http_url}/v1/topics/plan/messages", json={"messages": rows}, trust_env=False
    )
    assert sent.is_success
    page = viewer.go("/future?span=day&topic=plan")
    chart = page.locator("#chart .u-over")
    expect(page.locator("#about-chart")).to_contain_text("500 messages")
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 60, steps=5)
    page.mouse.up()
    expect(page.locator("#count")).to_have_text("500")
    page.get_by_role("button", name="Cancel 500").click()
    expect(page.locator("#work")).to_contain_text("500 of 500 messages: done.")
    assert site.broker.call("stats", {"topic": "plan"})["scheduled"] == 0
    assert viewer.wrong == []


def test_the_wheel_zooms_and_keys_lead_to_pages(viewer: Viewer, pages: dict[str, str]) -> None:
    page = viewer.go("")
    assert pages
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_url("**/console/future**")
    expect(page.locator("#about-chart")).to_contain_text("messages from")
    before = page.url
    page.locator("#chart .u-over").hover()
    page.mouse.wheel(0, -300)
    page.wait_for_function("before => location.href !== before", arg=before)
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert viewer.wrong == []


def test_another_sites_form_changes_nothing(
    viewer: Viewer, site: Site, pages: dict[str, str]
) -> None:
    viewer.go(pages["topic"])  # the browser has its cookie
    body = f"""<form method=post action="{site.http_url}/console/topics/jobs/pause">
        <input name=csrf value=0></form><script>document.forms[0].submit()</script>"""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with viewer.page.expect_response("**/pause") as told:
            viewer.page.goto(f"http://localhost:{server.server_address[1]}/")
        assert told.value.status == 403
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert not site.broker.topic("jobs").paused


def test_each_role_finds_what_it_may_do_and_nothing_else(chrome: Browser) -> None:
    with running() as site:
        for name in ("mine", "theirs"):
            httpx.post(f"{site.http_url}/v1/topics", json={"name": name}, trust_env=False)
        give_keys(site)
        found = {}
        for who in ("root", "manage mine", "observe mine", "produce mine", "consume mine"):
            viewer = Viewer(chrome, site.http_url)
            viewer.log_in(site.keys[who])
            page = viewer.page
            sees = [page.get_by_role("link", name=name).count() > 0 for name in ("mine", "theirs")]
            keys = page.get_by_role("link", name="Access").count() > 0
            viewer.go("/topics/mine")
            pauses = page.get_by_role("button", name="Pause").count() > 0
            viewer.go("/topics/mine/send")
            sends = page.get_by_role("button", name="Send", exact=True).count() > 0
            found[who] = (*sees, keys, pauses, sends)
            assert viewer.wrong == []
            assert page.evaluate("document.cookie") == ""
            viewer.close()
    assert found == {
        "root": (True, True, True, True, True),
        "manage mine": (True, False, False, True, False),
        "observe mine": (True, False, False, False, False),
        "produce mine": (True, False, False, False, True),
        "consume mine": (True, False, False, False, False),
    }


def test_a_page_outlives_its_broker(chrome: Browser) -> None:
    with running() as site:
        viewer = Viewer(chrome, site.http_url)
        page = viewer.go("")
        expect(page.locator("#lost")).to_be_hidden()
        port = site.http.port
        site.http.stop()
        expect(page.locator("#lost")).to_be_visible(timeout=PATIENCE_MS)
        again = HttpServer(
            Service(site.broker, Gate(site.broker.keys), lambda: True), "127.0.0.1", port
        )
        again.start()
        try:
            httpx.post(f"{site.http_url}/v1/topics", json={"name": "newcomer"}, trust_env=False)
            expect(page.locator("#lost")).to_be_hidden(timeout=PATIENCE_MS)
            expect(page.get_by_role("link", name="newcomer")).to_be_visible(timeout=PATIENCE_MS)
        finally:
            viewer.close()
            again.stop()
