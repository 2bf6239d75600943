"""Changes of the catalogue: one entry of its journal each, as JSON.

    {"founded": {"id": …, "slots": …}}   the first of a cluster: which one it is
    {"made": {"name": …}}            a topic is there, with what differs from the defaults
    {"altered": {"name": …}}         it has these settings now; more partitions are among them
    {"used": name}                   its journals may be there: that they are missing is damage
    {"deleting": name}               it is gone for everybody; its journals are still there
    {"closed": [name, ids_from]}     nobody writes to them any more; all its ids are below that one
    {"closed": [name, ids_from, shard]}  the same of one shard of it, which is served apart
    {"closed": [name, ids_from, shard, decided]}  and what was decided there of transactions, of
                                     which somebody may not know: [name, commit, record] each
    {"deleted": name}                its journals are dropped: what is kept now is a tombstone

Room: catalogue; pure.
Holds: `from_bytes(to_bytes(change)) == change`; a setting that is left out has the default that it
had in FORMAT, so whoever changes a default raises FORMAT.
See: state.py for what they do; docs/reference/journal-format.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from dejaqueue.errors import JournalDamaged
from dejaqueue.model import Assignment, OnDuplicate, Topic, TopicKind

FORMAT = 1
"""Of the entries and of the snapshots."""

Decided: TypeAlias = tuple[str, bool, str]
"""A transaction's name, whether it was committed, and the record of its home: who takes part."""


@dataclass(frozen=True, slots=True)
class FoundedCluster:
    """The journals belong to this cluster. Nothing is before it.

    Attributes:
        id: drawn once.
        slots: into how many its topics are dealt, for life.
    """

    id: str
    slots: int

    @property
    def name(self) -> str:
        """Of no topic."""
        return "="


@dataclass(frozen=True, slots=True)
class MadeTopic:
    """A topic is there. Its number is the revision of this change.

    Attributes:
        start: of a cluster: the slot of its first shard.
    """

    topic: Topic
    start: int = 0

    @property
    def name(self) -> str:
        """Of the topic."""
        return self.topic.name


@dataclass(frozen=True, slots=True)
class AlteredTopic:
    """A topic has these settings now; perhaps more partitions."""

    topic: Topic

    @property
    def name(self) -> str:
        """Of the topic."""
        return self.topic.name


@dataclass(frozen=True, slots=True)
class UsedTopic:
    """The journals of a topic were let be made: somebody uses it for the first time."""

    name: str


@dataclass(frozen=True, slots=True)
class DeletingTopic:
    """A topic is gone for whoever asks; its journals are not."""

    name: str


@dataclass(frozen=True, slots=True)
class ClosedTopic:
    """Nobody writes to the journals of a topic that is being deleted.

    Attributes:
        ids_from: every sequence that one of its partitions gave is below this.
        shard: what is served apart of it, and closed; "" = all of it.
        decided: decisions of transactions whose home it was, and of which not everybody was told.
    """

    name: str
    ids_from: int
    shard: str = ""
    decided: tuple[Decided, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """The journals of a topic that was closed, or never used, are dropped."""

    name: str


Change = (
    FoundedCluster
    | MadeTopic
    | AlteredTopic
    | UsedTopic
    | DeletingTopic
    | ClosedTopic
    | DeletedTopic
)

_DEFAULTS = Topic("")
_SETTINGS = tuple((field.name, getattr(_DEFAULTS, field.name)) for field in fields(Topic))
_WORDS: dict[str, Callable[[str], Any]] = {
    "kind": TopicKind,
    "on_duplicate": OnDuplicate,
    "assignment": Assignment,
}
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def settings_of(topic: Topic) -> dict[str, Any]:
    """What differs from the defaults, as JSON values."""
    found = {}
    for name, default in _SETTINGS:
        value = getattr(topic, name)
        if value != default:
            found[name] = str(value) if name in _WORDS else value
    return found


def topic_from(values: dict[str, Any]) -> Topic:
    """The topic of `settings_of`: it was checked when it was made.

    Raises:
        TypeError, ValueError: it is not one.
    """
    words = {name: _WORDS[name](values[name]) for name in _WORDS if name in values}
    return Topic(**(values | words if words else values))


def to_bytes(change: Change) -> bytes:
    """As JSON."""
    values: dict[str, Any]
    match change:
        case FoundedCluster(cluster, slots):
            values = {"founded": {"id": cluster, "slots": slots}}
        case MadeTopic(topic, start):
            values = {"made": settings_of(topic) | ({"=start": start} if start else {})}
        case AlteredTopic(topic):
            values = {"altered": settings_of(topic)}
        case UsedTopic(name):
            values = {"used": name}
        case DeletingTopic(name):
            values = {"deleting": name}
        case ClosedTopic(name, ids_from, shard, ()):
            values = {"closed": [name, ids_from, *([shard] if shard else [])]}
        case ClosedTopic(name, ids_from, shard, decided):
            values = {"closed": [name, ids_from, shard, decided]}
        case DeletedTopic(name):
            values = {"deleted": name}
    return _ENCODER.encode(values).encode()


def from_bytes(text: bytes) -> Change:
    """The change of `to_bytes`. Raises JournalDamaged."""
    try:
        [(word, value)] = json.loads(text.decode()).items()
        return _READ[word](value)
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise JournalDamaged(f"a change of the catalogue: {wrong!r}") from wrong


def _made(values: dict[str, Any]) -> MadeTopic:
    start = int(values.pop("=start", 0))
    return MadeTopic(topic_from(values), start)


def _closed(values: list[Any]) -> ClosedTopic:
    name, ids_from = values[:2]
    shard = values[2] if len(values) > 2 else ""
    decided = decided_from(values[3]) if len(values) > 3 else ()
    return ClosedTopic(str(name), int(ids_from), str(shard), decided)


def decided_from(values: Iterable[Any]) -> tuple[Decided, ...]:
    """Decisions, of JSON values. Raises TypeError, ValueError."""
    return tuple((str(name), bool(commit), str(record)) for name, commit, record in values)


_READ: dict[str, Callable[[Any], Change]] = {
    "founded": lambda values: FoundedCluster(str(values["id"]), int(values["slots"])),
    "made": _made,
    "altered": lambda values: AlteredTopic(topic_from(values)),
    "used": lambda name: UsedTopic(str(name)),
    "deleting": lambda name: DeletingTopic(str(name)),
    "closed": _closed,
    "deleted": lambda name: DeletedTopic(str(name)),
}
