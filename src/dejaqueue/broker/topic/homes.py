"""Homes: what a topic in shards has to agree on, and the way of its shards to it.

Room: broker. The home of a topic is the owner of its first shard; any thread may call, and nothing
here blocks.
Holds: what was agreed on is forgotten with its home, and learned from the shards by the next one.
See: home_chore.py, which asks; consumers/home_assignment.py; docs/adr/0037.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from dejaqueue.broker.consumers.home_assignment import HomeAssignment
from dejaqueue.broker.topic.peers import HOME, Peers
from dejaqueue.clock import Clock
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, InternalError
from dejaqueue.model import parse_shard, shard_name

ASSIGNMENT = "assignment"

Given = dict[str, Any]


class TopicHome:
    """What the shards of one topic agree on, at the owner of the first of them.

    Args:
        spread: how many shards it has.
    """

    def __init__(self, spread: int, clock: Clock) -> None:
        self._clock = clock
        self._assignment = HomeAssignment(spread)

    def answer(self, shard: int, about: object, given: Given) -> Given:
        """What a shard asks. Raises BadRequest."""
        if about != ASSIGNMENT:
            raise BadRequest("about", ASSIGNMENT, about)
        try:
            kept = {int(number): str(one) for number, one in given["kept"].items()}
            consumers = [str(one) for one in given["consumers"]]
            count = int(given["partitions"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadRequest("given", "kept, consumers, partitions", given) from None
        now_us = self._clock.now_us()
        assigned = self._assignment.report(shard, count, consumers, kept, now_us)
        return {"targets": assigned.targets, "is_settled": assigned.is_settled}


class ServedShard(Protocol):
    """A served topic, as far as it may have a home."""

    @property
    def home(self) -> TopicHome | None:
        """What all shards of its topic agree on, if it is the first of them."""
        ...


class Homes:
    """The way to the homes of topics.

    Args:
        served: the served shard of a name. Raises TopicUnknown, Elsewhere, Unavailable.
        peers: the way to other brokers; None = there is none.
    """

    def __init__(
        self, served: Callable[[str], ServedShard], peers: Callable[[], Peers | None]
    ) -> None:
        self._served = served
        self._peers = peers

    def ask(self, shard: str, about: str, given: Given) -> Future[Given]:
        """Ask the home of a shard's topic, here or elsewhere. Fails with Unavailable and others."""
        body = {"topic": shard, "about": about, "given": given}
        try:
            return self.hear(body)
        except Elsewhere as other:
            peers = self._peers()
            if peers is not None and other.url:
                return peers.ask(other.url, HOME, body)
            return _failed(other)
        except DejaQError as wrong:
            return _failed(wrong)

    def hear(self, body: Given) -> Future[Given]:
        """What a shard asks, of a home that is here.

        Raises:
            BadRequest, TopicUnknown, Elsewhere, Unavailable.
        """
        name, given = body.get("topic"), body.get("given")
        shard = parse_shard(name) if isinstance(name, str) else None
        if shard is None:
            raise BadRequest("topic", "the name of a shard", name)
        if not isinstance(given, dict):
            raise BadRequest("given", "an object", given)
        home = self._served(shard_name(shard[0], 0, shard[2])).home
        if home is None:
            raise InternalError(f"the first shard of {shard[0]} has no home")
        done: Future[Given] = Future()
        done.set_result(home.answer(shard[1], body.get("about"), given))
        return done


def _failed(error: DejaQError) -> Future[Given]:
    failed: Future[Given] = Future()
    failed.set_exception(error)
    return failed
