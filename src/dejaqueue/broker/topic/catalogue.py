"""The topic catalogue: which topics there are, kept in the journal's store.

Room: broker. Any thread may read it; two changes of one topic are never made at once (the broker's
name_locks.py sees to it).
Holds: a change is durable before it is seen; what can't change is refused with its name; a topic
that is deleted is named until its journals are dropped, so that a crash in between leaves nothing.
All topics are one document, so it is written once at a time; the journals of a topic are made
beside that, since their server may take long.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from dejaqueue import limits
from dejaqueue.broker import news
from dejaqueue.errors import BadRequest, JournalDamaged, Refused, TopicExists, TopicUnknown
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import CHANGEABLE, Topic

FORMAT_VERSION = 1


class Catalogue:
    """All topics, by name.

    Args:
        writing: held while the document is written.
    """

    def __init__(
        self, store: JournalStore, writing: AbstractContextManager[object] | None = None
    ) -> None:
        self._store = store
        self._writing = writing or threading.Lock()
        self._making: dict[str, Topic] = {}
        """What this broker is making just now."""
        self._topics: dict[str, Topic] = {}
        self._counts: dict[str, tuple[int, ...]] = {}
        self._leaving: tuple[str, ...] = ()
        text = store.load_catalog()
        if text is not None:
            try:
                values = json.loads(text)
                if values["version"] != FORMAT_VERSION:
                    raise Refused(f"topic catalogue has version {values['version']}, this is 1")
                for topic in values["topics"]:
                    self._topics[topic["name"]] = Topic.from_dict(topic)
                for name, counts in values.get("partition_counts", {}).items():
                    self._counts[name] = tuple(counts)
                self._leaving = tuple(values.get("deleting", ()))
            except (ValueError, KeyError, TypeError) as wrong:
                raise JournalDamaged(f"topic catalogue: {wrong}") from wrong

    def all(self) -> list[Topic]:
        """Every topic, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def get(self, name: str) -> Topic:
        """The topic, or TopicUnknown."""
        if name not in self._topics:
            raise TopicUnknown(name)
        return self._topics[name]

    def newest(self, name: str) -> Topic:
        """As `get`, as of now, also if another broker has just changed it."""
        return self.get(name)

    def find(self, name: str) -> Topic | None:
        """The topic, None if there is none."""
        return self._topics.get(name)

    def by_name(self) -> Mapping[str, Topic]:
        """Every topic; does not change, a change makes another one."""
        return self._topics

    def journals(self, name: str) -> str:
        """What the topic is called in the store of its journals."""
        return self.get(name).name

    def counts(self, name: str) -> tuple[int, ...]:
        """How many partitions the topic had, one after the other; the last is its number now."""
        return self._counts.get(name, ()) or (self.get(name).partitions,)

    def create(self, topic: Topic, *, exist_ok: bool) -> Topic:
        """Add a topic. With `exist_ok` an equal one is fine; a different one raises TopicExists."""
        with self._writing:
            if self._exists(topic, exist_ok=exist_ok):
                return self._topics[topic.name]
            self._check_new(topic)
            self._making[topic.name] = topic
        try:
            self._store.make(topic.name)
            with self._writing:
                return self._put(topic)
        finally:
            with self._writing:
                del self._making[topic.name]

    def _exists(self, topic: Topic, *, exist_ok: bool) -> bool:
        """Whether there is such a topic. Raises TopicExists unless it may be there and is equal."""
        known = self._topics.get(topic.name)
        if known is None:
            return False
        if not exist_ok:
            raise TopicExists(f"topic {topic.name} exists")
        asked = topic
        if topic.auto_partitions and known.partitions > topic.partitions:
            asked = replace(topic, partitions=known.partitions)  # it grew by itself
        if known != asked:
            changed = [k for k, v in topic.to_dict().items() if known.to_dict()[k] != v]
            raise TopicExists(
                f"topic {topic.name} exists with another {', '.join(changed)}; "
                "alter it, or ask for the same"
            )
        return True

    def _check_new(self, topic: Topic) -> None:
        """Raise BadRequest or Refused if the others leave no room for a topic like this."""
        self._check_letters(topic)
        if len(self._topics) + len(self._making) >= limits.TOPICS_MAX:
            raise Refused(f"this broker has {limits.TOPICS_MAX} topics, the limit")
        news.advised(topic)

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether there is such a partition, here or elsewhere, for a transaction.

        Raises:
            Refused: it is of a topic in shards.
        """
        try:
            topic = self.get(name)
            if partition >= topic.partitions:
                topic = self.newest(name)
        except TopicUnknown:
            return False
        return partition < topic.partitions

    def alter(self, name: str, changes: dict[str, Any]) -> Topic:
        """Change settings that may change; the others are refused."""
        with self._writing:
            return self._alter(name, changes)

    def _alter(self, name: str, changes: dict[str, Any]) -> Topic:
        topic = self.get(name)
        for field in changes:
            if field not in CHANGEABLE:
                known = field in topic.to_dict()
                limit = "fixed when the topic is made" if known else "a setting that can change: "
                raise BadRequest(
                    f"topic.{field}",
                    limit if known else limit + ", ".join(CHANGEABLE),
                    changes[field],
                )
        changed = replace(topic, **changes).check()
        if changed.partitions < topic.partitions:
            limit = f"at least {topic.partitions}, what it has: partitions are never taken away"
            raise BadRequest("topic.partitions", limit, changed.partitions)
        self._check_letters(changed)
        news.advised(changed)
        counts = self.counts(name)
        if changed.partitions > topic.partitions:
            counts += (changed.partitions,)
        return self._put(changed, counts)

    def _check_letters(self, topic: Topic) -> None:
        """Raise BadRequest if letters would have to travel between topics of another spread."""
        for one in (*self._topics.values(), *self._making.values()):
            letters = topic.dead_letter_name == one.name or one.dead_letter_name == topic.name
            if letters and one.spread != topic.spread:
                limit = f"that of {one.name}, with which it shares dead letters: {one.spread}"
                raise BadRequest("topic.spread", limit, topic.spread)

    def delete(self, name: str) -> None:
        """Take the first step: the topic is gone, its journals are not. Raises TopicUnknown."""
        with self._writing:
            self.get(name)
            topics = {known: topic for known, topic in self._topics.items() if known != name}
            counts = {known: counts for known, counts in self._counts.items() if known != name}
            self._store_all(topics, counts, (*self._leaving, name))

    def leaving(self) -> tuple[str, ...]:
        """Topics that were deleted, and whose journals have not been dropped yet."""
        return self._leaving

    def changing(self) -> tuple[str, ...]:
        """Topics that are being made or deleted."""
        return self._leaving

    def buried(self, name: str) -> None:
        """The second step: the journals of a deleted topic are dropped."""
        with self._writing:
            left = tuple(other for other in self._leaving if other != name)
            self._store_all(self._topics, self._counts, left)

    def _put(self, topic: Topic, counts: tuple[int, ...] = ()) -> Topic:
        all_counts = self._counts | {topic.name: counts} if len(counts) > 1 else self._counts
        self._store_all(self._topics | {topic.name: topic}, all_counts, self._leaving)
        return topic

    def _store_all(
        self,
        topics: dict[str, Topic],
        counts: dict[str, tuple[int, ...]],
        leaving: tuple[str, ...],
    ) -> None:
        text = json.dumps(
            {
                "version": FORMAT_VERSION,
                "topics": [topics[name].to_dict() for name in sorted(topics)],
                "partition_counts": {name: list(counts[name]) for name in sorted(counts)},
                "deleting": list(leaving),
            }
        )
        self._store.store_catalog(text)
        self._topics, self._counts, self._leaving = topics, counts, leaving
