"""Catalogue: which topics there are, as a broker asks for them, and what may be made of them.

Room: broker. Any thread may read it; two changes of one topic are never made at once (the broker's
name_locks.py sees to it).
Holds: a change is durable before it is seen; what can't change is refused with its name.
See: journal_catalogue.py, lone_catalogue.py and cluster/catalogue.py, which keep the topics.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any, TypeAlias

from dejaqueue import limits
from dejaqueue.broker import news
from dejaqueue.catalogue.state import CatalogueState, TopicRow
from dejaqueue.errors import BadRequest, Refused, TopicExists, TopicUnknown
from dejaqueue.model import CHANGEABLE, Topic
from dejaqueue.subscriptions import BORN, changed_subscriptions
from dejaqueue.topic_names import parse_subscription

_BORN_BITS = 48
"""Of the number that tells a subscription from those that had its name: drawn, not counted, as a
partition may see nothing of what was between the two."""


def with_births(topic: Topic, known: Topic | None = None) -> Topic:
    """A topic to be made, whose subscriptions are told from those that had their names before.

    Args:
        known: the topic that there is: what has the same name is the same.
    """
    if not topic.subscriptions:
        return topic
    there = {} if known is None else known.subscriptions
    births = {
        name: there.get(name, {}).get(BORN) or secrets.randbits(_BORN_BITS)
        for name in topic.subscriptions
    }
    subscriptions = {
        name: values | {BORN: births[name]} for name, values in topic.subscriptions.items()
    }
    return replace(topic, subscriptions=subscriptions)


Changes: TypeAlias = dict[str, Any] | Callable[[Topic], dict[str, Any]]
"""Settings by name; or what makes them of the topic as it is, when all that other brokers have
changed is known: asked again if one was quicker. It must not wait, and leaves `history` alone."""


class Catalogue(ABC):
    """All topics, by name."""

    # --- what there is ------------------------------------------------------------------------

    @abstractmethod
    def all(self) -> list[Topic]:
        """Every topic, by name."""

    @abstractmethod
    def find(self, name: str) -> Topic | None:
        """The topic, None if there is none."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many topics there are, and are being made."""

    @abstractmethod
    def state(self) -> CatalogueState:
        """A copy of all of it, as of now. Raises JournalDamaged, Unavailable."""

    def get(self, name: str) -> Topic:
        """The topic, or TopicUnknown."""
        topic = self.find(name)
        if topic is None:
            raise TopicUnknown(name)
        return topic

    def newest(self, name: str) -> Topic:
        """As `get`, as of now, also if another broker has just changed it."""
        return self.get(name)

    def seen(self, name: str, *, newest: bool = False) -> Topic:
        """The topic of this name, or as a subscription of this name sees it, or TopicUnknown."""
        named, subscription = parse_subscription(name)
        topic = self.newest(named) if newest else self.get(named)
        if not subscription:
            return topic
        if subscription not in topic.subscriptions:
            raise TopicUnknown(name)
        return topic.subscribed(subscription)

    def journals(self, name: str) -> str:
        """What the topic is called in the store of its journals."""
        return self.get(name).name

    @abstractmethod
    def number(self, name: str) -> int:
        """What tells a topic from those that had its name before. Raises TopicUnknown."""

    @abstractmethod
    def counts(self, name: str) -> tuple[int, ...]:
        """How many partitions the topic had, one after the other; the last is its number now."""

    @abstractmethod
    def ids_from(self, name: str) -> int:
        """The sequence of the first message of each partition of a topic. Raises TopicUnknown."""

    @abstractmethod
    def use(self, name: str, number: int) -> None:
        """Let the journals of a topic be opened. Raises TopicUnknown."""

    def check_there(self, name: str, number: int) -> None:
        """Return if a topic is there, whoever changes topics; for who has begun an epoch in one of
        its journals. Raises TopicUnknown, Unavailable."""
        return

    @abstractmethod
    def is_used(self, name: str) -> bool:
        """Whether a topic may have journals. Raises TopicUnknown."""

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether there is such a partition, here or elsewhere, for a transaction."""
        try:
            topic = self.get(name)
            if partition >= topic.partitions:
                topic = self.newest(name)
        except TopicUnknown:
            return False
        return partition < topic.partitions

    # --- changes ------------------------------------------------------------------------------

    @abstractmethod
    def create(self, topic: Topic, *, exist_ok: bool) -> Topic:
        """Add a topic. With `exist_ok` an equal one is fine; a different one raises TopicExists."""

    @abstractmethod
    def alter(self, name: str, changes: Changes) -> Topic:
        """Change settings that may change; the others are refused."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Take the first step: the topic is gone, its journals are not. Raises TopicUnknown."""

    @abstractmethod
    def changing(self) -> tuple[str, ...]:
        """Topics that are being deleted."""

    @abstractmethod
    def row_of(self, name: str) -> TopicRow | None:
        """A topic that is being deleted; None = nothing is left of it."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what it is kept in. Twice is fine."""

    # --- what may be made ---------------------------------------------------------------------

    def _exists(self, topic: Topic, *, exist_ok: bool) -> Topic | None:
        """The topic of this name. Raises TopicExists unless it may be there and is equal."""
        known = self.find(topic.name)
        if known is None:
            return None
        if not exist_ok:
            raise TopicExists(f"topic {topic.name} exists")
        asked = topic
        if topic.auto_partitions and known.partitions > topic.partitions:
            asked = replace(topic, partitions=known.partitions)  # it grew by itself
        if with_births(asked, known) != known:
            names = [setting.name for setting in fields(Topic)]
            changed = [name for name in names if getattr(known, name) != getattr(topic, name)]
            raise TopicExists(
                f"topic {topic.name} exists with another {', '.join(changed)}; "
                "alter it, or ask for the same"
            )
        return known

    def _check_new(self, topic: Topic) -> None:
        """Raise BadRequest or Refused if the others leave no room for a topic like this."""
        self._check_letters(topic)
        if self.count >= limits.TOPICS_MAX:
            raise Refused(f"this broker has {limits.TOPICS_MAX} topics, the limit")
        news.advised(topic)

    def _altered(self, name: str, changes: Changes) -> Topic:
        """The topic with settings that may change. Raises BadRequest, TopicUnknown."""
        topic = self.get(name)
        changes = changes(topic) if callable(changes) else changes
        for field in changes:
            if field not in CHANGEABLE:
                known = field in topic.settings()
                limit = "fixed when the topic is made" if known else "a setting that can change: "
                raise BadRequest(
                    f"topic.{field}",
                    limit if known else limit + ", ".join(CHANGEABLE),
                    changes[field],
                )
        if "subscriptions" in changes:
            given, born = changes["subscriptions"], secrets.randbits(_BORN_BITS)
            after = changed_subscriptions(topic.subscriptions, given, born)
            changes = changes | {"subscriptions": after}
        changed = replace(topic, **changes).check()
        if changed.partitions < topic.partitions:
            limit = f"at least {topic.partitions}, what it has: partitions are never taken away"
            raise BadRequest("topic.partitions", limit, changed.partitions)
        self._check_letters(changed)
        news.advised(changed)
        return changed

    @abstractmethod
    def _of_another_spread(self, topic: Topic) -> Iterable[Topic]:
        """Topics that there are, and are being made, of another spread than this one."""

    def _check_letters(self, topic: Topic) -> None:
        """Raise BadRequest if letters would have to travel between topics of another spread."""
        for one in self._of_another_spread(topic):
            if topic.dead_letter_name == one.name or one.dead_letter_name == topic.name:
                limit = f"that of {one.name}, with which it shares dead letters: {one.spread}"
                raise BadRequest("topic.spread", limit, topic.spread)
