"""Numbers of all brokers of a cluster, put together by the one that was asked.

Room: flight. Each of the others is asked with the caller's own key, so it shows what that may see.
Holds: who does not answer in time is named, and not waited for longer; what a broker asks another
for, that one does not ask on.
See: server.py, http/routes/browsing.py; docs/guides/cluster.md.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.flight as flight

from dejaqueue.broker.broker import Broker
from dejaqueue.errors import DejaQError
from dejaqueue.flight.forwarding import Forwarding, Onward

ASK_SECONDS = 3.0
AT_ONCE_MAX = 16


def stats_of_all(
    broker: Broker, forwarding: Forwarding, bearer: str | None, own: dict[str, Any]
) -> dict[str, Any]:
    """What this broker said of its topics, and what the others say of theirs.

    Args:
        own: the answer of this broker's own `stats`.

    Returns:
        The same with all `topics`, and `silent`, the nodes that did not answer; a broker that is
        alone gives its own answer.
    """
    if not broker.is_shared:
        return own
    cluster = broker.cluster()
    others = [node for node in cluster["nodes"] if node["node"] != cluster["node"]]
    if not others:
        return own | {"silent": []}

    def ask(node: dict[str, Any]) -> dict[str, Any] | None:
        try:
            action = flight.Action("stats", b"{}")
            [answer] = forwarding.action(Onward(node["url"], bearer), action, ASK_SECONDS)
            told: dict[str, Any] = json.loads(answer.body.to_pybytes())["topics"]
        except (DejaQError, ValueError, KeyError):
            return None
        return told

    with ThreadPoolExecutor(min(len(others), AT_ONCE_MAX), "dejaq-gather") as threads:
        answers = list(threads.map(ask, others))
    topics: dict[str, Any] = {}
    for answer in answers:
        topics |= answer or {}
    topics |= own["topics"]
    silent = [one["node"] for one, told in zip(others, answers, strict=True) if told is None]
    return own | {"topics": dict(sorted(topics.items())), "silent": sorted(silent)}
