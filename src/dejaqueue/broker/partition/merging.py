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
from dejaqueue.schema.references import payload_sizes
from dejaqueue.schema.send_rows import SendRows, joined_columns

Number = TypeVar("Number", np.int64, np.uint16)


@dataclass(slots=True)
class Merged:
    """The rows of several requests, one after the other.

    Attributes:
        starts: first row of each request, and the end: int64 array, shape (requests + 1,).
        keys: utf8 column, or None if no row has a key.
        key_hashes: hash of each key, 0 = no key; None as `keys`.
        senders: who sent each row; None = nobody sent any.
    """

    requests: list[EnqueueRequest]
    starts: Int64s
    columns: SendColumns
    key_hashes: Int64s | None
    senders: Words | None

    def texts(self) -> dict[str, TextColumn]:
        """The columns that a journal entry stores."""
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
        return payload_sizes(self.columns.payloads)

    def keep(self, rows: Int64s) -> None:
        """Keep these rows only."""
        self.columns = self.columns.take(rows)
        if self.key_hashes is not None:
            self.key_hashes = self.key_hashes[rows]
        if self.senders is not None:
            self.senders = of_runs(to_runs(self.senders.take(rows)))


def merge(requests: list[EnqueueRequest]) -> Merged:
    """The requests' rows as one batch."""
    plain = [request.columns for request in requests if isinstance(request.columns, SendRows)]
    if len(plain) == len(requests):
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
