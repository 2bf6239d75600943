"""The topic catalogue of a cluster: one fact for each topic, the same for all brokers.

    making → living → deleting → deleted (a tombstone)

Room: cluster. Any thread may call it: each topic is a fact of its own, and changes of different
topics do not wait for each other.
Holds: of two brokers that change a topic at once one wins and the other tries again on what it then
finds; journals of a topic that was deleted are never taken for those of one made later. A topic is
gone when its fact says so and never because a fact was not in an answer; an answer that is older
than what is known changes nothing. What is known of a topic is kept beside its journals as well.
See: broker/topic/catalogue.py, whose checks hold here too; checking.py; docs/adr/0024, 0027.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from dejaqueue.broker.topic.catalogue import Catalogue
from dejaqueue.clock import Clock, SteadyClock
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact
from dejaqueue.errors import (
    DejaQError,
    JournalDamaged,
    Refused,
    TopicUnknown,
    Unavailable,
)
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import Topic

PREFIX = "topics/"
TRIES = 16
GONE_MAX = 8
"""How many deleted topics of one name are remembered. When a maker is given up, its mark of
journals may still arrive, within a timeout or two of the server."""
TOMBSTONE_MS = 24 * 3_600_000
"""How long a deleted topic is named as such. A broker that heard nothing for half of that time
begins anew with what it then finds."""

log = logging.getLogger("dejaqueue.cluster")


class State(StrEnum):
    """What became of a topic."""

    MAKING = "making"
    LIVING = "living"
    DELETING = "deleting"
    DELETED = "deleted"


_ORDER = {state: place for place, state in enumerate(State)}
"""A topic never goes back from one to the one before."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A topic as the coordinator has it.

    Attributes:
        journals: what it is called in the store of journals; no other topic ever is.
        maker: while it is being made, the life of the broker that does so.
        waits: while it is being deleted, what is served apart of it and was not let go yet.
        edition: how often it was changed.
        gone: what topics of this name that were deleted were called in the store, the newest last.
        start: the slot of its first shard (placement.py).
    """

    topic: Topic
    counts: tuple[int, ...]
    journals: str
    revision: int
    state: State = State.LIVING
    maker: str = ""
    waits: tuple[str, ...] = ()
    edition: int = 0
    gone: tuple[str, ...] = ()
    start: int = 0

    @classmethod
    def of(cls, fact: Fact) -> Kept:
        """From a fact. Raises JournalDamaged."""
        try:
            values = json.loads(fact.value)
            return cls(
                Topic.from_dict(values["topic"]),
                tuple(values["counts"]),
                values["journals"],
                fact.revision,
                State(values.get("state", State.LIVING)),
                values.get("maker", ""),
                tuple(values.get("waits", ())),
                values.get("edition", 0),
                tuple(values.get("gone", ())),
                values["start"],
            )
        except (ValueError, KeyError, TypeError) as wrong:
            raise JournalDamaged(f"coordinator, fact {fact.key}: {wrong}") from wrong

    def to_bytes(self) -> bytes:
        """As a fact's value."""
        values: dict[str, Any] = {
            "state": str(self.state),
            "topic": self.topic.to_dict(),
            "counts": list(self.counts),
            "journals": self.journals,
            "edition": self.edition,
            "start": self.start,
        }
        if self.state is State.MAKING:
            values["maker"] = self.maker
        if self.state is State.DELETING:
            values["waits"] = list(self.waits)
        if self.gone:
            values["gone"] = list(self.gone)
        return json.dumps(values).encode()


