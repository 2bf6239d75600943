"""Covers: what a restore makes of topics and their ids; other journals, names, and what is refused;
a restore that breaks off anywhere and goes on.

Not covered: the commands (tests/unit/cli); S3 and load (tests/integration/test_backup.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup import restoring
from dejaqueue.broker.backup.archived_partition import write
from dejaqueue.broker.backup.restoring import RestorePlan, RestoreReport
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import (
    BadRequest,
    DuplicateKey,
    JournalDamaged,
    Refused,
    TopicExists,
    TopicUnknown,
)
from tests.backups import client_of, newest, restored, started, taken

FAR = 3_600


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of three topics; one of the name of a topic that was deleted."""
    root = tmp_path_factory.mktemp("restoring")
    broker = started(root / "data")
    client = client_of(broker)
    client.create_topic("gone")
    client.send_batch("gone", [{"payload": b"x", "delay": FAR}] * 7)
    client.create_topic("again")
    client.send_batch("again", [{"payload": b"x", "delay": FAR}] * 5)
    for name in ("gone", "again"):
        client.delete_topic(name)
    client.create_topic("again", kind="priority", partitions=2)
    client.alter_topic("again", partitions=3)
    client.send_batch(
        "again", [{"payload": b"a%d" % n, "delay": FAR, "key": f"k{n}"} for n in range(9)]
    )
    client.create_topic("orders", lease_ms=5_000)
    client.send_batch("orders", [{"payload": b"o%d" % n, "delay": FAR} for n in range(20)])
    client.create_topic("unused")
    assert taken(broker, root / "backups")["state"] == "done"
    broker.stop()
    return root / "backups"


def payloads(broker: Broker, topic: str) -> list[bytes]:
    return sorted(client_of(broker).peek(topic, limit=1_000).column("payload").to_pylist())


def test_topics_are_as_they_were__and_ids_go_on_behind_those_of_deleted_ones(
    backup: Path, tmp_path: Path
) -> None:
    found = restored(backup, tmp_path / "new")
    assert (found.topics, found.messages, found.voided) == (["again", "orders", "unused"], 29, 0)
    broker = started(tmp_path / "new")
    client = client_of(broker)
    assert {one.name: one.partitions for one in client.topics()} == {
        "again": 3,
        "orders": 1,
        "unused": 1,
    }
    assert client.topic("orders").lease_ms == 5_000
    assert payloads(broker, "again") == sorted(b"a%d" % n for n in range(9))
    assert payloads(broker, "orders") == sorted(b"o%d" % n for n in range(20))
    with pytest.raises(DuplicateKey):
        client.send("again", b"x", key="k3", delay=FAR)
    client.create_topic("gone")
    assert min(client.send_batch("gone", [{"payload": b"x"}]).ids) >= 7
    broker.stop()


def test_a_topic_is_restored_beside_others__under_another_name__into_another_kind_of_journal(
    backup: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    plan = RestorePlan(("orders",), "orders-before")
    assert restored(backup, url, plan).topics == ["orders-before"]
    broker = started(url)
    client_of(broker).create_topic("orders")
    client_of(broker).send("orders", b"new", delay=FAR)
    broker.stop()
    with pytest.raises(TopicExists, match="orders-before is there already"):
        restored(backup, url, plan)
    assert restored(backup, url, RestorePlan(("again",))).messages == 9
    broker = started(url)
    assert payloads(broker, "orders") == [b"new"]
    assert payloads(broker, "orders-before") == sorted(b"o%d" % n for n in range(20))
    assert taken(broker, tmp_path / "back")["state"] == "done"
    broker.stop()
    assert restored(tmp_path / "back", tmp_path / "segments").messages == 1 + 20 + 9


def test_what_cannot_be_meant_is_refused(backup: Path, tmp_path: Path) -> None:
    for plan, error, text in (
        (RestorePlan((), "x"), BadRequest, "used with one --topic"),
        (RestorePlan(("never",)), TopicUnknown, "never"),
        (RestorePlan(("orders",), "no such name"), BadRequest, "name"),
    ):
        with pytest.raises(error, match=text):
            restored(backup, tmp_path / "new", plan)


def test_damage_is_named_before_anything_is_written__the_rest_comes_when_it_is_asked_for(
    backup: Path, tmp_path: Path
) -> None:
    copy = next(one for one in newest(backup).partitions if one.topic == "orders")
    piece = next(copy.pieces)
    path = backup / "pieces" / piece.name[:2] / piece.name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        with pytest.raises(JournalDamaged, match=rf"orders/0: pieces/../{piece.name} is not what"):
            restored(backup, tmp_path / "new")
        broker = started(tmp_path / "new")
        assert client_of(broker).topics() == []
        broker.stop()
        found = restored(backup, tmp_path / "new", RestorePlan(skips_damaged=True))
        assert found.topics == ["again", "unused"]
        assert len(found.damaged) == 1
    finally:
        path.write_bytes(whole)


class Killed(BaseException):
    """As if the process had ended."""


def test_a_restore_that_breaks_off_goes_on__and_no_broker_starts_before(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, whole = tmp_path / "new", restored(backup, tmp_path / "whole")

    def killed(fail_at: int) -> RestoreReport:
        left = fail_at

        def count(*given: object) -> int:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return write(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(restoring, "write", count)
        return restored(backup, data)

    for fail_at in range(3):
        with pytest.raises(Killed):
            killed(fail_at)
        with pytest.raises(Refused, match="was not restored to its end here"):
            started(data)
        with pytest.raises(Refused, match="finish that first"):
            restored(backup, data, RestorePlan(("unused",)))
    monkeypatch.setattr(restoring, "write", write)
    found = restored(backup, data)
    assert found.topics == whole.topics
    broker = started(data)
    assert payloads(broker, "again") == sorted(b"a%d" % n for n in range(9))
    assert payloads(broker, "orders") == sorted(b"o%d" % n for n in range(20))
    broker.stop()


def test_a_backup_that_is_not_there_is_refused(backup: Path) -> None:
    with pytest.raises(BadRequest, match="one of those"):
        Archive.open(str(backup)).manifest("never")


def test_a_topic_that_was_deleted_is_put_back_in_its_place__and_goes_on(tmp_path: Path) -> None:
    broker = started(tmp_path / "data")
    client = client_of(broker)
    client.create_topic("orders", partitions=2)
    client.send_batch("orders", [{"payload": b"o%d" % n, "delay": FAR} for n in range(20)])
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    client.send_batch("orders", [{"payload": b"later", "delay": FAR}] * 4)
    client.delete_topic("orders")
    broker.stop()
    restored(tmp_path / "backups", tmp_path / "data", RestorePlan(topics=("orders",)))
    for life in range(2):
        broker = started(tmp_path / "data")
        assert len(payloads(broker, "orders")) == 20 + life
        assert client_of(broker).send("orders", b"new", delay=FAR) is not None
        broker.stop()
