"""Reading the order index without taking from it: pages for peek, counts for stats.

Room: engine; pure, memory only.
Holds: entries come out in order of (key, sequence), live ones only, each once.
See: runs.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dejaqueue.engine.arrays import Int64s, sort_pairs
from dejaqueue.engine.runs import IsAlive, Pair, SortedRuns

_CHUNK_ROWS_MIN = 16


def read_pages(
    order: SortedRuns, after: Pair, until: int, page_rows: int, is_alive: IsAlive
) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield (keys, sequences) of live entries greater than `after`, with keys up to `until`.

    Pages have about `page_rows` entries, some may be empty. The index must not change meanwhile.
    """
    for keys, sequences, _ in scan_pages(order, after, until, page_rows, is_alive):
        yield keys, sequences


def scan_pages(
    order: SortedRuns, after: Pair, until: int, page_rows: int, is_alive: IsAlive
) -> Iterator[tuple[Int64s, Int64s, Pair | None]]:
    """As `read_pages`, with the pair up to which the page is complete; None = it is the last."""
    order.sort_young(until)
    runs = [run for run in order.small + order.sealed if run.head <= until]
    while runs:
        chunk_rows = max(_CHUNK_ROWS_MIN, 2 * page_rows // len(runs))
        keys: list[Int64s] = []
        sequences: list[Int64s] = []
        cut: Pair | None = None  # beyond it some run has entries that were not read
        for run in runs:
            first = run.place_after(after)
            end = min(first + chunk_rows, run.keys.size)
            if first == end:
                continue
            keys.append(run.keys[first:end])
            sequences.append(run.sequences[first:end])
            if end < run.keys.size:
                last = int(run.keys[end - 1]), int(run.sequences[end - 1])
                cut = last if cut is None or last < cut else cut
        if not keys:
            return
        page = _tidy(np.concatenate(keys), np.concatenate(sequences), cut, until)
        mask = is_alive(*page)
        if cut is not None and cut[0] > until:
            cut = None
        yield page[0][mask], page[1][mask], cut
        if cut is None:
            return
        after = cut


def _tidy(keys: Int64s, sequences: Int64s, cut: Pair | None, until: int) -> tuple[Int64s, Int64s]:
    """In order, each once, up to the cut and up to the key `until`."""
    keys, sequences = sort_pairs(keys, sequences)
    mask = keys <= until
    if cut is not None:
        mask &= (keys < cut[0]) | ((keys == cut[0]) & (sequences <= cut[1]))
    mask[1:] &= (keys[1:] != keys[:-1]) | (sequences[1:] != sequences[:-1])
    return keys[mask], sequences[mask]
