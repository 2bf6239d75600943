"""Dead letters: by reason, with samples; sent back or thrown away.

Room: console.
Holds: reasons are counted in the first LOOKED_AT letters, and the page says so when there are more.
See: docs/reference/semantics.md, rule 18.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from dejaqueue.console.api import Api, ApiError, topic_path
from dejaqueue.console.changes import TYPED_FROM
from dejaqueue.console.pages import redirect
from dejaqueue.console.visit import Visit
from dejaqueue.console.works import Work

LOOKED_AT = 1_000
SAMPLES_MAX = 3
ENDING = ".dead"


async def letter_topic(visit: Visit, topic: str) -> str:
    """Where the dead letters of a topic go; a topic of dead letters is its own."""
    if topic.endswith(ENDING):
        return topic
    settings = await visit.api.get(topic_path(topic))
    return str(settings.get("dead_letter") or f"{topic}{ENDING}")


async def show_letters(visit: Visit) -> Response:
    """Dead letters of a topic, by reason."""
    topic, group = visit.name("topic"), visit.fields.get("group")
    where = await letter_topic(visit, topic)
    letters: list[dict[str, Any]] = []
    is_more = False
    try:
        path = topic_path(where, "dead-letters")
        page = await visit.api.get(path, limit=LOOKED_AT, group=group)
        letters, is_more = page["messages"], page["next"] is not None
    except ApiError as error:
        if error.status != 404:
            raise
    reasons: dict[str, list[dict[str, Any]]] = {}
    for letter in letters:
        reasons.setdefault(letter["death"].get("reason", ""), []).append(letter)
    values = {
        "topic": topic,
        "link": quote(topic, safe=""),
        "where": where,
        "group": group or "",
        "count": len(letters),
        "is_more": is_more,
        "typed_from": TYPED_FROM,
        "reasons": [
            {"reason": reason, "count": len(found), "samples": found[:SAMPLES_MAX]}
            for reason, found in sorted(reasons.items(), key=lambda pair: -len(pair[1]))
        ],
        "may_manage": visit.session.may("manage", where),
    }
    return visit.page("letters", values)


async def change_letters(visit: Visit) -> Response:
    """Send letters back, or throw them away: all, or those of one reason, of one group."""
    form, verb = visit.form, visit.form.get("verb", "")
    where = await letter_topic(visit, visit.name("topic"))
    if verb not in ("redrive", "purge"):
        raise ApiError(400, "redrive or purge")
    if verb == "purge" and form.get("typed") != where:
        raise ApiError(400, "type the name of the topic to confirm; nothing was changed")
    body: dict[str, Any] = {}
    if form.get("has_reason"):
        body["reason"] = form.get("reason", "")
    if form.get("group"):
        body["group"] = form["group"]
    if verb == "redrive" and form.get("to"):
        body["to"] = form["to"]
    title = "Send dead letters back" if verb == "redrive" else "Throw dead letters away"
    work = Work(
        f"{title}: {where}", visit.session.name, visit.peer, f"console {verb}", where,
        visit.whole("shown", 0),
    )  # fmt: skip
    visit.works.begin(work, _pieces(visit.api, topic_path(where, "dead-letters", verb), body))
    return redirect(f"/console/works/{work.number}")


async def _pieces(api: Api, path: str, body: dict[str, Any]) -> AsyncIterator[int]:
    while True:
        answer = await api.post(path, body)
        yield int(answer["moved"])
        if answer["next"] is None:
            return
        body["after"] = answer["next"]
