"""The audit page: who did what, filtered, for admins alone."""

from __future__ import annotations

from tests.integration.access_fixture import give_keys, make_topics, running
from tests.unit.console.conftest import Browser


def test_an_admin_sees_who_did_what__and_nobody_else() -> None:
    with running() as site:
        make_topics(site.broker)
        give_keys(site)
        browser = Browser(site.http_url)
        browser.log_in(site.keys["manage mine"])
        browser.post("/topics/mine/pause")
        browser.get("/audit", 403)
        assert "/console/audit" not in browser.get("")
        browser.log_in(site.keys["root"])
        page = browser.get("/audit?topic=mine&principal=MANAGE.m")
        assert "manage.m" in page
        assert "/pause" in page
        assert "No line fits" in browser.get("/audit?topic=no-such-topic-anywhere")
        browser.http.close()
