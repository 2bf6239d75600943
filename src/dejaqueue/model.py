"""The words of the contract: topics, message states, row statuses, ids.

Room: vocabulary; pure.
Holds: an id packs to 63 bits and unpacks to what went in; row statuses keep their numbers for ever.
See: docs/reference/semantics.md.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from enum import IntEnum, StrEnum
from functools import cache
from typing import Any, NewType, TypeVar

from dejaqueue import limits
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.subscriptions import (
    Order,
    check_subscriptions,
    own_settings,
)
from dejaqueue.topic_names import check_topic_name, shard_name, subscription_name

Sequence = NewType("Sequence", int)
"""Number of a message within its partition, from 0, never reused."""
Position = NewType("Position", int)
"""Number of an entry within a partition's journal, from 1, dense."""
PartitionNo = NewType("PartitionNo", int)
"""Number of a partition within its topic, from 0."""
Epoch = NewType("Epoch", int)
"""Number of an ownership of a partition, rising: the fencing token."""
InstantMs = NewType("InstantMs", int)
"""An instant, UTC milliseconds since 1970."""
SpanMs = NewType("SpanMs", int)
"""A length of time in milliseconds."""


class TopicKind(StrEnum):
    """What decides the order of ready messages."""

    TIMELINE = "timeline"
    PRIORITY = "priority"
    FAIR = "fair"
    CRON = "cron"

    @property
    def is_by_time(self) -> bool:
        """True if what is due first comes first, so that it is known ahead what comes next."""
        return self in (TopicKind.TIMELINE, TopicKind.CRON)


class OnDuplicate(StrEnum):
    """What happens to a new message whose key a live message has (rule 11)."""

    REJECT = "reject"
    KEEP = "keep"
    REPLACE = "replace"


class Assignment(StrEnum):
    """How consumers share the partitions of a topic."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


class GroupOrder(StrEnum):
    """Which message of a group of a fair topic is first, when it is the group's turn, and whether
    priority decides about turns."""

    ARRIVAL = "arrival"
    PRIORITY = "priority"
    """Turns as ever; of a group the most urgent message."""
    PRIORITY_FIRST = "priority_first"
    """The most urgent messages of all groups, which take turns among them."""


class MessageState(IntEnum):
    """State of a message in the table (uint8). DONE covers acked, cancelled and never used."""

    DONE = 0
    SCHEDULED = 1
    """Waits for its time or, if that is over, for a consumer (then it is called ready)."""
    LEASED = 2
    DEAD = 3
    """On its way to the dead-letter topic."""
    STAGED = 4
    """Sent in a transaction that is not decided yet."""
    STAGED_ACK = 5
    """Acked in a transaction that is not decided yet."""


class ChangeKind(IntEnum):
    """What happened to a message, as its history says (int8). Numbers may change: files have the
    names, in lower case."""

    ENQUEUED = 0
    """It came in, or the transaction that sent it was committed."""
    STAGED = 1
    """It came in with a transaction that is not decided."""
    ABORTED = 2
    """The transaction that sent it was aborted."""
    MOVED = 3
    """It got another time, priority or group."""
    DELIVERED = 4
    """It was leased to a consumer for the first time."""
    REDELIVERED = 5
    """It was leased to a consumer again."""
    ACKED = 6
    NACKED = 7
    """Its consumer gave it back."""
    LAPSED = 8
    """Its lease ended before its consumer was done."""
    CANCELLED = 9
    DEAD = 10
    """It failed too often, or its consumer refused it."""
    EXPIRED = 11
    """Its time to live was over."""
    DEPARTED = 12
    """It left for another topic: a dead letter that was sent back."""
    GAP = 13
    """No message: what happened before this was not recorded."""


class RowStatus(IntEnum):
    """What happened to one row of a batch (uint8), in order of precedence."""

    OK = 0
    NOT_FOUND = 1
    """No live message of this id or key."""
    LEASED = 2
    """The message is leased: too late to move or cancel it (rule 9)."""
    LEASE_LOST = 3
    """The lease ended, or the message was leased again since (rule 4)."""
    DUPLICATE = 4
    """A live message has this key; its id is given (rule 11)."""
    KEPT = 5
    """A live message has this key and was kept; its id is given (rule 11). Not an error."""
    CHANGED = 6
    """The message is due at another time than `if_due` says: it stays as it is (rule 9)."""

    def __str__(self) -> str:
        """Its word, not its number, wherever it is shown; as JSON it is the number of the wire."""
        return self.name

    def __format__(self, spec: str) -> str:
        """As `__str__`; a number's spec (`d`) gives the number."""
        return format(int(self), spec) if spec.endswith("d") else format(self.name, spec)

    @property
    def ok(self) -> bool:
        """True if it is what was asked for: OK, or KEPT."""
        return self in (RowStatus.OK, RowStatus.KEPT)

    def raise_for_status(self) -> None:
        """Raise Refused if the row was refused; the text says why."""
        if not self.ok:
            raise Refused(f"the message was refused: {self.name}")


