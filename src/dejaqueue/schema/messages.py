"""The Arrow schemas of what crosses the wire.

Room: schema. Names and types only; checking values is `checks.py`.
See: docs/wire.md; the fields' meaning is in docs/reference/semantics.md.
"""

from __future__ import annotations

import pyarrow as pa

from dejaqueue import limits

TAGS = pa.list_(pa.utf8())
HEADERS = pa.map_(pa.utf8(), pa.utf8())

SEND = pa.schema(
    [
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("due", pa.int64(), nullable=False),
        pa.field("key", pa.utf8()),
        pa.field("group", pa.utf8()),
        pa.field("priority", pa.uint16(), nullable=False),
        pa.field("tags", TAGS),
        pa.field("headers", HEADERS),
        pa.field("expires", pa.int64()),
        pa.field("partition", pa.int32()),
    ]
)
"""A batch to send. Every column but payload may be left out."""

DELIVERY = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("due", pa.int64(), nullable=False),
        pa.field("attempts", pa.uint16(), nullable=False),
        pa.field("key", pa.utf8()),
        pa.field("group", pa.utf8()),
        pa.field("priority", pa.uint16(), nullable=False),
        pa.field("tags", TAGS),
        pa.field("headers", HEADERS),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""A delivered batch. A consumer may ask for fewer columns; id, due and attempts always come."""

_STATE = pa.field("state", pa.utf8(), nullable=False)

PEEK = pa.schema([*DELIVERY, _STATE, pa.field("consumer", pa.utf8())])
"""What `peek` answers: messages as they are, without leasing them. `consumer` is the name of the
one that holds the lease; null if it is not leased, or the broker does not know who has it."""

UNREAD = pa.field("unread", pa.utf8())
"""A last column of a page of `peek` in which payloads cannot be read now, and of no other: why, or
null. The payloads of such rows are null."""

CARRIED = ("payload", UNREAD.name)
"""Columns of a page for those who may see what messages carry."""

NEXT = b"next"
"""Name in the metadata of a page's schema of where the next page begins: JSON for `after`."""

SCAN = pa.schema(
    [
        *DELIVERY.set(DELIVERY.get_field_index("due"), pa.field("due", pa.int64())),
        _STATE,
        pa.field("expires", pa.int64()),
        pa.field("partition", pa.int32(), nullable=False),
    ]
)
"""What a scan answers; it may ask for fewer columns. `due` is null in rows of a claim of which the
broker forgot it at a restart."""

MOVE = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("key", pa.utf8()),
        pa.field("due", pa.int64(), nullable=False),
        pa.field("by_ms", pa.int64(), nullable=False),
        pa.field("priority", pa.uint16(), nullable=False),
        pa.field("group", pa.utf8()),
        pa.field("if_due", pa.int64()),
    ]
)
"""Moves: `id` or `key` (one of the two columns), and what changes: due time (`due`, or by how much
it is shifted), priority, group; `if_due`: only if the message is due then."""

CANCEL = pa.schema(
    [pa.field("id", pa.int64()), pa.field("key", pa.utf8()), pa.field("if_due", pa.int64())]
)
"""Cancels: `id` or `key` (one of the two columns); `if_due` as in MOVE."""

SETTLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("attempts", pa.uint16(), nullable=False),
    ]
)
"""Acks, nacks and extends of single rows (rule 4)."""

DEFAULT_PRIORITY = limits.PRIORITY_DEFAULT
