"""The topic catalogue of a cluster: one fact for each topic, the same for all brokers.

Room: cluster. Changes are made under the broker's lock; `refresh` may be called from any thread.
Holds: of two brokers that change a topic at once one wins and the other tries again on what it then
finds; journals of a topic that was deleted are never taken for those of one made later.
See: broker/topics.py, whose checks hold here too.
"""

from __future__ import annotations

import json
import secrets
import threading
from dataclasses import dataclass
from typing import Any

from dejaqueue.broker.topics import Catalogue
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact
from dejaqueue.errors import JournalDamaged, TopicUnknown, Unavailable
from dejaqueue.model import Topic

PREFIX = "topics/"
TRIES = 16


@dataclass(frozen=True, slots=True)
class _Kept:
    """A topic as the coordinator has it.

    Attributes:
        journals: what it is called in the store of journals.
    """

    topic: Topic
    counts: tuple[int, ...]
    journals: str
    revision: int

    @classmethod
    def of(cls, fact: Fact) -> _Kept:
        try:
            values = json.loads(fact.value)
            topic = Topic.from_dict(values["topic"])
            return cls(topic, tuple(values["counts"]), values["journals"], fact.revision)
        except (ValueError, KeyError, TypeError) as wrong:
            raise JournalDamaged(f"coordinator, fact {fact.key}: {wrong}") from wrong

    def to_bytes(self) -> bytes:
        values = {
            "topic": self.topic.to_dict(),
            "counts": list(self.counts),
            "journals": self.journals,
        }
        return json.dumps(values).encode()


class ClusterCatalogue(Catalogue):
    """All topics of the cluster, as this broker knows them."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._kept: dict[str, _Kept] = {}
        self._refreshing, self._asking = threading.Lock(), threading.Lock()
        self._begun = self._finished = 0
        """Number of the last list that began, and of the last that was answered."""
        self._is_news = False
        self._topics: dict[str, Topic] = {}
        self._counts: dict[str, tuple[int, ...]] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Read it again; True if it changed since this was last asked. Raises Unavailable."""
        self._read()
        changed, self._is_news = self._is_news, False
        return changed

    def _read(self) -> None:
        with self._refreshing:  # an older answer must not replace a newer one
            self._begun += 1
            number = self._begun
            facts = self._coordinator.list(PREFIX)
            known = self._kept
            kept: dict[str, _Kept] = {}
            for fact in facts:
                name = fact.key.removeprefix(PREFIX)
                old = known.get(name)
                same = old is not None and old.revision == fact.revision
                kept[name] = old if same and old is not None else _Kept.of(fact)
            if kept != known:
                self._adopt(kept)
                self._is_news = True
            self._finished = number

    def _adopt(self, kept: dict[str, _Kept]) -> None:
        self._kept = kept
        self._counts = {name: one.counts for name, one in kept.items()}
        self._topics = {name: one.topic for name, one in kept.items()}

    def get(self, name: str) -> Topic:
        """The topic of this name, or TopicUnknown: one that another broker made is asked for.

        Whoever made it there may come here before the bell has rung.
        """
        if name not in self._topics:
            begun = self._begun
            with self._asking:  # several ask at once; one answer that was asked for later will do
                if self._finished <= begun:
                    self._read()
        return super().get(name)

    def journals(self, name: str) -> str:
        """What the topic is called in the store of its journals."""
        found = self._kept.get(name)
        if found is None:
            raise TopicUnknown(name)
        return found.journals

    def create(self, topic: Topic, *, exist_ok: bool) -> Topic:
        """Add a topic. With `exist_ok` an equal one is fine; a different one raises TopicExists."""
        return self._again(lambda: super(ClusterCatalogue, self).create(topic, exist_ok=exist_ok))

    def alter(self, name: str, changes: dict[str, Any]) -> Topic:
        """Change settings that may change; the others are refused."""
        return self._again(lambda: super(ClusterCatalogue, self).alter(name, changes))

    def _again(self, change: Any) -> Topic:
        for _ in range(TRIES):
            self._read()
            try:
                changed: Topic = change()
            except Conflict:
                continue
            return changed
        raise Unavailable("others keep changing this topic", 100)

    def delete(self, name: str) -> None:
        """Forget a topic, or raise TopicUnknown."""
        for _ in range(TRIES):
            self._read()
            self.get(name)
            try:
                self._coordinator.delete(PREFIX + name, self._kept[name].revision)
            except Conflict:
                continue
            self._read()
            return
        raise Unavailable("others keep changing this topic", 100)

    def _put(self, topic: Topic, counts: tuple[int, ...] = ()) -> Topic:
        known = self._kept.get(topic.name)
        if known is None:
            journals = f"{topic.name}.{secrets.token_hex(4)}"
            kept = _Kept(topic, counts or (topic.partitions,), journals, 0)
        else:
            kept = _Kept(topic, counts or known.counts, known.journals, known.revision)
        self._coordinator.put(PREFIX + topic.name, kept.to_bytes(), kept.revision)
        self._read()
        return topic
