"""Garbled snapshots, made at random: what is read is an engine that holds together, or refused.

Checksums refuse nearly all of it before (tests/corruption); here nobody stands before `restore`.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from dejaqueue.engine.snapshot import restore
from dejaqueue.errors import DejaQError, JournalDamaged
from tests.unit.engine.test_snapshot import LAYOUT, Shelf, filled

SHELF = Shelf()
SHELF.put(filled())
META = json.loads(SHELF.meta)
SMALL = next(name for name in SHELF.files if name.startswith("small"))
PRODUCERS = next(name for name in SHELF.files if name.startswith("producers"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 1 << 70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def is_told(meta: str, files: dict[str, bytes | memoryview]) -> bool:
    """Whether it is read, or JournalDamaged says why not; anything else comes up."""
    try:
        engine = restore(meta, lambda name: memoryview(files[name]), LAYOUT)
        engine.check()
    except JournalDamaged:
        return True
    except DejaQError as wrong:  # who looks sees it
        return bool(str(wrong))
    return True


def paths(values: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(values, dict):
        inner = list(values.items())
    elif isinstance(values, list):
        inner = list(enumerate(values))
    return [at, *(path for key, value in inner for path in paths(value, (*at, key)))]


def replaced(values: Any, path: tuple[Any, ...], by: Any) -> Any:
    """A copy with another value there."""
    if not path:
        return by
    changed = copy.deepcopy(values)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = by
    return changed


@given(st.sampled_from(paths(META)), JSON)
@example(("leases", 1), -5)
@example(("order", 1), 1 << 70)
def test_another_value_in_its_text(path: tuple[Any, ...], by: Any) -> None:
    assert is_told(json.dumps(replaced(META, path, by)), SHELF.files)


@given(st.sampled_from([SMALL, PRODUCERS]), st.data(), JSON)
def test_another_value_in_a_file_of_json(name: str, data: st.DataObject, by: Any) -> None:
    values = json.loads(bytes(SHELF.files[name]))
    path = data.draw(st.sampled_from(paths(values)))
    assert is_told(
        SHELF.meta, SHELF.files | {name: json.dumps(replaced(values, path, by)).encode()}
    )


@given(
    st.sampled_from(sorted(SHELF.files)), st.integers(0, 5_000), st.binary(max_size=64), st.data()
)
def test_other_bytes_in_a_file(name: str, at: int, garbage: bytes, data: st.DataObject) -> None:
    content = bytearray(SHELF.files[name])
    at %= len(content) + 1
    content[at : at + len(garbage)] = garbage
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    assert is_told(SHELF.meta, SHELF.files | {name: bytes(content)})


@given(st.text(max_size=30) | st.binary(max_size=30).map(lambda some: some.decode("latin-1")))
def test_any_text(meta: str) -> None:
    assert is_told(meta, SHELF.files)
