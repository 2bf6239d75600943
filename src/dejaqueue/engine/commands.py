"""The commands of a partition: what goes into the engine, and into the journal, as columns.

Room: engine; pure. Commands carry every time, id and decision, so that replay needs nothing else.
Holds: arrays of one command have one length; `now_ms` never falls from command to command.
See: apply.py for what each does; broker/entries.py for their form in the journal.

Arrays are numpy, never copied by the engine when it can help it, and never changed by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]
"""int64 array, shape (n,)."""
UInt16s: TypeAlias = npt.NDArray[np.uint16]
"""uint16 array, shape (n,)."""
UInt8s: TypeAlias = npt.NDArray[np.uint8]
"""uint8 array, shape (n,)."""

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
    """

    producer: str
    number: int
    count: int
    refused_indices: tuple[int, ...] = ()
    refused_ids: tuple[int, ...] = ()
    refused_statuses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Enqueue:
    """New messages, stored as rows 0…n-1 of the journal entry at `position`.

    Attributes:
        dues_ms: not before these times.
        key_hashes: `keys.hash_keys` of each key, 0 where there is none; None = no row has a key.
        payload_bytes: payload bytes of all rows together, for the backlog's limit.
    """

    now_ms: int
    position: int
    dues_ms: Int64s
    sub_batches: tuple[SubBatch, ...]
    key_hashes: Int64s | None = None
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease up to `count` messages due at `until_ms` or earlier, in order (rule 7).

    `lease_id` is the position of the journal entry. `count_expected` is -1 when the command is new;
    at replay it is how many were leased, and a different outcome raises InternalError.
    """

    now_ms: int
    lease_id: int
    until_ms: int
    count: int
    lease_end_ms: int
    count_expected: int = -1


@dataclass(frozen=True, slots=True)
class Ack:
    """These messages are done. Either a whole lease, or rows by (sequence, attempt)."""

    now_ms: int
    lease_id: int = NO_LEASE
    sequences: Int64s | None = None
    attempts: UInt16s | None = None


@dataclass(frozen=True, slots=True)
class Nack:
    """These messages come back at `due_ms`. Rows are named as in Ack."""

    now_ms: int
    due_ms: int
    lease_id: int = NO_LEASE
    sequences: Int64s | None = None
    attempts: UInt16s | None = None


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
    """These scheduled messages are due at other times (rule 9). Of a sequence named twice, the last
    row decides. A sequence of -1 (a key that was not found) gives NOT_FOUND."""

    now_ms: int
    sequences: Int64s
    dues_ms: Int64s


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


Command: TypeAlias = Enqueue | Lease | Ack | Nack | Extend | Move | Cancel | Relocate | OpenEpoch


_NONE = np.zeros(0, dtype=np.int64)
_NONE.flags.writeable = False


@dataclass(slots=True)
class Effects:
    """What a command did, for its reply and for the shell.

    Attributes:
        statuses: RowStatus per row of the command (for a whole lease: per row of the lease, in its
            order; one LEASE_LOST if none of its rows is held any more, or it never was); None =
            every row OK. Enqueue: always None, refused rows never reach the engine.
        first_sequence: Enqueue: sequence of row 0; the others follow.
        freed_locators: where rows lie that nobody needs any more.
        leased: what a Lease handed out; None if nothing was due.
    """

    statuses: UInt8s | None = None
    first_sequence: int = -1
    freed_locators: Int64s = field(default_factory=lambda: _NONE)
    leased: Leased | None = None


@dataclass(frozen=True, slots=True)
class Leased:
    """The rows of one dispatch, in order (rule 7).

    Attributes:
        lease_id: names the lease in Ack, Nack, Extend.
        lease_end_ms: the lease ends here unless extended.
        sequences: which messages.
        attempts: the attempt that this delivery is, from 1.
        dues_ms: when each became due: its due time, or when it came back.
        locators: where the stored rows are (position << 20 | row).
    """

    lease_id: int
    lease_end_ms: int
    sequences: Int64s
    attempts: UInt16s
    dues_ms: Int64s
    locators: Int64s
