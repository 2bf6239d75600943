"""The settings check: what will hurt one day, each with the line to run.

Room: console. The page, and pure functions over the answers of the API.
Holds: what is shown is seen in settings and totals, and nothing is changed; a topic set with
care is not named.
See: problems.py, which has what hurts already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from dejaqueue.console import words
from dejaqueue.console.overview import numbers_of, topics_of
from dejaqueue.console.visit import Visit

SHOWN_MAX = 200
KEY_ENDS_MS = 14 * 86_400_000
"""A key that ends sooner is named."""
_LEASES_SEEN = 100
"""Deliveries; fewer say nothing about how long work takes."""
_BACKLOG_COUNT = 10_000_000


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that will hurt.

    Attributes:
        topic: where; "" = the broker, or the machine of the one that was asked.
        title: what, and when it hurts.
        line: the command that changes it.
    """

    topic: str
    title: str
    line: str


def of_topic(name: str, row: Mapping[str, int], settings: Mapping[str, Any]) -> list[Check]:
    """What will hurt in a topic.

    Args:
        row: its numbers (samples.py); empty = not known.
        settings: as the API shows them.
    """
    alter, found = f"dejaq topic alter {name}", []
    if not settings.get("max_backlog_count") and not settings.get("max_backlog_bytes"):
        found.append(Check(
            name, "Nothing bounds its backlog: a producer that runs wild fills the disk",
            f"{alter} --max-backlog {_BACKLOG_COUNT}",
        ))  # fmt: skip
    is_dead_letters = name.endswith(".dead")
    if not settings.get("max_attempts") and not is_dead_letters:
        found.append(Check(
            name, "A message whose consumer always fails is delivered again for ever",
            f"{alter} --max-attempts 10",
        ))  # fmt: skip
    delivered, expired = row.get("delivered", 0), row.get("expired", 0)
    lease_ms = int(settings.get("lease_ms") or 0)
    if delivered >= _LEASES_SEEN and expired * 100 > delivered:
        found.append(Check(
            name,
            f"{words.count(expired)} of {words.count(delivered)} deliveries outlasted their lease "
            f"of {words.length(lease_ms)}: others get the message while the first still works",
            f"{alter} --lease {2 * lease_ms}ms",
        ))  # fmt: skip
    if is_dead_letters and row.get("scheduled") and not row.get("consumers"):
        found.append(Check(
            name, "Dead letters wait and nobody reads them", f"dejaq dead list {name}"
        ))  # fmt: skip
    return found


def of_keys(keys: list[dict[str, Any]], now_ms: int) -> list[Check]:
    """What will hurt in the API keys."""
    if not keys:
        return [Check(
            "", "There are no API keys: whoever reaches the ports may do everything",
            "dejaq key create root --grant 'admin:*'",
        )]  # fmt: skip
    ending = [one for one in keys if one.get("ends_ms") and one["ends_ms"] - now_ms < KEY_ENDS_MS]
    return [
        Check(
            "",
            f"The key of {one['name']} ends {words.relative(one['ends_ms'], now_ms)}",
            " ".join(
                ["dejaq key create NEW-NAME", *(f"--grant '{grant}'" for grant in one["grants"])]
            ),
        )
        for one in ending
    ]


def of_machine(answer: Mapping[str, Any]) -> list[Check]:
    """What will hurt in the machine and the settings of the broker that was asked.

    Args:
        answer: of GET /v1/findings.
    """
    node = answer.get("node", "")
    place = f" ({node})" if node else ""
    return [
        Check("", f"{one['check'].capitalize()}{place}: {one['text']}", one["mend"])
        for one in answer["findings"]
    ]


async def show_checks(visit: Visit) -> Response:
    """Everything that the viewer could have changed."""
    settings = await topics_of(visit)
    sample = await numbers_of(visit, settings)
    found = []
    if visit.session.may("admin", ""):
        found += of_machine(await visit.api.get("/v1/findings"))
        found += of_keys((await visit.api.get("/v1/keys"))["keys"], visit.now_ms)
    for name, one in sorted(settings.items()):
        if visit.session.may("manage", name):
            found += of_topic(name, sample.topics.get(name, {}), one)
    return visit.page("checks", {"checks": found[:SHOWN_MAX], "count": len(found)})
