"""The future: what is due when, of many topics, and changes of a stretch of it.

Room: console.
Holds: a chart costs a look into the order index of each topic that it shows, whatever is in it.
See: changes.py; static/future.js, which draws.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from dejaqueue import limits
from dejaqueue.console import changes
from dejaqueue.console.api import ApiError, topic_path
from dejaqueue.console.overview import numbers_of, topics_of
from dejaqueue.console.pages import HEADERS, redirect
from dejaqueue.console.rows import pace_of
from dejaqueue.console.visit import Visit

TOPICS_MAX = 8
"""Topics of one chart: as many colours as one tells apart."""
BUCKETS = 240
SPANS = {
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
    "month": 30 * 86_400_000,
    "year": 366 * 86_400_000,
}
SAMPLES_MAX = 5
_SELECTED = ("in", "due_from", "due_to", "group", "tags_any")
"""Of the address: the stretch that is selected, and in which topic."""


async def show_future(visit: Visit) -> Response:
    """The page around the chart."""
    settings = await topics_of(visit)
    seen = sorted(name for name in settings if visit.session.may_look(name))
    chosen = await _chosen(visit, settings)
    from_ms, to_ms = _stretch(visit)
    selected = {name: visit.fields[name] for name in _SELECTED if name in visit.fields}
    values = {
        "topics": seen,
        "chosen": chosen,
        "from_ms": from_ms,
        "to_ms": to_ms,
        "spans": SPANS,
        "is_fixed": "from" in visit.fields,
        "selected": selected,
        "colour_count": TOPICS_MAX,
    }
    return visit.page("future", values)


async def future_counts(visit: Visit) -> Response:
    """JSON for the chart: counts of each bucket and topic, what consumers managed at most in ten
    seconds of the last hour, and what is late if that is what they can do."""
    from_ms, to_ms = _stretch(visit)
    bucket_ms = max(1, -(-(to_ms - from_ms) // BUCKETS))
    series = []
    for topic in await _chosen(visit, await topics_of(visit)):
        answer = await visit.api.get(
            topic_path(topic, "histogram"), due_from=from_ms, due_to=to_ms, bucket_ms=bucket_ms,
            exact=False,
        )  # fmt: skip
        capacity = pace_of(await visit.api.get(topic_path(topic, "stats"))).rate_most
        late = _late(answer["counts"], from_ms, bucket_ms, capacity)
        series.append(
            {"topic": topic, "counts": answer["counts"], "error_max": answer["error_max"],
             "per_second": capacity} | late
        )  # fmt: skip
    values = {"now": visit.now_ms, "from": from_ms, "bucket_ms": bucket_ms, "series": series}
    return JSONResponse(values, headers=HEADERS)


async def show_selection(visit: Visit) -> Response:
    """How many messages a stretch has, some of them, and what may be done with all."""
    topic = visit.fields.get("topic", "")
    if not topic:
        raise ApiError(400, "choose a topic")
    where = changes.where_of(visit.fields)
    session = visit.session
    values: dict[str, Any] = {
        "topic": topic,
        "where": where,
        "link": quote(topic, safe=""),
        "may_manage": session.may("manage", topic),
        "typed_from": changes.TYPED_FROM,
        "is_truncated": False,
    }
    query = {name: value for name, value in where.items() if name != "state"}
    page = await visit.api.get(
        topic_path(topic, "messages"), limit=SAMPLES_MAX, state="scheduled", **query
    )
    values["samples"] = page["messages"]
    values["count"] = await _counted(visit, topic, where)
    return visit.page("selection", values)


async def change_selection(visit: Visit) -> Response:
    """Begin a change, and show how it goes on."""
    form = visit.form
    choice = changes.Choice(
        form.get("topic", ""),
        changes.where_of(form),
        form.get("verb", ""),
        by_ms=visit.whole("by", 0) * visit.whole("unit", 1),
        to_from_ms=visit.whole("to_from", 0),
        to_end_ms=visit.whole("to_end", 0),
    )
    if choice.verb not in ("cancel", "shift", "spread"):
        raise ApiError(400, "cancel, shift or spread")
    if choice.verb == "shift" and not choice.by_ms:
        raise ApiError(400, "a shift by how much?")
    if choice.verb == "spread" and not 0 <= choice.to_from_ms < choice.to_end_ms:
        raise ApiError(400, "a window that ends after it begins")
    work = await changes.begin(visit, choice, visit.whole("shown", 0), form.get("typed", ""))
    return redirect(f"/console/works/{work.number}")


async def show_work(visit: Visit) -> Response:
    """How far a change is."""
    work = visit.works.find(visit.name("number"), visit.session.name)
    return visit.page("work_part" if visit.is_part else "work", {"work": work})


async def _counted(visit: Visit, topic: str, where: dict[str, Any]) -> int:
    """How many are in the stretch: of those who may not change them, by the histogram."""
    if visit.session.may("manage", topic):
        return await changes.count_of(visit.api, topic, where)
    first, end = where.get("due_from", 0), where.get("due_to", limits.INSTANT_MS_MAX)
    query = {name: value for name, value in where.items() if not name.startswith("due_")}
    wide_ms = max(1, int(end) - int(first))
    answer = await visit.api.get(
        topic_path(topic, "histogram"), due_from=first, due_to=end, bucket_ms=wide_ms, **query
    )
    return sum(answer["counts"])


def _stretch(visit: Visit) -> tuple[int, int]:
    """From when to when: from now on, unless the address says otherwise."""
    now_ms = visit.now_ms
    wide_ms = SPANS.get(visit.fields.get("span", ""), SPANS["day"])
    from_ms = visit.whole("from", now_ms)
    to_ms = visit.whole("to", from_ms + wide_ms)
    if not 0 <= from_ms < to_ms <= limits.INSTANT_MS_MAX:
        raise ApiError(400, "a stretch of time that ends after it begins")
    return from_ms, to_ms


async def _chosen(visit: Visit, settings: dict[str, Any]) -> list[str]:
    """The topics of the address; without, those with most that is scheduled."""
    asked = [name for name in visit.request.query_params.getlist("topic") if name]
    if asked:
        return [name for name in asked if name in settings][:TOPICS_MAX]
    sample = await numbers_of(visit, settings)
    busy = sorted(sample.topics, key=lambda name: (-sample.topics[name]["scheduled"], name))
    return [name for name in busy if sample.topics[name]["scheduled"]][:TOPICS_MAX]


def _late(counts: list[int], from_ms: int, bucket_ms: int, per_second: float) -> dict[str, int]:
    """What is late at this rate: how many messages, by how much the last of the worst bucket, and
    from when on. All 0 = nothing is, or the rate is not known.

    >>> _late([0, 100, 0, 0], 5_000, 1_000, 50.0)
    {'late_count': 50, 'late_ms': 1000, 'late_from_ms': 6000}
    >>> _late([10, 10], 0, 1_000, 50.0)["late_ms"], _late([5], 0, 10, 0)["late_ms"]
    (0, 0)
    """
    late = {"late_count": 0, "late_ms": 0, "late_from_ms": 0}
    if not per_second:
        return late
    can, waiting = per_second * bucket_ms / 1_000, 0.0
    for index, count in enumerate(counts):
        # Those before are first: of these so many go out in time.
        in_time = min(count, max(0.0, can - waiting))
        waiting = max(0.0, waiting + count - can)
        if count > in_time:
            late["late_count"] += round(count - in_time)
            late["late_from_ms"] = late["late_from_ms"] or from_ms + index * bucket_ms
        late["late_ms"] = max(late["late_ms"], int(waiting / per_second * 1_000))
    return late
