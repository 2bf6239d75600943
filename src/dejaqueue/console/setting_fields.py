"""Settings of a topic as fields of a form, and back.

Room: console. Pure functions.
Holds: what can change has a field, with the text of its class; what a viewer typed is checked for
its type here and for its limits by the API.
"""

from __future__ import annotations

import json
from typing import Any

from dejaqueue.console.api import ApiError
from dejaqueue.model import CHANGEABLE, Assignment, OnDuplicate

FIELDS = tuple(name for name in CHANGEABLE if name not in ("paused", "partitions", "subscriptions"))
"""Settings with a field; two have buttons of their own, and subscriptions calls of their own."""
CHOICES: dict[str, tuple[str, ...]] = {
    "on_duplicate": tuple(one.value for one in OnDuplicate),
    "assignment": tuple(one.value for one in Assignment),
}


def values_of(settings: dict[str, Any]) -> dict[str, Any]:
    """What the fields show of a topic's settings, as the API has them; it leaves these out where
    there are none."""
    whole = {
        "labels": {},
        "retention_ms": 0,
        "retention_bytes": 0,
        "retention_keys": False,
        "cold_after_ms": 0,
        "spike_ahead_ms": 0,
        "group_runs": False,
        **settings,
    }
    return {name: whole[name] for name in FIELDS if name in whole}


def shown(name: str, value: Any) -> str:
    """A setting as the text of its field. Labels are JSON: their names may contain anything.

    >>> shown("weights", {"vip": 3, "a b": 2}), shown("lease_ms", 30_000), shown("history", True)
    ('vip=3\\na b=2', '30000', 'true')
    """
    if name == "labels":
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "\n".join(f"{name}={weight}" for name, weight in value.items())
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def parsed(name: str, text: str, before: Any) -> Any:
    """What was typed, of the type that the setting has.

    >>> parsed("lease_ms", "60000", 1), parsed("weights", "a=3", {}), parsed("x", "true", False)
    (60000, {'a': 3}, True)

    Raises:
        ApiError: it is of another type.
    """
    text = text.strip()
    try:
        if name == "labels":
            labels = json.loads(text or "{}")
            if not isinstance(labels, dict):
                raise ValueError
            return labels
        if isinstance(before, dict):
            lines = [line.rpartition("=") for line in text.splitlines() if line.strip()]
            return {group: int(weight) for group, _, weight in lines}
        if isinstance(before, bool):
            return {"true": True, "false": False}[text]
        if isinstance(before, float):
            return float(text)
        return int(text) if isinstance(before, int) else text
    except (KeyError, ValueError):
        raise ApiError(
            400, f"{name}: a value like {shown(name, before)!r}, got: {text[:100]!r}"
        ) from None
