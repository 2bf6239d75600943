"""Homes: what a topic in shards has to agree on, and the way of its shards to it.

Room: broker. The home of a topic is the owner of its first shard; any thread may call, and nothing
here blocks.
Holds: what was agreed on is forgotten with its home, and learned from the shards by the next one;
who is asked looks, after it was asked, whether it is the owner still: a former one says nothing.
See: home_chore.py and allotment_queue.py, which ask; consumers/home_assignment.py; docs/adr/0037.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from dejaqueue.broker.consumers.home_assignment import HomeAssignment
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.broker.topic.attendance import Presence, ShardReports
from dejaqueue.broker.topic.home_allotments import HomeAllotments
from dejaqueue.broker.topic.peers import HOME, SHARD, Peers
from dejaqueue.broker.topic.rates import Rates
from dejaqueue.clock import Clock
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Elsewhere,
    InternalError,
    ResourceExhausted,
    TopicUnknown,
)
from dejaqueue.model import Topic
from dejaqueue.subscriptions import BORN
from dejaqueue.topic_names import parse_shard, shard_name, subscription_name

ASSIGNMENT, BACKLOG, RATE = "assignment", "backlog", "rate"
ATTENDANCE = "attendance"
PAID_PARTS = 8
"""A shard that asks for rows of a producer's rate gets so small a part of what is its even share of
a second beside them, if the rate allows it: it need not ask for each batch."""

Given = dict[str, Any]


class TopicHome:
    """What the shards of one topic agree on, at the owner of the first of them.

    Args:
        topic: its settings, read at each use.
        homes: the way to the shards.
    """

    def __init__(self, topic: Callable[[], Topic], clock: Clock, homes: Homes) -> None:
        self._topic = topic
        self._clock = clock
        spread = topic().spread
        self._assignments = {"": HomeAssignment(spread)}
        self._reports: dict[str, tuple[int, ShardReports]] = {}
        """By ephemeral subscription when it was made, and what the other shards said of it."""
        self._lock = threading.Lock()
        self._rates = Rates()
        self._allotments = HomeAllotments(
            spread, topic, lambda shard, by: homes.ask_shard(topic().shards[shard], by)
        )

    def answer(self, shard: int, about: object, given: Given) -> Future[Given]:
        """What a shard asks. Raises BadRequest, ResourceExhausted; others come by the future."""
        if about == ASSIGNMENT:
            return _done(self._assign(shard, given))
        if about == RATE:
            return _done(self._rate(given))
        if about == ATTENDANCE:
            return _done(self._attend(shard, given))
        if about == BACKLOG:
            try:
                order = int(given["epoch"]), int(given["serial"])
                has, wants = Backlog(*given["has"]), Backlog(*given["wants"])
            except (KeyError, TypeError, ValueError):
                raise BadRequest("given", "epoch, serial, has, wants", given) from None
            return self._allotments.ask(shard, order, has, wants)
        raise BadRequest("about", f"{ASSIGNMENT}, {ATTENDANCE}, {BACKLOG} or {RATE}", about)

    def _rate(self, given: Given) -> Given:
        try:
            sender, producer = str(given["sender"]), str(given["producer"])
            rows = int(given["rows"])
        except (KeyError, TypeError, ValueError):
            raise BadRequest("given", "sender, producer, rows", given) from None
        topic, now_us = self._topic(), self._clock.now_us()
        self._rates.check(topic, sender, producer, rows, now_us)
        more = topic.producer_rate_max // (PAID_PARTS * topic.spread)
        try:
            self._rates.check(topic, sender, producer, more, now_us)
        except ResourceExhausted:
            more = 0
        return {"rows": rows + more}

    def _assign(self, shard: int, given: Given) -> Given:
        try:
            kept = {int(number): str(one) for number, one in given["kept"].items()}
            consumers = [str(one) for one in given["consumers"]]
            count, subscription = int(given["partitions"]), str(given["subscription"])
        except (KeyError, TypeError, ValueError, AttributeError):
            limit = "kept, consumers, partitions, subscription"
            raise BadRequest("given", limit, given) from None
        now_us = self._clock.now_us()
        assignment = self._assignment_of(subscription)
        assigned = assignment.report(shard, count, consumers, kept, now_us)
        return {"targets": assigned.targets, "is_settled": assigned.is_settled}

    def _assignment_of(self, subscription: str) -> HomeAssignment:
        """Who has which partition of the topic, or of one of its subscriptions."""
        topic = self._topic()
        if subscription and subscription not in topic.subscriptions:
            raise TopicUnknown(subscription_name(topic.name, subscription))
        with self._lock:
            found = self._assignments.get(subscription)
            if found is None:
                self._assignments = {
                    name: one
                    for name, one in self._assignments.items()
                    if not name or name in topic.subscriptions
                }
                found = self._assignments[subscription] = HomeAssignment(topic.spread)
            return found

    def _attend(self, shard: int, given: Given) -> Given:
        try:
            name, born = str(given["subscription"]), int(given["born"])
            is_used = bool(given["is_used"])
        except (KeyError, TypeError, ValueError):
            raise BadRequest("given", "subscription, born, is_used", given) from None
        reports = self._reports_of(name, born)
        reports.report(shard, is_used=is_used, now_us=self._clock.now_us())
        return {}

    def elsewhere(self, subscription: str, born: int, valid_us: int) -> Presence:
        """Who consumes an ephemeral subscription at the other shards, as they said lately."""
        return self._reports_of(subscription, born).presence(self._clock.now_us(), valid_us)

    def _reports_of(self, subscription: str, born: int) -> ShardReports:
        topic = self._topic()
        with self._lock:
            found = self._reports.get(subscription)
            if found is None or found[0] != born:
                self._reports = {n: r for n, r in self._reports.items() if n in topic.subscriptions}
                found = born, ShardReports(range(1, topic.spread))
                if topic.subscriptions.get(subscription, {}).get(BORN) == born:
                    self._reports[subscription] = found
            return found[1]


class ServedShard(Protocol):
    """A served topic, as far as shards and homes speak with it."""

    @property
    def home(self) -> TopicHome | None:
        """What all shards of its topic agree on, if it is the first of them."""
        ...

    def give_back(self, by: Backlog) -> Future[Backlog]:
        """Keep less of the topic's backlog, if it can; what it keeps."""
        ...

    def check_owned(self) -> None:
        """Raise Unavailable, Elsewhere if this broker is its owner no more."""
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
            return self._ask_far(other, HOME, body)
        except DejaQError as wrong:
            return _failed(wrong)

    def ask_shard(self, shard: str, by: Backlog) -> Future[Given]:
        """Have a shard keep so much less of the topic's backlog. Fails as `ask`."""
        body = {"topic": shard, "count": by.count, "byte_count": by.byte_count}
        try:
            return self.hear_home(body)
        except Elsewhere as other:
            return self._ask_far(other, SHARD, body)
        except DejaQError as wrong:
            return _failed(wrong)

    def _ask_far(self, other: Elsewhere, action: str, body: Given) -> Future[Given]:
        peers = self._peers()
        return peers.ask(other.url, action, body) if peers and other.url else _failed(other)

    def hear_home(self, body: Given) -> Future[Given]:
        """What a home asks of a shard that is here. Raises as `hear`."""
        name = body.get("topic")
        if not isinstance(name, str) or parse_shard(name) is None:
            raise BadRequest("topic", "the name of a shard", name)
        try:
            by = Backlog(int(body["count"]), int(body["byte_count"]))
        except (KeyError, TypeError, ValueError):
            raise BadRequest("count", "whole numbers, as byte_count", body) from None
        answer: Future[Given] = Future()

        def answered(given_back: Future[Backlog]) -> None:
            error = given_back.exception()
            if error is not None:
                answer.set_exception(error)
            else:
                kept = given_back.result()
                answer.set_result({"count": kept.count, "byte_count": kept.byte_count})

        served = self._served(name)
        served.check_owned()
        served.give_back(by).add_done_callback(answered)
        return answer

    def hear(self, body: Given) -> Future[Given]:
        """What a shard asks, of a home that is here.

        Raises:
            BadRequest, TopicUnknown, Elsewhere, Unavailable, ResourceExhausted.
        """
        name, given = body.get("topic"), body.get("given")
        shard = parse_shard(name) if isinstance(name, str) else None
        if shard is None:
            raise BadRequest("topic", "the name of a shard", name)
        if not isinstance(given, dict):
            raise BadRequest("given", "an object", given)
        served = self._served(shard_name(shard[0], 0, shard[2]))
        served.check_owned()
        home = served.home
        if home is None:
            raise InternalError(f"the first shard of {shard[0]} has no home")
        return home.answer(shard[1], body.get("about"), given)


def _done(given: Given) -> Future[Given]:
    done: Future[Given] = Future()
    done.set_result(given)
    return done


def _failed(error: DejaQError) -> Future[Given]:
    failed: Future[Given] = Future()
    failed.set_exception(error)
    return failed
