"""Access: keys are made and revoked; the text of one is shown once."""

from __future__ import annotations

import re

import pytest

from tests.integration.access_fixture import running
from tests.unit.console.conftest import Browser


def test_the_first_key_is_made__and_from_then_on_one_is_needed() -> None:
    with running() as site:
        browser = Browser(site.http_url)
        assert "There are no API keys" in browser.get("/access")
        page = browser.post("/access", name="root", grants="admin:*")
        found = re.search(r'id="api-key">(dq_\w+)<', page)
        assert found is not None
        assert "Log in" in browser.get("/access")
        browser.log_in(found[1], to="/console/access")
        page = browser.post("/access", name="shop", grants="produce:orders.*\nobserve:orders.*")
        assert "produce:orders.*, observe:orders.*" in page
        assert page.count("<td>not yet</td>") == 1  # root's is what this was done with
        assert "Uses are known since" in page
        assert "dq_" not in browser.get("/access")
        [shop] = [key for key in site.broker.keys.all() if key.name == "shop"]
        assert shop.ends_ms is None
        assert "shop" not in browser.post("/access/revoke", id=shop.id)
        browser.post("/access", name="guest", grants="observe:*", days="3")
        [guest] = [key for key in site.broker.keys.all() if key.name == "guest"]
        assert guest.ends_ms is not None
        assert guest.ends_ms - guest.created_ms == pytest.approx(3 * 86_400_000, abs=60_000)
        browser.post("/access", 400, name="other", grants="observe:*", days="-1")
        browser.http.close()
