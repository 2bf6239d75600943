"""What probes ask; no API key is needed.

Room: http.

    GET /livez   200 while this process answers at all
    GET /readyz  200 when the broker should get work, else 503; says why not
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from dejaqueue.access.gate import bearer_of
from dejaqueue.access.roles import Role
from dejaqueue.errors import DejaQError
from dejaqueue.http.readiness import readiness
from dejaqueue.http.service import principal_of, service_of

router = APIRouter(tags=["health"])
_NOT_KEPT = {"Cache-Control": "no-store"}


@router.head("/livez", include_in_schema=False)
@router.get("/healthz", include_in_schema=False)
@router.get("/livez")
async def livez() -> JSONResponse:
    """200 while this process answers at all."""
    return JSONResponse({"status": "alive"}, headers=_NOT_KEPT)


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz")
def readyz(request: Request) -> JSONResponse:
    """200 when the broker should get work, else 503 and the `reasons`; `warnings` either way.

    Who may manage the broker gets `details`, too.
    """
    health = readiness(service_of(request))
    body: dict[str, Any] = {"status": "ready" if health.is_ready else "not ready"}
    if health.reasons:
        body["reasons"] = health.reasons
    if health.warnings:
        body["warnings"] = health.warnings
    if health.details and _may_manage(request):
        body["details"] = health.details
    return JSONResponse(body, 200 if health.is_ready else 503, _NOT_KEPT)


def _may_manage(request: Request) -> bool:
    """The entrance asks nobody who comes to a public path."""
    try:
        key = bearer_of(request.headers.get("authorization", ""))
        return service_of(request).gate.principal(key).may(Role.MANAGE, "")
    except DejaQError:
        return False


@router.get("/stats")
def stats(request: Request) -> dict[str, Any]:
    """What `dejaq stats --json` prints: every topic's counts."""
    principal_of(request).require(Role.MANAGE, "")
    return service_of(request).stats(request)
