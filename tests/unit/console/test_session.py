"""Sessions: cookies, tokens, and from where one may look.

Covered: what a page of another site can make a browser send. With a real browser: tests/console.
"""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.access.api_keys import grants_of
from dejaqueue.access.gate import Gate
from dejaqueue.access.pages import Pages
from dejaqueue.access.roles import Principal
from dejaqueue.console import session as sessions
from dejaqueue.console.pages import environment, page
from dejaqueue.console.session import Session
from dejaqueue.errors import Forbidden
from tests.integration.access_fixture import Site, give_keys, running
from tests.unit.console.conftest import Browser

SESSION = Session("dq_1_2", "w" * 43, None, "_7465", False, "/console")


def test_a_token_is_of_the_key_and_of_the_browser() -> None:
    others = [
        Session("dq_1_3", "w" * 43, None, "_7465", False, "/console").token,
        Session("dq_1_2", "x" * 43, None, "_7465", False, "/console").token,
    ]
    assert SESSION.token not in others
    sessions.check_change(SESSION, {"host": "a", "origin": "http://a"}, SESSION.token)


@pytest.mark.parametrize(
    "headers", [{"sec-fetch-site": "cross-site"}, {"host": "a", "origin": "http://b"},
                {"host": "a", "origin": "null"}]
)  # fmt: skip
def test_a_change_from_elsewhere_is_refused__token_or_not(headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden):
        sessions.check_change(SESSION, headers, SESSION.token)


def test_a_change_without_its_token_is_refused(browser: Browser) -> None:
    assert browser.get("")
    for form in ({}, {"csrf": "0" * 64}, {"csrf": "ä"}):
        answer = browser.http.post("/console/topics/mine/pause", data=form)
        assert answer.status_code == 403, answer.text
    assert '"paused":false' in browser.http.get("/v1/topics/mine").text


def test_cookies_are_for_the_console_alone(browser: Browser) -> None:
    answer = browser.http.get("/console")
    [cookie] = answer.headers.get_list("set-cookie")
    assert cookie.endswith("; Path=/console; HttpOnly; SameSite=Strict")
    assert "Secure" not in cookie
    secure = sessions.cookie("dejaq_key", "k", Session(None, "", None, "", True, "/console"))
    assert secure == "dejaq_key=k; Path=/console; HttpOnly; SameSite=Strict; Secure"


@pytest.mark.parametrize("key", ["k; Domain=example.org", "k\r\nX: y", "k,l", "ä", "", "k" * 4_097])
def test_what_is_no_key_makes_no_cookie__not_even_without_keys(browser: Browser, key: str) -> None:
    form = {"csrf": browser.token, "key": key, "to": "/console"}
    answer = browser.http.post("/console/login", data=form, follow_redirects=False)
    assert answer.status_code == 403
    assert answer.headers.get_list("set-cookie") == []


@pytest.mark.parametrize(
    ("address", "headers"),
    [
        ("10.0.0.7", []),
        ("127.0.0.1", [(b"sec-fetch-site", b"cross-site")]),
        ("127.0.0.1", [(b"host", b"evil.example")]),
    ],
)
def test_without_keys_only_this_machines_own_browser_looks(
    site: Site, address: str, headers: list[tuple[bytes, bytes]]
) -> None:
    scope = {
        "type": "http", "client": (address, 5), "headers": headers, "path": "/console",
        "scheme": "http",
    }  # fmt: skip

    with pytest.raises(Forbidden):
        sessions.open_session(scope, Gate(site.broker.keys), Pages())


def test_a_key_logs_in_and_out__and_what_is_revoked_does_not() -> None:
    with running() as site:
        give_keys(site)
        browser = Browser(site.http_url)
        assert "Log in" in browser.get("")
        assert "no API key of this broker" in browser.log_in(site.keys["revoked"], status=403)
        assert "no API key of this broker" in browser.log_in("x" * 5_000, status=403)
        page = browser.log_in(site.keys["root"], to="/console/access")
        assert "root" in page
        assert str(site.keys["root"]) not in page
        browser.post("/logout")
        assert "Log in" in browser.get("/access")
        browser.http.close()


def test_a_link_on_another_site_leads_round_by_the_console_itself() -> None:
    with running() as site:
        give_keys(site)
        browser = Browser(site.http_url)
        answer = browser.http.get("/console/future", headers={"sec-fetch-site": "cross-site"})
        assert 'content="0; url=/console/future"' in answer.text
        browser.log_in(site.keys["root"])
        # A login that leads elsewhere leads to the overview.
        answer = browser.http.get("/console/login?to=//evil.example", follow_redirects=False)
        assert answer.headers["location"] == "/console"
        browser.http.close()


@pytest.mark.parametrize(
    ("grants", "links"),
    [
        ("observe:t", {"browse", "look", "anywhere"}),
        ("manage:own:t", {"browse", "anywhere"}),
        ("produce:own:t", {"produce"}),
        ("manage:t", {"browse", "look", "anywhere", "manage"}),
        ("produce:t", {"produce"}),
        ("consume:t", set()),
        ("observe:u", {"anywhere"}),
    ],
)
def test_links_lead_where_the_role_may_go(grants: str, links: set[str]) -> None:
    session = Session(None, "w", Principal("k", grants_of([grants])), "", False, "/console")
    found = {
        "browse": session.may_browse("t"),
        "look": session.may_look("t"),
        "anywhere": session.may_look_anywhere,
        "manage": session.may("manage", "t"),
        "produce": session.may("produce", "t"),
    }
    assert {name for name, may in found.items() if may} == links
    macros: Any = environment().get_template("macros.html").module
    text = macros.crumbs(session, "t", "t", "")
    pages = {"browse": "/messages", "look": "/future", "manage": "/cron", "produce": "/send"}
    assert {name for name, path in pages.items() if path in text} == links - {"anywhere"}
    bar = bytes(page("problem", session, 0, {"status": 1, "detail": ""}).body).decode()
    assert ("/console/future" in bar) == ("anywhere" in links)
    assert "/console/cluster" not in bar
