"""A standby over HTTP: of a broker that is none.

Not covered: roles (tests/integration/test_authorisation.py); a promotion (unit/broker/standby).
"""

from __future__ import annotations

from tests.unit.http.conftest import Api


def test_an_active_broker_says_so__and_is_not_promoted(api: Api) -> None:
    assert api.get("/v1/standby") == {"state": "active"}
    assert "is no standby" in api.post("/v1/standby/promotion", {}, status=409)["detail"]
