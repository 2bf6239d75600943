"""The calls about API keys: what they ask the broker for, and what they give back.

Not covered: what keys may do (tests/integration/test_access.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from dejaqueue.client import AsyncClient
from dejaqueue.errors import BadRequest
from tests.unit.client.fake_transport import FakeTransport, ok

MADE = {"api_key": "dq_1_x", "id": "1", "name": "shop"}


def ask(call: Callable[[AsyncClient], Awaitable[Any]]) -> tuple[Any, list[Any]]:
    """What a call gives back, and what it asked for."""
    actions = {"create_key": MADE, "list_keys": {"keys": [MADE]}, "revoke_key": MADE}
    transport = FakeTransport(ok, actions=actions)

    async def main() -> Any:
        async with AsyncClient(transport=transport) as client:
            return await call(client)

    return asyncio.run(main()), transport.calls


def test_a_key_without_an_end_says_nothing_of_one() -> None:
    made, calls = ask(lambda c: c.create_key("shop", ("admin:*",)))
    assert made == MADE
    assert calls == [("create_key", {"name": "shop", "grants": ["admin:*"]})]


@pytest.mark.parametrize("ends", [1_767_225_600_000, datetime(2026, 1, 1, tzinfo=UTC)])
def test_the_end_of_a_key_travels_in_milliseconds(ends: Any) -> None:
    _, calls = ask(lambda c: c.create_key("shop", [], ends=ends, start_token="s"))
    assert calls[0][1] == {
        "name": "shop",
        "grants": [],
        "ends_ms": 1_767_225_600_000,
        "start_token": "s",
    }


def test_an_end_without_a_zone_is_refused() -> None:
    with pytest.raises(BadRequest, match="^ends"):
        ask(lambda c: c.create_key("shop", [], ends=datetime(2030, 1, 1)))


def test_keys_are_a_list() -> None:
    assert ask(lambda c: c.api_keys()) == ([MADE], [("list_keys", {})])


@pytest.mark.parametrize("force", [False, True])
def test_the_last_admin_key_is_revoked_by_force_alone(force: bool) -> None:
    found, calls = ask(lambda c: c.revoke_key("shop", force=force))
    assert found == MADE
    assert calls == [("revoke_key", {"key": "shop", "force": force})]


def test_a_key_is_revoked_without_force_unless_one_says() -> None:
    assert ask(lambda c: c.revoke_key("shop"))[1] == [
        ("revoke_key", {"key": "shop", "force": False})
    ]
