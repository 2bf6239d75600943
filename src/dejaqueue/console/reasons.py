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
        who = message.get("consumer")
        by = f"by consumer {who}" if who else "by a consumer whose name is not known"
        if due_ms <= now_ms:
            return f"Leased {by} for attempt {message['attempt']}; its lease has just ended."
        return (
            f"Leased {by} for attempt {message['attempt']}; its lease ends at "
            f"{words.absolute(due_ms)} ({words.relative(due_ms, now_ms)}). Unless it is acked or "
            "extended until then, it comes back."
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
    if settings.get("group_runs") and in_flight:
        return (
            f"{since}; its group {group} has a run of {words.count(in_flight)} in flight: more "
            "comes when all of them are settled."
        )
    if most and in_flight >= most:
        return (
            f"{since}; its group {group} is at its cap: it may have {words.count(most)} messages "
            f"in flight in each partition, and has {words.count(in_flight)} in all."
        )
    tags = frozenset(message.get("tags", ()))
    takers = [consumer for consumer in consumers if takes(consumer, tags)]
    if not takers:
        has = f"its tags ({', '.join(sorted(tags))})" if tags else "a message without tags"
        return f"{since}; {_consumers(len(consumers))}, and nobody's filter takes {has}."
    those = _consumers(len(takers))
    if len(takers) < len(consumers):
        those += f" whose filter{'s take' if len(takers) > 1 else ' takes'} its tags"
    if not any(int(consumer["credit"]) for consumer in takers):
        return f"{since}; {those}, and none has credit: they are busy."
    if int(stats["ready"]) > 1:
        return (
            f"{since}; {words.count(stats['ready'])} messages are ready, and those before it in "
            "the topic's order go first."
        )
    return f"{since}; consumers that take it have credit: it is on its way."


def takes(consumer: Mapping[str, Any], tags: frozenset[str]) -> bool:
    """Whether a consumer, as stats shows it, asked for messages with these tags.

    >>> takes({"tags_any": ["a", "b"], "tags_none": ["x"]}, frozenset("a"))
    True
    >>> takes({"tags_all": ["a", "b"]}, frozenset("a")), takes({}, frozenset())
    (False, True)
    """
    any_of, all_of = consumer.get("tags_any") or (), consumer.get("tags_all") or ()
    none_of = consumer.get("tags_none") or ()
    wanted = not any_of or not tags.isdisjoint(any_of)
    return wanted and tags.issuperset(all_of) and tags.isdisjoint(none_of)


def _consumers(number: int) -> str:
    return "one consumer is connected" if number == 1 else f"{number} consumers are connected"
