"""The audit log: who did what, filtered; the newest lines of the broker that is asked.

Room: console.
See: access/audit.py.
"""

from __future__ import annotations

from starlette.responses import Response

from dejaqueue.console.visit import Visit

FIELDS = ("principal", "action", "topic", "outcome")
_USUAL = ("at_ms", "peer", *FIELDS)
SHOWN_MAX = 500


async def show_audit(visit: Visit) -> Response:
    """The lines that fit."""
    wanted = {name: visit.fields[name] for name in FIELDS if name in visit.fields}
    answer = await visit.api.get("/v1/audit", limit=SHOWN_MAX, **wanted)
    lines = [
        {name: line.get(name, "") for name in _USUAL}
        | {"more": ", ".join(f"{name} {line[name]}" for name in line if name not in _USUAL)}
        for line in answer["lines"]
    ]
    return visit.page("audit", {"lines": lines, "wanted": wanted, "names": FIELDS})
