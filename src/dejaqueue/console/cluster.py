"""The cluster: brokers and what they serve, their clocks and versions, servers and sick copies.

Room: console.
Holds: a node leaves only after its name was typed; whoever does a change says how far it is.
See: docs/guides/cluster.md; cli/cluster.py, which says the same in a terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from dejaqueue.console.api import ApiError
from dejaqueue.console.pages import redirect
from dejaqueue.console.visit import Visit

_CHANGES = {"remove": "remove_node", "repair": "repair_node"}
TOPICS_MAX = 200


async def show_cluster(visit: Visit) -> Response:
    """Everything that is known of it; its servers are told to an admin."""
    is_admin = visit.session.may("admin", "")
    found = await visit.api.get("/v1/cluster", servers=is_admin or None)
    served = Counter(one["node"] for one in found["topics"])
    nodes = [
        node | {"topic_count": served[node["node"]], "state": state_of(node),
                "clock_text": clock_of(node.get("clock"))}
        for node in found["nodes"]
    ]  # fmt: skip
    values = {
        "cluster": found,
        "nodes": nodes,
        "topics": found["topics"][:TOPICS_MAX],
        "topic_count": len(found["topics"]),
        "ownerless": served[""],
        "servers": found.get("servers", []),
        "is_admin": is_admin,
        "progress": await _progress(visit) if is_admin else None,
    }
    return visit.page("cluster", values)


async def change_node(visit: Visit) -> Response:
    """Begin a change of a node. Raises ApiError: its name was not typed."""
    node, verb = visit.form.get("node", ""), visit.form.get("verb", "")
    if verb not in _CHANGES:
        raise ApiError(400, "remove or repair")
    if verb == "remove" and visit.form.get("typed") != node:
        raise ApiError(400, "type the name of the node to confirm; nothing was changed")
    await visit.api.post(f"/v1/cluster/nodes/{quote(node, safe='')}/{verb}")
    return redirect(f"/console/cluster?node={quote(node, safe='')}&verb={verb}")


async def _progress(visit: Visit) -> dict[str, Any] | None:
    """How far the change is that the address names; None = it names none."""
    node, change = visit.fields.get("node", ""), _CHANGES.get(visit.fields.get("verb", ""))
    if not node or change is None:
        return None
    path = f"/v1/cluster/nodes/{quote(node, safe='')}/progress"
    try:
        found: dict[str, Any] = await visit.api.get(path, change=change)
    except ApiError as error:
        return {"node": node, "state": "not known", "text": error.detail}
    return found


def state_of(node: Mapping[str, Any]) -> str:
    """What a broker does, in words.

    >>> state_of({"leaving": False}), state_of({"leaving": False, "clock": {"apart": True}})
    ('serving', 'clock is off, takes nothing')
    """
    clock = node.get("clock") or {}
    if clock.get("apart"):
        return "clock is off, lets go" if node["leaving"] else "clock is off, takes nothing"
    if clock.get("comparing"):
        return "compares its clock, takes nothing yet"
    if node.get("short"):
        return "disk is short, producers wait"
    return "leaving" if node["leaving"] else "serving"


def clock_of(clock: Mapping[str, Any] | None) -> str:
    """How far a broker's clock is ahead of that of the one that was asked.

    >>> clock_of(None), clock_of({"ahead_ms_min": -2, "ahead_ms_max": 3})
    ('not known', '-2 to +3 ms')
    """
    if clock is None or clock["ahead_ms_min"] is None:
        return "not known"
    least_ms, most_ms = clock["ahead_ms_min"], clock["ahead_ms_max"]
    return "0 ms" if least_ms == most_ms == 0 else f"{least_ms:+,} to {most_ms:+,} ms"
