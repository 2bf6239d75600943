"""Routes without a framework in between."""

from __future__ import annotations

import asyncio

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import Response

from dejaqueue.http.direct import DirectRoute, json_answer


def test_a_direct_route_answers_and_is_in_the_document() -> None:
    app = FastAPI()
    app.router.route_class = DirectRoute

    @app.post("/things/{name}", status_code=201)
    async def make(request: Request, name: str) -> Response:
        return json_answer({"name": name, "text": "é"}, 201)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.post("/things/a%20b")

    answer = asyncio.run(ask())
    assert answer.status_code == 201
    assert answer.json() == {"name": "a b", "text": "é"}
    assert answer.headers["content-type"] == "application/json"
    parameters = app.openapi()["paths"]["/things/{name}"]["post"]["parameters"]
    assert [parameter["name"] for parameter in parameters] == ["name"]
