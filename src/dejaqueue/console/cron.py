"""Cron entries of a topic: what fires when next, and changes in place.

Room: console.
Holds: what an entry will do is asked of the API, with its jitter, and never reckoned here.
See: docs/guides/cron.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from starlette.responses import Response

from dejaqueue.console.api import ApiError, topic_path
from dejaqueue.console.pages import redirect
from dejaqueue.console.visit import Visit

FIRINGS = 10
SHOWN_MAX = 20
"""Entries of a page whose firings are shown; each is a call."""
FIELDS = ("cron", "zone", "payload")


async def show_entries(visit: Visit) -> Response:
    """The entries, each with its next firings."""
    topic = visit.name("topic")
    settings = await visit.api.get(topic_path(topic))
    entries: list[dict[str, Any]] = []
    may_manage = visit.session.may("manage", topic)
    if settings["kind"] == "cron" and may_manage:
        page = await visit.api.get(topic_path(topic, "cron"))
        for entry in page["entries"][:SHOWN_MAX]:
            path = topic_path(topic, "cron", entry["name"], "firings")
            found = await visit.api.get(path, count=FIRINGS)
            firings = with_changes(found["firings"], entry.get("zone"))
            entries.append(entry | {"firings": firings, "last": await _last(visit, topic, entry)})
    values = {
        "topic": topic,
        "link": quote(topic, safe=""),
        "settings": settings,
        "entries": entries,
        "may_manage": may_manage,
    }
    return visit.page("cron", values)


async def _last(visit: Visit, topic: str, entry: dict[str, Any]) -> dict[str, Any] | None:
    """The message of the last firing, as it is now; None = it has not fired yet."""
    if not entry.get("last_id"):
        return None
    try:
        message = await visit.api.get(topic_path(topic, "messages", str(entry["last_id"])))
    except ApiError as error:
        if error.status != 404:
            raise
        return {"id": entry["last_id"], "state": "done"}
    late_ms = visit.now_ms - message["due"] if message["state"] == "scheduled" else 0
    return {"id": entry["last_id"], "state": message["state"], "late_ms": max(0, late_ms),
            "due_ms": message["due"]}  # fmt: skip


async def put_entry(visit: Visit) -> Response:
    """Make or change an entry."""
    topic, form = visit.name("topic"), visit.form
    body = {name: form[name] for name in FIELDS if form.get(name)}
    name = form.get("name", "").strip()
    if not name:
        raise ApiError(400, "an entry has a name")
    await visit.api.call("PUT", topic_path(topic, "cron", name), body=body)
    return _back(topic)


async def change_entry(visit: Visit) -> Response:
    """Run an entry now, pause it, resume it, or delete it."""
    topic, verb = visit.name("topic"), visit.form.get("verb", "")
    if verb == "delete":
        await visit.api.call("DELETE", topic_path(topic, "cron", visit.name("name")))
    elif verb in ("run", "pause", "resume"):
        await visit.api.post(topic_path(topic, "cron", visit.name("name"), verb))
    else:
        raise ApiError(400, "run, pause, resume or delete")
    return _back(topic)


def with_changes(firings: list[int], zone: str | None) -> list[dict[str, Any]]:
    """Each firing, and whether the zone's clocks have changed since the one before.

    >>> days = with_changes([1_774_602_000_000, 1_774_771_200_000], "Europe/Berlin")
    >>> [day["changed"] for day in days]
    ['', 'clocks go to UTC+02:00']
    """
    shown: list[dict[str, Any]] = []
    before = None
    for at_ms in firings:
        offset = ""
        if zone:
            at = datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone(ZoneInfo(zone))
            offset = at.strftime("%z")
        is_changed = before is not None and offset != before
        changed = f"clocks go to UTC{offset[:3]}:{offset[3:]}" if is_changed else ""
        shown.append({"at_ms": at_ms, "changed": changed})
        before = offset
    return shown


def _back(topic: str) -> Response:
    return redirect(f"/console/topics/{quote(topic, safe='')}/cron")
