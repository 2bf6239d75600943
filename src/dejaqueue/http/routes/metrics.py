"""What Prometheus asks.

Room: http.

    GET /metrics   every metric, as text or OpenMetrics as the Accept header prefers
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from dejaqueue.access import rules
from dejaqueue.http.exposition import Exposition
from dejaqueue.http.openapi import route
from dejaqueue.http.service import principal_of

router = APIRouter(tags=["metrics"])


@route(router, "metrics", response_class=PlainTextResponse)
def metrics(request: Request) -> Response:
    """Every metric, for Prometheus. With keys: needs `observe` or `manage` for `*`."""
    rules.require_any(principal_of(request), rules.LOOKS, "")
    exposition: Exposition = request.app.state.exposition
    content, content_type = exposition.render(request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": content_type, "Cache-Control": "no-store"})
