"""Covers: every action of the console, clicked in a real browser on a broker with keys; texts that
do harm in names of consumers and entries, in labels and in lines of the audit log (names of keys
have no such signs). Not covered: refusals of each action (tests/unit/console), roles
(test_roles.py), a cluster (test_cluster.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect

from dejaqueue.model import Topic, TopicKind
from tests.console.conftest import Viewer
from tests.console.keyed import HARM, HOUR_MS, Api, furnish
from tests.integration.access_fixture import Site, running
from tests.patience import until

LATER = "2999-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def keyed() -> Iterator[tuple[Site, Api]]:
    with running() as site:
        api = furnish(site)
        yield site, api
        api.http.close()


@pytest.fixture(scope="module")
def root(chrome: Browser, keyed: tuple[Site, Api]) -> Iterator[Viewer]:
    """A browser in which `root` has logged in."""
    viewer = Viewer(chrome, keyed[0].http_url)
    viewer.log_in(keyed[0].keys["root"])
    yield viewer
    viewer.close()


@pytest.fixture(autouse=True)
def nothing_goes_wrong(root: Viewer) -> Iterator[None]:
    """No error of a script, no dialog, no request elsewhere."""
    root.wrong.clear()
    yield
    assert root.wrong == []


def _click(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def _done(page: Page) -> None:
    expect(page.locator("#work")).to_contain_text("done.")


# --- topics ---------------------------------------------------------------------------------------


def test_a_topic_is_made_paused_grown_changed_purged_and_deleted(
    root: Viewer, keyed: tuple[Site, Api]
) -> None:
    api, page = keyed[1], root.go("")
    page.get_by_text("Make a topic").click()
    page.locator("form[action='/console/topics'] [name=name]").fill("mine.new")
    _click(page, "Make")
    expect(page.get_by_role("status").first).to_have_text("The topic is there.")
    told = page.locator("main > p[role=status]")
    for button, sentence, check in _TOPIC_STEPS:
        if button in ("Purge", "Delete"):
            page.get_by_text("Purge or delete").click()
            page.locator(f"form[action$='/{button.lower()}'] [name=typed]").fill("mine.new")
        if button == "Purge":
            api.send("mine.new")
        elif button == "Grow":
            page.locator("form[action$='/grow'] [name=partitions]").fill("3")
        elif button == "Change":
            page.locator("form[action$='/settings'] [name=max_attempts]").fill("7")
        _click(page, button)
        if sentence:
            expect(told).to_have_text(sentence)
        else:
            page.wait_for_url(re.compile("/console[?]"))
        assert check(api), button


_TOPIC_STEPS: list[tuple[str, str, Callable[[Api], bool]]] = [
    ("Pause", "The topic is paused: nothing is handed out.", lambda api: _setting(api, "paused")),
    ("Resume", "The topic delivers again.", lambda api: not _setting(api, "paused")),
    ("Grow", "The topic has more partitions now.", lambda api: _setting(api, "partitions", 3)),
    ("Change", "The settings are changed, and hold at once.",
     lambda api: _setting(api, "max_attempts", 7)),
    ("Purge", "Cancelled: every message that was not leased.",
     lambda api: api.scheduled("mine.new") == 0),
    ("Delete", "", lambda api: api.http.get("/v1/topics/mine.new").status_code == 404),
]  # fmt: skip


def _setting(api: Api, name: str, value: object = True) -> bool:
    return bool(api.ask("GET", "/topics/mine.new")[name] == value)


# --- messages -------------------------------------------------------------------------------------


def test_a_file_is_read_by_the_browser_looked_at_and_sent(
    root: Viewer, keyed: tuple[Site, Api]
) -> None:
    api, page = keyed[1], root.go("/topics/mine/rows")
    file = FilePayload(name="a.csv", mimeType="text/csv", buffer=b"\xff")
    page.locator("input[type=file]").set_input_files([file])
    expect(page.locator("#rows-read")).to_have_text("a.csv is no text in UTF-8.")
    content = f"payload,due,key\nfrom a file,{LATER},filed\n"
    page.locator("input[type=file]").set_input_files(
        [FilePayload(name="a.csv", mimeType="text/csv", buffer=content.encode())]
    )
    expect(page.locator("[name=rows]")).to_have_value(content)
    _click(page, "Look at it")
    expect(page.get_by_role("cell", name="from a file")).to_be_visible()
    _click(page, "Send 1 message")
    expect(page.get_by_text("1 sent")).to_be_visible()
    [message] = api.ask("GET", "/topics/mine/messages?key=filed")["messages"]
    assert message["payload"] == "from a file"
    api.ask("POST", "/topics/mine/cancel", {"messages": [{"id": message["id"]}]})


def test_a_message_is_sent_moved_copied_and_cancelled(
    root: Viewer, keyed: tuple[Site, Api]
) -> None:
    api, page = keyed[1], root.go("/topics/mine/send")
    page.get_by_label("Payload", exact=True).fill('{"a": 1}')
    page.get_by_label("Due (ISO 8601 with a zone)").fill(LATER)
    expect(page.locator("#due-shown")).to_contain_text("2999-01-01T00:00:00.000Z")
    page.get_by_label("Key", exact=True).fill("clicked")
    page.get_by_label("Tags, parted by commas").fill("red, blue")
    page.locator("[name=headers]").fill("a: b")
    _click(page, "Send")
    expect(page.get_by_text("The message is sent.")).to_be_visible()
    one = page.url.partition("?")[0].rpartition("/")[2]
    message = api.message("mine", one)
    assert message is not None
    assert (message["payload"], message["tags"]) == ('{"a": 1}', ["red", "blue"])
    assert (message["headers"], message["key"]) == ({"a": "b"}, "clicked")

    page.get_by_label("Later by").fill("2")
    page.get_by_label("Unit").select_option("hours")
    with page.expect_navigation():
        _click(page, "Move")
    moved = api.message("mine", one)
    assert moved is not None
    assert moved["due"] == message["due"] + 2 * HOUR_MS

    page.get_by_role("button", name="Send one like it").click()
    page.get_by_label("Key", exact=True).fill("")
    page.get_by_label("Due (ISO 8601 with a zone)").fill(LATER)
    _click(page, "Send")
    expect(page.get_by_text("The message is sent.")).to_be_visible()
    other = page.url.partition("?")[0].rpartition("/")[2]
    assert other != one
    assert (api.message("mine", other) or {})["payload"] == '{"a": 1}'

    with page.expect_navigation():
        _click(page, "Cancel")
    assert api.message("mine", other) is None


@pytest.mark.parametrize("verb", ["Move", "Spread", "Cancel"])
def test_all_of_a_stretch_are(verb: str, root: Viewer, keyed: tuple[Site, Api]) -> None:
    api, topic = keyed[1], f"mine.{verb.lower()}"
    api.ask("POST", "/topics", {"name": topic})
    ids = [api.send(topic, delay_ms=HOUR_MS + number) for number in range(3)]
    before = [(api.message(topic, one) or {})["due"] for one in ids]
    page = root.go(f"/future?topic={topic}")
    page.locator("#select").get_by_label("Due from").fill("1970-01-01T00:00:00Z")
    page.locator("#select").get_by_label("Due before").fill(LATER)
    _click(page, "Look")
    expect(page.locator("#count")).to_have_text("3")
    if verb == "Spread":
        page.locator(".spread").get_by_label("From (UTC)").fill("2100-01-01T00:00:00Z")
        page.locator(".spread").get_by_label("Until (UTC)").fill("2100-01-01T00:00:03Z")
    _click(page, f"{verb} 3")
    _done(page)
    after = [(api.message(topic, one) or {}).get("due") for one in ids]
    assert (
        after
        == {
            "Move": [due + HOUR_MS for due in before],
            "Spread": [4_102_444_800_000 + 1_000 * number for number in range(3)],
            "Cancel": [None] * 3,
        }[verb]
    )


@pytest.mark.parametrize("verb", ["Send back", "Throw away"])
def test_dead_letters_of_a_reason_are(verb: str, root: Viewer, keyed: tuple[Site, Api]) -> None:
    api, topic = keyed[1], f"mine.{verb.replace(' ', '.').lower()}"
    api.ask("POST", "/topics", {"name": topic, "max_attempts": 1})
    api.bury(topic, "broken", "other")
    page = root.go(f"/topics/{topic}/letters")
    part = page.locator("article", has_text="broken")
    if verb == "Throw away":
        part.locator("[name=typed]").fill(f"{topic}.dead")
    part.get_by_role("button", name=verb).click()
    _done(page)
    assert [letter["death"]["reason"] for letter in api.letters(topic)] == ["other"]
    assert api.scheduled(topic) == (1 if verb == "Send back" else 0)


# --- cron, keys -----------------------------------------------------------------------------------


def test_an_entry_is_run_paused_resumed_and_deleted(root: Viewer, keyed: tuple[Site, Api]) -> None:
    api = keyed[1]
    api.ask("POST", "/topics", {"name": "mine.times", "kind": "cron"})
    api.ask("PUT", "/topics/mine.times/cron/morning", {"cron": "0 9 * * *"})
    page = root.go("/topics/mine.times/cron")
    for button, check in _CRON_STEPS:
        with page.expect_navigation():
            page.locator("article").get_by_role("button", name=button, exact=True).click()
        until(lambda check=check: check(api), button)  # type: ignore[misc]


def _entries(api: Api) -> list[dict[str, object]]:
    return list(api.ask("GET", "/topics/mine.times/cron")["entries"])


_CRON_STEPS: list[tuple[str, Callable[[Api], bool]]] = [
    ("Run", lambda api: bool(api.ask("GET", "/topics/mine.times/messages")["messages"])),
    ("Pause", lambda api: bool(_entries(api)[0]["paused"])),
    ("Resume", lambda api: not _entries(api)[0].get("paused")),
    ("Delete", lambda api: not _entries(api)),
]


def test_a_key_is_made_used_and_revoked(
    chrome: Browser, root: Viewer, keyed: tuple[Site, Api]
) -> None:
    page = root.go("/access")
    page.locator("form[action='/console/access'] [name=name]").fill("guest")
    page.locator("[name=grants]").fill("observe:mine")
    _click(page, "Make")
    text = page.locator("#api-key").text_content()
    guest = Viewer(chrome, keyed[0].http_url)
    guest.log_in(text)
    expect(guest.page.get_by_role("link", name="mine", exact=True)).to_be_visible()
    with page.expect_navigation():
        _click(page, "Revoke guest")
    assert "guest" not in [one["name"] for one in keyed[1].ask("GET", "/keys")["keys"]]
    # In another tab: the one that is open goes to the login by itself, at any moment.
    tab = guest.page.context.new_page()
    tab.goto(f"{keyed[0].http_url}/console")
    expect(tab.get_by_label("API key")).to_be_visible()
    guest.close()
    page = root.go("/audit?action=key")
    expect(page.locator("tbody")).to_contain_text("root")


def test_whoever_logs_out_is_out(chrome: Browser, keyed: tuple[Site, Api]) -> None:
    viewer = Viewer(chrome, keyed[0].http_url)
    viewer.log_in(keyed[0].keys["observe mine"])
    viewer.page.get_by_role("button", name="Log out").click()
    expect(viewer.page.get_by_label("API key")).to_be_visible()
    viewer.go("/topics/mine")
    expect(viewer.page.get_by_label("API key")).to_be_visible()
    viewer.close()


# --- harm -----------------------------------------------------------------------------------------


def test_names_that_do_harm_are_shown_and_never_run(root: Viewer, keyed: tuple[Site, Api]) -> None:
    site, api = keyed
    site.broker.create_topic(Topic("mine.harm", kind=TopicKind.CRON, labels={"about": HARM}))
    name = HARM[26:60]
    api.ask("PUT", f"/topics/mine.harm/cron/{quote(name, safe='')}", {"cron": "0 9 * * *"})
    api.ask("POST", "/topics/mine.harm/lease", {"wait_ms": 0, "consumer": name})
    assert not api.http.post("/v1/topics", json={"name": name}).is_success
    for path in ("/topics/mine.harm", "/topics/mine.harm/cron", "/audit"):
        page = root.go(path)
        assert page.locator("script:not([src]), img").count() == 0, path
        expect(page.locator("main")).to_contain_text("onerror=alert(2)")
    labels = root.go("/topics/mine.harm").locator("[name=labels]")
    expect(labels).to_have_value(re.compile("alert"))
