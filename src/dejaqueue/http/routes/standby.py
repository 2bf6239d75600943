"""A standby: how far it is, and its promotion. Needs the role admin.

Room: http.
See: broker/standby/standby.py; docs/guides/standby.md.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from dejaqueue.access.roles import Role
from dejaqueue.http.direct import json_answer
from dejaqueue.http.openapi import answers, route
from dejaqueue.http.service import principal_of, service_of
from dejaqueue.http.standby_shapes import PromotionShown, StandbyShown

router = APIRouter(prefix="/v1/standby", tags=["standby"])
_SHOWN = {
    "state": "following",
    "standby": "5f0c21d3",
    "url": "s3://bucket/dejaq",
    "behind_ms": 80,
    "as_of_ms": 1_795_615_200_000,
    "entries": 81_920,
}
_PROMOTED = {"state": "active", "as_of_ms": 1_795_615_200_000, "took_ms": 240}


@route(router, "standby", responses=answers(StandbyShown, _SHOWN, "Which it is."))
def show_standby(request: Request) -> Response:
    """Whether this broker is the active one of two, or a standby, and how far that is."""
    return json_answer(_act(request, "standby"))


@route(router, "promote", responses=answers(PromotionShown, _PROMOTED, "It serves.", 409))
def promote(request: Request) -> Response:
    """Have a standby take the place of the broker that it follows, which is refused from then on.

    Answers when all is served. The same request again goes on with one that broke off.
    """
    return json_answer(_act(request, "promote"))


def _act(request: Request, name: str) -> dict[str, Any]:
    principal_of(request).require(Role.ADMIN, "")
    return service_of(request).broker.call(name, {})
