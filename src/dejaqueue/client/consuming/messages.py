"""Received messages as a user sees them: the parts that wait for nothing.

Room: client. _aio/consumer.py and _sync/consumer.py add ack, nack and extend.
Holds: a column becomes Python objects when one of its values is first asked for, all at once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.client.consuming.consume_core import ConsumeCore
from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.consuming.undecodable import refusal
from dejaqueue.client.sending.content import json_in
from dejaqueue.schema import texts
from dejaqueue.schema.messages import DEFAULT_PRIORITY
from dejaqueue.schema.vouchers import is_voucher, parse_voucher

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Handed:
    """What a consumer handed over last, and whether it was settled since.

    Attributes:
        is_handled: it was settled, or taken apart to be settled in parts.
    """

    __slots__ = ("_index", "_whole", "is_handled")

    def __init__(self, whole: Slice, index: int = -1) -> None:
        self._whole = whole
        self._index = index
        self.is_handled = False

    def is_row(self, index: int) -> bool:
        """True if it is this row alone."""
        return self._index == index

    def rows(self) -> Slice:
        """To settle it."""
        return self._whole if self._index < 0 else row_at(self._whole, self._index)


def row_at(rows: Slice, at: int) -> Slice:
    """One row alone, to settle it."""
    if len(rows.ids) == 1:
        return rows
    one = slice(at, at + 1)
    return Slice(rows.lease, rows.batch, rows.ids[one], rows.dues_ms[one], rows.attempts[one])


def rows_from(rows: Slice, first: int) -> Slice:
    """The rows from this one on, to settle them."""
    rest = slice(first, None)
    return Slice(
        rows.lease,
        rows.batch.slice(first),
        rows.ids[rest],
        rows.dues_ms[rest],
        rows.attempts[rest],
    )


class MessageColumns:
    """The rows of a slice, column by column.

    Attributes:
        last: the row that was handed over last.
    """

    last: Handed | None = None

    def __init__(self, core: ConsumeCore, rows: Slice) -> None:
        self.core = core
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows.ids)

    def _column(self, name: str, default: Any) -> list[Any]:
        batch = self.rows.batch
        index = batch.schema.get_field_index(name)
        if index < 0:
            return [default] * len(self)
        try:
            return list(batch.column(index).to_pylist())
        except UnicodeDecodeError:
            return _ByRow(name, batch.column(index))

    @cached_property
    def ids(self) -> list[int]:
        """Id of each row."""
        return list(self.rows.ids.tolist())

    @cached_property
    def dues_ms(self) -> list[int]:
        """Due time of each row."""
        return list(self.rows.dues_ms.tolist())

    @cached_property
    def attempts(self) -> list[int]:
        """Attempt of each row."""
        return list(self.rows.attempts.tolist())

    @cached_property
    def payloads(self) -> list[bytes]:
        """Payload of each row."""
        return self._column("payload", b"")

    @cached_property
    def keys(self) -> list[str | None]:
        """Key of each row."""
        return self._column("key", None)

    @cached_property
    def groups(self) -> list[str | None]:
        """Group of each row."""
        return self._column("group", "")

    @cached_property
    def priorities(self) -> list[int]:
        """Priority of each row."""
        return self._column("priority", DEFAULT_PRIORITY)

    @cached_property
    def tags(self) -> list[list[str] | None]:
        """Tags of each row."""
        return self._column("tags", None)

    @cached_property
    def headers(self) -> list[list[tuple[str, str]] | None]:
        """Headers of each row, as pairs."""
        return self._column("headers", None)


class _ByRow(list[Any]):
    """A column in which a text is not UTF-8: an error of that row alone, when it is asked for.

    Of messages that were acked as they were sent: others the client has nacked (undecodable.py).
    Python reads a column as a whole or not at all; the rows beside it are not to suffer.
    """

    def __init__(self, name: str, column: pa.Array) -> None:
        bad = texts.bad_rows(pa.RecordBatch.from_arrays([column], [name]))
        assert bad is not None
        readable = column.filter(pa.array(~bad)).to_pylist()
        readable.reverse()
        super().__init__(None if is_bad else readable.pop() for is_bad in bad.tolist())
        self._name, self._bad = name, bad

    def __getitem__(self, index: Any) -> Any:
        if self._bad[index]:
            raise refusal(self._name)
        return super().__getitem__(index)


class MessageFields:
    """One received message.

    Attributes:
        lateness_us: from its due time until it was handed over, microseconds.
        is_settled: it was acked or nacked here, or given to a transaction.
    """

    __slots__ = ("_columns", "_index", "_keeper", "is_settled", "lateness_us")

    def __init__(
        self, columns: MessageColumns, index: int, lateness_us: int, keeper: object = None
    ) -> None:
        # The consumer: a message keeps it open, or its lease would end with it. Not by its columns,
        # which the consumer has, too: a consumer in a circle is open until Python looks for those.
        self._keeper = keeper
        self._columns = columns
        self._index = index
        self.is_settled = False
        self.lateness_us = lateness_us

    @property
    def id(self) -> int:
        """Its id."""
        return self._columns.ids[self._index]

    @property
    def due_ms(self) -> int:
        """When it was due, UTC milliseconds."""
        return self._columns.dues_ms[self._index]

    @property
    def due(self) -> datetime:
        """When it was due, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.due_ms)

    @property
    def attempt(self) -> int:
        """Which delivery of it this is, from 1."""
        return self._columns.attempts[self._index]

    @property
    def payload(self) -> bytes:
        """Its payload; of one that is streamed the voucher, which can be sent on: see `open`."""
        return self._columns.payloads[self._index]

    @property
    def is_streamed(self) -> bool:
        """Whether its payload is read by `open`, and is not in the message."""
        return is_voucher(self.payload)

    @property
    def payload_bytes(self) -> int:
        """Bytes of its payload, wherever that is."""
        payload = self.payload
        return parse_voucher(payload).byte_count if is_voucher(payload) else len(payload)

    def json(self) -> Any:
        """The value that its payload says as JSON.

        Raises:
            BadRequest: the payload is no JSON in UTF-8; the text names the message's id.
        """
        return json_in(self.payload, self.id)

    @property
    def key(self) -> str | None:
        """The producer's own id of it."""
        return self._columns.keys[self._index]

    @property
    def group(self) -> str:
        """Its group; "" = none."""
        return self._columns.groups[self._index] or ""

    @property
    def priority(self) -> int:
        """Its priority; 0 is most urgent."""
        return self._columns.priorities[self._index]

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags."""
        return tuple(self._columns.tags[self._index] or ())

    @property
    def headers(self) -> dict[str, str]:
        """Its headers."""
        return dict(self._columns.headers[self._index] or ())

    def __repr__(self) -> str:
        key = "" if self.key is None else f"key={self.key!r} "
        settled = ", settled" if self.is_settled else ""
        return (
            f"<{type(self).__name__} id={self.id} due={self.due.isoformat()} "
            f"attempt={self.attempt} {key}payload={self.payload_bytes} B{settled}>"
        )

    def origin(self) -> tuple[ConsumeCore, Slice]:
        """The consumer and the row of the message, for settling it."""
        self._handled()
        return self._columns.core, self._row()

    def _row(self) -> Slice:
        """This row alone, to settle it."""
        return row_at(self._columns.rows, self._index)

    def _handled(self) -> None:
        """It is settled by whoever has it."""
        self.is_settled = True
        last = self._columns.last
        if last is not None and last.is_row(self._index):
            last.is_handled = True


class BatchFields:
    """Received messages in columns.

    Attributes:
        ids: int64 array, shape (n,).
        dues_ms: when each was due, int64 array, shape (n,).
        attempts: which delivery of it this is, uint16 array, shape (n,).
        lateness_us: from due time until handed over, int64 array, shape (n,).
    """

    def __init__(
        self, core: ConsumeCore, keeper: object, rows: Slice, late_us: npt.NDArray[np.int64]
    ) -> None:
        self._core = core
        self._keeper = keeper
        self._rows = rows
        self.handed = Handed(rows)
        self.lateness_us = late_us
        self.ids = rows.ids
        self.dues_ms = rows.dues_ms
        self.attempts = rows.attempts

    def origin(self) -> tuple[ConsumeCore, Slice]:
        """The consumer and the rows of the messages, for settling them."""
        self._handled()
        return self._core, self._rows

    def _handled(self) -> None:
        """They are settled by whoever has them."""
        self.handed.is_handled = True

    @property
    def batch(self) -> pa.RecordBatch:
        """The messages as a record batch of schema DELIVERY. Where a text is not UTF-8, U+FFFD
        stands for what is none."""
        return texts.mended_batch(self._rows.batch)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        ids = f", ids {self.ids[0]} to {self.ids[-1]}" if len(self) else ""
        settled = ", settled" if self.handed.is_handled else ""
        return f"<{type(self).__name__} of {len(self)} messages{ids}{settled}>"
