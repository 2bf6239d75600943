"""Backups over HTTP: begun, followed, refused.

Not covered: roles (tests/integration/test_authorisation.py), what is in one (tests/unit/broker).
"""

from __future__ import annotations

from pathlib import Path

from tests.patience import until
from tests.unit.http.conftest import Api


def test_a_backup_is_begun_and_followed__a_bad_place_is_refused(api: Api, tmp_path: Path) -> None:
    assert api.get("/v1/backups/progress") == {"state": "none"}
    begun = api.post("/v1/backups", {"url": str(tmp_path)}, status=202)
    assert begun["state"] in ("running", "done")
    until(lambda: api.get("/v1/backups/progress")["state"] == "done", "it is done")
    assert (tmp_path / "backups" / f"{api.get('/v1/backups/progress')['id']}.json").exists()
    for body in ({"url": "relative"}, {}, {"url": str(tmp_path), "other": 1}):
        assert "url" in api.post("/v1/backups", body, status=400)["detail"]
