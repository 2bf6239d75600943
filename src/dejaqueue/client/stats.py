"""What `stats()` gives: the numbers of a broker, its topics, their partitions and consumers.

Room: client. Values only; the wire has them as JSON.
Holds: a name without a unit is a count of messages; what a newer broker says besides is left out,
what an older one does not say is 0 (or -1, where 0 would say something).
See: docs/reference/metrics.md, Stats, which is compared with this (tests/docs/test_pages.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Self


@cache
def _names(kind: type[_Figures]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


@dataclass(frozen=True, slots=True)
class _Figures(Mapping[str, Any]):
    """Numbers by name: attributes, and `figures["acked"]` for a name that is only known later."""

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> Self:
        """Those of the broker's answer that are known here."""
        known = {name: answer[name] for name in _names(cls) if name in answer}
        return cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in known.items()})

    def __getitem__(self, name: str) -> Any:
        if name not in _names(type(self)):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(_names(type(self)))

    def __len__(self) -> int:
        return len(_names(type(self)))

    def to_dict(self) -> dict[str, Any]:
        """All of it as values of JSON."""
        return {name: _plain(value) for name, value in self.items()}


def _plain(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    return [one.to_dict() if isinstance(one, _Figures) else one for one in value]


@dataclass(frozen=True, slots=True)
class ConsumerStats(_Figures):
    """One consumer of a topic.

    Attributes:
        consumer: the name it gave itself, or a number.
        credit: messages it can take more, now; 0 for long: it is busy.
        delivered: messages sent to it.
        settled: of these acked or given back.
        leases: it holds now.
        lease_ahead_ms: how far ahead messages are leased to it, milliseconds; 0 = not at all.
        clock_offset_us: the broker's clock less the client's, microseconds.
        clock_uncertainty_us: it is right within this, microseconds; -1 = not known yet.
        shard: of a topic with a spread: which shard this stream is of; -1 = it has none.
        tags_any, tags_all, tags_none: what it takes; empty = anything.
    """

    consumer: str = ""
    credit: int = 0
    delivered: int = 0
    settled: int = 0
    leases: int = 0
    lease_ahead_ms: int = 0
    clock_offset_us: int = 0
    clock_uncertainty_us: int = -1
    shard: int = -1
    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Counts(_Figures):
    """What a topic and each of its partitions count.

    Attributes:
        scheduled: wait now, due or not.
        leased: with consumers now.
        ready: scheduled and due now, up to a million.
        enqueued: came in.
        delivered: deliveries.
        redelivered: deliveries that were not the first of their message.
        acked, nacked, extended: consumers did so.
        moved, cancelled: producers did so.
        expired: deliveries whose lease ended without an ack.
        outlived: died because their own time was over.
        dead: on their way to the dead-letter topic now.
        buried: arrived there.
        staged, staged_acks: in transactions that are not decided, now.
        aborted: of transactions that were aborted.
        relocated, copied_rows: stored rows that compaction copied forward.
        replayed: were done, and came back by a seek.
        retained: are kept though every subscription may be done with them, now; retained_bytes:
            of their payloads, about.
        times_set: how often the time of a partition was put right.
        journal_bytes: of the journal on its storage now, snapshots left out; bytes.
        inbox_bytes: of batches that wait to be written now; bytes.
        appends, entries: syncs of the journal, and entries they made durable, since the start.
        append_us: spent in them, microseconds.
        snapshots: since the start.
        due_within_1s, due_within_10s, due_within_1m, due_within_10m, due_within_1h: scheduled
            messages that fall due within that time; a little too high after moves and cancels.
        next_due_ms: when the next message is due, UTC milliseconds; -1 = none waits.
        retained_from_ms: when the oldest that is retained came in, UTC milliseconds, a little
            early; -1 = none is.
    """

    scheduled: int = 0
    leased: int = 0
    ready: int = 0
    enqueued: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    extended: int = 0
    moved: int = 0
    cancelled: int = 0
    expired: int = 0
    outlived: int = 0
    dead: int = 0
    buried: int = 0
    staged: int = 0
    staged_acks: int = 0
    aborted: int = 0
    relocated: int = 0
    copied_rows: int = 0
    replayed: int = 0
    retained: int = 0
    retained_bytes: int = 0
    times_set: int = 0
    journal_bytes: int = 0
    inbox_bytes: int = 0
    appends: int = 0
    entries: int = 0
    append_us: int = 0
    snapshots: int = 0
    due_within_1s: int = 0
    due_within_10s: int = 0
    due_within_1m: int = 0
    due_within_10m: int = 0
    due_within_1h: int = 0
    next_due_ms: int = -1
    retained_from_ms: int = -1


@dataclass(frozen=True, slots=True)
class PartitionStats(_Counts):
    """One partition of a topic.

    Attributes:
        position: of the journal's last entry.
        ahead_ms: how far its time is ahead of the broker's clock, so that it stands still;
            milliseconds.
        set_by_ms: by how much its time was too far when it was put right last, milliseconds.
        overdue_ms: for how long the message has been due that waits first; 0 = none is due.
        lateness_max_us: the most that a delivery of the last five minutes was late, microseconds;
            -1 = there was none.
        credit: how many messages its consumers can take more: all of the topic, or of an exclusive
            one its own.
    """

    position: int = 0
    ahead_ms: int = 0
    set_by_ms: int = 0
    overdue_ms: int = 0
    lateness_max_us: int = -1
    credit: int = 0


@dataclass(frozen=True, slots=True)
class TopicStats(_Counts):
    """One topic: sums over its partitions, and each partition's own.

    Attributes:
        topic: its name.
        enqueued_per_s, acked_per_s: how many came in, and were acked, a second, over the last
            twenty to thirty seconds, or since the topic is served.
        acked_per_s_most: in the best ten seconds of the last hour.
        enqueued_10s, acked_10s: how many in each ten seconds of the last five minutes, the oldest
            first; less, if it is not served for so long.
        lateness_p99_us: 99 of 100 deliveries of the last five minutes were pushed at most so
            late; microseconds, the upper end of a bucket of its histogram; -1 = there were none.
        consumers: which it has now.
        partitions: by their numbers.
    """

    topic: str = ""
    enqueued_per_s: float = 0.0
    acked_per_s: float = 0.0
    acked_per_s_most: float = 0.0
    enqueued_10s: tuple[int, ...] = ()
    acked_10s: tuple[int, ...] = ()
    lateness_p99_us: int = -1
    consumers: tuple[ConsumerStats, ...] = ()
    partitions: tuple[PartitionStats, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """All of it as values of JSON; the topic's name is the first one."""
        return {"topic": self.topic} | super(TopicStats, self).to_dict()

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> Self:
        """Those of the broker's answer that are known here."""
        inner: dict[str, Any] = {
            "consumers": tuple(map(ConsumerStats.from_answer, answer.get("consumers", ()))),
            "partitions": tuple(map(PartitionStats.from_answer, answer.get("partitions", ()))),
            "enqueued_10s": tuple(answer.get("enqueued_10s", ())),
            "acked_10s": tuple(answer.get("acked_10s", ())),
        }
        return super(TopicStats, cls).from_answer({**answer, **inner})


@dataclass(frozen=True, slots=True)
class QuotaRefusals(_Figures):
    """What a principal was refused by one of its quotas in the last five minutes.

    Attributes:
        principal: the name of its API key, or its address.
        quota: a setting of the group `quotas`.
        limit: what it was.
        count: how often.
        last_ms: when last, UTC milliseconds.
        node: the broker that refused; "" = the one that was asked, which is alone.
    """

    principal: str = ""
    quota: str = ""
    limit: int = 0
    count: int = 0
    last_ms: int = 0
    node: str = ""


@dataclass(frozen=True, slots=True)
class BrokerStats(_Figures):
    """A broker; of a cluster all topics, whoever serves them.

    Attributes:
        uptime_ms: since the broker that was asked started, milliseconds.
        topics: the numbers of each topic, by name.
        silent: nodes of the cluster that did not answer in time.
        refused_lately: who was refused what by a quota; told to whoever may look at the broker.
    """

    uptime_ms: int = 0
    topics: Mapping[str, TopicStats] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    refused_lately: tuple[QuotaRefusals, ...] = ()

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> Self:
        """Those of the broker's answer that are known here."""
        told = answer.get("topics", {})
        topics = {name: TopicStats.from_answer(numbers) for name, numbers in told.items()}
        refused = tuple(map(QuotaRefusals.from_answer, answer.get("refused_lately", ())))
        silent = tuple(answer.get("silent", ()))
        return cls(answer.get("uptime_ms", 0), topics, silent, refused)

    def to_dict(self) -> dict[str, Any]:
        """All of it as values of JSON."""
        topics = {name: numbers.to_dict() for name, numbers in self.topics.items()}
        return {
            "uptime_ms": self.uptime_ms,
            "refused_lately": [one.to_dict() for one in self.refused_lately],
            "topics": topics,
            "silent": list(self.silent),
        }
