"""Columns made from their bytes are those that Arrow makes of the values."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.schema import plain
from dejaqueue.schema.messages import HEADERS, TAGS

WITHOUT_PANDAS = """
import sys
import dejaqueue.client
from dejaqueue.client.sending.gather import VARIANTS
row = (b"x", 5, "k", "g", 7, None, None, None)
for variant in VARIANTS.values():
    variant.batch([row, row])
import dejaqueue.local, dejaqueue.flight.server, dejaqueue.cluster.node
sys.exit("pandas" in sys.modules)
"""


@pytest.mark.parametrize(
    "values", [[], [b""], [b"a", b"", b"bcd"], [b"\x00\xff" * 100], [b"ab", b""] * plain.FEW]
)
def test_bytes(values: list[bytes]) -> None:
    column = plain.binary_column(values)
    column.validate(full=True)
    assert column.equals(pa.array(values, pa.binary()))


def test_texts_and_numbers() -> None:
    text = plain.text_column(["ä", "", "z"])
    text.validate(full=True)
    assert text.equals(pa.array(["ä", "", "z"]))
    assert plain.uint16_column([0, 65_535]).equals(pa.array([0, 65_535], pa.uint16()))
    with pytest.raises(OverflowError):
        plain.uint16_column([65_536])
    every_other = np.arange(10, dtype=np.int64)[::2]
    assert plain.int64_column(every_other).equals(pa.array(every_other))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", "b"], pa.utf8()),
        (["a", None], pa.utf8()),
        ([None, None], TAGS),
        ([["x"], None], TAGS),
        ([[("a", "b")], None], HEADERS),
        ([None, 5], pa.int64()),
    ],
)
def test_what_may_be_missing(values: list[Any], kind: pa.DataType) -> None:
    column = plain.optional_column(values, kind)
    column.validate(full=True)
    assert column.equals(pa.array(values, kind))


def test_a_first_message_does_not_wait_for_pandas() -> None:
    pytest.importorskip("pandas")
    assert subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], timeout=60).returncode == 0
