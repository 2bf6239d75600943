"""DOQ's paths; those that are called most are in calls.py.

Room: http. Checks who calls, and puts answers into DOQ's shape.
See: docs/guides/moving-from-doq.md for what each answers.
"""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from dejaqueue.access import rules
from dejaqueue.access.roles import Role
from dejaqueue.http.auditing import BEARER, note
from dejaqueue.http.doq import calls, catalogue, shapes, topics
from dejaqueue.http.doq.calls import Lane
from dejaqueue.http.doq.refusals import DoqRoute, documented
from dejaqueue.http.doq.state import Doq, doq_of, message_answer, metadata_part
from dejaqueue.http.openapi import route
from dejaqueue.http.service import Service, principal_of, service_of

router = APIRouter(prefix="/API/v1", tags=["DOQ"], route_class=DoqRoute)
ALONE = "alone"
"""The id of a broker that is in no cluster."""


def install(app: FastAPI, service: Service) -> None:
    """Serve DOQ's paths."""
    app.state.doq = Doq(service)
    app.include_router(calls.router)
    app.include_router(router)
    app.add_middleware(Lane)


# --- queues -----------------------------------------------------------------------------------


@route(
    router, "doq_create_queue", response_model=shapes.DoqMade, responses=documented("create_queue")
)
async def create_queue(request: Request, body: shapes.DoqNewQueue) -> JSONResponse:
    """Make a queue. One of that name and type that is there already is fine."""
    note(request, topic=body.name)
    principal_of(request).require(Role.MANAGE, body.name)
    asked = topics.topic_of(body.name, body.type, body.settings)
    topic = await run_in_threadpool(catalogue.create, service_of(request).broker, asked)
    return JSONResponse(
        {
            "status": "CREATED",
            "name": topic.name,
            "type": body.type,
            "settings": topics.settings_of(topic),
        }
    )


@route(
    router, "doq_list_queues", response_model=shapes.DoqListing, responses=documented("list_queues")
)
async def list_queues(request: Request) -> JSONResponse:
    """All queues that the caller may look at."""
    principal, broker = principal_of(request), service_of(request).broker
    found = [topic for topic in broker.topics() if topics.is_queue(topic)]
    rates = doq_of(request).rates
    rates.keep(topic.name for topic in found)
    shown = [topic for topic in found if rules.may_look(principal, topic.name)]
    bearer = request.scope.get(BEARER)
    stats = await run_in_threadpool(catalogue.stats_of, service_of(request), bearer, shown)
    described = [
        topics.describe(topic, stats[topic.name], rates.of(topic.name))
        for topic in shown
        if topic.name in stats
    ]
    return JSONResponse({"queues": described})


@route(
    router, "doq_get_queue", response_model=shapes.DoqDescribed, responses=documented("get_queue")
)
async def get_queue(request: Request, queue_name: str) -> JSONResponse:
    """A queue, and how full it is."""
    rules.require_any(principal_of(request), rules.LOOKS, queue_name)
    doq = doq_of(request)
    topic = doq.messages.topic(queue_name).topic
    stats = await run_in_threadpool(service_of(request).broker.call, "stats", {"topic": queue_name})
    return JSONResponse(topics.describe(topic, stats, doq.rates.of(queue_name)))


@route(
    router,
    "doq_update_queue",
    response_model=shapes.DoqChanged,
    responses=documented("update_queue"),
)
async def update_queue(
    request: Request, queue_name: str, body: shapes.DoqChangedQueue
) -> JSONResponse:
    """Change the settings of a queue."""
    principal_of(request).require(Role.MANAGE, queue_name)
    topic = doq_of(request).messages.topic(queue_name).topic
    changes = topics.changes_of(topic.kind, body.settings, topic.weights)
    alter = service_of(request).broker.alter_topic
    topic = await run_in_threadpool(alter, queue_name, changes)
    return JSONResponse(
        {"status": "UPDATED", "name": queue_name, "settings": topics.settings_of(topic)}
    )


@route(
    router,
    "doq_delete_queue",
    response_model=shapes.DoqDeleted,
    responses=documented("delete_queue"),
)
async def delete_queue(request: Request, queue_name: str) -> JSONResponse:
    """Delete a queue and its messages."""
    principal_of(request).require(Role.MANAGE, queue_name)
    doq_of(request).messages.topic(queue_name)
    await run_in_threadpool(service_of(request).broker.delete_topic, queue_name)
    return JSONResponse({"status": "DELETED"})


