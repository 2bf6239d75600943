"""API keys: make, list, revoke. Needs the role admin.

Room: http.
See: access/administration.py; docs/guides/security.md.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from dejaqueue.access import administration
from dejaqueue.access.api_keys import id_of
from dejaqueue.access.roles import Role
from dejaqueue.http.auditing import note
from dejaqueue.http.service import principal_of, service_of

router = APIRouter(prefix="/v1/keys", tags=["keys"])


class NewKey(BaseModel):
    """What a key is to be."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(description="Who will have it.", examples=["shop"])
    grants: list[str] = Field(
        description="What it may do, as ROLE:PATTERN; roles are produce, consume, manage, admin.",
        examples=[["produce:orders.*"]],
    )
    ends_ms: int | None = Field(
        default=None, description="It is refused from then on, UTC milliseconds; null = never."
    )


class KeyShown(BaseModel):
    """What is told of a key."""

    id: str
    name: str
    grants: list[str]
    created_ms: int
    ends_ms: int | None


class KeyListed(KeyShown):
    """A key in the list."""

    ended: bool


class KeyMade(KeyShown):
    """A key that was made."""

    api_key: str = Field(description="The key itself, which is shown this once.")


class Keys(BaseModel):
    """All keys."""

    required: bool = Field(description="False while there was never a key: anybody may call.")
    keys: list[KeyListed]


def _act(request: Request, name: str, body: dict[str, Any]) -> dict[str, Any]:
    principal_of(request).require(Role.ADMIN, "")
    keys = service_of(request).gate.keys
    near = request.client is not None and administration.is_near(request.client.host)
    return administration.act(keys, name, body, is_near=near)


@router.get("", response_model=Keys)
def list_keys(request: Request) -> dict[str, Any]:
    """Every key that was not revoked; no secrets."""
    return _act(request, "list_keys", {})


@router.post("", status_code=201, response_model=KeyMade)
def create_key(request: Request, key: NewKey) -> dict[str, Any]:
    """Make a key. From the first one on, every request needs one."""
    note(request, name=key.name, grants=key.grants)
    made = _act(request, "create_key", key.model_dump())
    note(request, key_id=made["id"])
    return made


@router.delete("/{key}", response_model=KeyShown)
def revoke_key(request: Request, key: str, force: bool = False) -> dict[str, Any]:
    """Refuse a key, by its id or name, from now on; `force` for the last admin key."""
    note(request, key=id_of(key) or key, force=force)
    return _act(request, "revoke_key", {"key": key, "force": force})
