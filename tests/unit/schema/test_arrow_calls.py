"""Covers: pyarrow.compute is loaded when one of its functions is used, not before.

Not covered: what its functions do, which is pyarrow's.
"""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from dejaqueue.schema import arrow_calls as pc

LOADED = "import sys; {}; print(*(name in sys.modules for name in ('pyarrow.compute', 'asyncio')))"


def loaded_by(statement: str) -> str:
    """Whether a program that does this has loaded pyarrow.compute, and asyncio."""
    command = [sys.executable, "-c", LOADED.format(statement)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_function_is_that_of_pyarrow() -> None:
    assert pc.sum(pa.array([1, 2, 3])).as_py() == 6


def test_a_name_that_it_has_not_is_named() -> None:
    with pytest.raises(AttributeError, match="nothing_such"):
        pc.nothing_such  # noqa: B018


def test_the_client_loads_neither_compute_nor_asyncio() -> None:
    assert loaded_by("from dejaqueue import Client") == "False False"
    assert loaded_by("from dejaqueue import AsyncClient") == "False True"
