"""Numbers of all brokers of a cluster, put together by the one that was asked.

Room: flight. Each of the others is asked with the caller's own key, so it shows what that may see.
Holds: who does not answer in time is named, and not waited for longer; nobody waits long twice for
a broker that fell silent; what a broker asks another for, that one does not ask on.
See: server.py, http/routes/browsing.py; docs/guides/cluster.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow.flight as flight

from dejaqueue.broker.broker import Broker
from dejaqueue.clock import Clock
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.flight.forwarding import Forwarding, Onward
from dejaqueue.flight.silence import ASK_SECONDS, Silence

AT_ONCE_MAX = 16
Told = dict[str, Any] | None
"""What a broker says of itself and its topics; None = nothing, or it did not answer in time."""


def stats_of_all(
    broker: Broker, forwarding: Forwarding, bearer: str | None, own: dict[str, Any]
) -> dict[str, Any]:
    """What this broker said of its topics, and what the others say of theirs.

    Args:
        own: the answer of this broker's own `stats`.

    Returns:
        The same with all `topics`; with all of `refused_lately`, each with the `node` that refused;
        and `silent`, the nodes that did not answer. A broker that is alone gives its own answer.
    """
    if not broker.is_shared:
        return own
    cluster = broker.cluster()
    others = [node for node in cluster["nodes"] if node["node"] != cluster["node"]]
    if not others:
        return own | {"silent": []}

    def ask(url: str) -> Told:
        try:
            action = flight.Action("stats", b"{}")
            [answer] = forwarding.action(Onward(url, bearer), action, ASK_SECONDS)
            told: dict[str, Any] = json.loads(answer.body.to_pybytes())
            told["topics"].items()
        except Unavailable:
            raise
        except (DejaQError, ValueError, KeyError, TypeError, AttributeError):
            return None  # it is there, and has nothing for this caller
        return told

    answers = _answers([node["url"] for node in others], ask, forwarding.silence, broker.clock)
    topics: dict[str, Any] = {}
    # A key that may not look at the whole broker is not told, nor by an older broker.
    refused = [one | {"node": cluster["node"]} for one in own.get("refused_lately", ())]
    silent = []
    for node, told in zip((one["node"] for one in others), answers, strict=True):
        if told is None:
            silent.append(node)
            continue
        topics |= told["topics"]
        refused += [one | {"node": node} for one in told.get("refused_lately", ())]
    return own | {
        "refused_lately": refused,
        "topics": dict(sorted((topics | own["topics"]).items())),
        "silent": sorted(silent),
    }


def _answers(
    urls: list[str], ask: Callable[[str], Told], silence: Silence, clock: Clock
) -> list[Told]:
    """What each of the brokers says, asked at once; silence is remembered."""

    def asked(url: str) -> Told:
        answered = False
        try:
            told = ask(url)
            answered = True
        except Unavailable:
            return None
        finally:
            silence.ended(url, answered=answered)
        return told

    began_us = clock.now_us()
    threads = ThreadPoolExecutor(min(len(urls), AT_ONCE_MAX), "dejaq-gather")
    waits = [silence.begins(url) for url in urls]
    # Those that answered last time first: a silent one must not keep a thread from them.
    order = sorted(range(len(urls)), key=lambda index: -waits[index])
    futures: dict[int, Future[Told]] = {
        index: threads.submit(asked, urls[index]) for index in order if waits[index]
    }
    threads.shutdown(wait=False)
    answers: list[Told] = [None] * len(urls)
    for index, future in futures.items():
        left = waits[index] - (clock.now_us() - began_us) / 1_000_000
        # Whoever is waited for in full has a bound of its own, in the call.
        try:
            answers[index] = future.result(max(left, 0) if waits[index] < ASK_SECONDS else None)
        except TimeoutError:
            continue
    return answers
