"""A hash of a partition's logical state, equal wherever the same commands were applied.

Room: engine; pure.
Holds: how the state lies in memory does not matter: slabs, runs, dead entries and settled leases
    that are still remembered leave no trace in the hash.
See: rule 13.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from dejaqueue.engine.state import PartitionState
from dejaqueue.engine.table import WIDE_COLUMNS

_YOUNG = frozenset({"returned"})
"""Columns that hashes are older than: what they are for shows in due times, when a clock is put
right."""


def hash_state(state: PartitionState) -> int:
    """64 bits that tell two states apart. Cost: O(live messages)."""
    table = state.table
    wide = [(name, f"<{np.dtype(dtype).str[1:]}") for name, dtype in WIDE_COLUMNS]
    wide = [(name, dtype) for name, dtype in wide if name in table.uses - _YOUNG]
    columns = [xxhash.xxh3_64() for _ in range(5 + len(wide))]
    for places in table.live_places():
        _update(columns[0], places + table.base, "<i8")
        _update(columns[1], table.dues_ms[places], "<i8")
        _update(columns[2], table.states[places], "<u1")
        _update(columns[3], table.attempts[places], "<u2")
        _update(columns[4], table.locators[places], "<i8")
        for hasher, (name, dtype) in zip(columns[5:], wide, strict=True):
            _update(hasher, getattr(table, name)[places], dtype)
    if "returned" in table.uses:
        forgiven = [table.returned[places] >> 1 for places in table.live_places()]
        if any(counts.any() for counts in forgiven):  # as before anything could be
            columns.append(xxhash.xxh3_64())
            for attempts in forgiven:
                _update(columns[-1], attempts, "<u1")
    leases = xxhash.xxh3_64()
    for lease in state.leases.held(table):
        leases.update(f"{lease.lease_id} {lease.sequences.size};".encode())
        _update(leases, lease.sequences, "<i8")
        _update(leases, lease.attempts, "<u2")
    producers = xxhash.xxh3_64()
    for name, producer in state.producers.by_name.items():
        producers.update(f"{name!r} {producer.last_ms} {len(producer.answers)};".encode())
        for number, answer in producer.answers.items():
            producers.update(f"{number} {answer}{answer.strays or ''};".encode())
    whole = xxhash.xxh3_64()
    counts = asdict(state.counts)
    if not state.counts.replayed:  # as before anything could be
        del counts["replayed"]
    scalars = [state.now_ms, state.epoch, table.next_sequence, *counts.values()]
    whole.update(" ".join(str(scalar) for scalar in scalars).encode())
    small = small_values(state)
    small[1] = sorted(table.uses - _YOUNG)
    whole.update(json.dumps(small).encode())
    for part in [*columns, leases, producers]:
        whole.update(part.digest())
    return whole.intdigest()


def small_values(state: PartitionState) -> list[Any]:
    """What is small enough for JSON: rules, names, the dead, transactions, cron entries."""
    return [
        state.rules.to_text(),
        sorted(state.table.uses),
        state.groups_moved,
        state.groups.to_values(),
        state.tag_sets.to_values(),
        state.dead_number,
        [
            [number, group.reason, group.now_ms, group.destination, group.sequences.tolist()]
            for number, group in state.dead.items()
        ],
        [
            [name, staged.until_ms]
            + [
                [part.tolist() for part in parts]
                for parts in (staged.enqueued, staged.acked, staged.replaced)
            ]
            for name, staged in state.staged.items()
        ],
        [[name, commit, text] for name, (commit, text) in state.decided.items()],
        state.starts(),
        [state.ready_until_ms, state.ready_until_sequence]
        if state.is_taking_over
        else state.ready_until_ms,
        state.entries.to_values(),
        # Where there are none it is as if there were no such thing: as before there was.
        *([state.senders.to_values()] if len(state.senders) > 1 else []),
    ]


def _update(hasher: xxhash.xxh3_64, column: npt.NDArray[np.integer], dtype: str) -> None:
    hasher.update(np.ascontiguousarray(column, dtype=dtype).data)
