"""Access: API keys with their roles; made and revoked by an admin.

Room: console.
Holds: the text of a new key is shown once, in the answer that made it, and kept nowhere.
See: access/administration.py.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from dejaqueue.console.pages import redirect
from dejaqueue.console.visit import Visit

_DAY_MS = 86_400_000


async def show_access(visit: Visit) -> Response:
    """Every key that was not revoked."""
    return await _shown(visit, "")


async def create_key(visit: Visit) -> Response:
    """Make a key, and show its text."""
    grants = [line.strip() for line in visit.form.get("grants", "").splitlines() if line.strip()]
    body: dict[str, Any] = {"name": visit.form.get("name", "").strip(), "grants": grants}
    days = visit.whole("days", 0)
    if days:
        body["ends_ms"] = visit.now_ms + days * _DAY_MS
    made = await visit.api.call("POST", "/v1/keys", body=body)
    if visit.session.key is None:  # it is the first one: from now on this viewer needs one, too
        return visit.page("key", {"api_key": made.get("api_key", "")})
    return await _shown(visit, made.get("api_key", ""))


async def revoke_key(visit: Visit) -> Response:
    """Refuse a key from now on."""
    await visit.api.call("DELETE", f"/v1/keys/{quote(visit.form.get('id', ''), safe='')}")
    return redirect("/console/access")


async def _shown(visit: Visit, api_key: str) -> Response:
    answer = await visit.api.get("/v1/keys")
    return visit.page(
        "access",
        {
            "keys": answer["keys"],
            "api_key": api_key,
            "since_ms": answer.get("uses_since_ms", 0),
        },
    )
