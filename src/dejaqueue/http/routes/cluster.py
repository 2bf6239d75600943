"""The cluster: who is there and serves what, a node leaves or is rebuilt; the audit log; findings.

Room: http.
See: cluster/care.py, which does it; access/audit.py; broker/watching/findings.py;
docs/guides/cluster.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from dejaqueue.access import audit, rules
from dejaqueue.access.roles import Role
from dejaqueue.broker.watching import findings_of
from dejaqueue.http import shapes
from dejaqueue.http.auditing import note
from dejaqueue.http.direct import json_answer
from dejaqueue.http.openapi import answers, route
from dejaqueue.http.service import principal_of, service_of

router = APIRouter(prefix="/v1", tags=["cluster"])
Node = Annotated[str, Path(description="The name of a node.", max_length=255)]
_PROGRESS = {"node": "b", "state": "working", "text": "3 of 40 copies are rebuilt"}
_CLUSTER = {"node": "a", "coordinator": "nats", "nodes": [], "topics": [], "servers": []}
_LINE = {
    "at_ms": 1_896_082_200_000, "principal": "root", "peer": "127.0.0.1:4711",
    "action": "delete_topic", "topic": "orders", "outcome": "done",
}  # fmt: skip
_FINDING = {
    "check": "room", "level": "look", "text": "90 MiB free at /var/lib/dejaq: little for a backlog",
    "mend": "df -h /var/lib/dejaq",
}  # fmt: skip
_TOLD = answers(shapes.NodeProgress, _PROGRESS, "How far it is.", 409)


@route(
    router,
    "cluster",
    responses=answers(shapes.ClusterShown, _CLUSTER, "The cluster as it is.", 404),
)
def show_cluster(
    request: Request,
    topic: Annotated[str, Query(description="This one alone; without it, all.")] = "",
    servers: Annotated[bool, Query(description="The servers that keep the journals, too.")] = False,
) -> Response:
    """Brokers, the topics that each serves, and servers; a broker that is alone lists none."""
    caller = principal_of(request)
    if topic:
        rules.require_any(caller, tuple(Role), topic)
    answer = service_of(request).broker.cluster(topic, servers=servers)
    return json_answer(rules.shown(caller, "cluster", answer))


@route(router, "remove_node", responses=_TOLD)
def remove_node(request: Request, node: Node) -> Response:
    """Begin to copy all that a node keeps to others, so that it can go."""
    return _act(request, "remove_node", {"node": node})


@route(router, "repair_node", responses=_TOLD)
def repair_node(request: Request, node: Node) -> Response:
    """Begin to rebuild the copies of a node from the others."""
    return _act(request, "repair_node", {"node": node})


@route(router, "node_progress", responses=_TOLD)
def node_progress(
    request: Request,
    node: Node,
    change: Annotated[
        Literal["remove_node", "repair_node"], Query(description="Which change of it.")
    ] = "repair_node",
) -> Response:
    """How far a change of a node is."""
    return _act(request, "node_progress", {"node": node, "change": change})


@route(
    router,
    "show_findings",
    responses=answers(shapes.Findings, {"node": "a", "findings": [_FINDING]}, "The worst first."),
)
def show_findings(request: Request) -> Response:
    """What of this broker's machine and settings will hurt one day.

    Certificates that end, keys that others may read, backups, encryption, room.
    """
    principal_of(request).require(Role.ADMIN, "")
    broker = service_of(request).broker
    found = [one.to_dict() for one in findings_of(broker)]
    return json_answer({"node": broker.settings.cluster.node, "findings": found})


@route(router, "audit_lines", responses=answers(shapes.AuditLines, {"lines": [_LINE]}, "Lines."))
def audit_lines(
    request: Request,
    principal: Annotated[str, Query(description="Part of the key's name.")] = "",
    action: Annotated[str, Query(description="Part of what was called.")] = "",
    topic: Annotated[str, Query(description="Part of the topic's name.")] = "",
    outcome: Annotated[str, Query(description="Part of the outcome, as `done`.")] = "",
    limit: Annotated[int, Query(ge=1, le=audit.KEPT)] = 200,
) -> Response:
    """The newest lines of the audit log of this broker, since it started; the newest first."""
    principal_of(request).require(Role.ADMIN, "")
    lines = audit.newest(limit, principal=principal, action=action, topic=topic, outcome=outcome)
    return json_answer({"lines": lines})


def _act(request: Request, name: str, values: dict[str, Any]) -> Response:
    principal_of(request).require(Role.ADMIN, "")
    note(request, node=values["node"])
    return json_answer(service_of(request).broker.call(name, values))
