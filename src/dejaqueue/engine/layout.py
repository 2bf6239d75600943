"""How the engine lays its state out in memory: sizes that change its speed, never its answers.

Room: engine; pure.
Holds: two engines of different layouts give the same effects and the same state hash.
See: tests/model, which runs every command on layouts so small that each mechanism is met.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dejaqueue import limits


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of the parts of an engine.

    Attributes:
        slab_bits: rows of a table slab, as a power of two.
        first_rows: rows that a table has room for at first.
        rebase_slabs_min: dead slabs in front of the table before it is moved down.
        seal_rows: an index run of this many rows is never merged again, which bounds a stall.
        merge_ways: so many runs of groups of like length become one; 2 at least.
        draw_rows: about how many rows are drawn from the sealed runs at a time.
        young_batches_max: unsorted batches of the order index at most.
        key_bucket_bits: buckets of a block of the key index, as a power of two.
        sweep_rows_min: entries of done messages that an index may always hold.
        sweep_groups_min: settled leases that may always be remembered.
    """

    slab_bits: int = limits.SLAB_BITS
    first_rows: int = 64
    rebase_slabs_min: int = 64
    seal_rows: int = 262_144
    merge_ways: int = 8
    draw_rows: int = 65_536
    young_batches_max: int = 1_024
    key_bucket_bits: int = 6
    sweep_rows_min: int = 65_536
    sweep_groups_min: int = 4_096


STANDARD: Final = Layout()
"""What brokers use."""
TINY: Final = Layout(
    slab_bits=3,
    first_rows=2,
    rebase_slabs_min=2,
    seal_rows=8,
    merge_ways=2,
    draw_rows=4,
    young_batches_max=3,
    key_bucket_bits=1,
    sweep_rows_min=6,
    sweep_groups_min=3,
)
"""For tests: a handful of messages meets every mechanism."""