@route(
    router,
    "doq_cluster_servers",
    response_model=shapes.DoqServers,
    responses=documented("cluster_servers"),
)
async def cluster_servers(request: Request) -> JSONResponse:
    """The brokers. All are equal: each is shown as its own leader, which takes every call.

    A broker that is alone is at the address where the caller found it.
    """
    principal_of(request).require(Role.MANAGE, "")
    broker = service_of(request).broker
    cluster = await run_in_threadpool(broker.cluster)
    alone = {"node": ALONE, "http_url": str(request.base_url).rstrip("/")}
    servers = [
        {
            "id": node["node"],
            "addr": node["http_url"],
            "leader_addr": node["http_url"],
            "is_leader": True,
            "suffrage": "Voter",
        }
        for node in cluster["nodes"] or [alone]
    ]
    return JSONResponse({"servers": servers})


# --- messages ---------------------------------------------------------------------------------


@route(
    router, "doq_generate_ids", response_model=shapes.DoqIds, responses=documented("generate_ids")
)
async def generate_ids(request: Request, body: shapes.DoqNewIds) -> JSONResponse:
    """Ids for messages that are to be sent: a message sent twice with its id counts once."""
    principal_of(request)
    return JSONResponse({"ids": doq_of(request).ids.take(body.number)})


@route(
    router, "doq_get_message", response_model=shapes.DoqMessage, responses=documented("get_message")
)
async def get_message(request: Request, queue_name: str, id: str) -> Response:  # noqa: A002
    """A message as it is, without taking it."""
    principal_of(request).require(Role.MANAGE, queue_name)
    return message_answer("GOT", await doq_of(request).messages.get(queue_name, id))


@route(router, "doq_delete_message", status_code=204, responses=documented("delete_message"))
async def delete_message(request: Request, queue_name: str, id: str) -> Response:  # noqa: A002
    """Delete a message, whether it waits or is with a consumer."""
    caller = principal_of(request)
    caller.require(Role.PRODUCE, queue_name)
    sender = caller.sender_for(queue_name, Role.PRODUCE)
    await doq_of(request).messages.delete(queue_name, id, sender)
    return Response(status_code=204)


@route(router, "doq_nack", response_model=shapes.DoqDone, responses=documented("nack"))
async def nack(
    request: Request,
    queue_name: str,
    id: str,  # noqa: A002
    body: shapes.DoqReturned | None = None,
) -> JSONResponse:
    """A message goes back to its place, or to that of another priority, perhaps with other
    metadata."""
    principal_of(request).require(Role.CONSUME, queue_name)
    doq, returned = doq_of(request), body or shapes.DoqReturned()
    await doq.messages.nack(queue_name, id, returned.priority, returned.metadata)
    doq.rates.note(queue_name, "nack")
    answer = {"status": "UNACKNOWLEDGED", "id": id, "priority": returned.priority}
    return JSONResponse(answer | metadata_part(returned.metadata))


@route(router, "doq_touch", response_model=shapes.DoqDone, responses=documented("touch"))
async def touch(request: Request, queue_name: str, id: str) -> JSONResponse:  # noqa: A002
    """The acknowledgement timeout of a message begins anew."""
    principal_of(request).require(Role.CONSUME, queue_name)
    await doq_of(request).messages.touch(queue_name, id)
    return JSONResponse({"status": "TOUCHED", "id": id})


@route(
    router, "doq_set_priority", response_model=shapes.DoqDone, responses=documented("set_priority")
)
async def set_priority(
    request: Request,
    queue_name: str,
    id: str,  # noqa: A002
    body: shapes.DoqNewPriority,
) -> JSONResponse:
    """A message that waits gets another priority, and so another place or time."""
    caller = principal_of(request)
    caller.require(Role.PRODUCE, queue_name)
    sender = caller.sender_for(queue_name, Role.PRODUCE)
    await doq_of(request).messages.set_priority(queue_name, id, body.priority, sender)
    return JSONResponse({"status": "UPDATED", "id": id, "priority": body.priority})
