"""What a partition worker is asked to do: one request per batch, settle or look.

Room: broker. Plain records; made at the door (any thread), used up by the worker.
Holds: `reply` is called exactly once per request, on the worker's thread, and never blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from dejaqueue.broker.replies import ReplyTo
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.arrays import Int64s, UInt16s, Words
from dejaqueue.engine.commands import Stage
from dejaqueue.errors import DejaQError, InternalError, ResourceExhausted
from dejaqueue.schema.checks import SendColumns
from dejaqueue.schema.send_rows import SendRows
from dejaqueue.wire.frames import Reply, SettleOp


@dataclass(slots=True)
class EnqueueRequest:
    """A checked batch for this partition."""

    columns: SendColumns | SendRows
    producer: str
    number: int
    acks: str
    reply: ReplyTo
    key_hashes: Int64s | None = None
    """None = there are no keys, or nobody has hashed them yet."""
    stage: Stage | None = None
    goes_back: Callable[[EnqueueRequest, PartitionCore], bool] | None = None
    """True: it must not be applied there (any more), and was taken back (routing.py)."""
    strays: tuple[int, ...] = ()
    """As in `commands.SubBatch`."""
    senders: Words | None = None
    """Who sent each row; None = nobody."""
    owner: str | None = None
    """Who it is limited to: what another one sent gives way to no row of it. None = to nobody."""

    @property
    def rows(self) -> int:
        """How many."""
        return self.columns.rows

    @property
    def byte_count(self) -> int:
        """Bytes it holds while queued."""
        return self.columns.payload_bytes + 64 * self.columns.rows

    def send_columns(self) -> SendColumns:
        """Its rows as columns."""
        columns = self.columns
        return columns.columns() if isinstance(columns, SendRows) else columns


@dataclass(slots=True)
class RenameRequest:
    """Moves or cancels, by sequence or by key.

    Attributes:
        cancel: True: cancels; False: a move of what is given of due, priority, group.
        owner: whose messages alone it reaches; None = anybody's.
        shifts_ms: by how much each is due later, instead of dues_ms.
        if_dues_ms: when each has to be due, -1 = whenever; None = whenever, all of them.
    """

    number: int
    rows: int
    acks: str
    reply: ReplyTo
    sequences: Int64s | None = None
    keys: object = None
    """utf8 column (pyarrow) where rows are named by key."""
    key_hashes: Int64s | None = None
    dues_ms: Int64s | None = None
    priorities: UInt16s | None = None
    groups: Words | None = None
    cancel: bool = False
    owner: str | None = None
    shifts_ms: Int64s | None = None
    if_dues_ms: Int64s | None = None

    @property
    def byte_count(self) -> int:
        """Bytes it holds while queued."""
        return 64 * self.rows


@dataclass(slots=True)
class SettleRequest:
    """ack, nack or extend, of a whole lease or of rows; or extend whole leases.

    Attributes:
        lease_ids: extend: several leases, which the reply has a status for each of.
        argument_ms: nack: the delay, -1 = as the topic's backoff says; extend: the lease.
        reason, bury, release: of a nack (engine/commands.py).
        stage: of an ack.
        subscription: whose lease it is; "" = the unnamed one.
    """

    op: SettleOp
    number: int
    reply: ReplyTo
    lease_id: int = -1
    argument_ms: int = 0
    sequences: Int64s | None = None
    attempts: UInt16s | None = None
    acks: str = "all"
    reason: str = ""
    bury: bool = False
    release: bool = False
    stage: Stage | None = None
    lease_ids: Int64s | None = None
    subscription: str = ""

    @property
    def byte_count(self) -> int:
        """Bytes it holds while queued."""
        if self.lease_ids is not None:
            return 128 + self.lease_ids.nbytes
        return 128 if self.sequences is None else 16 * len(self.sequences)


@dataclass(slots=True)
class LookRequest:
    """Run a function of the partition on its worker; it changes nothing that is journalled."""

    look: Callable[[PartitionCore], None]
    byte_count: int = 0


@dataclass(slots=True)
class ChangeRequest:
    """Run a function of the partition on its worker that applies commands; the reply says that
    they are durable. What it raises must come before anything is applied."""

    change: Callable[[PartitionCore], None]
    reply: ReplyTo
    number: int = 0
    byte_count: int = 0


Changing: TypeAlias = EnqueueRequest | RenameRequest | SettleRequest | ChangeRequest
"""A request that gets a reply."""
Request: TypeAlias = Changing | LookRequest


def refusal_of(wrong: Exception) -> DejaQError:
    """What a request is told on which this was raised."""
    if isinstance(wrong, DejaQError):
        return wrong.with_traceback(None)  # its frames hold the request: a reference cycle
    if isinstance(wrong, MemoryError):
        return ResourceExhausted("no memory for this request (server.memory_bytes_max)", 1_000)
    bug = InternalError(f"{type(wrong).__name__}: {wrong}")
    bug.__cause__ = wrong  # for the log
    return bug


def turn_away(request: Request, core: PartitionCore, error: DejaQError) -> None:
    """Answer what the partition does not do. A look asks it itself what is wrong."""
    if isinstance(request, LookRequest):
        request.look(core)
    else:
        request.reply(Reply(request.number, error=error))
