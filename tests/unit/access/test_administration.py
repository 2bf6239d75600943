"""Calls about keys: JSON in, JSON out; the first key is made near the broker."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.access.administration import act, is_near
from dejaqueue.access.calls import ACTIONS
from dejaqueue.access.key_ring import InMemory, KeyRing
from dejaqueue.errors import BadRequest, Forbidden
from dejaqueue.testing.virtual_clock import VirtualClock

FIRST = {"name": "root", "grants": ["admin:*"]}


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing(VirtualClock(start_ms=1_000), InMemory())


def test_the_first_key_is_made_near_and_the_others_anywhere(ring: KeyRing) -> None:
    with pytest.raises(Forbidden, match="loopback"):
        act(ring, "create_key", dict(FIRST), is_near=False)
    assert not ring.required
    made = act(ring, "create_key", dict(FIRST), is_near=True)
    assert ring.find(made["api_key"]).id == made["id"]
    far = act(ring, "create_key", {"name": "a", "grants": ["produce:a"]}, is_near=False)
    assert far["ends_ms"] is None


@pytest.mark.parametrize("token", [None, "", "b" * 64, "a" * 63, 5, ["a" * 64], "é", "\udc80"])
def test_the_first_key_of_a_broker_that_others_reach_needs_its_token(
    ring: KeyRing, token: object
) -> None:
    ring.start_token = "a" * 64
    for near in (True, False):
        with pytest.raises(Forbidden, match="start-up token") as refused:
            act(ring, "create_key", FIRST | {"start_token": token}, is_near=near)
        assert ring.start_token not in str(refused.value)
    assert not ring.required
    made = act(ring, "create_key", FIRST | {"start_token": "a" * 64 + "\n"}, is_near=False)
    assert ring.find(made["api_key"]).name == "root"
    assert "api_key" in act(
        ring, "create_key", {"name": "a", "grants": ["produce:a"]}, is_near=False
    )


def test_lists_tell_no_secrets(ring: KeyRing) -> None:
    assert act(ring, "list_keys", {}, is_near=True) == {
        "required": False, "uses_since_ms": ring.uses()[0], "keys": [],
    }  # fmt: skip
    made = act(ring, "create_key", dict(FIRST), is_near=True)
    listed = act(ring, "list_keys", {}, is_near=False)
    assert listed["required"] is True
    assert set(listed["keys"][0]) == {
        "id", "name", "grants", "created_ms", "ends_ms", "ended", "used_ms",
    }  # fmt: skip
    gone = act(ring, "revoke_key", {"key": "root", "force": True}, is_near=False)
    assert gone == {name: made[name] for name in made if name != "api_key"}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("create_key", {}), ("create_key", {"name": "a"}), ("create_key", FIRST | {"more": 1}),
        ("list_keys", {"more": 1}), ("revoke_key", {}), ("revoke_key", {"key": "a", "force": 1}),
    ],
)  # fmt: skip
def test_wrong_bodies_are_refused(ring: KeyRing, name: str, body: dict[str, Any]) -> None:
    assert name in ACTIONS
    with pytest.raises(BadRequest):
        ACTIONS[name].check(body)
        act(ring, name, body, is_near=True)


@pytest.mark.parametrize(
    ("peer", "near"),
    [
        ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("ipv4:127.0.0.1:5", True),
        ("ipv6:%5B::1%5D:5", True), ("ipv6:[::1]:5", True), ("::ffff:127.0.0.1", True),
        ("ipv6:%5B::ffff:127.0.0.1%5D:5", True), ("unix:/run/dejaq", True),
        ("10.0.0.1", False), ("ipv4:10.0.0.1:5", False), ("::ffff:10.0.0.1", False),
        ("", False), ("unknown", False), ("localhost.evil", False), ("0.0.0.0", False),
        ("::", False), ("ipv6:%5Bfe80::1%25eth0%5D:5", False),
    ],
)  # fmt: skip
def test_near_is_this_machine_alone(peer: str, near: bool) -> None:
    assert is_near(peer) is near
