"""Covers: history files that are encrypted, and those that were written before.

Not covered: a broker that writes them (tests/integration/test_encryption.py).
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dejaqueue.broker.history.encode import open_parquet
from dejaqueue.broker.history.encryption import HistoryEncryption, is_encrypted
from dejaqueue.journal.encryption.master_keys import LocalMasterKey
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.schema.history import STORED

MARKER = "MARKER-of-a-key"


def encryption() -> HistoryEncryption:
    store = MemoryStore()
    store.encrypt([LocalMasterKey(b"m" * 32)])
    assert store.encryption is not None
    return HistoryEncryption(store.encryption.cipher("history"))


def write(path: Path, keys: HistoryEncryption | None) -> None:
    values = [MARKER if field.type == pa.utf8() else 0 for field in STORED]
    arrays = [pa.array([one]).cast(field.type) for one, field in zip(values, STORED, strict=True)]
    with pa.OSFile(str(path), "wb") as sink:
        writer = open_parquet(sink, None if keys is None else keys.writing())
        writer.write_table(pa.Table.from_arrays(arrays, schema=STORED).cast(writer.schema))
        writer.close()


def test_a_file_is_read_with_its_keys_alone__one_from_before_as_it_is(tmp_path: Path) -> None:
    keys = encryption()
    sealed, plain = tmp_path / "sealed.parquet", tmp_path / "plain.parquet"
    write(sealed, keys)
    write(plain, None)
    assert MARKER.encode() not in sealed.read_bytes()
    assert b"lateness_ms" not in sealed.read_bytes()  # the footer is encrypted, too
    assert MARKER.encode() in plain.read_bytes()
    assert (is_encrypted(sealed), is_encrypted(plain)) == (True, False)
    for path in (sealed, plain):
        with pq.ParquetFile(path, decryption_properties=keys.reading(path)) as file:
            assert file.read(["key"]).to_pydict() == {"key": [MARKER]}
    with pytest.raises(OSError, match="encrypt"):
        pq.ParquetFile(sealed)
    with pytest.raises(Exception, match="data key [0-9a-f]{16} is missing"):
        pq.ParquetFile(sealed, decryption_properties=encryption().reading(sealed))
