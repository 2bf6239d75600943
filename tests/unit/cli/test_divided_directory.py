"""Covers: a directory for several processes, opened while none of them runs, and restored into.

Not covered: processes that then serve it (tests/crash/test_processes_archive.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.access.key_set import key_set_of
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.cli.divided_directory import (
    KEPT,
    DividedDirectory,
    is_for_several,
    process_count,
    shards_of_new,
)
from dejaqueue.cluster.placement import dealt, slot_of
from dejaqueue.coordinator.kept_facts import KeptFacts
from dejaqueue.errors import BadRequest, Locked, Refused
from dejaqueue.settings import BrokerSettings, JournalSettings, ServerSettings
from tests.backups import client_of, started, taken
from tests.cli.conftest import invoke

SEVERAL = ("--set", "server.processes=2")


def settings(url: Path | str = "data", **server: Any) -> BrokerSettings:
    return BrokerSettings(journal=JournalSettings(url=str(url)), server=ServerSettings(**server))


def test_auto_is_a_process_for_each_core() -> None:
    assert process_count(settings(processes="auto")) >= 1
    assert process_count(settings(processes="7")) == 7
    assert process_count(settings()) == 1
    for wrong in ("0", "many", "100", "-1"):
        with pytest.raises(ValueError, match="processes"):
            settings(processes=wrong)


@pytest.mark.parametrize("count", range(1, 20))
def test_a_topic_with_a_shard_for_each_process_meets_all_of_them(count: int) -> None:
    """Wherever it begins: its shards lie side by side, and the first slot follows the last."""
    names = tuple(f"process-{number}" for number in range(count))
    slots = shards_of_new(count)
    owners = dealt(names, slots, names)
    for start in range(slots):
        assert {owners[(start + shard) % slots] for shard in range(count)} == set(names)


def test_it_is_for_several_by_the_settings_or_by_what_it_was_made_for(tmp_path: Path) -> None:
    place = tmp_path / "data"
    assert not is_for_several(settings(place))
    assert is_for_several(settings(place, processes="2"))
    assert not is_for_several(settings("postgresql://h/d", processes="2"))
    DividedDirectory(settings(place, processes="2")).close()
    assert is_for_several(settings(place))
    with pytest.raises(BadRequest, match="a directory here"):
        DividedDirectory(settings("memory:", processes="2"))


def test_one_at_a_time_has_it__and_it_stays_what_it_was_made_for(tmp_path: Path) -> None:
    place = settings(tmp_path / "data", processes="3")
    first = DividedDirectory(place)
    with pytest.raises(Locked):
        DividedDirectory(place)
    first.close()
    second = DividedDirectory(settings(tmp_path / "data"))
    log = CatalogueLog(second.store)
    cluster = log.state.cluster
    log.close()
    second.close()
    assert cluster is not None
    assert cluster.slots == shards_of_new(3)
    started(tmp_path / "alone").stop()
    with pytest.raises(Refused, match="was made for one process"):
        DividedDirectory(settings(tmp_path / "alone", processes="2"))


@pytest.fixture
def backups(tmp_path: Path) -> str:
    """Where there is a backup of a broker with an API key, and topics of all sorts."""
    where, broker = str(tmp_path / "backups"), started(tmp_path / "source")
    client = client_of(broker)
    client.create_topic("wide", partitions=6)
    client.create_topic("letters")
    client.create_topic("orders", dead_letter="letters", partitions=2)
    client.create_topic("never-used")
    for number in range(60):
        client.send("wide", b"w%d" % number, key=f"k{number}", delay=3_600)
        client.send("orders", b"o%d" % number, delay=3_600)
    client.send("letters", b"l", delay=3_600)
    broker.keys.create("admin", ["admin:*"])
    taken(broker, where)
    broker.stop()
    return where


def _is_laid_out(root: Path) -> dict[str, tuple[int, int]]:
    """Where each topic lies, as the directory says."""
    found = {}
    for topic in (root / "topics").iterdir():
        for one in topic.iterdir():
            _, first, spread = one.name.split("-")
            found[topic.name.rpartition(".")[0]] = int(first), int(spread)
    return found


def test_a_backup_is_restored_for_several(tmp_path: Path, backups: str) -> None:
    new = tmp_path / "new"
    found = invoke("restore", backups, "--data", str(new), "--json", *SEVERAL)
    assert found.exit_code == 0, found.output
    values = json.loads(found.stdout)
    assert (values["messages"], values["partitions"]) == (121, 9)
    assert set(values["topics"]) == {"wide", "letters", "orders", "never-used"}
    divided = DividedDirectory(settings(new))
    log = CatalogueLog(divided.store)
    rows, slots = log.state.rows, shards_of_new(2)
    log.close()
    divided.close()
    lies = _is_laid_out(new)
    assert lies.keys() == {"wide", "letters", "orders", "never-used"}
    assert lies == {name: (slot_of(name, rows, slots), 1) for name in lies}
    assert lies["orders"] == lies["letters"], "dead letters travel in one step"
    facts = KeptFacts(new / "facts.json", KEPT)
    (kept,) = facts.find("documents/keys", whole=True)
    facts.close()
    assert [key.name for key in key_set_of(kept.value.decode(), None).keys.values()] == ["admin"]


def test_keys_that_are_there_stay(tmp_path: Path, backups: str) -> None:
    new = DividedDirectory(settings(tmp_path / "new", processes="2"))
    new.put_back_keys('{"version": 1, "keys": [], "revoked": {"gone": null}}')
    new.close()
    assert invoke("restore", backups, "--data", str(tmp_path / "new")).exit_code == 0
    facts = KeptFacts(tmp_path / "new" / "facts.json", KEPT)
    (kept,) = facts.find("documents/keys", whole=True)
    facts.close()
    assert not key_set_of(kept.value.decode(), None).keys


def test_what_has_topics_is_refused__and_one_topic_may_get_another_name(
    tmp_path: Path, backups: str
) -> None:
    new = str(tmp_path / "new")
    one = ("--topic", "wide", "--as", "before")
    found = invoke("restore", backups, "--data", new, *SEVERAL, *one, "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["messages"] == 60
    assert not KeptFacts(tmp_path / "new" / "facts.json", KEPT).find("documents/keys", whole=True)
    again = invoke("restore", backups, "--data", new)
    assert again.exit_code == 3
    assert "has 1 topics: a backup is restored into one that has none" in again.stderr
