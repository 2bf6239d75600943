"""Covers: where master keys come from, and what is said of those that are not there.

Not covered: what they wrap (test_data_keys.py).
"""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag

from dejaqueue.errors import BadRequest, EncryptionKeyMissing
from dejaqueue.journal.encryption.master_keys import (
    LocalMasterKey,
    MasterKey,
    load_master_keys,
)

NEW, OLD = bytes(range(32)), bytes(range(1, 33))
LINES = f"{base64.b64encode(NEW).decode()}\n\n  {base64.b64encode(OLD).decode()}\n"


def plugin() -> list[MasterKey]:
    return [LocalMasterKey(OLD)]


def no_keys() -> list[MasterKey]:
    return []


def test_a_key_wraps_and_finds_what_it_did_not_wrap() -> None:
    key = LocalMasterKey(NEW)
    wrapped = key.wrap(b"data key")
    assert key.unwrap(wrapped) == b"data key"
    assert key.wrap(b"data key") != wrapped
    assert key.name == LocalMasterKey(NEW).name != LocalMasterKey(OLD).name
    with pytest.raises(InvalidTag):
        LocalMasterKey(OLD).unwrap(wrapped)


def test_keys_of_a_file_of_the_environment_and_of_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "master.key"
    path.touch(mode=0o600)
    path.write_text(LINES)
    names = [LocalMasterKey(NEW).name, LocalMasterKey(OLD).name]
    assert [key.name for key in load_master_keys(f"file:{path}")] == names
    monkeypatch.setenv("MASTER", LINES)
    assert [key.name for key in load_master_keys("env:MASTER")] == names
    found = load_master_keys(f"plugin:{__name__}:plugin")
    assert [key.name for key in found] == names[1:]


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    path.write_text(LINES)
    path.chmod(0o640)
    with pytest.raises(EncryptionKeyMissing, match=r"others may read .*mode 0640.*chmod 600"):
        load_master_keys(f"file:{path}")
    with pytest.raises(EncryptionKeyMissing, match="none.key cannot be read"):
        load_master_keys(f"file:{tmp_path}/none.key")


def test_what_is_no_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EncryptionKeyMissing, match="the variable MASTER_THAT_IS_NOT_SET is not"):
        load_master_keys("env:MASTER_THAT_IS_NOT_SET")
    monkeypatch.setenv("MASTER", f"{LINES}c2hvcnQ=")
    with pytest.raises(BadRequest, match="env:MASTER, line 3: lines with 32 bytes in Base64"):
        load_master_keys("env:MASTER")
    for text in ("", "not base64!"):
        monkeypatch.setenv("MASTER", text)
        with pytest.raises(BadRequest):
            load_master_keys("env:MASTER")
    for source in (
        "vault:x",
        "file:",
        "plugin:x",
        "plugin:no.such.module:f",
        f"plugin:{__name__}:f",
    ):
        with pytest.raises(BadRequest, match="encryption.master_key"):
            load_master_keys(source)
    with pytest.raises(BadRequest, match="at least one master key"):
        load_master_keys(f"plugin:{__name__}:no_keys")
