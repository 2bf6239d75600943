"""Covers: `dejaq restore` and its options, also of a backup that is encrypted.

Not covered: what becomes of topics (tests/unit/broker/backup/test_restoring.py).
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.setting_groups import EncryptionSettings
from tests.backups import client_of, newest, settings_of, started, taken
from tests.cli.conftest import invoke

MARKER = b"MARKER-that-nobody-may-find"


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = tmp_path / "master.key"
    path.touch(mode=0o600)
    path.write_text(base64.b64encode(bytes(range(32))).decode())
    return f"file:{path}"


def test_all_or_one_topic_of_any_backup_is_restored(tmp_path: Path) -> None:
    where, broker = str(tmp_path / "backups"), started(tmp_path / "data")
    client = client_of(broker)
    client.create_topic("a")
    client.send("a", b"1", delay=3_600)
    first = taken(broker, where)["id"]
    client.send("a", b"2", delay=3_600)
    taken(broker, where)
    broker.stop()
    found = invoke("restore", where, "--data", str(tmp_path / "new"))
    assert found.exit_code == 0, found.output
    assert "1 topics with 2 messages in 1 partitions are restored, as of 20" in found.stdout
    options: tuple[str, ...] = ("--backup", first, "--topic", "a", "--as", "before", "--json")
    found = invoke("restore", where, "--data", str(tmp_path / "new"), *options)
    values = json.loads(found.stdout)
    assert (values["topics"], values["messages"], values["backup"]) == (["before"], 1, first)
    options = ("--to", str(newest(where).cut_ms), "--as", "then", "--topic", "a")
    found = invoke("restore", where, "--data", str(tmp_path / "new"), *options, "--json")
    assert json.loads(found.stdout)["messages"] == 2
    options = ("--to", "2001-01-01T00:00:00Z")
    found = invoke("restore", where, "--data", str(tmp_path / "new"), *options)
    assert (found.exit_code, "to: from 20" in found.stderr) == (2, True)
    again = invoke("restore", where, "--data", str(tmp_path / "new"))
    assert again.exit_code == 3
    assert "topic a is there already" in again.stderr
    assert invoke("restore", str(tmp_path), "--data", str(tmp_path / "x")).exit_code == 2


def test_an_encrypted_backup_needs_its_master_key__and_has_nothing_readable(
    tmp_path: Path, key: str
) -> None:
    where, settings = tmp_path / "backups", settings_of(tmp_path / "data")
    broker = Broker(settings.model_copy(update={"encryption": EncryptionSettings(master_key=key)}))
    broker.start()
    client_of(broker).create_topic("secrets")
    client_of(broker).send("secrets", MARKER, key="k", headers={"of": MARKER.decode()}, delay=3_600)
    assert taken(broker, where)["encrypted"]
    broker.stop()
    kept = [path for path in where.rglob("*") if path.is_file()]
    assert len(kept) > 3
    assert not [path for path in kept if MARKER in path.read_bytes()]
    assert invoke("backup", "verify", str(where)).exit_code == 0  # without the key
    refused = invoke("restore", str(where), "--data", str(tmp_path / "new"))
    assert refused.exit_code == 5
    assert "is encrypted, and encryption.master_key is not set" in refused.stderr
    other = tmp_path / "other.key"
    other.touch(mode=0o600)
    other.write_text(base64.b64encode(bytes(range(1, 33))).decode())
    wrong = ("--set", f"encryption.master_key=file:{other}")
    refused = invoke("restore", str(where), "--data", str(tmp_path / "new"), *wrong)
    assert "which was not given" in refused.stderr
    assert not (tmp_path / "new").exists(), "a data key there would need the wrong key for ever"
    option = ("--set", f"encryption.master_key={key}")
    found = invoke("restore", str(where), "--data", str(tmp_path / "new"), *option)
    assert found.exit_code == 0, found.output
    files = [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    assert not [path for path in files if MARKER in path.read_bytes()]
    settings = settings_of(tmp_path / "new")
    broker = Broker(settings.model_copy(update={"encryption": EncryptionSettings(master_key=key)}))
    broker.start()
    assert client_of(broker).peek("secrets").column("payload").to_pylist() == [MARKER]
    broker.stop()