@dataclass(frozen=True, slots=True)
class TagFilter:
    """Which messages a consumer takes, by their tags; an empty tuple asks for nothing.

    Attributes:
        any_of: at least one of these.
        all_of: each of these.
        none_of: none of these.
    """

    any_of: tuple[str, ...] = ()
    all_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()


def pack_id(partition: int, sequence: int) -> int:
    """The id of a message: partition << 47 | sequence.

    >>> pack_id(1, 5)
    140737488355333
    """
    return partition << limits.SEQUENCE_BITS | sequence


def unpack_id(message_id: int) -> tuple[int, int]:
    """Partition and sequence of an id.

    >>> unpack_id(140737488355333)
    (1, 5)
    """
    return message_id >> limits.SEQUENCE_BITS, message_id & limits.SEQUENCE_MAX


_BOUNDS: dict[str, tuple[float, float]] = {
    "partitions": (1, limits.PARTITIONS_MAX),
    "spread": (1, limits.SPREAD_MAX),
    "lease_ms": (limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
    "lease_ahead_ms": (0, limits.LEASE_AHEAD_MS_MAX),
    "spike_ahead_ms": (0, limits.SPIKE_AHEAD_MS_MAX),
    "max_payload_bytes": (0, limits.STREAMED_BYTES_MAX),
    "max_delay_ms": (0, limits.INSTANT_MS_MAX),
    "max_backlog_count": (0, limits.SEQUENCE_MAX),
    "max_backlog_bytes": (0, 1 << 62),
    "retention_ms": (0, limits.INSTANT_MS_MAX),
    "retention_bytes": (0, 1 << 62),
    "cold_after_ms": (0, limits.INSTANT_MS_MAX),
    "producer_rate_max": (0, 1 << 31),
    "ageing_ms": (0, limits.LEASE_MS_MAX),
    "group_in_flight_max": (0, limits.CREDIT_MAX),
    "max_attempts": (0, limits.ATTEMPTS_MAX),
    "backoff_ms": (0, limits.BACKOFF_MS_MAX),
    "backoff_factor": (1, 100),
    "backoff_max_ms": (0, limits.BACKOFF_MS_MAX),
    "backoff_jitter": (0, 1),
}
_SWITCHES = ("paused", "auto_partitions", "history", "unnamed", "retention_keys", "group_runs")
_FRACTIONS = {"backoff_factor": (int, float), "backoff_jitter": (int, float)}
_Choice = TypeVar("_Choice", bound=StrEnum)


def _choice(kind: type[_Choice], name: str, value: Any) -> _Choice:
    """The value as a word of `kind`, or BadRequest."""
    try:
        return kind(value)
    except ValueError:
        raise BadRequest(f"topic.{name}", f"one of {', '.join(kind)}", value) from None


LEASE_AHEAD_MS = 25
"""By default; where appends take longer the journal says how long (`served_ahead`)."""
LEASE_MS_USUAL_MIN = 1_000
"""Shorter leases are allowed, and warned of."""
COLD_AFTER_MS_USUAL_MIN = 60_000
"""The same."""
DEAD_ENDING = ".dead"
"""How a dead-letter topic is called that was given no name."""


_KINDS = {
    Order.DUE: TopicKind.TIMELINE,
    Order.PRIORITY: TopicKind.PRIORITY,
    Order.GROUPS: TopicKind.FAIR,
    Order.ARRIVAL: TopicKind.TIMELINE,
}
_USUAL_ORDERS = {TopicKind.PRIORITY: Order.PRIORITY, TopicKind.FAIR: Order.GROUPS}


@dataclass(frozen=True, slots=True)
class Topic:
    """Settings of a topic. What can change later is what `CHANGEABLE` names.

    >>> Topic("reminders").lease_ms
    30000
    """

    name: str
    kind: TopicKind = TopicKind.TIMELINE
    """What decides the order of messages that are due."""
    partitions: int = 1
    """How many partitions; one gives a total order, several more throughput. Can be raised."""
    spread: int = 1
    """In a cluster: shards that its partitions are dealt to, each served by a broker of its own."""
    lease_ms: int = 30_000
    """How long a delivered message belongs to its consumer."""
    lease_ahead_ms: int = LEASE_AHEAD_MS
    """How long before its due time a message may be sent to a client, which holds it until then.
    25 is 1,000 where the journal is in a bucket."""
    spike_ahead_ms: int = 0
    """The same for seconds that hold more than a partition serves in them; 0 = no more than
    lease_ahead_ms. What a client holds can't be moved or cancelled any more."""
    max_payload_bytes: int = limits.PAYLOAD_BYTES_DEFAULT
    """Bytes of one payload at most."""
    max_delay_ms: int = 0
    """The furthest that a message may be due from now; 0 = no limit."""
    max_backlog_count: int = 0
    """Live messages at most; 0 = no limit (rule 14)."""
    max_backlog_bytes: int = 0
    """Payload bytes of live messages at most; 0 = no limit (rule 14)."""
    producer_rate_max: int = 0
    """Messages a second of one producer (by its name) at most; 0 = no limit."""
    ageing_ms: int = 0
    """Priority topics: waiting so long is worth one level of priority; 0 = no ageing."""
    weights: dict[str, int] = field(default_factory=dict)
    """Fair topics: share of each group that does not have 1."""
    group_in_flight_max: int = 0
    """Fair topics: leased messages of one group and partition at most; 0 = no limit."""
    group_runs: bool = False
    """Fair topics: True: a group gives its messages in runs: what one lease takes of it, and no
    more until none of that is leased; group_in_flight_max is then the longest run."""
    group_order: GroupOrder = GroupOrder.ARRIVAL
    """Fair topics: a group gives its messages as they came (arrival), or by priority;
    priority_first: the most urgent of all groups come first, which take turns among them."""
    max_attempts: int = 0
    """Deliveries after which a message that was not acked is dead; 0 = no limit. What was given
    back before anybody looked at it does not count, up to 127 times."""
    dead_letter: str = ""
    """Topic for dead messages; "" = the topic's name with `.dead` behind it, made when needed."""
    backoff_ms: int = 0
    """Wait before the second delivery of a message; 0 = none."""
    backoff_factor: float = 2.0
    """Each further wait is longer by this factor."""
    backoff_max_ms: int = 3_600_000
    """No wait is longer."""
    backoff_jitter: float = 0.2
    """Part of a wait, from 0 to 1, that is left away by chance: who failed together comes apart."""
    on_duplicate: OnDuplicate = OnDuplicate.REJECT
    """What happens to a new message whose key a live one has: reject, keep or replace."""
    assignment: Assignment = Assignment.SHARED
    """shared: any consumer gets messages of any partition; exclusive: a partition has one."""
    paused: bool = False
    """True: nothing is handed out; producers go on."""
    auto_partitions: bool = False
    """True: partitions are added when one instant gets hotter than one serves."""
    history: bool = False
    """True: what happens to each message is recorded in files (docs/guides/history.md)."""
    retention_ms: int = 0
    """How long messages are kept that every subscription is done with, from when they came in, so
    that they can be replayed (rule 21); 0 = not at all; where one of the next two is set: for
    ever."""
    retention_bytes: int = 0
    """Payload bytes of the newest messages, which are kept for replay; 0 = no limit."""
    retention_keys: bool = False
    """True: of what is kept for replay, only the newest message of each key is."""
    cold_after_ms: int = 0
    """Payloads of messages that are due later than this from now may leave the journal for the
    payload store; they are back before they are due (docs/guides/cold-payloads.md). An hour is
    usual; 0 = none leaves, and those that have come back."""
    unnamed: bool = True
    """False: the topic is no queue; messages are for its named subscriptions alone (rule 19)."""
    subscriptions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Named subscriptions, each with its settings (docs/guides/subscriptions.md)."""
    labels: dict[str, str] = field(default_factory=dict)
    """Texts that programs keep with the topic, by name; the broker only keeps them."""

    def check(self) -> Topic:
        """Return self, or raise BadRequest naming the field, the limit and the value."""
        check_topic_name(self.name)
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            is_number = isinstance(value, _FRACTIONS.get(name, int)) and value == value
            if not is_number or isinstance(value, bool) or not low <= value <= high:
                what = "number" if name in _FRACTIONS else "whole number"
                raise BadRequest(f"topic.{name}", f"a {what} from {low} to {high}", value)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise BadRequest(f"topic.{name}", "true or false", getattr(self, name))
        self._check_groups()
        self._check_labels()
        partitions = self._check_spread()
        if self.dead_letter == self.name:
            raise BadRequest("topic.dead_letter", "another topic", self.dead_letter)
        if self.dead_letter:
            check_topic_name(self.dead_letter, "topic.dead_letter")
        elif self.max_attempts:
            check_topic_name(self.dead_letter_name, "topic.dead_letter")
        if self.kind == TopicKind.CRON and not self.unnamed:
            raise BadRequest("topic.unnamed", "true for a cron topic", self.unnamed)
        return replace(
            self,
            subscriptions=self._checked_subscriptions(),
            partitions=partitions,
            kind=_choice(TopicKind, "kind", self.kind),
            group_order=_choice(GroupOrder, "group_order", self.group_order),
            on_duplicate=_choice(OnDuplicate, "on_duplicate", self.on_duplicate),
            assignment=_choice(Assignment, "assignment", self.assignment),
            backoff_factor=float(self.backoff_factor),
            backoff_jitter=float(self.backoff_jitter),
            weights=dict(self.weights),
            labels=dict(self.labels),
        )

    def _check_spread(self) -> int:
        """How many partitions there are: unless something else is said, one for each shard."""
        partitions = self.spread if self.partitions == 1 else self.partitions
        if partitions % self.spread:
            limit = f"a multiple of spread, which is {self.spread}"
            raise BadRequest("topic.partitions", limit, partitions)
        return partitions

    def _check_groups(self) -> None:
        if not isinstance(self.weights, dict) or len(self.weights) > limits.WEIGHTS_MAX:
            raise BadRequest(
                "topic.weights", f"at most {limits.WEIGHTS_MAX} groups and weights", self.weights
            )
        if self.group_runs and self.group_order == GroupOrder.PRIORITY_FIRST:
            limit = "false where group_order is priority_first"
            raise BadRequest("topic.group_runs", limit, self.group_runs)
        for group, weight in self.weights.items():
            if not isinstance(group, str) or len(group.encode()) > limits.GROUP_BYTES_MAX:
                raise BadRequest("topic.weights", "names of groups", group)
            is_number = isinstance(weight, int) and not isinstance(weight, bool)
            if not is_number or not 1 <= weight <= limits.WEIGHT_MAX:
                limit = f"whole numbers from 1 to {limits.WEIGHT_MAX}"
                raise BadRequest("topic.weights", limit, f"{group}: {weight}")

    def _checked_subscriptions(self) -> dict[str, dict[str, Any]]:
        """Subscriptions by name, each with its order and start."""
        usual = _USUAL_ORDERS.get(_choice(TopicKind, "kind", self.kind), Order.DUE)
        checked = check_subscriptions(self.subscriptions, usual)
        for name in checked:
            replace(self, subscriptions={}, **own_settings(checked[name])).check()
        return checked

    def subscribed(self, name: str) -> Topic:
        """The topic as one of its subscriptions sees it. The name must be in `subscriptions`."""
        values = self.subscriptions[name]
        own = own_settings(values)
        if "assignment" in own:
            own["assignment"] = Assignment(own["assignment"])
        if not own.get("dead_letter"):
            ending = f".{name}{DEAD_ENDING}"
            own["dead_letter"] = self.name[: limits.TOPIC_NAME_BYTES_MAX - len(ending)] + ending
        called, kind = subscription_name(self.name, name), _KINDS[Order(values["order"])]
        return replace(self, name=called, kind=kind, unnamed=True, subscriptions={}, **own)

    def _check_labels(self) -> None:
        limit = f"texts by name, {limits.LABELS_BYTES_MAX} bytes in all at most"
        if not isinstance(self.labels, dict):
            raise BadRequest("topic.labels", limit, self.labels)
        byte_count = 0
        for pair in self.labels.items():
            if not all(isinstance(text, str) and text.isprintable() for text in pair):
                raise BadRequest("topic.labels", f"{limit}, without control characters", pair)
            byte_count += sum(len(text.encode(errors="replace")) for text in pair)
        if byte_count > limits.LABELS_BYTES_MAX:
            raise BadRequest("topic.labels", limit, byte_count)

    @property
    def groups_stay_together(self) -> bool:
        """True if messages of one group (and no key) go to one partition, which keeps their order:
        where a group has a cap of leased messages or gives them in runs, or a partition one
        consumer."""
        is_capped = self.group_runs or self.group_in_flight_max > 0
        return is_capped or self.assignment is Assignment.EXCLUSIVE

    @property
    def retains(self) -> bool:
        """True if messages are kept that all are done with."""
        return bool(self.retention_ms or self.retention_bytes or self.retention_keys)

    @property
    def shards(self) -> tuple[str, ...]:
        """What is served apart: the topic, or each of its shards."""
        if self.spread == 1:
            return (self.name,)
        return tuple(shard_name(self.name, shard, self.spread) for shard in range(self.spread))

    @property
    def dead_letter_name(self) -> str:
        """The topic that dead messages go to; what makes its name too long is cut off."""
        room = limits.TOPIC_NAME_BYTES_MAX - len(DEAD_ENDING)
        return self.dead_letter or f"{self.name[:room]}{DEAD_ENDING}"

    def warnings(self) -> tuple[str, ...]:
        """What is allowed and seldom meant, as sentences; empty = nothing.

        >>> Topic("reminders", lease_ms=500).warnings()
        ('lease_ms is 500: a consumer that stops for a moment loses its messages to another one',)
        """
        texts = []
        if self.lease_ms < LEASE_MS_USUAL_MIN:
            text = "a consumer that stops for a moment loses its messages to another one"
            texts.append(f"lease_ms is {self.lease_ms}: {text}")
        if self.lease_ms < self.lease_ahead_ms:
            text = "a message that is sent ahead may be lost to another consumer before it is due"
            texts.append(
                f"lease_ms is {self.lease_ms}, under lease_ahead_ms, {self.lease_ahead_ms}: {text}"
            )
        if 0 < self.cold_after_ms < COLD_AFTER_MS_USUAL_MIN:
            text = "payloads go and come back for little, and may be late"
            texts.append(f"cold_after_ms is {self.cold_after_ms}: {text}")
        return tuple(texts)

    def served_ahead(self, ahead_ms: int) -> Topic:
        """As it is served where the default of `lease_ahead_ms` is this; 0 = the usual one.

        >>> Topic("reminders").served_ahead(1_000).lease_ahead_ms
        1000
        """
        if not ahead_ms or self.lease_ahead_ms != LEASE_AHEAD_MS:
            return self
        return replace(self, lease_ahead_ms=max(LEASE_AHEAD_MS, min(ahead_ms, self.lease_ms)))

    def settings(self) -> dict[str, Any]:
        """All settings as JSON values, whether they are the default or not."""
        return asdict(self) | {
            "kind": str(self.kind),
            "on_duplicate": str(self.on_duplicate),
            "assignment": str(self.assignment),
            "group_order": str(self.group_order),
        }

    def to_dict(self) -> dict[str, Any]:
        """As it is stored and sent: all settings, but for newer ones that are the default."""
        values = self.settings()
        # Brokers of earlier versions do not know these.
        retention = ("retention_ms", "retention_bytes", "retention_keys")
        for name in ("labels", "subscriptions", "cold_after_ms", "spike_ahead_ms", *retention):
            if not values[name]:
                del values[name]
        if self.unnamed:
            del values["unnamed"]
        if self.group_order is GroupOrder.ARRIVAL:
            del values["group_order"]
        if not self.group_runs:
            del values["group_runs"]
        return values

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Topic:
        """The checked topic of these settings; an unknown one is refused (rule 15)."""
        known = [setting.name for setting in fields(Topic)]
        if "name" not in values:
            raise BadRequest("topic.name", "a name", None)
        for name in values:
            if name not in known:
                raise no_setting(name, known, values[name])
        if values.get("partitions") == "auto":
            values = values | {"partitions": 1, "auto_partitions": True}
        return Topic(**values).check()

    @staticmethod
    def from_answer(values: dict[str, Any]) -> Topic:
        """The topic that a broker tells of; fields that only a newer broker knows are left out."""
        known = {setting.name for setting in fields(Topic)}
        return Topic.from_dict({name: v for name, v in values.items() if name in known})


def no_setting(name: str, known: Iterable[str], value: object) -> BadRequest:
    """What is said of a setting that a topic does not have; a slip of the finger is named."""
    import difflib  # here, as `dejaq --help` does without

    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return BadRequest(f"topic.{name}", f"one of {', '.join(names)}{meant}", value)


_FIXED = ("name", "kind", "ageing_ms", "group_order", "spread", "unnamed")
CHANGEABLE = tuple(setting.name for setting in fields(Topic) if setting.name not in _FIXED)
"""What `alter_topic` may change while messages flow."""


@cache
def topic_texts() -> dict[str, str]:
    """The text that stands below each setting of a topic in its class, by the setting's name."""
    (cls,) = ast.parse(inspect.getsource(Topic)).body
    assert isinstance(cls, ast.ClassDef)
    texts = {}
    for setting, text in zip(cls.body, cls.body[1:], strict=False):
        if isinstance(setting, ast.AnnAssign) and isinstance(setting.target, ast.Name):
            is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            texts[setting.target.id] = " ".join(str(text.value.value).split()) if is_text else ""  # type: ignore[attr-defined]
    return texts
