"""Covers: which URL opens which store."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.registry import encrypt, open_store, store_of
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.setting_groups import EncryptionSettings
from dejaqueue.settings import BrokerSettings, JournalSettings


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


def test_a_broker_with_a_master_key_encrypts__one_without_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER", base64.b64encode(bytes(32)).decode())
    store = store_of(BrokerSettings(journal=JournalSettings(url=str(tmp_path))))
    encrypt(store, EncryptionSettings())
    assert store.encryption is None
    encrypt(store, EncryptionSettings(master_key="env:MASTER", clear_bytes_max=1 << 20))
    assert store.encryption is not None
    assert store.clear_budget is not None
    assert store.clear_budget.bytes_max == 1 << 20
    store.close()


def test_other_schemes_are_refused() -> None:
    with pytest.raises(BadRequest, match="memory:"):
        open_store("carrier-pigeon://loft")
