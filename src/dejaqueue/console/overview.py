"""The overview: what is wrong, then every topic with its numbers.

Room: console.
See: problems.py; samples.py.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from dejaqueue.console import problems
from dejaqueue.console.api import ApiError, topic_path
from dejaqueue.console.rows import Pace
from dejaqueue.console.samples import Sample, sample_of
from dejaqueue.console.visit import Visit
from dejaqueue.console.watches import Live, Part

ROWS_MAX = 200
"""Topics of one page, those with most to do; a filter finds the others."""
REFUSALS_MAX = 20
"""Principals and quotas that are named, those most often refused."""
_SHOWN = ("scheduled", "ready", "leased", "next_due_ms", "dead", "consumers")
_FAIR_TOPICS_MAX = 5
_PARTITIONS_MAX = 4
"""In so many fair topics, and partitions of each, it is looked for groups that starve."""
_ALONE_MAX = 50
"""Topics that are asked for one by one, for a viewer who may not look at the broker."""


async def overview(visit: Visit) -> Response:
    """The first page."""
    return visit.live_page("overview", await look(visit), {})


async def look(visit: Visit) -> Live:
    """What is wrong, and the topics with most to do, by name: rows do not move under a hand."""
    settings = await topics_of(visit)
    sample = await numbers_of(visit, settings)
    found = problems.of_broker(await _readiness(visit))
    found += problems.of_cluster(sample.nodes, sample.silent)
    found += problems.of_quotas(sample.refusals[:REFUSALS_MAX])
    rows = []
    found += await _starving(visit, sample, settings)
    wanted = visit.fields.get("q", "").lower()
    for name, numbers in sample.topics.items():
        pace, setting = sample.paces[name], settings.get(name, {})
        found += problems.of_topic(name, numbers, setting, sample.at_ms, pace)
        if wanted in name.lower():
            rows.append(_shown(name, numbers, setting, sample.at_ms, pace))
    rows.sort(key=lambda row: (-row["ready"] - row["leased"], -row["scheduled"], row["name"]))
    shown = sorted(rows[:ROWS_MAX], key=lambda row: str(row["name"]))
    others = [
        name
        for name in sorted(settings)
        if name not in sample.topics and not visit.session.may_look(name)
    ]
    parts = {"problems": Part("problems", {"problems": problems.in_order(found)})}
    parts |= {f"topic-{row['name']}": Part("topic_row", {"row": row}) for row in shown}
    parts["others"] = Part("others", {"others": others, "more": len(rows) - len(shown)})
    frame = {
        "row_names": [f"topic-{row['name']}" for row in shown],
        "topic_count": len(sample.topics),
        "q": visit.fields.get("q", ""),
        "has_others": bool(others),
    }
    return Live(parts, frame)


async def topics_of(visit: Visit) -> dict[str, dict[str, Any]]:
    """The settings of every topic that the viewer may see, by name."""
    answer = await visit.api.get("/v1/topics")
    return {topic["name"]: topic for topic in answer["topics"]}


async def numbers_of(visit: Visit, settings: dict[str, Any]) -> Sample:
    """The numbers of every topic that the viewer may look at."""
    if visit.session.may_look(""):
        return await visit.samples.newest(visit.api)
    told: dict[str, Any] = {}
    for name in [name for name in settings if visit.session.may_look(name)][:_ALONE_MAX]:
        try:
            told[name] = await visit.api.get(topic_path(name, "stats"))
        except ApiError:
            continue  # it was deleted just now
    return sample_of(visit.now_ms, told)


async def _starving(
    visit: Visit, sample: Sample, settings: dict[str, Any]
) -> list[problems.Problem]:
    """Groups of fair topics that wait while others are served; of topics with most that waits."""
    busy = [
        name
        for name, row in sample.topics.items()
        if problems.may_starve(row, settings.get(name, {}), sample.paces[name])
    ]
    busy.sort(key=lambda name: (-sample.topics[name]["ready"], name))
    found: list[problems.Problem] = []
    for name in busy[:_FAIR_TOPICS_MAX]:
        pace = sample.paces[name]
        found += await starving_in(visit, name, settings[name], sample.at_ms, pace)
    return found


async def starving_in(
    visit: Visit, name: str, settings: dict[str, Any], at_ms: int, pace: Pace
) -> list[problems.Problem]:
    """Groups of one fair topic that wait while others are served. Cost: some looks at one row."""
    oldest: list[dict[str, Any]] = []
    for number in range(min(int(settings["partitions"]), _PARTITIONS_MAX)):
        query = {"state": "ready", "limit": 1, "partition": number}
        try:
            page = await visit.api.get(topic_path(name, "messages"), **query)
        except ApiError:
            break  # it was deleted just now, or its broker is away, which is told elsewhere
        oldest += page["messages"]
    return problems.of_groups(name, oldest, at_ms, pace)


async def _readiness(visit: Visit) -> dict[str, Any]:
    try:
        answer = await visit.api.get("/readyz")
    except ApiError as error:
        return {"reasons": [error.detail]}
    return dict(answer)


def _shown(
    name: str, numbers: dict[str, int], settings: dict[str, Any], at_ms: int, pace: Pace
) -> dict[str, Any]:
    overdue_ms = at_ms - numbers["next_due_ms"] if numbers["next_due_ms"] >= 0 else 0
    return {
        **{field: numbers[field] for field in _SHOWN},
        "name": name,
        "kind": settings.get("kind", ""),
        "paused": bool(settings.get("paused")),
        "pace": pace,
        "late_ms": max(0, overdue_ms) if numbers["ready"] else 0,
    }
