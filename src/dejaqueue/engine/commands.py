"""The commands of a partition: what goes into the engine, and into the journal, as columns.

Room: engine; pure. Commands carry every time, id and decision, so that replay needs nothing else.
Holds: arrays of one command have one length; `now_ms` never falls from command to command, but
    for SetTime.
See: apply.py for what each does; broker/shard/entries.py for their form in the journal.

Arrays are numpy, never copied by the engine when it can help it, and never changed by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from dejaqueue.engine.arrays import Int64s, UInt16s, UInt32s, Words
from dejaqueue.engine.message_filter import Selection
from dejaqueue.model import TagFilter

NO_LEASE = -1
"""`lease_id` of a command that names its rows itself."""


@dataclass(frozen=True, slots=True)
class SubBatch:
    """One producer's batch within an Enqueue: group commit joins many into one command.

    Attributes:
        producer: the producer's name; "" = not idempotent, its answer is not remembered.
        number: the producer's number of this batch.
        count: rows of it that were accepted, and so are in the command.
        refused_indices: places in the batch, as it was sent, of the rows that were refused.
        refused_ids: for each of them the id that the reply gives (of the live message).
        refused_statuses: for each of them its RowStatus.
        strays: in a topic that grew: rows of the whole batch that are here though their home is
            another partition, and those that are not though it is this one; ascending.
    """

    producer: str
    number: int
    count: int
    refused_indices: tuple[int, ...] = ()
    refused_ids: tuple[int, ...] = ()
    refused_statuses: tuple[int, ...] = ()
    strays: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """The transaction that an Enqueue or an Ack belongs to: it counts once that is committed.

    Attributes:
        transaction: its name.
        until_ms: when its home is asked what became of it, if nobody said so before.
    """

    transaction: str
    until_ms: int


class Firing(NamedTuple):
    """A cron entry is fired, or its time passes without a message.

    Attributes:
        name: of the entry; one that is gone is ignored.
        next_ms: the time that it fires for next, -1 = never again.
        wake_ms: when that is to be seen to, -1 = never.
        row: its last message in this command, -1 = it made none.
    """

    name: str
    next_ms: int
    wake_ms: int
    row: int


@dataclass(frozen=True, slots=True)
class Enqueue:
    """New messages, stored as rows 0…n-1 of the journal entry at `position`.

    Attributes:
        dues_ms: not before these times.
        key_hashes: `keys.hash_keys` of each key, 0 where there is none; None = no row has a key.
        payload_bytes: payload bytes of all rows together, for the backlog's limit.
        priorities: 0 is most urgent; None = the default for all.
        groups: group of each row; None = "" for all.
        tags: tags of each row, packed (schema/packing.py); None = none for all.
        expires_ms: when each row dies if it is not done, 0 = never; None = never for all.
        replaced: sequences of live messages that go in the same step (rule 11).
        stage: the transaction it belongs to; None = at once.
        firings: cron entries that this fires.
        payload_sizes: bytes of each payload, where the topic limits them; None = not noted.
        senders: who sent each row, "" = nobody (words.of_runs makes it); None = nobody sent any.
    """

    now_ms: int
    position: int
    dues_ms: Int64s
    sub_batches: tuple[SubBatch, ...]
    key_hashes: Int64s | None = None
    payload_bytes: int = 0
    priorities: UInt16s | None = None
    groups: Words | None = None
    tags: Words | None = None
    expires_ms: Int64s | None = None
    replaced: Int64s | None = None
    stage: Stage | None = None
    firings: tuple[Firing, ...] = ()
    payload_sizes: UInt32s | None = None
    senders: Words | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease up to `count` messages due at `until_ms` or earlier, in order (rule 7).

    `lease_id` is the position of the journal entry. `count_expected` is -1 when the command is new;
    at replay it is how many were leased, and a different outcome raises InternalError. Only a
    timeline leases ahead: for other kinds `until_ms` = `now_ms`.

    Attributes:
        filter: only messages with such tags; None = all.
    """

    now_ms: int
    lease_id: int
    until_ms: int
    count: int
    lease_end_ms: int
    count_expected: int = -1
    filter: TagFilter | None = None


@dataclass(frozen=True, slots=True)
class Ack:
    """These messages are done. Either a whole lease, or rows by (sequence, attempt).

    Attributes:
        stage: the transaction it belongs to: until that is decided the messages are nobody's.
    """

    now_ms: int
    lease_id: int = NO_LEASE
    sequences: Int64s | None = None
    attempts: UInt16s | None = None
    stage: Stage | None = None


@dataclass(frozen=True, slots=True)
class Nack:
    """These messages come back at `due_ms`, or (-1) when the backoff says, or die if they were
    delivered often enough. Rows are named as in Ack.

    Attributes:
        reason: why, for the dead letter.
        bury: they die now, however often they were delivered.
        release: this delivery does not count: nobody looked at them.
    """

    now_ms: int
    due_ms: int
    lease_id: int = NO_LEASE
    sequences: Int64s | None = None
    attempts: UInt16s | None = None
    reason: str = ""
    bury: bool = False
    release: bool = False


@dataclass(frozen=True, slots=True)
class Extend:
    """The lease of these messages ends at `lease_end_ms` instead. Rows are named as in Ack."""

    now_ms: int
    lease_end_ms: int
    lease_id: int = NO_LEASE
    sequences: Int64s | None = None
    attempts: UInt16s | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """These scheduled messages get other times, priorities or groups (rule 9). Of a sequence named
    twice, the last row decides. A sequence of -1 (a key that was not found) gives NOT_FOUND.

    Attributes:
        dues_ms, priorities, groups: what changes; None = stays.
    """

    now_ms: int
    sequences: Int64s
    dues_ms: Int64s | None = None
    priorities: UInt16s | None = None
    groups: Words | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """These scheduled messages are gone (rules 6, 9). Of a sequence named twice, the first row
    gives OK and the others NOT_FOUND. A sequence of -1 gives NOT_FOUND."""

    now_ms: int
    sequences: Int64s


