"""The HTTP application: routes put together.

Room: http. FastAPI; opens no port (server.py does).
Holds: every path is in the OpenAPI document; every error is a problem (problems.py).
See: docs/guides/http.md.
"""

from __future__ import annotations

from fastapi import FastAPI

from dejaqueue.http import problems
from dejaqueue.http.exposition import Exposition
from dejaqueue.http.requests import RequestCounter, RequestCounts
from dejaqueue.http.routes import health, metrics
from dejaqueue.http.service import Service
from dejaqueue.version import __version__


def build_app(service: Service) -> FastAPI:
    """The application that serves a broker.

    Args:
        service: what the routes need; the broker in it may be not started yet.
    """
    app = FastAPI(title="DejaQ", version=__version__, openapi_url="/openapi.json")
    app.state.service = service
    problems.install(app)
    requests = RequestCounts()
    app.add_middleware(RequestCounter, counts=requests)
    app.state.exposition = Exposition(service, requests)
    app.include_router(health.router)
    app.include_router(metrics.router)
    return app
