"""Making, listing and revoking API keys as calls of the wire: JSON in, JSON out.

Room: access. What both servers and the offline command do.
Holds: a key's text is in the answer of `create_key` and nowhere else; the first key, after which
every call needs one, can only be made on the broker's own machine.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dejaqueue.access.api_keys import WITHOUT_TEXT
from dejaqueue.access.key_ring import KeyRing
from dejaqueue.addresses import is_loopback
from dejaqueue.errors import BadRequest, Forbidden


def act(keys: KeyRing, name: str, body: dict[str, Any], *, is_near: bool) -> dict[str, Any]:
    """Do `create_key`, `list_keys` or `revoke_key` (calls.py says what their bodies hold).

    Args:
        body: checked against the call's row.
        is_near: the caller is on this machine.

    Raises:
        BadRequest, Refused, Forbidden: see KeyRing; the first key is asked for from elsewhere.
    """
    calls: dict[str, Callable[[], dict[str, Any]]] = {
        "create_key": lambda: _create(keys, body, is_near),
        "list_keys": lambda: _list(keys),
        "revoke_key": lambda: _revoke(keys, body),
    }
    return calls[name]()


def _create(keys: KeyRing, body: dict[str, Any], is_near: bool) -> dict[str, Any]:
    if not keys.required:
        _check_first(keys, body.get("start_token"), is_near)
    key, text = keys.create(body["name"], body["grants"], body.get("ends_ms"))
    # A principal that is known by something else needs no text, which could only be lost.
    return key.to_dict() | ({} if key.name.startswith(WITHOUT_TEXT) else {"api_key": text})


def _check_first(keys: KeyRing, token: object, is_near: bool) -> None:
    """Raise Forbidden unless whoever makes the first key is on this machine."""
    wanted = keys.start_token
    if wanted is None:
        if not is_near:
            raise Forbidden(
                "the first API key is made on the broker's own machine: over its loopback address, "
                "or with `dejaq key create --data` before it starts"
            )
        return
    given = token if isinstance(token, str) else ""
    if not hmac.compare_digest(given.strip().encode(errors="replace"), wanted.encode()):
        raise Forbidden(
            "the first API key of a broker that others can reach needs its start-up token "
            "(`--start-token`): in the file that the broker's log names, on its machine"
        )


def _list(keys: KeyRing) -> dict[str, Any]:
    now_ms, (since_ms, used_ms) = keys.clock.utc_ms(), keys.uses()
    return {
        "required": keys.required,
        "uses_since_ms": since_ms,
        "keys": [
            key.to_dict() | {"ended": key.has_ended(now_ms), "used_ms": used_ms.get(key.id)}
            for key in keys.all()
        ],
    }


def _revoke(keys: KeyRing, body: dict[str, Any]) -> dict[str, Any]:
    force = body.get("force", False)
    if not isinstance(force, bool):
        raise BadRequest("force", "true or false", force)
    return keys.revoke(body["key"], force=force).to_dict()


@lru_cache(maxsize=1_024)
def is_near(address: str) -> bool:
    """True for an address of this machine's loopback, as sockets or gRPC write it.

    >>> [is_near(peer) for peer in ("ipv4:127.0.0.1:5000", "ipv6:%5B::1%5D:5000", "10.0.0.1")]
    [True, True, False]
    """
    if address.startswith("unix:"):
        return True
    text = address
    for scheme in ("ipv4:", "ipv6:"):
        if text.startswith(scheme):
            text = text.removeprefix(scheme).rpartition(":")[0]
    text = text.replace("%5B", "").replace("%5D", "")
    return text != "localhost" and is_loopback(text)
