"""Why not yet: one sentence for a message, from what the API says of it, its topic and consumers.

Room: console. Pure functions.
Holds: every state has a sentence: it names what would have to change first.
See: docs/reference/lifecycle.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dejaqueue.console import words


def reason(
    message: Mapping[str, Any], settings: Mapping[str, Any], stats: Mapping[str, Any], now_ms: int
) -> str:
    """Why a message is where it is.

    Args:
        message: as peek shows it.
        settings: of its topic.
        stats: of its topic; empty = not known. With `group_leased`, how many of its group are
            leased.
    """
    state, due_ms = message["state"], int(message["due"])
    if state == "leased":
        held_ms = int(settings["lease_ms"])
        return (
            f"Leased for attempt {message['attempt']}: a consumer has it. Unless it is acked or "
            f"extended, it comes back {words.length(held_ms)} after it was handed out."
        )
    if state == "dead":
        return "Dead: its attempts or its time are used up. It is on its way to the dead letters."
    if state == "staged":
        return "Staged: the transaction that sent it is not decided; until then nobody gets it."
    if state == "staged_ack":
        return "Acked in a transaction that is not decided; if that is aborted, it comes back."
    if due_ms > now_ms:
        again = f" for attempt {int(message['attempt']) + 1}" if message["attempt"] else ""
        return f"Due {words.relative(due_ms, now_ms)}{again}; nobody gets it before."
    return _why_ready(message, settings, stats, now_ms - due_ms)


def _why_ready(
    message: Mapping[str, Any], settings: Mapping[str, Any], stats: Mapping[str, Any], late_ms: int
) -> str:
    since = f"Ready for {words.length(late_ms)}"
    if settings.get("paused"):
        return f"{since}; the topic is paused, so nothing is handed out."
    if not stats:
        return f"{since}; who consumes the topic is not yours to see."
    consumers = stats.get("consumers") or []
    if not consumers:
        return f"{since}; nobody consumes this topic."
    most, group = int(settings.get("group_in_flight_max") or 0), message.get("group")
    in_flight = int(stats.get("group_leased", 0))
    if most and in_flight >= most:
        return (
            f"{since}; its group {group} is at its cap: it may have {words.count(most)} messages "
            f"in flight in each partition, and has {words.count(in_flight)} in all."
        )
    if not any(int(consumer["credit"]) for consumer in consumers):
        return f"{since}; {_consumers(len(consumers))}, and none has credit: they are busy."
    if int(stats["ready"]) > 1:
        return (
            f"{since}; {words.count(stats['ready'])} messages are ready, and those before it in "
            "the topic's order go first, or no consumer's filter takes its tags."
        )
    return f"{since}; consumers have credit: it is on its way, or none of their filters takes it."


def _consumers(number: int) -> str:
    return "one consumer is connected" if number == 1 else f"{number} consumers are connected"