class ClusterCatalogue(Catalogue):
    """All topics of the cluster, as this broker knows them.

    Args:
        store: of the journals, where what is known of each topic is kept beside them.
        clock: elapsed time.
        lock: of one read at a time; it is held while the coordinator is asked.

    Attributes:
        maker: the life of this broker, for what it makes.
        start_of: where the first shard of a new topic is to lie.
        version: grows whenever anything changed of what is known.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        store: JournalStore,
        clock: Clock | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._coordinator, self._store = coordinator, store
        self._clock: Clock = clock or SteadyClock()
        self._heard_us = 0
        self.maker = ""
        self.start_of: Callable[[Topic], int] = lambda topic: 0
        self.version = 0
        self._making: dict[str, Topic] = {}
        """What this broker is making just now."""
        self._kept: dict[str, Kept] = {}
        self._refreshing = lock or threading.Lock()
        self._is_news = False
        self._missing: frozenset[str] = frozenset()
        self._topics: dict[str, Topic] = {}
        self._counts: dict[str, tuple[int, ...]] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Read it again; True if it changed since this was last asked. Raises Unavailable."""
        self.read()
        changed, self._is_news = self._is_news, False
        return changed

    def read(self) -> None:
        """Read it again. Raises Unavailable."""
        with self._refreshing:  # an older answer must not replace a newer one
            began_us = self._clock.now_us()
            facts = self._coordinator.list(PREFIX)
            known = self._kept
            if began_us - self._heard_us > TOMBSTONE_MS * 500:
                known = {}  # tombstones of what was deleted meanwhile may have vanished
            self._heard_us = began_us
            kept = dict(known)
            for fact in facts:
                self._take(kept, fact)
            listed = {fact.key.removeprefix(PREFIX) for fact in facts}
            for name in [name for name in kept if name not in listed]:
                if kept[name].state is State.DELETED:
                    del kept[name]  # its tombstone has vanished
            self._tell_missing(frozenset(kept) - listed)
            self._adopt(kept)

    @staticmethod
    def _take(kept: dict[str, Kept], fact: Fact) -> None:
        """Know a fact, unless something newer is known."""
        name = fact.key.removeprefix(PREFIX)
        old = kept.get(name)
        if old is None or old.revision < fact.revision:
            kept[name] = _later(old, Kept.of(fact))

    def _tell_missing(self, missing: frozenset[str]) -> None:
        if missing - self._missing:
            text = "%d topics are not in what the coordinator lists, and nobody deleted them: %s"
            log.warning(text, len(missing), ", ".join(sorted(missing)[:10]))
        self._missing = missing

    def _adopt(self, kept: dict[str, Kept]) -> None:
        if kept == self._kept:
            return
        self._kept = kept
        self.version += 1
        living = {name: one for name, one in kept.items() if one.state is State.LIVING}
        self._counts = {name: one.counts for name, one in living.items()}
        self._topics = {name: one.topic for name, one in living.items()}
        self._is_news = True

    def ask(self, name: str) -> Kept | None:
        """What the coordinator knows of one topic now; None = nothing. Raises Unavailable."""
        with self._refreshing:
            found, known = self.look(name), self._kept.get(name)
            if known is not None and (found is None or found.revision < known.revision):
                found = _after_going_back(known, found)
            if found is not None:
                self._adopt(self._kept | {name: _later(known, found)})
            return self._kept.get(name)

    def look(self, name: str) -> Kept | None:
        """What the coordinator has of a topic, whatever is known here. Raises Unavailable."""
        fact = self._coordinator.get(PREFIX + name)
        return None if fact is None else Kept.of(fact)

    def all(self) -> list[Topic]:
        """Every topic, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def find(self, name: str) -> Topic | None:
        """The topic, None if there is none, as far as is known here."""
        return self._topics.get(name)

    @property
    def count(self) -> int:
        """How many topics there are, and are being made here."""
        return len(self._topics) + len(self._making)

    def by_name(self) -> Mapping[str, Topic]:
        """Every topic; does not change, a change makes another one."""
        return self._topics

    def counts(self, name: str) -> tuple[int, ...]:
        """How many partitions the topic had, one after the other; the last is its number now."""
        return self._counts.get(name, ()) or (self.get(name).partitions,)

    def get(self, name: str) -> Topic:
        """The topic of this name, or TopicUnknown: one that another broker made is asked for.

        Whoever made it there may come here before the bell has rung.
        """
        if name not in self._topics:
            self.ask(name)
        return super().get(name)

    def newest(self, name: str) -> Topic:
        """As `get`, as of now. Raises TopicUnknown, Unavailable."""
        self.ask(name)
        return super().get(name)

    def journals(self, name: str) -> str:
        """What the topic is called in the store of its journals."""
        found = self._kept.get(name)
        if found is None or found.state is not State.LIVING:
            raise TopicUnknown(name)
        return found.journals

    def words(self) -> set[str]:
        """What topics that are there, or come or go, are called in the store of journals."""
        return {one.journals for one in self._kept.values() if one.state is not State.DELETED}

    def placed(self) -> Mapping[str, Kept]:
        """Topics by name whose slot matters: those that are being deleted are let go by owners."""
        return {
            name: one
            for name, one in self._kept.items()
            if one.state in (State.LIVING, State.DELETING)
        }

    # --- changes --------------------------------------------------------------------------------

    def create(self, topic: Topic, *, exist_ok: bool) -> Topic:
        """Add a topic. With `exist_ok` an equal one is fine; a different one raises TopicExists.

        Raises:
            Unavailable: one of this name is being deleted, or made by another broker.
            Refused: there are journals of one that the coordinator has forgotten.
        """

        def add() -> Topic:
            self.check_settled(topic.name)
            known = self._exists(topic, exist_ok=exist_ok)
            if known is not None:
                return known
            self._check_new(topic)
            return self._add(topic)

        return self._again(add)

    def alter(self, name: str, changes: dict[str, Any]) -> Topic:
        """Change settings that may change; the others are refused."""

        def change() -> Topic:
            topic, counts = self._altered(name, changes), self.counts(name)
            if topic.partitions > counts[-1]:
                counts += (topic.partitions,)
            return self._put(topic, counts)

        return self._again(change)

    def _of_another_spread(self, topic: Topic) -> list[Topic]:
        """See Catalogue."""
        others = (*self._topics.values(), *self._making.values())
        return [one for one in others if one.spread != topic.spread]

    def _again(self, change: Callable[[], Topic]) -> Topic:
        for _ in range(TRIES):
            self.read()
            try:
                return change()
            except Conflict:
                continue
        raise Unavailable("others keep changing this topic", 100)

    def check_settled(self, name: str) -> None:
        """Raise Unavailable while a topic is being made or deleted, as far as is known here."""
        found = self._kept.get(name)
        if found is not None and found.state in (State.MAKING, State.DELETING):
            what = "made by another broker" if found.state is State.MAKING else "deleted"
            if found.waits:
                what += f": {', '.join(found.waits)} is not let go of yet"
            raise Unavailable(f"topic {name} is being {what}", 100)

    def _add(self, topic: Topic) -> Topic:
        """Note the name of the journals, let them be made, and only then say that it is there."""
        name, before = topic.name, self._kept.get(topic.name)
        self._check_free(name)
        journals = f"{name}.{secrets.token_hex(8)}"
        revision = 0 if before is None else before.revision
        gone = () if before is None else before.gone
        state = State.MAKING
        start = self.start_of(topic)
        kept = Kept(
            topic,
            (topic.partitions,),
            journals,
            revision,
            state,
            self.maker,
            gone=gone,
            start=start,
        )
        self._making[name] = topic
        try:
            made = self._write(kept)
            try:
                living = replace(made, state=State.LIVING)
                self._store.make(journals, living.to_bytes().decode())
                self._say_it_lives(living)
            except BaseException:
                with suppress(Conflict, DejaQError):  # else a round finds it
                    self._write(replace(made, state=State.DELETING))
                raise
        finally:
            self._making.pop(name, None)
        self.read()
        return topic

    def _say_it_lives(self, living: Kept) -> None:
        """The journals of what is being made are marked; another broker may have said so already.

        Raises Conflict, Unavailable.
        """
        try:
            self._write(living)
        except Conflict:  # by `finish` or `adopt`
            known = self.ask(living.topic.name)
            is_said = known is not None and known.journals == living.journals
            if known is None or not is_said or known.state is not State.LIVING:
                raise

    def _check_free(self, name: str) -> None:
        """Raise Refused if there are journals of a topic of this name, as when facts went back."""
        for journals, text in self._store.made(f"{name}.").items():
            if self.drop_again(name, journals):
                continue
            with suppress(JournalDamaged):
                if Kept.of(Fact("texts/" + journals, text.encode(), 0)).topic.name == name:
                    raise Refused(
                        f"there are journals of a topic {name} that the coordinator does not know: "
                        "see `dejaq cluster check`"
                    )

    def _put(self, topic: Topic, counts: tuple[int, ...]) -> Topic:
        known = self._kept[topic.name]
        changed = replace(known, topic=topic, counts=counts, edition=known.edition + 1)
        self._write(changed)
        self.note(changed)
        return topic

    def note(self, kept: Kept) -> None:
        """Keep what is known of a topic beside its journals."""
        try:
            self._store.note(kept.journals, kept.to_bytes().decode())
        except DejaQError as error:  # the change holds; the next check writes the note again
            log.warning("topic %s: not noted beside its journals: %s", kept.topic.name, error)

    def adopt(self, kept: Kept, instead: Kept | None) -> bool:
        """Have the coordinator know a topic as it was found beside its journals.

        Args:
            instead: of what the coordinator has now; None = of nothing.

        Returns:
            False: it has something else meanwhile.

        Raises:
            Unavailable.
        """
        name = kept.topic.name
        known = self._kept.get(name)
        if known is not None and known.journals == kept.journals and known.edition > kept.edition:
            kept = known
        try:
            stored = self._write(replace(kept, revision=0 if instead is None else instead.revision))
        except Conflict:
            return False
        with self._refreshing:
            self._adopt(self._kept | {name: stored})
        return True

    def _write(self, kept: Kept) -> Kept:
        """Change a fact that is as it is known. Raises Conflict, Unavailable."""
        key, ttl_ms = PREFIX + kept.topic.name, None
        if kept.state is State.DELETED:
            ttl_ms = TOMBSTONE_MS
        revision = self._coordinator.put(key, kept.to_bytes(), kept.revision, ttl_ms=ttl_ms)
        stored = replace(kept, revision=revision)
        with self._refreshing:
            known = self._kept.get(kept.topic.name)
            if known is None or known.revision < revision:
                self._adopt(self._kept | {kept.topic.name: stored})
        return stored

    def _change(self, name: str, change: Callable[[Kept], Kept | None]) -> None:
        """Change what is known of a topic; None = it needs no change. Raises Unavailable."""
        for _ in range(TRIES):
            found = self.ask(name)
            changed = None if found is None else change(found)
            if changed is None:
                return
            try:
                self._write(changed)
            except Conflict:
                continue
            return
        raise Unavailable("others keep changing this topic", 100)

    # --- the end of a topic ---------------------------------------------------------------------

    def delete(self, name: str) -> None:
        """Begin to delete a topic; fine if that was begun. Raises TopicUnknown, Unavailable."""

        def begin(found: Kept) -> Kept | None:
            if found.state is State.DELETED:
                raise TopicUnknown(name)
            if found.state is State.DELETING:
                return None
            waits = found.topic.shards if found.state is State.LIVING else ()
            return replace(found, state=State.DELETING, waits=waits)

        if self.ask(name) is None:
            raise TopicUnknown(name)
        self._change(name, begin)

    def leaving(self) -> tuple[str, ...]:
        """Topics that are being deleted."""
        return tuple(n for n, one in self._kept.items() if one.state is State.DELETING)

    def changing(self) -> tuple[str, ...]:
        """Topics that are being made or deleted."""
        found = [n for n, one in self._kept.items() if one.state in (State.MAKING, State.DELETING)]
        return tuple(found)

    def kept(self, name: str) -> Kept | None:
        """A topic, whatever became of it; None = nothing is known of it."""
        return self._kept.get(name)

    def let_go(self, name: str, shard: str) -> None:
        """The owner of a topic that is being deleted, or of a shard, does not serve it any more."""

        def without(found: Kept) -> Kept | None:
            if found.state is not State.DELETING or shard not in found.waits:
                return None
            return replace(found, waits=tuple(one for one in found.waits if one != shard))

        self._change(name, without)

    def bury(self, kept: Kept) -> None:
        """Drop the journals of a deleted topic that everybody has let go of. Raises Unavailable."""
        self._store.drop(kept.journals)
        self.buried(kept.topic.name)

    def buried(self, name: str) -> None:
        """The journals of a deleted topic are dropped: leave a tombstone."""

        def gone(found: Kept) -> Kept | None:
            if found.state is not State.DELETING or found.waits:
                return None
            gone = (*found.gone, found.journals)[-GONE_MAX:]
            return replace(found, state=State.DELETED, gone=gone)

        self._change(name, gone)

    def drop_again(self, name: str, journals: str) -> bool:
        """Drop journals that were dropped with their topic, and are there; False if they were not.

        A broker that slept while it made a topic, or whose call was late, marks journals as made
        when others have given it up, and deleted what it began. Raises Unavailable.
        """
        known = self._kept.get(name)
        if known is None or journals not in known.gone:
            return False
        log.warning("journals %s came back after their topic was deleted: dropped again", journals)
        self._store.drop(journals)
        return True

    def abandoned(self, living: Collection[str]) -> tuple[str, ...]:
        """Topics that somebody began to make and does not: their makers are none of these lives."""
        return tuple(name for name, one in self._kept.items() if self._is_left(one, living))

    def finish(self, name: str, living: Collection[str]) -> None:
        """Have an abandoned topic live if its journals are marked as made, and delete it otherwise.

        A maker whose fact says *making* may have been told that the topic lives, and messages may
        have been acknowledged: a coordinator that was restored from a copy of that moment says so
        again. Raises Unavailable.
        """

        def end(found: Kept) -> Kept | None:
            if not self._is_left(found, living):
                return None
            text = self._store.made(found.journals).get(found.journals)
            if text is None:
                return replace(found, state=State.DELETING)
            return replace(_as_noted(found, text), state=State.LIVING, revision=found.revision)

        self._change(name, end)

    def _is_left(self, found: Kept, living: Collection[str]) -> bool:
        if found.state is not State.MAKING or found.topic.name in self._making:
            return False
        return found.maker == self.maker or found.maker not in living


def _as_noted(found: Kept, text: str) -> Kept:
    """A topic as it is noted beside its journals; without a note that is its own, as found."""
    with suppress(JournalDamaged):
        noted = Kept.of(Fact("texts/" + found.journals, text.encode(), 0))
        if noted.journals == found.journals:
            return noted
    return found


def _after_going_back(known: Kept, found: Kept | None) -> Kept:
    """A coordinator was restored from an older copy: what is known here holds, and is written over
    what it has now."""
    if found is None:
        return replace(known, revision=0) if known.state is State.LIVING else known
    return found if found.journals == known.journals else known


def _later(known: Kept | None, found: Kept) -> Kept:
    """What was found, or, if it is older, what is known: to be written over what was found."""
    if known is None or known.journals != found.journals:
        return found
    is_older = (_ORDER[found.state], found.edition) < (_ORDER[known.state], known.edition)
    return replace(known, revision=found.revision) if is_older else found
