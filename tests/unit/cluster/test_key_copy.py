"""A broker's own copy of the keys: believed with its seal alone, changed while it is stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dejaqueue.access.key_ring import KeyRing
from dejaqueue.access.seal import Seal
from dejaqueue.clock import SystemClock
from dejaqueue.cluster.embedded import keys_beside
from dejaqueue.cluster.key_copy import KeyCopy, is_of_cluster, opened_copy
from dejaqueue.cluster.secret import machine_secret
from dejaqueue.cluster.shared_keys import PREFIX, SharedKeys
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import JournalDamaged, Locked, Refused, Unavailable
from dejaqueue.settings import BrokerSettings, ClusterSettings, JournalSettings

LEASE_MS = 5_000
SEAL = Seal("the secret of a cluster")


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def opened(facts: ProcessFacts, directory: Path) -> tuple[KeyRing, SharedKeys]:
    """A broker's keys, with a copy."""
    ring = KeyRing(SystemClock())
    shared = SharedKeys(facts.open(), LEASE_MS, seal=SEAL, copy=KeyCopy(directory))
    shared.open(ring)
    return ring, shared


@pytest.mark.parametrize("found", [None, b"{}", b"nothing"])
def test_a_broker_that_starts_while_the_document_is_lost_goes_by_its_copy(
    found: bytes | None, tmp_path: Path
) -> None:
    facts = ProcessFacts()
    ring, _ = opened(facts, tmp_path / "a")
    _, root = ring.create("root", ["admin:*"])
    gone, _ = ring.create("gone", ["produce:x"])
    ring.revoke("gone")
    coordinator = facts.open()
    if found is None:
        coordinator.delete(PREFIX + "keys")
    else:
        coordinator.put(PREFIX + "keys", found)
    again, shared = opened(facts, tmp_path / "a")
    assert again.required
    assert again.find(root).name == "root"
    assert not again.is_live(gone.id)
    shared.refresh()
    assert opened(facts, tmp_path / "b")[0].find(root).name == "root", "it was put back"


def test_a_copy_with_a_wrong_seal_is_left_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    facts = ProcessFacts()
    ring, _ = opened(facts, tmp_path)
    key, root = ring.create("root", ["admin:*"])
    path = tmp_path / "cluster-keys.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"revoked": {key.id: None}}))
    assert opened(facts, tmp_path)[0].find(root).name == "root"
    assert "copy of the API keys is left aside" in caplog.text


def test_a_copy_that_cannot_be_kept_keeps_no_key_from_working(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring, _ = opened(ProcessFacts(), tmp_path / "a")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cluster-keys.json").mkdir()
    _, root = ring.create("root", ["admin:*"])
    assert ring.find(root).name == "root"
    assert "are not kept in this broker's own copy" in caplog.text


def test_a_copy_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster-keys.json").mkdir()
    with pytest.raises(Unavailable, match=r"cluster-keys\.json could not be read"):
        opened(ProcessFacts(), tmp_path)


# --- changed while its broker is stopped -------------------------------------------------------


def of_cluster(directory: Path) -> BrokerSettings:
    nodes = "a=127.0.0.1:7470,b=127.0.0.1:7480,c=127.0.0.1:7490"
    return BrokerSettings(
        journal=JournalSettings(url=str(directory)), cluster=ClusterSettings(node="a", nodes=nodes)
    )


def test_a_key_made_at_a_stopped_node_holds_when_it_is_back(tmp_path: Path) -> None:
    given = of_cluster(tmp_path / "a")
    machine_secret(tmp_path / "a")
    facts = ProcessFacts()
    before = KeyRing(SystemClock())
    keys_beside(given, facts.open()).open(before)
    _, lost = before.create("root", ["admin:*"])
    assert not is_of_cluster(tmp_path)
    assert is_of_cluster(tmp_path / "a")
    with opened_copy(tmp_path / "a", "") as copy:
        assert copy.find(lost).name == "root"
        copy.revoke("root", force=True)
        _, text = copy.create("second", ["admin:*"])
        with pytest.raises(Locked), opened_copy(tmp_path / "a", ""):
            pass
    back = KeyRing(SystemClock())
    shared = keys_beside(given, facts.open())
    shared.open(back)
    assert back.find(text).name == "second"
    shared.refresh()
    for ring in (before, KeyRing(SystemClock())):
        keys_beside(of_cluster(tmp_path / "b"), facts.open()).open(ring)
        assert [key.name for key in ring.all()] == ["second"]
    assert (tmp_path / "a" / "cluster-keys.json").stat().st_mode & 0o777 == 0o600


def test_the_first_key_of_a_cluster_is_made_before_it_starts(tmp_path: Path) -> None:
    machine_secret(tmp_path / "a")
    with opened_copy(tmp_path / "a", "") as copy:
        _, text = copy.create("root", ["admin:*"])
    ring = KeyRing(SystemClock())
    facts = ProcessFacts()
    keys_beside(of_cluster(tmp_path / "a"), facts.open()).open(ring)
    assert ring.required
    assert ring.find(text).name == "root"


def test_a_copy_needs_the_secret_of_its_cluster(tmp_path: Path) -> None:
    (tmp_path / "a" / "jetstream").mkdir(parents=True)
    with (
        pytest.raises(Refused, match="DEJAQ_CLUSTER__SECRET_FILE"),
        opened_copy(tmp_path / "a", ""),
    ):
        pass
    file = tmp_path / "secret"
    file.write_text("sixteen letters!")
    with opened_copy(tmp_path / "a", str(file)) as copy:
        copy.create("root", ["admin:*"])
    file.write_text("another sixteen!")
    with pytest.raises(JournalDamaged, match="seal"), opened_copy(tmp_path / "a", str(file)):
        pass
