"""Cron entries of a topic: what fires when next, and changes in place.

Room: console.
Holds: what an entry will do is asked of the API, with its jitter, and never reckoned here; a form
changes what was touched in it, and nothing else of an entry.
See: message_fields.py; docs/guides/cron.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from starlette.responses import Response

from dejaqueue.console import message_fields
from dejaqueue.console.api import ApiError, topic_path
from dejaqueue.console.pages import redirect
from dejaqueue.console.visit import Visit
from dejaqueue.console.words import iso
from dejaqueue.times import parse_instant_ms

FIRINGS = 10
SHOWN_MAX = 20
"""Entries of a page whose firings are shown; each is a call."""
CHOICES = (
    ("misfire", "Firings that were missed", ("once", "skip", "all")),
    ("overlap", "While its last message is not done", ("allow", "skip")),
)
"""Fields with a few words to choose from, the default first."""
_TEXTS = ("cron", "zone", *(name for name, _, _ in CHOICES))
_NUMBERS = ("every_ms", "jitter_ms")
_INSTANTS = {"start": "start_ms", "end": "end_ms"}
_GIVEN = ("next_ms", "last_id")
"""What the broker says of an entry, and does not take."""


async def show_entries(visit: Visit) -> Response:
    """The entries, each with its next firings."""
    topic = visit.name("topic")
    settings = await visit.api.get(topic_path(topic))
    entries: list[dict[str, Any]] = []
    more = 0
    edited: dict[str, Any] = {}
    may_manage = visit.session.may("manage", topic)
    if settings["kind"] == "cron" and may_manage:
        page = await visit.api.get(topic_path(topic, "cron"))
        for entry in page["entries"][:SHOWN_MAX]:
            path = topic_path(topic, "cron", entry["name"], "firings")
            found = await visit.api.get(path, count=FIRINGS)
            firings = with_changes(found["firings"], entry.get("zone"))
            entries.append(entry | {"firings": firings, "last": await _last(visit, topic, entry)})
        more = len(page["entries"]) - len(entries)
        if visit.fields.get("edit"):
            edited = await visit.api.get(topic_path(topic, "cron", visit.fields["edit"]))
    values = {
        "topic": topic,
        "link": quote(topic, safe=""),
        "settings": settings,
        "entries": entries,
        "may_manage": may_manage,
        "more": more,
        "edit": edited.get("name", ""),
        "texts": shown(edited),
        "payload_size": message_fields.payload_bytes(edited) or 0,
        "choices": CHOICES,
    }
    return visit.page("cron", values)


def shown(entry: dict[str, Any]) -> dict[str, str]:
    """The text of each field of the form; {} = of an entry that is to be made.

    >>> texts = shown({"cron": "0 9 * * *", "every_ms": 0, "end_ms": 1_896_082_200_250})
    >>> texts["cron"], texts["every_ms"], texts["end"], texts["misfire"]
    ('0 9 * * *', '', '2030-01-31T09:30:00.250Z', 'once')
    """
    texts = {name: words[0] for name, _, words in CHOICES}
    texts = {name: str(entry.get(name, texts.get(name, ""))) for name in _TEXTS}
    texts |= {name: str(entry.get(name) or "") for name in _NUMBERS}
    for name, field in _INSTANTS.items():
        texts[name] = iso(entry[field]) if entry.get(field) else ""
    return texts | message_fields.shown(entry)


def entry_of(form: dict[str, str], before: dict[str, Any]) -> dict[str, Any]:
    """What a form says, as the API takes it; of what was not touched, what was there.

    >>> before = {"cron": "0 9 * * *", "zone": "UTC", "tags": ["a, b"], "next_ms": 7}
    >>> entry_of({"cron": "0 8 * * *", "zone": "UTC"}, before)
    {'zone': 'UTC', 'cron': '0 8 * * *', 'tags': ['a, b']}

    Raises:
        ApiError: a field is of another type.
    """
    texts = shown(before)
    entry = {name: value for name, value in before.items() if name not in _GIVEN}
    for name in (*_TEXTS, *_NUMBERS, *_INSTANTS):
        field = _INSTANTS.get(name, name)
        text = form.get(name, texts[name]).strip()
        if name in form and text != texts[name]:
            entry.pop(field, None)
            if text:
                entry[field] = _parsed(name, text)
    for name in (*message_fields.PAYLOADS, "group", "priority", "tags", "headers"):
        entry.pop(name, None)
    return entry | message_fields.content_of(form, before)


def _parsed(name: str, text: str) -> str | int:
    try:
        if name in _INSTANTS:
            return parse_instant_ms(text)
        return int(text) if name in _NUMBERS else text
    except ValueError as error:
        wanted = str(error) if name in _INSTANTS else f"a whole number, got: {text[:100]}"
        raise ApiError(400, f"{name}: {wanted}") from None


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
    """Make an entry; or, with `edit`, change what was touched of one. Raises ApiError."""
    topic, name = visit.name("topic"), visit.form.get("name", "").strip()
    edit = visit.form.get("edit", "")
    if not edit and not name:
        raise ApiError(400, "an entry has a name")
    before = await _found(visit, topic, edit or name)
    if edit and before is None:
        raise ApiError(404, f"the entry {edit} is gone; nothing was changed")
    if not edit and before is not None:
        raise ApiError(409, f"the entry {name} is there already: change it, or take another name")
    body = entry_of(visit.form, before or {})
    await visit.api.call("PUT", topic_path(topic, "cron", edit or name), body=body)
    return _back(topic)


async def try_entry(visit: Visit) -> Response:
    """When what is typed would fire, or what is wrong with it; nothing is changed."""
    topic, edit = visit.name("topic"), visit.form.get("edit", "")
    values: dict[str, Any] = {"firings": [], "wrong": ""}
    try:
        before = await _found(visit, topic, edit) if edit else None
        entry = entry_of(visit.form, before or {})
        if entry.get("cron") or entry.get("every_ms"):
            body = {**entry, "count": FIRINGS}
            found = await visit.api.post("/v1/cron/preview", body)
            values["firings"] = with_changes(found["firings"], entry.get("zone"))
        else:
            values["wrong"] = "An expression, or an interval, is missing."
    except ApiError as error:
        values["wrong"] = error.detail
    return visit.page("firings", values)


async def _found(visit: Visit, topic: str, name: str) -> dict[str, Any] | None:
    """An entry as it is; None = there is none of that name."""
    try:
        return dict(await visit.api.get(topic_path(topic, "cron", name)))
    except ApiError as error:
        if error.status != 404:
            raise
        return None


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
