"""What clients did and saw, as a list of operations that `judge.py` judges.

Every operation has the time at which it was called and, if an answer came, the time of the answer.
No answer = unknown: it happened or it did not, and both must be taken as possible. Times are in µs
of one clock that no fault touches; where the broker's own clock matters, the name says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    """How an operation ended, as its caller knows it."""

    OK = "ok"
    REFUSED = "refused"
    """It did nothing, and never will."""
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Operation:
    """Called at a time, answered at a time, or never."""

    called_us: int
    answered_us: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    answered_broker_us: int = 0

    def answer(self, now_us: int, outcome: Outcome, broker_us: int | None = None) -> None:
        """The answer came; `broker_us` is the time by the broker's clock."""
        self.answered_us, self.outcome = now_us, outcome
        self.answered_broker_us = now_us if broker_us is None else broker_us


@dataclass(slots=True)
class Send(Operation):
    """One message that was sent.

    Attributes:
        token: its payload, which no other message of the history has.
        sender: the principal that sent it; "" = nobody.
        owner: whose messages alone it could replace; None = anybody's.
        id: what the broker gave it.
        told_id: if it was refused, the message that it was told of; -1 = none.
    """

    token: str = ""
    due_ms: int = 0
    key: str = ""
    group: str = ""
    priority: int = 32_768
    expires_ms: int = 0
    transaction: str = ""
    sender: str = ""
    owner: str | None = None
    id: int = -1
    told_id: int = -1


@dataclass(slots=True)
class Move(Operation):
    """A new due time for a message.

    Attributes:
        owner: whose messages alone it could reach; None = anybody's.
    """

    id: int = -1
    due_ms: int = 0
    owner: str | None = None


@dataclass(slots=True)
class Cancel(Operation):
    """A message was cancelled. `owner` is as of a Move.

    Attributes:
        key: it was named by this key, and not by its id.
        status: why it was refused, a RowStatus; -1 = not noted.
    """

    id: int = -1
    owner: str | None = None
    key: str = ""
    status: int = -1


@dataclass(slots=True)
class Look(Operation):
    """Somebody looked (peek) which message has a key.

    Attributes:
        id, token: of the message that was there; -1 = there was none.
    """

    key: str = ""
    id: int = -1
    token: str = ""


@dataclass(slots=True)
class Settle(Operation):
    """ack, nack or extend of one delivery.

    Attributes:
        op: `ack`, `nack` or `extend`.
        lease_end_ms: extend: the earliest end that an OK promises, by the broker's clock.
        staged: in a transaction: if that is aborted the message comes back, however worn out.
        status: why it was refused, a RowStatus; -1 = not noted.
    """

    op: str = "ack"
    staged: bool = False
    id: int = -1
    attempt: int = 0
    lease_end_ms: int = 0
    status: int = -1


@dataclass(slots=True)
class Decide(Operation):
    """A transaction was committed, or aborted."""

    transaction: str = ""
    commit: bool = True


@dataclass(slots=True)
class Seek(Operation):
    """A subscription went back to its beginning: what is done in it comes again (rule 21).

    Attributes:
        group: it was about messages of this group; None = about all.
        to_end: it went to the end instead: what was due is passed over.
        called_broker_us: when it was called, by the broker's clock.
    """

    group: str | None = None
    to_end: bool = False
    called_broker_us: int = 0

    def is_about(self, send: Send) -> bool:
        """Whether it was about this message."""
        return self.group in (None, send.group)


@dataclass(slots=True)
class Delivery:
    """One message that was handed over.

    Attributes:
        pushed_us: when the broker sent it; if that is not certain, the earliest it can have been.
        pushed_broker_us: the same by the broker's clock.
        handed_broker_us: when the application got it, by the broker's clock; -1 = it never did,
            because its consumer went away before.
        lease_end_ms: by the broker's clock.
        dispatch: which batch of its consumer it came in, and its place there.
        decided_ms: the earliest time, by the partition, at which it may have been leased.
        latest_us: if it is not certain when the broker sent it, the latest it can have been.
    """

    id: int
    token: str
    attempt: int
    due_ms: int
    pushed_us: int
    pushed_broker_us: int
    handed_broker_us: int
    lease_end_ms: int
    consumer: str
    partition: int = 0
    dispatch: tuple[int, int] = (0, 0)
    group: str = ""
    priority: int = 32_768
    decided_ms: int = 0
    latest_us: int = 0

    @property
    def surely_pushed_us(self) -> int:
        """By then the broker had sent it."""
        return max(self.latest_us, self.pushed_us)


