"""The page of a topic: its settings, numbers, partitions and consumers, and what may be done to it.

Room: console.
Holds: what the viewer's roles forbid has no button; what cannot be taken back is confirmed by the
topic's name.
See: docs/reference/semantics.md for what each setting means.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from dejaqueue.console import problems, setting_fields, subscriptions
from dejaqueue.console.api import ApiError, topic_path
from dejaqueue.console.overview import starving_in
from dejaqueue.console.pages import redirect
from dejaqueue.console.rows import pace_of, row_of
from dejaqueue.console.visit import Visit
from dejaqueue.console.watches import Live, Part
from dejaqueue.model import topic_texts

PARTITIONS_MAX = 64
"""Partitions of one page."""
_PARTITION_FIELDS = ("scheduled", "ready", "leased", "next_due_ms", "journal_bytes")
_LATE_FIELDS = {"overdue_ms": 0, "lateness_max_us": -1, "credit": 0}
"""What an older broker of a cluster does not say of a partition, and what stands for it."""
_SPAN_MS, _BUCKET_MS = 3_600_000, 60_000
DONE = {
    "paused": "The topic is paused: nothing is handed out.",
    "resumed": "The topic delivers again.",
    "changed": "The settings are changed, and hold at once.",
    "subscription-paused": "The subscription is paused; the others go on.",
    "subscription-resumed": "The subscription delivers again.",
    "grown": "The topic has more partitions now.",
    "purged": "Cancelled: every message that was not leased.",
    "purging": "Some are cancelled; there are more: purge again.",
    "made": "The topic is there.",
    "deleted": "The topic is gone.",
}
"""Sentences after a change, by the word in the address."""


async def show_topic(visit: Visit) -> Response:
    """The page, or the parts of it that change by themselves."""
    name, session = visit.name("topic"), visit.session
    settings = await visit.api.get(topic_path(name))
    values: dict[str, Any] = {
        "topic": name,
        "settings": settings,
        "may_manage": session.may("manage", name),
        "may_look": session.may_look(name),
        "done": DONE.get(visit.fields.get("done", ""), ""),
        "fields": _fields(settings),
        "subscriptions": {
            one: bool(own.get("paused", settings.get("paused")))
            for one, own in sorted((settings.get("subscriptions") or {}).items())
        },
    }
    live = await _numbers(visit, name, settings) if values["may_look"] else Live({})
    return visit.live_page("topic", live, values)


async def look(visit: Visit) -> Live:
    """Its numbers, to whoever may look at them."""
    name = visit.name("topic")
    settings = await visit.api.get(topic_path(name))
    return await _numbers(visit, name, settings) if visit.session.may_look(name) else Live({})


def _fields(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Each setting with its text, as a field of a form."""
    texts = topic_texts()
    return [
        {
            "name": name,
            "value": setting_fields.shown(name, value),
            "text": texts[name],
            "choices": ("true", "false") if isinstance(value, bool)
            else setting_fields.CHOICES.get(name, ()),
            "is_long": isinstance(value, dict),
        }
        for name, value in setting_fields.values_of(settings).items()
    ]  # fmt: skip


async def _numbers(visit: Visit, name: str, settings: dict[str, Any]) -> Live:
    now_ms = visit.now_ms
    from_ms = now_ms - now_ms % _BUCKET_MS  # so that bars stay the same within a minute
    stats = await visit.api.get(topic_path(name, "stats"))
    numbers, pace = row_of(stats), pace_of(stats)
    counts = await visit.api.get(
        topic_path(name, "histogram"), due_from=from_ms, due_to=from_ms + _SPAN_MS,
        bucket_ms=_BUCKET_MS, exact=False,
    )  # fmt: skip
    groups: list[dict[str, Any]] = []
    if settings["kind"] == "fair":
        found = await visit.api.get(topic_path(name, "counts"), by="group", limit=20)
        groups = found["rows"]
    found = problems.of_topic(name, numbers, settings, now_ms, pace)
    if problems.may_starve(numbers, settings, pace):
        found += await starving_in(visit, name, settings, now_ms, pace)
    partitions = [
        {key: one[key] for key in _PARTITION_FIELDS}
        | {key: one.get(key, missing) for key, missing in _LATE_FIELDS.items()}
        for one in stats["partitions"][:PARTITIONS_MAX]
    ]
    more = len(stats["partitions"]) - len(partitions)
    owners = owners_of(await visit.api.get("/v1/cluster", topic=name.partition("@")[0]))
    bars = _bars(counts["counts"], counts["due_from"], counts["bucket_ms"])
    views = await subscriptions.rows_of(visit.api, name, settings)
    hidden = len(settings.get("subscriptions") or {}) - len(views)
    return Live(
        {
            "problems": Part("topic_problems", {"problems": problems.in_order(found)}),
            "numbers": Part("topic_numbers", {"numbers": numbers, "pace": pace}),
            "bars": Part("topic_bars", {"bars": bars}),
            "groups": Part("topic_groups", {"groups": groups, "weights": settings["weights"]}),
            "subscriptions": Part(
                "topic_subscriptions", {"subscriptions": views, "more": max(0, hidden)}
            ),
            "consumers": Part("topic_consumers", {"topic": name, "consumers": stats["consumers"]}),
            "partitions": Part(
                "topic_partitions", {"partitions": partitions, "more": more, "owners": owners}
            ),
        }
    )


