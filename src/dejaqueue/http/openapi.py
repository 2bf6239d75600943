"""The OpenAPI document: what routes say of themselves, put together.

Room: http. Descriptions only; no request passes through here.
Holds: every model of shapes.py and the files beside it is in the document; every route says
which problems it answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, FastAPI, Path
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from dejaqueue.access.routes import ROUTES
from dejaqueue.http import (
    backup_shapes,
    erasure_shapes,
    payload_shapes,
    shapes,
    standby_shapes,
    subscription_shapes,
)
from dejaqueue.http.problems import MEDIA_TYPE

Description = dict[str, Any]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

TopicName = Annotated[
    str,
    Path(
        description="The topic's name; or topic@subscription, to consume it and to look at it.",
        pattern=r"^[A-Za-z0-9._-]{1,255}(@[A-Za-z0-9._-]{1,64})?$",
        examples=["reminders"],
    ),
]

_TEXTS = {
    400: "A field is wrong: the problem names it, its limit and the value.",
    401: "An API key is needed, or this one is not known.",
    403: "The API key has no such role for this topic.",
    404: "There is no such topic, message or entry.",
    409: "The state says no: it exists already, or a live message has this key.",
    413: "The body is too large.",
    415: "The body is of another content type.",
    429: "Backlog, memory or disk is full; Retry-After says how long to wait.",
    503: "The broker is starting or stopping; Retry-After says how long to wait.",
}
_ALWAYS = (400, 401, 403, 429, 503)


def ref(model: type[Any]) -> Description:
    """Where a model is in the document."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _any_of(model: type[Any] | list[type[Any]]) -> Description:
    return {"anyOf": [ref(one) for one in model]} if isinstance(model, list) else ref(model)


def body(
    model: type[Any] | list[type[Any]],
    example: Any,
    *,
    required: bool = True,
    more: dict[str, Description] | None = None,
) -> Description:
    """What a route takes, for `openapi_extra`.

    Args:
        model: one, or several of which the body is one.
        more: other kinds of content.
    """
    content = {"application/json": {"schema": _any_of(model), "example": example}}
    content |= more or {}
    return {"requestBody": {"required": required, "content": content}}


def answers(
    model: type[Any] | list[type[Any]] | None,
    example: Any,
    text: str,
    *problems: int,
    status: int = 200,
    more: dict[str, Description] | None = None,
) -> dict[int | str, Description]:
    """What a route answers, for `responses`.

    Args:
        model: one, or several of which the answer is one.
        problems: statuses it may also answer, beside those that any route may.
        more: other kinds of content.
    """
    schema = _any_of(model) if model is not None else {}
    content = {"application/json": {"schema": schema, "example": example}} | (more or {})
    descriptions: dict[int | str, Description] = {status: {"description": text, "content": content}}
    return descriptions | {code: _problem(code) for code in sorted({*_ALWAYS, *problems})}


def _problem(status: int) -> Description:
    text = _TEXTS[status]
    description: Description = {
        "description": text,
        "content": {MEDIA_TYPE: {"schema": ref(shapes.Problem)}},
    }
    if status in (429, 503):
        description["headers"] = {
            "Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}
        }
    return description


def route(router: APIRouter, name: str, **described: Any) -> Callable[[Endpoint], Endpoint]:
    """Register a function for a row of the table of routes (access/routes.py).

    Method, path, operation id and first sentence are the row's; what the function's docstring says
    after its own first paragraph follows in the description.

    Args:
        described: what the framework takes beside these, as `responses`.
    """
    row = ROUTES[name]

    def register(endpoint: Endpoint) -> Endpoint:
        more = (inspect.getdoc(endpoint) or "").partition("\n\n")[2]
        router.add_api_route(
            row.path.removeprefix(router.prefix),
            endpoint,
            methods=[row.method],
            operation_id=row.name,
            summary=row.sentence.rstrip("."),
            description=f"{row.sentence}\n\n{more}".strip(),
            **described,
        )
        return endpoint

    return register


def install(app: FastAPI, description: str) -> None:
    """Have the document made of all routes when it is first asked for."""

    def document() -> Description:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title,
                version=app.version,
                openapi_version="3.1.0",
                description=description,
                routes=app.routes,
                tags=app.openapi_tags,
            )
            parts = made.setdefault("components", {})
            known = parts.setdefault("schemas", {})
            for name, schema in _schemas().items():
                known[name] = schema
            parts["securitySchemes"] = {
                "api_key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key; needed as soon as the broker has one.",
                }
            }
            made["security"] = [{}, {"api_key": []}]
            _drop_framework_errors(made)
            _add_problems(made)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


PARTS: Final = (
    shapes,
    subscription_shapes,
    backup_shapes,
    payload_shapes,
    standby_shapes,
    erasure_shapes,
    standby_shapes,
)
"""Modules whose models the document has."""


def _models() -> list[type[Any]]:
    return [
        model
        for part in PARTS
        for model in vars(part).values()
        if isinstance(model, type)
        and issubclass(model, BaseModel)
        and model not in (BaseModel, shapes.Shape)
    ]


def _schemas() -> dict[str, Description]:
    _, found = models_json_schema(
        [(model, "validation") for model in _models()],
        ref_template="#/components/schemas/{model}",
    )
    schemas: dict[str, Description] = found["$defs"]
    return schemas


def _add_problems(document: Description) -> None:
    """Any call of the API may end with these."""
    for path, operations in document["paths"].items():
        for operation in operations.values() if path.startswith("/v1/") else ():
            for status in _ALWAYS:
                operation["responses"].setdefault(str(status), _problem(status))


def _drop_framework_errors(document: Description) -> None:
    """What is wrong with parameters is a problem 400 here, not the framework's 422."""
    for path in document["paths"].values():
        for operation in path.values():
            answer = operation["responses"].get("422", {})
            if MEDIA_TYPE not in answer.get("content", {}):
                operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
