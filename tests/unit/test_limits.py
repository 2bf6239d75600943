"""Covers: the relations between limits, and that each has a reason in writing."""

from __future__ import annotations

import re
from pathlib import Path

from dejaqueue import limits

SOURCE = Path(limits.__file__).read_text(encoding="utf-8")
NAMES = re.findall(r"^([A-Z][A-Z0-9_]*): Final", SOURCE, re.MULTILINE)


def test_an_id_of_the_last_partition_and_sequence_is_a_positive_int64() -> None:
    last = limits.PARTITIONS_MAX - 1 << limits.SEQUENCE_BITS | limits.SEQUENCE_MAX
    assert 0 < last < 1 << 63


def test_a_locator_of_the_last_position_and_row_is_a_positive_int64() -> None:
    last = limits.POSITION_MAX << limits.ROW_BITS | limits.BATCH_ROWS_MAX - 1
    assert 0 < last < 1 << 63


def test_a_dispatch_is_a_batch_like_any_other() -> None:
    assert limits.DISPATCH_ROWS_MAX <= limits.BATCH_ROWS_MAX
    assert limits.DISPATCH_BYTES_MAX <= limits.BATCH_BYTES_MAX


def test_every_limit_is_a_whole_number_with_a_reason_above_it() -> None:
    assert len(NAMES) > 25
    lines = SOURCE.splitlines()
    for name in NAMES:
        assert isinstance(getattr(limits, name), int)
        place = next(n for n, line in enumerate(lines) if line.startswith(f"{name}: Final"))
        above = lines[place - 1]
        assert above.startswith("# ") or ": Final" in above, f"{name} has no reason"
