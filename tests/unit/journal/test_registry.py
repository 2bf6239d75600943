"""Covers: which URL opens which store."""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.registry import open_store
from dejaqueue.journal.segments.store import SegmentStore


def test_paths_and_segment_urls_open_directories(tmp_path: Path) -> None:
    for url in (str(tmp_path / "plain"), f"segment://{tmp_path}/url"):
        store = open_store(url, segment_bytes=1 << 16, reserve_bytes=None)
        assert type(store) is SegmentStore
        assert store.root.is_dir()
        store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "url"]


def test_memory_opens_memory() -> None:
    store = open_store("memory:")
    assert isinstance(store, MemoryStore)
    store.close()


def test_other_schemes_are_refused() -> None:
    with pytest.raises(BadRequest, match="memory:"):
        open_store("carrier-pigeon://loft")
