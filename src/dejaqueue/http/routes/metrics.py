"""What Prometheus asks.

Room: http.

    GET /metrics   every metric, as text or OpenMetrics as the Accept header prefers
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from dejaqueue.access import rules
from dejaqueue.http.exposition import Exposition
from dejaqueue.http.forwarding import FORWARDED
from dejaqueue.http.openapi import route
from dejaqueue.http.process_pages import merged, pages_of
from dejaqueue.http.service import principal_of, service_of

router = APIRouter(tags=["metrics"])


@route(router, "metrics", response_class=PlainTextResponse)
def metrics(request: Request) -> Response:
    """Every metric, for Prometheus; of several processes on one machine, those of all, with the
    label `process`. With keys: needs `observe` or `manage` for `*`."""
    rules.require_any(principal_of(request), rules.LOOKS, "")
    exposition: Exposition = request.app.state.exposition
    accept, service = request.headers.get("accept", ""), service_of(request)
    content, content_type = exposition.render(accept)
    if service.is_divided and FORWARDED.decode() not in request.headers:
        asked = {"accept": accept}
        if "authorization" in request.headers:
            asked["authorization"] = request.headers["authorization"]
        cluster = service.broker.cluster()
        name = cluster["node"]
        others = {one["node"]: one["http_url"] for one in cluster["nodes"] if one["node"] != name}
        content = merged({name: content, **pages_of(others, asked, service.tls)})
    return Response(content, headers={"Content-Type": content_type, "Cache-Control": "no-store"})
