"""Keys to sequences: the index proposes by hash, the stored key decides.

Room: broker. Reads what is stored; the engine only knows hashes.
Holds: a sequence is given for a key only if the live message's stored key is that text.
See: rule 11; docs/adr/0005-keys-are-resolved-in-the-shell.md.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.arrays import Int64s
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.keys import NO_KEY


def _matching(keys: pa.StringArray, rows: Int64s, sequences: Int64s, stored: pa.Array) -> Int64s:
    """Of the candidates those whose stored key is the one that was asked for."""
    live = np.full(len(keys), -1, dtype=np.int64)
    same = pc.equal(stored, keys.take(pa.array(rows))).fill_null(False)
    same_mask = np.asarray(same.cast(pa.uint8())) == 1
    live[rows[same_mask]] = sequences[same_mask]
    return live


def find_in(
    core: PartitionCore, keys: pa.StringArray, key_hashes: Int64s, but: Int64s | None = None
) -> Int64s | None:
    """The live sequence of each key in a partition, -1 where there is none; None = none has one.

    On its worker. Messages count as soon as they were applied: an answer that rests on one of them
    is given after it is durable, since groups are appended in order.

    Args:
        but: messages that do not count, ascending.

    Raises:
        RowsAwaited: a server has to be asked for stored keys.
    """
    rows, sequences = core.views.find_keys(key_hashes)
    if but is not None and but.size and sequences.size:
        counts = but[np.minimum(but.searchsorted(sequences), but.size - 1)] != sequences
        rows, sequences = rows[counts], sequences[counts]
    if not len(sequences):
        return None
    stored = core.stored.read(core.views.locators(sequences), ("key",)).column(0)
    return _matching(keys, rows, sequences, stored)


def find_repeats(keys: pa.StringArray, key_hashes: Int64s) -> Int64s | None:
    """For each row the first row of the batch with the same key, -1 where it is the first itself;
    None = all are.

    Rows without a key (hash 0) repeat nothing. The texts are only compared if two hashes are equal.
    """
    # tidy: allow determinism, because equal hashes are one value: their order cannot be seen
    in_order = np.sort(key_hashes)
    if not ((in_order[1:] == in_order[:-1]) & (in_order[1:] != NO_KEY)).any():
        return None
    firsts = np.full(len(keys), -1, dtype=np.int64)
    keyed = np.flatnonzero(key_hashes)
    codes = np.asarray(keys.take(pa.array(keyed)).dictionary_encode().indices)
    _, first_indices, inverse = np.unique(codes, return_index=True, return_inverse=True)
    first_rows = keyed[first_indices[inverse]]
    repeats_mask = first_rows != keyed
    firsts[keyed[repeats_mask]] = first_rows[repeats_mask]
    return firsts
