"""The routes of API keys: made, listed and revoked by HTTP.

Not covered: roles of those who ask (tests/integration/test_authorisation.py).
"""

from __future__ import annotations

from tests.unit.http.conftest import Api

ROOT = {"name": "root", "grants": ["admin:*"]}


def test_a_key_is_shown_once__lists_have_no_secrets(api: Api) -> None:
    listed = api.get("/v1/keys")
    assert (listed["required"], listed["keys"], listed["uses_since_ms"] > 0) == (False, [], True)
    made = api.post("/v1/keys", ROOT, status=201)
    secret = made.pop("api_key")
    listed = api.get("/v1/keys")
    assert listed["required"] is True
    [shown] = listed["keys"]
    assert (shown["id"], shown["name"]) == (made["id"], "root")
    assert secret not in str(listed)
    assert shown["used_ms"] is None  # nobody has shown it


def test_the_first_key_is_an_admin_s(api: Api) -> None:
    api.post("/v1/keys", {"name": "shop", "grants": ["produce:t"]}, status=409)
    assert api.get("/v1/keys")["keys"] == []


def test_a_wrong_grant_is_named(api: Api) -> None:
    found = api.post("/v1/keys", {"name": "shop", "grants": ["fly:*"]}, status=400)
    assert "grant" in found["field"]


def test_the_last_admin_key_is_revoked_by_force_alone(api: Api) -> None:
    api.post("/v1/keys", ROOT, status=201)
    assert api.ask("DELETE", "/v1/keys/root")[0] == 409
    status, revoked = api.ask("DELETE", "/v1/keys/root", params={"force": "true"})
    assert (status, revoked["name"]) == (200, "root")
    assert api.get("/v1/keys")["keys"] == []


def test_a_key_that_is_not_there_cannot_be_revoked(api: Api) -> None:
    assert api.ask("DELETE", "/v1/keys/nobody")[0] == 400