@dataclass(frozen=True, slots=True)
class Relocate:
    """The stored rows of these messages were copied to rows 0…n-1 of the entry at `position`.

    Rows of messages that are done by now are ignored (the copy is freed at once).
    """

    now_ms: int
    position: int
    sequences: Int64s


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """A new owner begins. The first entry of every ownership; fences the one before."""

    now_ms: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Configure:
    """The topic's settings that decide what the engine does, as JSON of `rules.Rules`."""

    now_ms: int
    rules: str


@dataclass(frozen=True, slots=True)
class Decide:
    """A transaction is committed: what was staged counts; or aborted: it never was.

    Unknown transactions are ignored: they were decided before.
    """

    now_ms: int
    transaction: str
    commit: bool


@dataclass(frozen=True, slots=True)
class Remember:
    """A transaction whose home is here is decided so; `commit` None = all know it, forget it."""

    now_ms: int
    transaction: str
    commit: bool | None
    participants: str = ""
    """The partitions that have to be told; read by the coordinator of the transaction alone."""


@dataclass(frozen=True, slots=True)
class Bury:
    """The dead messages of this group arrived in their dead-letter topic, and are gone here."""

    now_ms: int
    group: int


@dataclass(frozen=True, slots=True)
class Depart:
    """These scheduled messages leave for another topic: here they are dead until they are buried.

    Statuses are those of Cancel.

    Attributes:
        destination: the topic they go to.
    """

    now_ms: int
    sequences: Int64s
    destination: str


@dataclass(frozen=True, slots=True)
class PutEntries:
    """Cron entries are made or changed.

    Attributes:
        entries: of each its name; what the broker knows of it, JSON, not looked into; the time
            that it fires for next, -1 = never; when that is to be seen to, -1 = never.
    """

    now_ms: int
    entries: tuple[tuple[str, str, int, int], ...]


@dataclass(frozen=True, slots=True)
class DropEntries:
    """Cron entries are gone; NOT_FOUND for those that never were."""

    now_ms: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetTime:
    """The owner's clock was put right: it is `now_ms`, which may be before the last command.

    What was given by the owner counts elapsed time, and keeps what is left of it: ends of leases,
    delays of retries, the time of transactions. What somebody asked for stays: due times, the ends
    of messages' lives, the times of cron entries.

    Attributes:
        by_ms: how much too far the time was; less than 0 if it was behind.
    """

    now_ms: int
    by_ms: int


@dataclass(frozen=True, slots=True)
class OpenView:
    """A named view begins (views.py).

    Attributes:
        number: that its commands name it by; never given twice in a partition.
        name: of the subscription.
        born: what tells it from those that had its name before.
        rules: as in Configure; its `ids_from` is not read.
        from_start: it begins with all that is live in any view; else with what comes from now on.
        by_arrival: its messages are due when they come in.
        held_due_ms: when what is leased in another view at this moment is due in this one.
        kept_from_ms: with from_start: also with what is retained, all of it from this place of the
            view on (as in Seek); None = with what is live alone.
        in_pieces: what it begins with comes by SeedView, not in one step.

    Without a name it is no view for consumers: what comes in from now on is retained
    (retention.py).
    """

    now_ms: int
    number: int
    name: str
    born: int
    rules: str
    from_start: bool
    by_arrival: bool
    held_due_ms: int
    kept_from_ms: int | None = None
    in_pieces: bool = False


@dataclass(frozen=True, slots=True)
class SeedView:
    """A view that was opened in pieces gets the next ones (seeding.py).

    Attributes:
        number: of the view.
        span: out of so many sequences.
    """

    now_ms: int
    number: int
    span: int


@dataclass(frozen=True, slots=True)
class DropView:
    """A named view is gone, and with it all that it knew."""

    now_ms: int
    number: int


@dataclass(frozen=True, slots=True)
class Forget:
    """What is retained of messages before this sequence is retained no more, and nothing of
    these."""

    now_ms: int
    before: int
    sequences: Int64s | None = None


@dataclass(frozen=True, slots=True)
class Seek:
    """A view goes to a place of its order, as far as these messages are concerned (replay.py).

    Attributes:
        first, end: the messages with sequences from `first` on, before `end`.
        from_ms: the place: what is due there from then on, and done, comes back if it is retained;
            what is scheduled for before is passed over. In order of arrival it is when messages
            came in.
        wanted: of these it is about those that are so (its states are not read), and leaves all
            others as they are; None = about all.
    """

    now_ms: int
    first: int
    end: int
    from_ms: int
    wanted: Selection | None = None


@dataclass(frozen=True, slots=True)
class ForgetTexts:
    """Names of groups, tags and senders that no live message has are forgotten: as a rule that
    happens when many new ones have come (dictionary.py)."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class InView:
    """A command for one view alone: a lease, what settles one, its rules, its dead.

    Attributes:
        number: of the view; 0 = the unnamed one.
    """

    now_ms: int
    number: int
    command: Lease | Ack | Nack | Extend | Configure | Bury | Cancel | Seek


Command: TypeAlias = (
    Enqueue
    | Lease
    | Ack
    | Nack
    | Extend
    | Move
    | Cancel
    | Relocate
    | OpenEpoch
    | Configure
    | Decide
    | Remember
    | Bury
    | Depart
    | PutEntries
    | DropEntries
    | SetTime
    | OpenView
    | SeedView
    | DropView
    | Forget
    | ForgetTexts
    | Seek
    | InView
)
