"""API keys: make, list, revoke. Needs the role admin.

Room: http.
See: access/administration.py; docs/guides/security.md.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from dejaqueue.access import administration, audit
from dejaqueue.access.roles import Role
from dejaqueue.access.senders import Requester
from dejaqueue.http import shapes
from dejaqueue.http.auditing import note
from dejaqueue.http.bodies import json_object
from dejaqueue.http.direct import json_answer
from dejaqueue.http.openapi import answers, body, route
from dejaqueue.http.service import principal_of, service_of

router = APIRouter(prefix="/v1/keys", tags=["keys"])
Body = Annotated[dict[str, Any], Depends(json_object)]
_SHOWN = {
    "id": "3f1c9a77d0b2",
    "name": "shop",
    "grants": ["produce:orders.*"],
    "created_ms": 1_896_082_200_000,
    "ends_ms": None,
}


def _act(request: Request, name: str, values: dict[str, Any]) -> dict[str, Any]:
    principal_of(request).require(Role.ADMIN, "")
    note(request, **audit.facts(name, values))
    near = request.client is not None and administration.is_near(request.client.host)
    answer = service_of(request).broker.call(name, values, Requester(is_near=near))
    note(request, **audit.facts_of_answer(name, answer))
    return answer


@route(
    router,
    "list_keys",
    responses=answers(
        shapes.Keys,
        {
            "required": True,
            "uses_since_ms": 1_896_000_000_000,
            "keys": [_SHOWN | {"ended": False, "used_ms": 1_896_100_020_000}],
        },
        "The keys.",
    ),
)
def list_keys(request: Request) -> Response:
    """Every key that was not revoked; no secrets."""
    return json_answer(_act(request, "list_keys", {}))


@route(
    router,
    "create_key",
    status_code=201,
    openapi_extra=body(shapes.NewKey, {"name": "shop", "grants": ["produce:orders.*"]}),
    responses=answers(
        shapes.KeyMade,
        _SHOWN | {"api_key": "dq_3f1c9a77d0b2_…"},
        "It was made; this is the only time that it is shown.",
        409,
        status=201,
    ),
)
def create_key(request: Request, values: Body) -> Response:
    """Make a key. From the first one on, every request needs one.

    The first one must be an admin's, and is made on the broker's own machine: with its start-up
    token, if others can reach the broker.
    """
    return json_answer(_act(request, "create_key", values), 201)


@route(router, "revoke_key", responses=answers(shapes.KeyShown, _SHOWN, "What was revoked.", 409))
def revoke_key(request: Request, key: str, force: bool = False) -> Response:
    """Refuse a key from now on, by its id or name; `force` for the last admin key."""
    return json_answer(_act(request, "revoke_key", {"key": key, "force": force}))
