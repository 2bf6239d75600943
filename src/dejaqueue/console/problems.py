"""Problems: what needs somebody, found in the numbers, each with what to do about it.

Room: console. Pure functions over the answers of the API.
Holds: what is worst comes first; a topic that does what it should is not named.
See: docs/guides/monitoring.md, which has the alerts for the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dejaqueue.console import words
from dejaqueue.console.rows import Pace

LATE_MS = 1_000
"""A topic whose next message is overdue by more has fallen behind."""
STARVES_MS = 60_000
"""A group whose message has been ready for longer starves, if others are served meanwhile."""
AHEAD_MS = 100
"""A partition whose time is ahead of the clock by more waits for the clock."""
_UNKNOWN = Pace()


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        weight: 3 = messages wait that should not; 2 = something will go wrong; 1 = worth a look.
        title: what is wrong.
        remedy: what to do.
        topic: where; "" = the broker.
    """

    weight: int
    title: str
    remedy: str
    topic: str = ""


def of_broker(readiness: Mapping[str, Any]) -> list[Problem]:
    """What the broker says of itself."""
    reasons, warnings = readiness.get("reasons") or (), readiness.get("warnings") or ()
    found = [
        Problem(
            3, f"The broker is not ready: {reason}", "See its log; it takes no calls meanwhile."
        )
        for reason in reasons
    ]
    found += [
        Problem(2, f"The broker warns: {warning}", "See its log, and `dejaq cluster status`.")
        for warning in warnings
    ]
    return found


def of_cluster(nodes: Iterable[Mapping[str, Any]], silent: Iterable[str]) -> list[Problem]:
    """What is wrong with other brokers.

    Args:
        nodes: as the API tells of them; none: it is alone.
        silent: those that did not answer in time.
    """
    found = [
        Problem(
            3, f"The broker {node} does not answer",
            "The numbers of its topics are missing here: see whether it runs, and its network.",
        )
        for node in silent
    ]  # fmt: skip
    for node in nodes:
        clock = node.get("clock") or {}
        if clock.get("apart"):
            found.append(Problem(
                3, f"The clock of the broker {node['node']} is off: it takes no topics",
                "Have it follow a time server; see the page of the cluster.",
            ))  # fmt: skip
        if node.get("short"):
            found.append(Problem(
                3, f"The disk of the broker {node['node']} is short: its producers wait",
                "Make room on it, or give it more.",
            ))  # fmt: skip
    return found


def of_quotas(refusals: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """Who was refused what in the last minutes, by the quotas of the settings.

    Args:
        refusals: as the API tells of them, `refused_lately`.
    """
    found = []
    for one in refusals:
        quota, count = one["quota"], int(one["count"])
        times = "once" if count == 1 else f"{words.count(count)} times"
        at = f" at the broker {one['node']}" if one.get("node") else ""
        found.append(Problem(
            2,
            f"{one['principal']} was refused {times} in five minutes{at} by its quota {quota}, "
            f"{words.count(one['limit'])}",
            f"Have it ask for less, or give it more: quotas.percents, or quotas.{quota}.",
        ))  # fmt: skip
    return found


def of_topic(
    name: str,
    row: Mapping[str, int],
    settings: Mapping[str, Any],
    now_ms: int,
    pace: Pace = _UNKNOWN,
) -> list[Problem]:
    """What is wrong with a topic.

    Args:
        row: its numbers (samples.py).
        settings: as the API shows them; empty = not known.
        pace: how fast it is.
    """
    ready, is_paused = row["ready"], bool(settings.get("paused"))
    overdue_ms = now_ms - row["next_due_ms"] if row["next_due_ms"] >= 0 else 0
    found: list[Problem] = []
    if name.endswith(".dead") and not row["consumers"]:
        if row["scheduled"]:
            waits = f"{words.count(row['scheduled'])} dead letters wait"
            more = f", and {words.rate(pace.rate_in * 60)} a minute come" if pace.rate_in else ""
            found.append(Problem(
                2 if more else 1, waits + more,
                "Look why they died; send them back, or throw them away.", name,
            ))  # fmt: skip
        return found
    if is_paused and ready:
        found.append(Problem(
            2, f"Paused, with {words.count(ready)} messages due", "Resume the topic.", name,
        ))  # fmt: skip
    elif ready and not row["consumers"]:
        found.append(Problem(
            3, f"{words.count(ready)} messages are due and nobody consumes",
            "Start a consumer of this topic.", name,
        ))  # fmt: skip
    elif ready and overdue_ms > LATE_MS and not row["credit"]:
        found.append(Problem(
            3, f"Late by {words.length(overdue_ms)}: no consumer has credit",
            "The consumers are busy: add some, or let each take more.", name,
        ))  # fmt: skip
    elif ready and overdue_ms > LATE_MS:
        found.append(Problem(
            3, f"Late by {words.length(overdue_ms)}",
            "Consumers have credit: look whether their filters or groups leave messages out.", name,
        ))  # fmt: skip
    if row["ahead_ms"] > AHEAD_MS:
        found.append(Problem(
            2, f"Its time is {words.length(row['ahead_ms'])} ahead of the clock",
            "Somebody has set a clock back: see the guide about clocks.", name,
        ))  # fmt: skip
    if row["dead"]:
        found.append(Problem(
            2, f"{words.count(row['dead'])} dead messages are on their way to their topic",
            "If the number stays, their topic cannot take them: look at its limits.", name,
        ))  # fmt: skip
    most = int(settings.get("max_backlog_count") or 0)
    live = row["scheduled"] + row["leased"] + row["dead"]
    if most and live * 10 > most * 9:
        found.append(Problem(
            2, f"The backlog is {live * 100 // most} % of what it may be",
            "Producers are refused when it is full: raise max_backlog_count, or consume faster.",
            name,
        ))  # fmt: skip
    return found


def may_starve(row: Mapping[str, int], settings: Mapping[str, Any], pace: Pace) -> bool:
    """Whether a group of a topic may starve: it is fair, something waits, and something is done."""
    is_open = settings.get("kind") == "fair" and not settings.get("paused")
    return is_open and bool(row["ready"] and row["consumers"] and pace.rate_out)


def of_groups(
    name: str, oldest: Iterable[Mapping[str, Any]], now_ms: int, pace: Pace
) -> list[Problem]:
    """Groups of a fair topic that wait while others are served.

    Args:
        oldest: of each partition that was looked at, the ready message that came first.
    """
    waits: dict[str, int] = {}
    for message in oldest:
        group = message.get("group", "")
        waits[group] = max(waits.get(group, 0), now_ms - int(message["due"]))
    return [
        Problem(
            2,
            f"{f'The group {group}' if group else 'What has no group'} starves: its oldest message "
            f"waits for {words.length(wait_ms)}, and {words.rate(pace.rate_out)} a second are done",
            "Look at its weight, its cap and whether any consumer's filter takes its tags.",
            name,
        )
        for group, wait_ms in sorted(waits.items())
        if wait_ms > STARVES_MS
    ]


def in_order(found: list[Problem]) -> list[Problem]:
    """The worst first."""
    return sorted(found, key=lambda one: (-one.weight, one.topic, one.title))