@dataclass(slots=True)
class Letter:
    """A dead letter that was delivered.

    Attributes:
        id: of the letter; delivered again it has the same.
        token: its payload.
        reason, attempts, origin, origin_id, died_ms: what its headers say.
    """

    id: int
    token: str
    pushed_us: int
    reason: str
    attempts: int
    origin: str
    origin_id: int
    died_ms: int


@dataclass(slots=True)
class PutEntry(Operation):
    """A cron entry was put: it fires every `every_ms` from `start_ms` until before `end_ms`."""

    name: str = ""
    every_ms: int = 0
    start_ms: int = 0
    end_ms: int = 0
    misfire: str = "once"


@dataclass(slots=True)
class Firing:
    """A message that a cron entry made, as it was delivered."""

    id: int
    entry: str
    firing_ms: int
    pushed_us: int


@dataclass(slots=True)
class Away:
    """A consumer was closed or lost at this time: what it held may go to others from then on."""

    consumer: str
    at_us: int


@dataclass(slots=True)
class History:
    """All of it, in the order in which it was called.

    Attributes:
        kind: of the topic: what order is asked of it.
        max_attempts: of the topic; 0 = no limit.
        on_duplicate: of the topic.
        weights, group_in_flight_max, group_order: of the topic, if it is a fair one.
        drained: True if at the end everything due was given the chance to be delivered and acked.
        letters_read: somebody read the dead letters, to the end.
        is_one_of_several: other subscriptions have the same messages: what was cancelled may have
            been done here before.
        seeks: of this subscription; all that was ever sent is retained.
        begun_us: it was made by then, with messages that there were already; 0 = before all.
        keeps_keys: of what is retained with a key, the newest message alone is.
        healed_us, healed_broker_us: when the last fault was mended; 0 = not known.
    """

    kind: str = "timeline"
    max_attempts: int = 0
    on_duplicate: str = "reject"
    weights: dict[str, int] = field(default_factory=dict)
    group_in_flight_max: int = 0
    group_order: str = "arrival"
    drained: bool = False
    letters_read: bool = False
    is_one_of_several: bool = False
    begun_us: int = 0
    keeps_keys: bool = False
    healed_us: int = 0
    healed_broker_us: int = 0
    sends: list[Send] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    settles: list[Settle] = field(default_factory=list)
    decisions: list[Decide] = field(default_factory=list)
    seeks: list[Seek] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    aways: list[Away] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    entries: list[PutEntry] = field(default_factory=list)
    firings: list[Firing] = field(default_factory=list)
    _by_key: dict[str, list[Send]] = field(default_factory=dict)
    _keyed_count: int = -1

    def with_key(self, key: str) -> list[Send]:
        """All sends with a key."""
        if len(self.sends) != self._keyed_count:
            self._keyed_count = len(self.sends)
            self._by_key.clear()
            for send in self.sends:
                self._by_key.setdefault(send.key, []).append(send)
        return self._by_key.get(key, [])

    def text(self, message_id: int | None = None, token: str = "") -> str:
        """The history, or that of one message, a line for each operation."""
        rows: list[tuple[int, str]] = []
        for operations in (self.sends, self.moves, self.cancels, self.settles):
            for operation in operations:
                mine = getattr(operation, "token", 0) == token
                if mine or message_id in (None, operation.id):
                    rows.append((operation.called_us, repr(operation)))
        rows += [(d.pushed_us, repr(d)) for d in self.deliveries if message_id in (None, d.id)]
        rows += [(r.pushed_us, repr(r)) for r in self.letters if message_id in (None, r.origin_id)]
        if message_id is None:
            rows += [
                (one.called_us, repr(one)) for one in (*self.decisions, *self.seeks, *self.entries)
            ]
            rows += [(firing.pushed_us, repr(firing)) for firing in self.firings]
        return "\n".join(text for _, text in sorted(rows))