def owners_of(cluster: dict[str, Any]) -> list[str]:
    """The brokers that serve a topic, shard by shard: partition p lies in shard p modulo their
    number. "" = nobody does at the moment; none: the broker is alone.

    >>> owners_of({"topics": [{"shard": 1, "node": "b"}, {"shard": 0, "node": "a"}]})
    ['a', 'b']
    """
    return [one["node"] for one in sorted(cluster["topics"], key=lambda one: int(one["shard"]))]


def _bars(counts: list[int], first_ms: int, bucket_ms: int) -> list[dict[str, int]]:
    """A bar for each bucket, its height from 0 to 100; any message at all is seen."""
    most = max(counts, default=0) or 1
    return [
        {
            "at_ms": first_ms + index * bucket_ms,
            "count": count,
            "high": max(2, 100 * count // most) if count else 0,
        }
        for index, count in enumerate(counts)
    ]


# --- changes --------------------------------------------------------------------------------------


async def pause_topic(visit: Visit) -> Response:
    """Hand nothing out from now on."""
    await visit.api.post(topic_path(visit.name("topic"), "pause"))
    return _back(visit, "paused")


async def resume_topic(visit: Visit) -> Response:
    """Hand messages out again."""
    await visit.api.post(topic_path(visit.name("topic"), "resume"))
    return _back(visit, "resumed")


async def purge_topic(visit: Visit) -> Response:
    """Cancel what is not leased. Raises ApiError: the name was not typed."""
    _check_typed(visit)
    answer = await visit.api.post(topic_path(visit.name("topic"), "purge"))
    return _back(visit, "purged" if answer["is_finished"] else "purging")


async def delete_topic(visit: Visit) -> Response:
    """Delete a topic. Raises ApiError: the name was not typed."""
    _check_typed(visit)
    await visit.api.call("DELETE", topic_path(visit.name("topic")))
    return redirect("/console?done=deleted")


async def grow_topic(visit: Visit) -> Response:
    """Give it more partitions."""
    body = {"partitions": visit.whole("partitions")}
    await visit.api.call("PATCH", topic_path(visit.name("topic")), body=body)
    return _back(visit, "grown")


async def alter_topic(visit: Visit) -> Response:
    """Change the settings that differ from what they are."""
    name = visit.name("topic")
    now = await visit.api.get(topic_path(name))
    changed = {}
    for field, before in setting_fields.values_of(now).items():
        if field in visit.form:
            value = setting_fields.parsed(field, visit.form[field], before)
            if value != before:
                changed[field] = value
    if changed:
        await visit.api.call("PATCH", topic_path(name), body=changed)
    return _back(visit, "changed")


async def create_topic(visit: Visit) -> Response:
    """Make a topic."""
    name = visit.form.get("name", "").strip()
    kind = visit.form.get("kind", "timeline")
    partitions = visit.whole("partitions", 1)
    body = {"name": name, "kind": kind, "partitions": partitions}
    await visit.api.post("/v1/topics", body)
    return redirect(f"/console/topics/{quote(name, safe='')}?done=made")


def _check_typed(visit: Visit) -> None:
    if visit.form.get("typed") != visit.name("topic"):
        raise ApiError(400, "type the name of the topic to confirm; nothing was changed")


def _back(visit: Visit, done: str) -> Response:
    return redirect(f"/console/topics/{quote(visit.name('topic'), safe='')}?done={done}")
