"""What probes ask; no API key is needed.

Room: http.

    GET /livez   200 while this process answers at all
    GET /readyz  200 when the broker should get work, else 503; says why not
"""

from __future__ import annotations

from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from dejaqueue.access import rules
from dejaqueue.access.gate import bearer_of
from dejaqueue.errors import DejaQError
from dejaqueue.http.openapi import route
from dejaqueue.http.readiness import readiness
from dejaqueue.http.service import principal_of, service_of

router = APIRouter(tags=["health"])
THREADS = 4
"""Threads of their own for probes: those of other requests may all be at work."""
_NOT_KEPT = {"Cache-Control": "no-store"}


@router.head("/livez", include_in_schema=False)
@route(router, "healthz", include_in_schema=False)
@route(router, "livez")
async def livez() -> JSONResponse:
    """200 while this process answers at all."""
    return JSONResponse({"status": "alive"}, headers=_NOT_KEPT)


@router.head("/readyz", include_in_schema=False)
@route(router, "readyz")
async def readyz(request: Request) -> JSONResponse:
    """200 when the broker should get work, else 503 and the `reasons`; `warnings` either way.

    Who may look at the broker gets `details`, too.
    """
    health = await to_thread.run_sync(readiness, service_of(request), limiter=_threads(request))
    body: dict[str, Any] = {"status": "ready" if health.is_ready else "not ready"}
    if health.reasons:
        body["reasons"] = health.reasons
    if health.warnings:
        body["warnings"] = health.warnings
    if health.details and _may_look(request):
        body["details"] = health.details
    return JSONResponse(body, 200 if health.is_ready else 503, _NOT_KEPT)


def _threads(request: Request) -> CapacityLimiter:
    """Made on the event loop by the first probe."""
    state = request.app.state
    threads: CapacityLimiter | None = getattr(state, "probe_threads", None)
    if threads is None:
        threads = state.probe_threads = CapacityLimiter(THREADS)
    return threads


def _may_look(request: Request) -> bool:
    """True if the caller may observe; on a public path the entrance does not find that out."""
    try:
        key = bearer_of(request.headers.get("authorization", ""))
        return rules.may_look(service_of(request).gate.principal(key), "")
    except DejaQError:
        return False


@route(router, "broker_stats")
def stats(request: Request) -> dict[str, Any]:
    """What `dejaq stats --json` prints: every topic's counts."""
    rules.require_any(principal_of(request), rules.LOOKS, "")
    return service_of(request).stats(request)
