"""The words of subscriptions: their names, orders and settings.

Room: vocabulary; pure, imports only `limits` and `errors`.
Holds: what is checked here has each setting that it needs, and none that nobody knows.
See: model.Topic, which has them; docs/guides/subscriptions.md; rules 19 and 20.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, TypeVar

from dejaqueue import limits
from dejaqueue.errors import BadRequest


class Order(StrEnum):
    """In which order a subscription gets messages."""

    DUE = "due"
    PRIORITY = "priority"
    GROUPS = "groups"
    ARRIVAL = "arrival"


class Start(StrEnum):
    """With which messages a new subscription begins."""

    NEW = "new"
    """Those that come from now on."""
    LIVE = "live"
    """Besides, all that the topic has, as some view of it is not done with them."""
    BEGINNING = "beginning"
    """Besides, all that is retained (rule 21)."""


OWN_SETTINGS = (
    "lease_ms",
    "lease_ahead_ms",
    "spike_ahead_ms",
    "weights",
    "group_in_flight_max",
    "group_runs",
    "max_attempts",
    "dead_letter",
    "backoff_ms",
    "backoff_factor",
    "backoff_max_ms",
    "backoff_jitter",
    "assignment",
    "paused",
)
"""Settings of a topic that a subscription may have of its own; all others are the topic's."""
TAG_SETTINGS = ("tags_any", "tags_all", "tags_none")
"""Which messages are for it, by their tags: as of a consumer's filter (model.TagFilter)."""
EPHEMERAL = "ephemeral_ms"
"""For how long it stays when nobody consumes it; 0 = until somebody deletes it."""
SETTINGS = ("order", "start", EPHEMERAL, *TAG_SETTINGS, *OWN_SETTINGS)
BORN = "born"
"""What tells a subscription from those that had its name before; the broker gives it."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_Word = TypeVar("_Word", bound=StrEnum)


def check_subscription_name(name: object, field: str = "subscription") -> str:
    """Return the name, or raise BadRequest if no subscription may be called so."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadRequest(field, "1 to 64 characters of A-Z a-z 0-9 . _ -", name)
    return name


def check_subscriptions(given: object, usual: Order) -> dict[str, dict[str, Any]]:
    """Subscriptions by name, each with its order and start, or BadRequest. Values that are a
    topic's as well are for the topic to check.

    Args:
        usual: the order of one that names none.
    """
    most = limits.SUBSCRIPTIONS_MAX
    if not isinstance(given, dict) or len(given) > most:
        limit = f"at most {most} subscriptions by name, each with its settings"
        raise BadRequest("topic.subscriptions", limit, given)
    checked = {}
    for name, values in given.items():
        check_subscription_name(name, "topic.subscriptions")
        if not isinstance(values, dict):
            raise BadRequest(f"topic.subscriptions.{name}", "settings by name", values)
        _check_known(values)
        order = _word(Order, "order", values.get("order", usual))
        start = _start(values.get("start", Start.NEW))
        _check_ephemeral(values.get(EPHEMERAL, 0))
        tags = {field: _tags(field, values[field]) for field in TAG_SETTINGS if field in values}
        checked[name] = values | {"order": order, "start": start} | tags
    return checked


def _check_known(values: dict[str, Any]) -> None:
    for setting in values:
        if setting not in (*SETTINGS, BORN):
            limit = f"one of {', '.join(SETTINGS)}"
            raise BadRequest(f"subscription.{setting}", limit, values[setting])


def _start(value: Any) -> str | int:
    """A word of Start, or a time: what is from then on in the subscription's order."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= limits.INSTANT_MS_MAX:
            limit = f"a time in milliseconds, at most {limits.INSTANT_MS_MAX}"
            raise BadRequest("subscription.start", limit, value)
        return value
    try:
        return str(Start(value))
    except ValueError:
        limit = f"one of {', '.join(Start)}, or a time in milliseconds"
        raise BadRequest("subscription.start", limit, value) from None


def _check_ephemeral(value: Any) -> None:
    low, high = limits.EPHEMERAL_MS_MIN, limits.EPHEMERAL_MS_MAX
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not (value == 0 or low <= value <= high):
        limit = f"0, or {low} to {high} milliseconds"
        raise BadRequest(f"subscription.{EPHEMERAL}", limit, value)


def _word(kind: type[_Word], name: str, value: Any) -> str:
    try:
        return str(kind(value))
    except ValueError:
        raise BadRequest(f"subscription.{name}", f"one of {', '.join(kind)}", value) from None


def _tags(setting: str, value: Any) -> list[str]:
    most, bytes_max = limits.TAGS_MAX, limits.TAG_BYTES_MAX
    if isinstance(value, list | tuple) and len(value) <= most:
        texts = [tag for tag in value if isinstance(tag, str)]
        if len(texts) == len(value) and all(0 < len(tag.encode()) <= bytes_max for tag in texts):
            return texts
    limit = f"a list of at most {most} tags, texts of 1 to {bytes_max} bytes"
    raise BadRequest(f"subscription.{setting}", limit, value)


def has_ephemeral(subscriptions: dict[str, dict[str, Any]]) -> bool:
    """Whether one of these ends when nobody consumes it.

    >>> has_ephemeral({"billing": {}, "screen": {"ephemeral_ms": 60_000}})
    True
    """
    return any(values.get(EPHEMERAL) for values in subscriptions.values())


def own_settings(values: dict[str, Any]) -> dict[str, Any]:
    """What a subscription has of its own of a topic's settings."""
    return {name: values[name] for name in OWN_SETTINGS if name in values}


def changed_subscriptions(
    known: dict[str, dict[str, Any]], changes: object, born: int
) -> dict[str, dict[str, Any]]:
    """Subscriptions after a change.

    Args:
        changes: settings by name of those that are made or changed; None in their place = gone.
            A setting that is None is the topic's again.
        born: of those that are made.

    Raises:
        BadRequest: it is no such thing, changes what is fixed, or ends one that there is not.

    >>> changed_subscriptions({}, {"audit": {"order": "arrival"}}, 7)
    {'audit': {'order': 'arrival', 'born': 7}}
    >>> changed_subscriptions({"audit": {"order": "arrival", "born": 7}}, {"audit": None}, 8)
    {}
    """
    if not isinstance(changes, dict):
        raise BadRequest("topic.subscriptions", "settings by name", changes)
    after = dict(known)
    for name, values in changes.items():
        before = known.get(name)
        if values is None:
            if after.pop(name, None) is None:
                raise BadRequest("topic.subscriptions", "a subscription that there is", name)
            continue
        if not isinstance(values, dict):
            raise BadRequest(f"topic.subscriptions.{name}", "settings by name", values)
        _check_known(values)
        if BORN in values and values[BORN] != (before or {}).get(BORN):
            raise BadRequest(f"subscription.{BORN}", "what the broker gives", values[BORN])
        given = {setting: value for setting, value in values.items() if value is not None}
        if before is None:
            after[name] = given | {BORN: born}
            continue
        for fixed in ("order", "start"):
            if values.get(fixed, before[fixed]) != before[fixed]:
                limit = f"{before[fixed]}, as it was made"
                raise BadRequest(f"subscription.{fixed}", limit, values[fixed])
        kept = {setting: before[setting] for setting in before if setting not in values}
        after[name] = kept | given
    return after
