"""Warming up Arrow."""

from __future__ import annotations

import subprocess
import sys

from dev.reaper import marks


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
    found = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=marks() | {"PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert found.stdout.strip() == "[]"
