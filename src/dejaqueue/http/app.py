"""The HTTP application: routes put together.

Room: http. FastAPI; opens no port (server.py does).
Holds: every path is in the OpenAPI document; every error is a problem (problems.py).
See: docs/guides/http.md.
"""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from dejaqueue.access.pages import Pages
from dejaqueue.console.console import Console
from dejaqueue.console.streams import Streams
from dejaqueue.console.views import LIVE_VIEWS, VIEWS
from dejaqueue.flight.sharded import ShardedBrokers
from dejaqueue.http import entrance, openapi, problems
from dejaqueue.http.doq import routes as doq
from dejaqueue.http.exposition import Exposition
from dejaqueue.http.fast_lane import FastLane, calls_of
from dejaqueue.http.forwarding import Forwarding
from dejaqueue.http.heads import HeadAsGet
from dejaqueue.http.page_check import PageCheck
from dejaqueue.http.requests import RequestCounter, RequestCounts
from dejaqueue.http.routes import (
    backups,
    browsing,
    changing,
    cluster,
    cron,
    event_streams,
    health,
    keys,
    leases,
    letters,
    metrics,
    page,
    payloads,
    sending,
    signed_payloads,
    standby,
    subscriptions,
    topics,
    transactions,
)
from dejaqueue.http.service import Service
from dejaqueue.http.short_lane import ShortLane
from dejaqueue.http.sqs import door as sqs
from dejaqueue.http.sqs.short_lane import SqsLane
from dejaqueue.version import __version__

DESCRIPTION = """A queue that hands messages out when they are due.

Ids are texts. Times are UTC milliseconds unless a field says otherwise. Errors are problems
(RFC 9457). Messages are delivered at least once: ack each by its id and attempt."""


class App(FastAPI):
    """The application. What SQS's door answers goes past what the framework puts around all that
    we have: it took a tenth of the time of a small request. (The door lets nothing through, not
    even our own bugs.)

    Attributes:
        short_lane: answers most of SQS's requests before they are the application's.
    """

    direct: ASGIApp | None = None
    short_lane: ShortLane | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self.direct is not None and scope["type"] == "http" and sqs.is_ours(scope):
            scope["app"] = self
            await self.direct(scope, receive, send)
            return
        await super().__call__(scope, receive, send)


def build_app(service: Service) -> App:
    """The application that serves a broker.

    Args:
        service: what the routes need; the broker in it may be not started yet.
    """
    app = App(
        title="DejaQ",
        version=__version__,
        openapi_url="/openapi.json",
        docs_url=None,  # routes/page.py has a page of our own
        redoc_url=None,
    )
    app.state.service = service
    problems.install(app)
    for part in (
        sending,
        payloads,
        signed_payloads,
        leases,
        event_streams,
        changing,
        browsing,
        letters,
        cron,
        topics,
        subscriptions,
        transactions,
        keys,
        cluster,
        backups,
        standby,
    ):
        app.include_router(part.router)
    for part in (metrics, health):
        app.include_router(part.router)
    app.add_api_route("/docs", page.docs, include_in_schema=False)
    doq.install(app, service)
    with_sqs = service.broker.settings.sqs.enabled
    if with_sqs:
        sqs.install(app, service)
    direct = [*sending.router.routes, *leases.router.routes]
    app.add_middleware(FastLane, calls=calls_of(direct))  # first, and so innermost
    if service.forwards:
        app.state.sharded = ShardedBrokers(service.broker, service.flight_tls)
        app.add_middleware(Forwarding, sharded=app.state.sharded, tls=service.tls)
    pages = Pages.of(service.broker.settings)
    entrance.install(app, service.gate, pages, with_sqs=with_sqs)
    openapi.install(app, DESCRIPTION)
    requests = RequestCounts()
    app.add_middleware(RequestCounter, counts=requests)
    if with_sqs:
        app.direct = _stack(app)
        app.short_lane = SqsLane(app, app.state.sqs, PageCheck(pages), requests)
    app.add_middleware(HeadAsGet)
    clock = service.broker.clock
    app.state.news = Streams(clock.utc_ms)
    if service.broker.settings.console.enabled:  # outermost: it calls all that is behind
        app.add_middleware(
            Console, gate=service.gate, pages=pages, now_ms=clock.utc_ms, views=VIEWS,
            live_views=LIVE_VIEWS, streams=app.state.news,
            trace_url=service.broker.settings.console.trace_url,
        )  # fmt: skip
    app.state.exposition = Exposition(service, requests, pages)
    return app


def _stack(app: FastAPI) -> ASGIApp:
    """The middleware that is there by now, as the framework puts it together."""
    stack: ASGIApp = app.router
    for one in reversed(app.user_middleware):
        stack = one.cls(stack, *one.args, **one.kwargs)
    return stack
