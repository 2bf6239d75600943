"""Covers: a broker whose master key is in a real Vault's transit engine: what it wrote is read
after a rotation within Vault, and is refused without the right, or while Vault is sealed.

Not covered: how each answer is translated (tests/unit/journal/encryption/test_key_services.py).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.errors import EncryptionKeyMissing, Unavailable
from dejaqueue.setting_groups import EncryptionSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from dev.services.service import program
from tests.backups import client_of

pytestmark = pytest.mark.may_skip


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of an empty server with a key `transit/dejaq`; who is root there."""
    import hvac

    server = program("dejaq-vault")
    if server is None:
        pytest.skip("not installed: the program dejaq-vault (tests/integration/vault)")
    process = subprocess.Popen([server], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address, token, unseal_key = process.stdout.readline().split()
        monkeypatch.setenv("VAULT_ADDR", address)
        monkeypatch.setenv("VAULT_TOKEN", token)
        client = hvac.Client(address, token)
        client.unseal_key = unseal_key
        client.sys.enable_secrets_engine("transit")
        client.secrets.transit.create_key("dejaq")
        yield client
        client.adapter.close()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def broker_on(data: Path) -> Broker:
    broker = Broker(
        BrokerSettings(
            journal=JournalSettings(url=str(data)),
            encryption=EncryptionSettings(master_key="vault:transit/dejaq"),
        )
    )
    broker.start()
    return broker


def test_a_broker_reads_what_it_wrote__after_a_rotation__and_with_few_rights(
    vault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = """path "transit/encrypt/dejaq" { capabilities = ["update"] }
path "transit/decrypt/dejaq" { capabilities = ["update"] }"""
    vault.sys.create_or_update_policy("broker", policy)
    token = vault.auth.token.create(policies=["broker"], no_parent=True)["auth"]["client_token"]
    monkeypatch.setenv("VAULT_TOKEN", token)
    for life in range(3):
        broker = broker_on(tmp_path / "data")
        with client_of(broker) as client:
            if not life:
                client.create_topic("mail")
            client.send("mail", b"a-marker-%d" % life, delay=3_600)
            found = client.peek("mail").column("payload").to_pylist()
            assert sorted(found) == [b"a-marker-%d" % one for one in range(life + 1)]
        broker.stop()
        vault.secrets.transit.rotate_key("dejaq")
    files = [one for one in (tmp_path / "data").rglob("*") if one.is_file()]
    assert not any(b"a-marker" in one.read_bytes() for one in files)


def test_a_broker_does_not_start_without_the_right__or_while_vault_is_sealed(
    vault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker_on(tmp_path / "data").stop()
    token = vault.auth.token.create(policies=["default"], no_parent=True)["auth"]["client_token"]
    with monkeypatch.context() as patch:
        patch.setenv("VAULT_TOKEN", token)
        with pytest.raises(EncryptionKeyMissing, match="permission denied"):
            broker_on(tmp_path / "data")
    vault.sys.seal()
    with pytest.raises(Unavailable, match="sealed"):
        broker_on(tmp_path / "data")
    vault.sys.submit_unseal_key(vault.unseal_key)
    broker_on(tmp_path / "data").stop()
    vault.secrets.transit.update_key_configuration("dejaq", deletion_allowed=True)
    vault.secrets.transit.delete_key("dejaq")
    with pytest.raises(EncryptionKeyMissing, match="vault:transit/dejaq"):
        broker_on(tmp_path / "data")
