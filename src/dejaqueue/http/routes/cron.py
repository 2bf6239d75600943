"""Cron: entries of a cron topic, and when they fire (rule 17).

Room: http.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request
from fastapi.responses import Response

from dejaqueue import limits
from dejaqueue.access.roles import Role
from dejaqueue.access.senders import Requester
from dejaqueue.errors import BadRequest
from dejaqueue.http import shapes
from dejaqueue.http.answers import id_text
from dejaqueue.http.bodies import json_object
from dejaqueue.http.direct import json_answer
from dejaqueue.http.openapi import TopicName, answers, body, route
from dejaqueue.http.parameters import check_names, given
from dejaqueue.http.service import principal_of, service_of

router = APIRouter(prefix="/v1", tags=["cron"])
Body = Annotated[dict[str, Any], Depends(json_object)]
EntryName = Annotated[
    str,
    Path(
        description="The entry's name; one with a / inside can be put and listed only.",
        min_length=1,
        max_length=limits.KEY_BYTES_MAX,
    ),
]
Count = Annotated[int, Query(ge=1, le=limits.CRON_PREVIEW_MAX)]
AfterMs = Annotated[int | None, Query(ge=0, lt=limits.INSTANT_MS_MAX)]
_NEW = {"cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin", "payload": "stand up"}
_ENTRY = {"name": "morning", **_NEW, "next_ms": 1_896_082_200_000, "last_id": None}
_SHOWN = answers(shapes.CronEntryShown, _ENTRY, "The entry.", 404)
_FIRINGS = answers(shapes.Firings, {"firings": [1_896_082_200_000]}, "Instants.", 404)


@route(
    router,
    "cron_list",
    responses=answers(shapes.CronEntries, {"entries": [_ENTRY], "next": None}, "Entries.", 404),
)
def list_entries(
    request: Request,
    topic: TopicName,
    *,
    limit: Annotated[int, Query(ge=1, le=limits.CRON_CALL_ENTRIES_MAX)] = 1_000,
    after: Annotated[str, Query(description="The `next` of the page before.")] = "",
) -> Response:
    """The entries of a topic, by name."""
    check_names(request, "limit", "after")
    entries = _act(request, "cron_list", topic=topic, after=after, limit=limit)["entries"]
    following = entries[-1]["name"] if len(entries) == limit else None
    return json_answer({"entries": [_shown(entry) for entry in entries], "next": following})


@route(
    router,
    "cron_put",
    openapi_extra=body(shapes.NewCronEntries, {"entries": [{"name": "morning", **_NEW}]}),
    responses=answers(shapes.CronEntries, {"entries": [_ENTRY]}, "The entries.", 404, 413),
)
def put_entries(request: Request, topic: TopicName, values: Body) -> Response:
    """Make or change many entries."""
    for name in values:
        if name != "entries":
            raise BadRequest(name, "entries", values[name])
    entries = values.get("entries")
    if type(entries) is not list:
        raise BadRequest("entries", "a list of entries", entries)
    entries_now = _act(
        request, "cron_put", topic=topic, entries=[_taken(entry) for entry in entries]
    )
    return json_answer({"entries": [_shown(entry) for entry in entries_now["entries"]]})


@route(router, "cron_put_one", openapi_extra=body(shapes.NewCronEntry, _NEW), responses=_SHOWN)
def put_entry(request: Request, topic: TopicName, name: EntryName, values: Body) -> Response:
    """Make or change an entry."""
    if values.get("name", name) != name:
        raise BadRequest("name", f"{name}, or nothing", values["name"])
    entry = _taken({**values, "name": name})
    [made] = _act(request, "cron_put", topic=topic, entries=[entry])["entries"]
    return json_answer(_shown(made))


@route(router, "cron_get", responses=_SHOWN)
def show_entry(request: Request, topic: TopicName, name: EntryName) -> Response:
    """An entry as it is."""
    [found] = _act(request, "cron_get", topic=topic, name=name)["entries"]
    return json_answer(_shown(found))


@route(
    router,
    "cron_drop",
    status_code=204,
    response_class=Response,
    responses={
        code: text for code, text in answers(None, None, "", 404, status=204).items() if code != 204
    },
)
def drop_entry(request: Request, topic: TopicName, name: EntryName) -> Response:
    """Delete an entry. Messages that it made and that are due stay."""
    if not _act(request, "cron_drop", topic=topic, names=[name])["dropped"]:
        raise HTTPException(404, f"topic {topic} has no entry {name}")
    return Response(status_code=204)


@route(router, "cron_pause", responses=_SHOWN)
def pause_entry(request: Request, topic: TopicName, name: EntryName) -> Response:
    """It does not fire; what passes meanwhile is not missed."""
    return _set_paused(request, topic, name, paused=True)


@route(router, "cron_resume", responses=_SHOWN)
def resume_entry(request: Request, topic: TopicName, name: EntryName) -> Response:
    """It fires again from now on."""
    return _set_paused(request, topic, name, paused=False)


def _set_paused(request: Request, topic: str, name: str, *, paused: bool) -> Response:
    [found] = _act(request, "cron_pause", topic=topic, names=[name], paused=paused)["entries"]
    return json_answer(_shown(found))


@route(
    router,
    "cron_run",
    responses=answers(shapes.Fired, {"id": "140737488355333"}, "The message.", 404),
)
def run_entry(request: Request, topic: TopicName, name: EntryName) -> Response:
    """Fire an entry now, beside its schedule."""
    return json_answer({"id": str(_act(request, "cron_run", topic=topic, name=name)["id"])})


@route(router, "cron_next", responses=_FIRINGS)
def firings(
    request: Request,
    topic: TopicName,
    name: EntryName,
    *,
    count: Count = 10,
    after_ms: AfterMs = None,
) -> Response:
    """When an entry fires next, jitter included."""
    check_names(request, "count", "after_ms")
    values = given(topic=topic, name=name, count=count, after_ms=after_ms)
    return json_answer(_act(request, "cron_next", **values))


@route(router, "cron_preview", openapi_extra=body(shapes.PreviewRequest, _NEW), responses=_FIRINGS)
def preview(request: Request, values: Body) -> Response:
    """When an entry would fire that need not exist."""
    principal_of(request)
    more = {name: values[name] for name in ("count", "after_ms") if values.get(name) is not None}
    entry = {key: value for key, value in values.items() if key not in ("count", "after_ms")}
    broker = service_of(request).broker
    call = {"entry": _taken({"name": "preview", **entry}), **more}
    return json_answer(broker.call("cron_next", call))


def _act(request: Request, action: str, **values: Any) -> dict[str, Any]:
    """Do it. An entry that is not there is a 404 here, as it is named by the address."""
    caller = principal_of(request)
    caller.require(Role.MANAGE, values["topic"])
    try:
        return service_of(request).broker.call(action, values, Requester(caller.sender))
    except BadRequest as wrong:
        if wrong.field == "entry.name" and wrong.limit.startswith("the name of an entry"):
            raise HTTPException(404, str(wrong)) from None
        raise


def _taken(values: object) -> dict[str, Any]:
    """An entry as the broker takes it: the payload in base64, nothing that is null."""
    if type(values) is not dict:
        raise BadRequest("entries", "objects", values)
    entry = {name: value for name, value in values.items() if value is not None}
    text, coded = entry.pop("payload", None), entry.pop("payload_base64", None)
    if text is not None and coded is not None:
        raise BadRequest("payload_base64", "payload or payload_base64, not both", "both")
    if text is not None:
        if type(text) is not str:
            raise BadRequest("payload", "a text (payload_base64 takes bytes)", text)
        coded = base64.b64encode(text.encode()).decode()
    for name in ("next_ms", "last_id"):
        if name in entry:
            raise BadRequest(f"entry.{name}", "nothing: it is given by the broker", entry[name])
    return entry if coded is None else entry | {"payload": coded}


def _shown(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry as it is answered."""
    content = base64.b64decode(entry["payload"])
    values = {name: value for name, value in entry.items() if name != "payload"}
    values["last_id"] = id_text(entry["last_id"])
    try:
        values["payload"] = content.decode()
    except UnicodeDecodeError:
        values["payload_base64"] = entry["payload"]
    return values
