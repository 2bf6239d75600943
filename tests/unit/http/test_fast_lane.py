"""The fast lane answers as the router would."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.responses import Response

from dejaqueue.errors import BadRequest
from dejaqueue.http import problems
from dejaqueue.http.direct import DirectRoute, json_answer
from dejaqueue.http.fast_lane import FastLane, calls_of


def build(*, fast: bool) -> FastAPI:
    router = APIRouter(prefix="/v1/topics/{topic}", route_class=DirectRoute)

    @router.post("/say")
    async def say(request: Request, topic: str) -> Response:
        path = request.scope["route"].path if fast else "/v1/topics/{topic}/say"
        return json_answer({"topic": topic, "path": path, "body": (await request.body()).decode()})

    @router.post("/refuse")
    async def refuse(request: Request, topic: str) -> Response:
        raise BadRequest("field", "limit", topic)

    @router.post("/fail")
    async def fail(request: Request, topic: str) -> Response:
        raise HTTPException(415, "not this", {"X-Why": "test"})

    @router.get("/say")
    async def look(request: Request, topic: str) -> Response:
        return json_answer({"looked": topic})

    app = FastAPI()
    problems.install(app)
    app.include_router(router)
    if fast:
        app.add_middleware(FastLane, calls=calls_of(router.routes))
    return app


def ask(app: FastAPI, method: str, path: str) -> tuple[int, str, dict[str, Any]]:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.request(method, path, content=b"hello")

    answer = asyncio.run(asked())
    return answer.status_code, answer.headers.get("x-why", ""), answer.json()


@pytest.mark.parametrize("name", ["say", "refuse", "fail", "none"])
@pytest.mark.parametrize("topic", ["t", "a%20b", "%2F", ""])
def test_answers_are_those_of_the_router(name: str, topic: str) -> None:
    path = f"/v1/topics/{topic}/{name}"
    assert ask(build(fast=True), "POST", path) == ask(build(fast=False), "POST", path)


def test_other_methods_go_on() -> None:
    assert ask(build(fast=True), "GET", "/v1/topics/t/say") == (200, "", {"looked": "t"})
