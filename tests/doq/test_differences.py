"""Each difference that the guide names is there, and is as it says; so none can go stale.

Not covered: the rows of BEYOND, which one call cannot show.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.doq.calls import Call, Side

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/moving-from-doq.md"
QUEUES = "/API/v1/queues"
Q = f"{QUEUES}/q"
BEYOND = {
    "which group begins": "test_groups_of_a_fair_queue_take_turns begins with an empty broker",
    "a message whose timeout is over": "10 s at least; tests/unit/http/doq on a virtual clock",
    "`WEIGHTED`": "by chance there",
    "`…_rps`": "a rate is never the same twice",
    "texts of errors": "they are not compared",
    "cluster, backup, gRPC": "no calls here",
}
"""Rows of the table that no call shows, and why."""


def make(kind: str = "delayed", **settings: Any) -> Call:
    return Call("POST", QUEUES, {"name": "q", "type": kind, "settings": settings})


def put(content: str, priority: int = 1, **more: Any) -> Call:
    body = {"content": content, "priority": priority, **more}
    return Call("POST", f"{Q}/messages", body, content[:9])


def message(name: str, what: str, body: Any = None) -> Call:
    method = {"priority": "PUT", "": "GET"}.get(what, "POST")
    return Call(method, f"{Q}/messages/{{{name}}}" + (f"/{what}" if what else ""), body)


TAKE = Call("GET", f"{Q}/messages")
FAIR = make("fair", strategy="ROUND_ROBIN")

SHOWN: list[tuple[str, list[Call], Any, Any]] = [
    ("make a queue that is there", [make(), FAIR], 200, 409),
    (
        "make a queue that is there",
        [make(ack_timeout=60), make(ack_timeout=70)],
        {"settings": {"ack_timeout": 70}},
        {"settings": {"ack_timeout": 60}},
    ),
    (
        "`PUT` of a queue",
        [FAIR, Call("PUT", Q, {"settings": {"strategy": "WEIGHTED"}})],
        409,
        200,
    ),
    (
        "`PUT` of a queue",
        [
            make("fair", strategy="ROUND_ROBIN", max_unacked=7),
            Call("PUT", Q, {"settings": {"strategy": "ROUND_ROBIN"}}),
        ],
        {"settings": {"strategy": "ROUND_ROBIN"}},
        {"settings": {"strategy": "ROUND_ROBIN", "max_unacked": 7, "ack_timeout": 1_800}},
    ),
    (
        "`settings` that were left out",
        [make()],
        {"settings": {}},
        {"settings": {"ack_timeout": 1_800}},
    ),
    ("`ack_timeout`", [make(ack_timeout=9)], 409, 200),
    ("`ack_timeout`", [make(ack_timeout=10_000_000)], 200, 422),
    ("names of queues", [Call("POST", QUEUES, {"name": "ü", "type": "delayed"})], 200, 422),
    (
        "`group` in a delayed queue",
        [make(), put("a", group="g")],
        {"group": "g"},
        {"group": "default"},
    ),
    ("an `id` that is no number", [make(), put("a", id="x")], 200, 422),
    (
        "enqueue with the `id` of a message that lives",
        [make(), put("first", id="7"), put("other", id="7")],
        {"content": "other"},
        {"content": "first"},
    ),
    (
        "messages of one priority",
        [make(), put("a", id="9"), put("b", id="8"), TAKE],
        {"content": "b"},
        {"content": "a"},
    ),
    (
        "`priority` of a message that a consumer has",
        [make(), put("a"), TAKE, message("a", "priority", {"priority": 5})],
        200,
        409,
    ),
    (
        "`priority` above 65,534 in a fair queue",
        [FAIR, put("a", 90_001), put("b", 90_000), TAKE],
        {"content": "b"},
        {"content": "a"},
    ),
    (
        "`priority` above 65,534 in a fair queue",
        [FAIR, put("a"), message("a", "priority", {"priority": 65_535})],
        200,
        422,
    ),
    (
        "`nack` with other `metadata`",
        [make(), put("a"), put("b"), TAKE, message("a", "nack", {"metadata": {"n": "1"}}), TAKE],
        {"content": "a"},
        {"content": "b"},
    ),
    ("`metadata`", [make(), put("a", metadata={"n": "x" * 5_000})], 200, 422),
    ("`content`", [make(), put("a" * 1_100_000)], 200, 422),
    ("`priority` of a delayed queue", [make(), put("a", 1 << 60)], 200, 422),
    (
        "the servers",
        [Call("GET", "/API/v1/cluster/servers")],
        {"node-0"},
        {"alone"},
    ),
]


def answered(side: Side, calls: list[Call]) -> tuple[int, Any]:
    for call in calls[:-1]:
        assert side.call(call)[0] == 200, call
    return side.call(calls[-1])


def is_as_said(answer: tuple[int, Any], expected: Any) -> bool:
    status, body = answer
    if isinstance(expected, int):
        return status == expected
    if isinstance(expected, set):
        return {server["id"] for server in body["servers"]} == expected
    return status == 200 and {name: body[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "calls", "there", "here"), SHOWN, ids=[name for name, *_ in SHOWN]
)
def test_a_difference_is_as_the_guide_says(
    name: str, calls: list[Call], there: Any, here: Any, ours: Side, theirs: Side
) -> None:
    answer = answered(ours, calls)
    assert is_as_said(answer, here), answer
    answer = answered(theirs, calls)
    assert is_as_said(answer, there), answer


def test_the_guide_names_these_differences_and_no_others() -> None:
    table = GUIDE.read_text(encoding="utf-8").partition("## What differs")[2]
    rows = re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)[1:]
    assert sorted(rows) == sorted({name for name, *_ in SHOWN} | BEYOND.keys())
