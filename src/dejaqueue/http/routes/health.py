"""What probes ask; no API key is needed.

Room: http.

    GET /livez   200 while this process answers at all
    GET /readyz  200 when the broker takes calls, 503 while it starts or stops
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from dejaqueue.access.roles import Role
from dejaqueue.http.service import principal_of, service_of

router = APIRouter(tags=["health"])
_NOT_KEPT = {"Cache-Control": "no-store"}


@router.head("/livez", include_in_schema=False)
@router.get("/livez")
async def livez() -> JSONResponse:
    """200 while this process answers at all."""
    return JSONResponse({"status": "alive"}, headers=_NOT_KEPT)


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz")
async def readyz(request: Request) -> JSONResponse:
    """200 when the broker takes calls, 503 while it starts or stops."""
    ready = service_of(request).is_ready()
    status = "ready" if ready else "not ready"
    return JSONResponse({"status": status}, 200 if ready else 503, _NOT_KEPT)


@router.get("/stats")
def stats(request: Request) -> dict[str, Any]:
    """What `dejaq stats --json` prints: every topic's counts."""
    principal_of(request).require(Role.MANAGE, "")
    return service_of(request).broker.stats()
