"""Many small batches as one command: what group commit does for single messages.

Room: broker. Columns only; no journal, no engine.
Holds: merged rows keep their order, batch by batch; merging one batch copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.broker.partition.requests import EnqueueRequest
from dejaqueue.broker.shard.entries import hash_column, text_column
from dejaqueue.engine.arrays import Int64s, Words
from dejaqueue.engine.dictionary import of_runs, to_runs
from dejaqueue.journal.interface import TextColumn
from dejaqueue.schema.checks import SendColumns
from dejaqueue.schema.messages import DEFAULT_PRIORITY
from dejaqueue.schema.plain import binary_column
from dejaqueue.schema.references import payload_sizes, stored_sizes
from dejaqueue.schema.send_rows import SendRows, joined_columns

_NO_PAYLOADS = binary_column([])

Number = TypeVar("Number", np.int64, np.uint16)


@dataclass(slots=True)
class Merged:
    """The rows of several requests, one after the other.

    Attributes:
        starts: first row of each request, and the end: int64 array, shape (requests + 1,).
        keys: utf8 column, or None if no row has a key.
        key_hashes: hash of each key, 0 = no key; None as `keys`.
        senders: who sent each row; None = nobody sent any.
        payload: the payloads as the journal stores them, of rows that have nothing else and were
            never columns: then those of `columns` are not to be looked at.
    """

    requests: list[EnqueueRequest]
    starts: Int64s
    columns: SendColumns
    key_hashes: Int64s | None
    senders: Words | None
    payload: TextColumn | None = None

    def texts(self) -> dict[str, TextColumn]:
        """The columns that a journal entry stores."""
        if self.payload is not None:
            return {"payload": self.payload}
        columns = self.columns
        named = {
            "key": columns.keys,
            "group": columns.groups,
            "tags": columns.tags,
            "headers": columns.headers,
            "payload": columns.payloads,
        }
        return {name: text_column(column) for name, column in named.items() if column is not None}

    def payload_sizes(self) -> npt.NDArray[np.uint32]:
        """Bytes of each payload, wherever it is, shape (n,)."""
        if self.payload is not None:
            content = np.frombuffer(self.payload.data, dtype=np.uint8)
            return stored_sizes(self.payload.offsets, content)
        return payload_sizes(self.columns.payloads)

    def keep(self, rows: Int64s) -> None:
        """Keep these rows only. Those without a key are never chosen from."""
        assert self.payload is None
        self.columns = self.columns.take(rows)
        if self.key_hashes is not None:
            self.key_hashes = self.key_hashes[rows]
        if self.senders is not None:
            self.senders = of_runs(to_runs(self.senders.take(rows)))


def merge(requests: list[EnqueueRequest]) -> Merged:
    """The requests' rows as one batch."""
    plain = [request.columns for request in requests if isinstance(request.columns, SendRows)]
    if len(plain) == len(requests):
        if all(part.fields is None for part in plain):
            return _merge_plain(requests, plain)
        starts = np.array([0, *accumulate(part.rows for part in plain)], dtype=np.int64)
        columns = joined_columns(plain)
        hashes = _hashes(requests, columns.keys)
        return Merged(requests, starts, columns, hashes, _senders(requests))
    parts = [request.send_columns() for request in requests]
    if len(requests) == 1:
        only = requests[0]
        starts = np.array([0, only.rows], dtype=np.int64)
        hashes = _hashes(requests, parts[0].keys)
        return Merged(requests, starts, parts[0], hashes, only.senders)
    starts = np.zeros(len(requests) + 1, dtype=np.int64)
    np.cumsum([part.rows for part in parts], out=starts[1:])
    keys = _concat([part.keys for part in parts], starts)
    columns = SendColumns(
        rows=int(starts[-1]),
        dues_ms=np.concatenate([part.dues_ms for part in parts]),
        payloads=pa.concat_arrays([part.payloads for part in parts]),
        keys=keys,
        groups=_concat([part.groups for part in parts], starts),
        tags=_concat([part.tags for part in parts], starts),
        headers=_concat([part.headers for part in parts], starts),
        partitions=None,
        payload_bytes=sum(part.payload_bytes for part in parts),
        priorities=_joined([part.priorities for part in parts], starts, DEFAULT_PRIORITY),
        expires_ms=_joined([part.expires_ms for part in parts], starts, 0),
    )
    return Merged(requests, starts, columns, _hashes(requests, keys), _senders(requests))


def _merge_plain(requests: list[EnqueueRequest], parts: list[SendRows]) -> Merged:
    """Rows that are a payload and a due time: without Arrow, whose look at a column that it was
    given lets another thread have the interpreter's lock (60 µs beside busy ones, for 2)."""
    dues_ms = [due_ms for part in parts for due_ms in part.dues_ms]
    payloads = [payload for part in parts for payload in part.payloads]
    offsets = np.fromiter(accumulate(map(len, payloads), initial=0), np.int32, len(payloads) + 1)
    columns = SendColumns(
        rows=len(dues_ms),
        dues_ms=np.array(dues_ms, dtype=np.int64),
        payloads=_NO_PAYLOADS,
        keys=None,
        groups=None,
        tags=None,
        headers=None,
        partitions=None,
        payload_bytes=sum(part.payload_bytes for part in parts),
    )
    starts = np.array([0, *accumulate(part.rows for part in parts)], dtype=np.int64)
    payload = TextColumn(offsets, b"".join(payloads))
    return Merged(requests, starts, columns, None, _senders(requests), payload)


def _senders(requests: list[EnqueueRequest]) -> Words | None:
    """Who sent the rows of all requests."""
    if all(request.senders is None for request in requests):
        return None
    runs: list[tuple[str, int]] = []
    for request in requests:
        if request.senders is None:
            runs.append(("", request.rows))
        elif len(request.senders.names) == 1:
            runs.append((request.senders.names[0], request.rows))
        else:
            runs += to_runs(request.senders)
    return of_runs(runs)


def _hashes(requests: list[EnqueueRequest], keys: pa.StringArray | None) -> Int64s | None:
    """The hash of each key; those that the requests bring, if all of them do."""
    if keys is None:
        return None
    known = [request.key_hashes for request in requests if request.key_hashes is not None]
    if len(known) < len(requests):
        return hash_column(text_column(keys))
    return known[0] if len(known) == 1 else np.concatenate(known)


def _concat(parts: list[pa.StringArray | None], starts: Int64s) -> pa.StringArray | None:
    """The texts of all requests; the empty text for the rows of one that has no such column."""
    if all(part is None for part in parts):
        return None
    return pa.concat_arrays(
        [
            pa.array([""] * int(starts[index + 1] - starts[index]), pa.utf8())
            if part is None
            else part
            for index, part in enumerate(parts)
        ]
    )


def _joined(
    parts: Sequence[npt.NDArray[Number] | None], starts: Int64s, default: int
) -> npt.NDArray[Number] | None:
    """The numbers of all requests; the default for the rows of one that has no such column."""
    known = next((part for part in parts if part is not None), None)
    if known is None:
        return None
    joined = np.full(int(starts[-1]), default, dtype=known.dtype)
    for index, part in enumerate(parts):
        if part is not None:
            joined[starts[index] : starts[index + 1]] = part
    return joined
