"""Warming up Arrow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dev.reaper import marks


def printed_by(text: str) -> str:
    """What a program prints in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=marks() | {"PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    return done.stdout


def test_nothing_is_imported_after_warming_up() -> None:
    """In a fresh interpreter: what a first delivery does finds everything loaded."""
    text = """
import sys
import pyarrow as pa
from dejaqueue.schema.warm import warm_up
warm_up()
before = set(sys.modules)
batch = pa.record_batch({"id": [1, 2]})
batch.column("id").to_numpy()
print(sorted(set(sys.modules) - before))
"""
    assert printed_by(text).strip() == "[]"


def test_a_process_that_forgoes_pandas_loads_none_and_may_later() -> None:
    pytest.importorskip("pandas")
    text = """
import sys
import pyarrow as pa
from dejaqueue.schema.warm import warm_up
warm_up(has_pandas=False)
warm_up()
pa.array([1, None]), pa.array(["a"]).to_numpy(zero_copy_only=False)
pa.table({"a": [[1], None]}).to_pylist()
print("pandas" in sys.modules, any("warm" in type(one).__module__ for one in sys.meta_path))
import pandas
print(pa.array([1]).to_pandas().tolist(), pa.array(pandas.Series([1, 2])).to_pylist())
"""
    assert printed_by(text).split("\n")[:2] == ["False False", "[1] [1, 2]"]
