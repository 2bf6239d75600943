"""Subscriptions of a topic: how far each is, and what may be done to it in place.

Room: console.
Holds: a page shows SHOWN_MAX of them at most, since the numbers of each are a call.
See: topics.py, which has them on its page; docs/guides/subscriptions.md.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from dejaqueue.console.api import Api, ApiError, topic_path
from dejaqueue.console.pages import redirect
from dejaqueue.console.rows import pace_of, row_of
from dejaqueue.console.visit import Visit

SHOWN_MAX = 32
_FIELDS = ("scheduled", "ready", "leased", "dead", "next_due_ms", "consumers", "credit")


async def rows_of(api: Api, topic: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Each subscription with its order, whether it is paused, and its numbers.

    Args:
        settings: of the topic, as the API shows them.
    """
    rows: list[dict[str, Any]] = []
    for name, own in sorted((settings.get("subscriptions") or {}).items())[:SHOWN_MAX]:
        try:
            stats = await api.get(topic_path(f"{topic}@{name}", "stats"))
        except ApiError as error:
            if error.status != 404:
                raise
            continue  # it was deleted just now
        numbers = row_of(stats)
        row: dict[str, Any] = {field: numbers[field] for field in _FIELDS}
        row["overdue_ms"] = max(one.get("overdue_ms", 0) for one in stats["partitions"])
        row["late_us"] = pace_of(stats).late_us
        # A setting that it has not of its own is the topic's.
        is_paused = bool(own.get("paused", settings.get("paused")))
        said = {"order": own.get("order", ""), "is_paused": is_paused}
        rows.append({"name": name, "is_ephemeral": bool(own.get("ephemeral_ms")), **said, **row})
    return rows


async def change_subscription(visit: Visit) -> Response:
    """Pause one, or have it deliver again. Raises ApiError."""
    topic, name, verb = visit.name("topic"), visit.name("name"), visit.form.get("verb", "")
    if verb not in ("pause", "resume"):
        raise ApiError(400, "pause or resume")
    body = {"paused": verb == "pause"}
    await visit.api.call("PUT", topic_path(topic, "subscriptions", name), body=body)
    return redirect(f"/console/topics/{quote(topic, safe='')}?done=subscription-{verb}d")
