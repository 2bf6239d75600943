"""What browsers send for pages, and what programs send: headers of both, one by one.

Not covered here: a real browser (tests/hostile/test_web_page.py).
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from dejaqueue.access.pages import REASONS, Pages
from dejaqueue.errors import Forbidden
from dejaqueue.settings import BrokerSettings, ClusterSettings, JournalSettings, ServerSettings

HERE = "127.0.0.1:7465"
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0"


def look(*, is_secure: bool = False, takes: bool = False, **headers: Any) -> str:
    """Why a request is refused; "" = it is not. Underscores are hyphens."""
    pages = Pages(["queue.example", "Dejaq"])
    found = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        pages.check(found, is_secure=is_secure, takes=takes)
    except Forbidden:
        [reason] = [name for name, count in pages.refused().items() if count]
        return reason
    assert sum(pages.refused().values()) == 0
    return ""


@pytest.mark.parametrize(
    "host",
    [
        "", HERE, "127.0.0.1", "localhost", "LocalHost:1", "localhost.", "localhost.:7465",
        "a.localhost:7465", "[::1]:7465", "[::1]", "[::ffff:127.0.0.1]:1", "192.168.1.5:7465",
        "8.8.8.8", "queue.example", "QUEUE.example:7465", "queue.example.:1", "dejaq:7465",
    ],
)  # fmt: skip
def test_a_broker_is_called_by_loopback_names_addresses_and_its_own(host: str) -> None:
    assert look(host=host) == ""
    assert look(host=host, takes=True) == ""


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", f"evil.example:{7465}", "127.0.0.1.evil.example", "localhost.evil.example",
        "evillocalhost", "queue", "queue:7465", "a.queue.example", "localhost@evil.example",
        "localhost:7465:evil", "localhost evil", "127.0.0.1, evil", "[::1", "0x7f.1.evil",
        "localhost..", "локалхост",
    ],
)  # fmt: skip
def test_a_name_that_somebody_had_resolved_to_this_machine_is_refused(host: str) -> None:
    expected = "" if host == "[::1" else "host"  # no browser sends it; an address all the same
    assert look(host=host) == expected
    assert look(host=host, is_secure=True) == "", "a certificate has told the name"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_pages_of_other_origins_are_refused(site: str) -> None:
    for destination in ("empty", "document", "image"):
        found = look(host=HERE, sec_fetch_site=site, sec_fetch_dest=destination)
        assert found == "site"


@pytest.mark.parametrize(
    "destination",
    [
        "audio", "audioworklet", "embed", "fencedframe", "font", "frame", "iframe", "image", "json",
        "manifest", "object", "paintworklet", "report", "script", "serviceworker", "sharedworker",
        "style", "track", "video", "webidentity", "websocket", "worker", "xslt",
    ],
)  # fmt: skip
def test_parts_of_pages_are_refused(destination: str) -> None:
    for site in ("same-origin", "none", ""):
        found = look(host=HERE, sec_fetch_site=site, sec_fetch_dest=destination)
        assert found == "destination"


def test_our_own_page_and_a_typed_address_are_let_in() -> None:
    own: dict[str, Any] = {
        "host": HERE,
        "origin": f"http://{HERE}",
        "referer": f"http://{HERE}/docs",
    }
    assert look(**own, sec_fetch_site="same-origin", sec_fetch_dest="empty") == ""
    assert look(host=HERE, sec_fetch_site="none", sec_fetch_dest="document") == ""
    assert (
        look(host="LOCALHOST:1", origin="http://localhost:1", referer="http://localhost:1/") == ""
    )


@pytest.mark.parametrize("name", ["origin", "referer"])
@pytest.mark.parametrize(
    "value",
    [
        "null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:7466",
        "http://localhost:7465", "http://127.0.0.1:7465.evil.example", "file://", "about:client",
        "http://evil@127.0.0.1:7465", "http://[", "127.0.0.1:7465", "chrome-extension://abc",
    ],
)  # fmt: skip
def test_foreign_origins_and_referers_are_refused(name: str, value: str) -> None:
    assert look(host=HERE, **cast(Any, {name: value})) == name


def test_no_browser_takes_messages_by_a_get_but_for_our_own_page() -> None:
    """Not to loopback and not over TLS a picture has no header that tells it but the browser's."""
    there: dict[str, Any] = {"host": "192.168.1.5:7465", "user_agent": AGENT}
    assert look(**there) == "", "looking is harmless: the page cannot read the answer"
    assert look(**there, takes=True) == "taking"
    typed: dict[str, Any] = {"host": HERE, "sec_fetch_site": "none", "sec_fetch_dest": "document"}
    assert look(**typed, takes=True) == "taking", "a link in a mail"
    own: dict[str, Any] = {"host": HERE, "user_agent": AGENT, "sec_fetch_dest": "empty"}
    assert look(**own, sec_fetch_site="same-origin", takes=True) == ""
    assert look(host=HERE, user_agent="curl/8.5.0", takes=True) == ""


def test_the_names_are_those_of_the_settings() -> None:
    settings = BrokerSettings(
        journal=JournalSettings(url="memory:"),
        server=ServerSettings(host="db1.lan", http_names="dejaq, queue.example"),
        cluster=ClusterSettings(advertise="node1"),
    )
    pages = Pages.of(settings)
    for host in ("db1.lan", "dejaq:1", "queue.example:7465", "node1"):
        pages.check({"host": host}, is_secure=False, takes=False)
    with pytest.raises(Forbidden) as refused:
        pages.check({"host": "x" * 1_000}, is_secure=False, takes=False)
    assert str(refused.value) == (
        "host of a call without an API key: a loopback name, an address or one of http_names, "
        f"got: {'x' * 100}"
    )
    assert pages.refused() == dict.fromkeys(REASONS, 0) | {"host": 1}
