"""Covers: a broker that archives between two backups: each request fails, its answer is lost or the
broker dies there; chains that go on, end and begin; what is refused, and what is told.

Not covered: processes, S3, load (tests/integration/test_archive.py); the causality of a turn
(tests/unit/journal/segments/test_log_turn.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from dejaqueue.backup import archive as archive_module
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.log_chain import LogChain, chain_names
from dejaqueue.broker.backup import archiver as archiver_module
from dejaqueue.broker.backup import schedule
from dejaqueue.broker.backup.archiver import Archiver
from dejaqueue.broker.backup.cut import HeldPartition
from dejaqueue.broker.backup.restoring import RestorePlan
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.watching.health import health_of
from dejaqueue.clock import Wake
from dejaqueue.connections.bucket import Bucket, DirectoryBucket
from dejaqueue.errors import BadRequest, JournalDamaged, Unavailable
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.journal.segments.log_turn import LogSlice
from dejaqueue.setting_groups import BackupSettings
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.backups import client_of, newest, restored, settings_of, taken
from tests.patience import until

FAR = 3_600


def archiving(tmp_path: Path, data: str = "data", interval_ms: int = 1) -> BrokerSettings:
    backup = BackupSettings(
        url=str(tmp_path / "backups"), interval_ms=86_400_000, archive_interval_ms=interval_ms
    )
    return settings_of(tmp_path / data).model_copy(update={"backup": backup})


def started(tmp_path: Path, data: str = "data", interval_ms: int = 1) -> Broker:
    broker = Broker(archiving(tmp_path, data, interval_ms))
    broker.start()
    return broker


@pytest.fixture(autouse=True)
def _no_backup_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "FIRST_MS", 3_600_000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = started(tmp_path)
    client_of(broker).create_topic("a", partitions=3)
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    yield broker
    broker.stop()


def sent(broker: Broker, *payloads: bytes, topic: str = "a") -> None:
    client = client_of(broker)
    for payload in payloads:
        client.send(topic, payload, delay=FAR)


def archived(broker: Broker) -> None:
    until(lambda: broker.backups.archiver.lag_us() == 0, "all is archived")


def chain_of(tmp_path: Path) -> LogChain:
    url = str(tmp_path / "backups")
    return LogChain(Archive.open(url).bucket, newest(url).chain)


def restored_payloads(tmp_path: Path, until_ms: int | None = None) -> set[bytes]:
    target = tmp_path / "restored"
    shutil.rmtree(target, ignore_errors=True)
    plan = RestorePlan(follows=True, until_ms=until_ms)
    restored(tmp_path / "backups", target, plan)
    broker = Broker(settings_of(target))
    broker.start()
    found = client_of(broker).peek("a", limit=10_000).column("payload").to_pylist()
    broker.stop()
    return set(found)


class FaultyBucket(DirectoryBucket):
    """Does something at each request that stores a piece."""

    faults: ClassVar[list[str]] = []

    def put_new(self, name: str, content: bytes | memoryview) -> bool:
        fault = self.faults.pop(0) if self.faults and name.startswith("chains/") else ""
        if fault == "refused":
            raise Unavailable("503", 1)
        found = super().put_new(name, content)
        if fault == "lost":
            raise Unavailable("the connection was closed", 1)
        return found


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    def opened(url: str, *_: object, **__: object) -> Bucket:
        return FaultyBucket(Path(url))

    FaultyBucket.faults = []
    for module in (archive_module, archiver_module):
        monkeypatch.setattr(module, "open_bucket", opened)
    monkeypatch.setattr(archiver_module, "AGAIN_MS", 1)
    return FaultyBucket.faults


def test_what_is_acknowledged_is_archived__a_moment_later(tmp_path: Path, broker: Broker) -> None:
    sent(broker, b"1", b"2", b"3")
    archived(broker)
    assert restored_payloads(tmp_path) == {b"1", b"2", b"3"}
    archiver = broker.backups.archiver
    assert archiver.pieces == len(chain_of(tmp_path).numbers())
    assert archiver.waits.read().count > 0
    assert archiver.stored_bytes > 0
    pieces = archiver.pieces
    until(lambda: broker.backups.archiver.lag_us() == 0, "nothing is done")
    assert archiver.pieces == pieces, "nothing is stored while nothing is done"


@pytest.mark.parametrize("fault", ["refused", "lost"])
def test_a_store_that_fails_at_any_request_loses_nothing(
    tmp_path: Path, faults: list[str], broker: Broker, fault: str
) -> None:
    payloads = [b"%d" % number for number in range(12)]
    for payload in payloads:
        faults += [fault, fault, ""]
        sent(broker, payload)
        archived(broker)
    assert broker.backups.archiver.failures > len(payloads)
    assert restored_payloads(tmp_path) == set(payloads)
    archive = Archive.open(str(tmp_path / "backups"))
    assert archive.chain_damage(newest(tmp_path / "backups"))[0] == []


def test_a_copy_of_the_disk_at_any_piece_goes_on_with_the_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = started(tmp_path)
    client_of(broker).create_topic("a")
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    payloads = [b"%d" % number for number in range(6)]
    for life, payload in enumerate(payloads):
        sent(broker, payload)
        archived(broker)
        name = f"life-{life}"
        # As a kill leaves it: the lock goes, nothing is closed.
        shutil.copytree(
            broker.store.root,  # type: ignore[attr-defined]
            tmp_path / name,
        )
        broker.backups.archiver.pieces = 0
        broker.stop()
        shutil.rmtree(tmp_path / "data")
        (tmp_path / name).rename(tmp_path / "data")
        pieces = len(chain_of(tmp_path).numbers())
        broker = started(tmp_path)
        until(lambda: broker.backups.archiver._chain is not None, "it goes on")  # noqa: B023
        assert len(chain_of(tmp_path).numbers()) >= pieces
        assert restored_payloads(tmp_path) == set(payloads[: life + 1])
    broker.stop()


def test_an_older_copy_of_the_journals_does_not_go_on__a_full_backup_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = started(tmp_path)
    client_of(broker).create_topic("a")
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    broker.stop()
    shutil.copytree(tmp_path / "data", tmp_path / "old")
    broker = started(tmp_path)
    sent(broker, b"1", b"2")
    archived(broker)
    broker.stop()
    before = chain_of(tmp_path).name
    broker = started(tmp_path, "old")
    until(lambda: bool(broker.backups.archiver.trouble()), "it is refused")
    until(lambda: "older than piece" in caplog.text, "it is told")
    assert any("nothing is archived until" in one for one in health_of(broker).warnings)
    sent(broker, b"3")
    refused = taken(broker, tmp_path / "backups")
    assert "older than piece" in refused["error"]
    assert "an old copy was put in place" in refused["error"]
    assert restored_payloads(tmp_path) == {b"1", b"2"}, "what was archived is the newest still"
    assert taken(broker, tmp_path / "backups", full=True)["state"] == "done"
    archived(broker)
    sent(broker, b"4")
    archived(broker)
    assert chain_of(tmp_path).name != before
    assert restored_payloads(tmp_path) == {b"3", b"4"}
    broker.stop()


def test_a_backup_has_the_pieces_before_it_given_up(tmp_path: Path, broker: Broker) -> None:
    sent(broker, *(b"%d" % number for number in range(9)))
    archived(broker)
    count = len(chain_of(tmp_path).numbers())
    assert count > 1
    before = newest(tmp_path / "backups")
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    archive = Archive.open(str(tmp_path / "backups"))
    assert archive.chain_damage(before) == ([], count), "somebody may be reading them"
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    until(lambda: len(chain_of(tmp_path).numbers()) == 1, "all but the last are given up")
    sent(broker, b"new")
    archived(broker)
    assert restored_payloads(tmp_path) == {b"new", *(b"%d" % number for number in range(9))}


def test_a_missing_beginning_is_found__also_if_its_topic_got_nothing_since(
    tmp_path: Path, broker: Broker
) -> None:
    client_of(broker).create_topic("b")
    for topic in ("a", "b"):  # so that the catalogue has nothing to say behind the backup
        sent(broker, *[b"before"] * 9, topic=topic)
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    archived(broker)
    before = len(chain_of(tmp_path).numbers())
    sent(broker, b"only", topic="b")
    archived(broker)
    sent(broker, b"1", b"2")
    archived(broker)
    archive, chain = Archive.open(str(tmp_path / "backups")), chain_of(tmp_path)
    manifest = newest(tmp_path / "backups")
    assert archive.chain_damage(manifest) == ([], len(chain.numbers()))
    chain.delete(range(1, before + 2))
    first = chain.path(manifest.chain_from)
    assert archive.chain_damage(manifest) == ([f"{first} is missing"], 0)
    with pytest.raises(JournalDamaged, match="is missing"):
        restored_payloads(tmp_path)


def test_any_instant_behind_the_backup_is_restored(tmp_path: Path, broker: Broker) -> None:
    instants = {}
    for payload in (b"1", b"2", b"3"):
        sent(broker, payload)
        instants[payload] = broker.clock.utc_ms()
        broker.clock.wait_until(broker.clock.now_us() + 5_000, Wake())
    archived(broker)
    assert restored_payloads(tmp_path, instants[b"1"]) == {b"1"}
    assert restored_payloads(tmp_path, instants[b"2"]) == {b"1", b"2"}
    with pytest.raises(BadRequest, match=r"^to: up to 20"):
        restored_payloads(tmp_path, instants[b"3"] + 3_600_000)


def test_what_does_not_fit_in_a_piece_goes_into_more__restored_where_they_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    monkeypatch.setattr(archiver_module, "PIECE_BYTES", 1)
    client = client_of(broker)
    with client.transaction() as transaction:
        for number in range(6):
            transaction.send("a", b"%d" % number, delay=FAR)
    archived(broker)
    chain = chain_of(tmp_path)
    pieces = list(chain.pieces(chain.numbers()))
    assert any(not piece.at_ms for piece in pieces)
    assert all(len(piece.slices) == 1 for piece in pieces)
    assert len(restored_payloads(tmp_path)) == 6
    while pieces[-1].at_ms:  # the end of it is lost
        chain.delete(range(pieces[-1].number, pieces[-1].number + 1))
        pieces.pop()
    assert len(restored_payloads(tmp_path)) in {0, 6}


def test_what_is_acknowledged_in_the_millisecond_of_a_turn_is_restored_at_that_instant(
    tmp_path: Path,
) -> None:
    clock = VirtualClock()
    broker = Broker(archiving(tmp_path, interval_ms=60_000), clock=clock)
    broker.start()
    client_of(broker).create_topic("a")
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    archiver = broker.backups.archiver
    until(lambda: broker.store.turn.number > 1, "it begins")  # type: ignore[attr-defined]
    archived(broker)
    instant = clock.utc_ms()
    for payload in (b"1", b"2"):
        sent(broker, payload)
        archiver._turn()  # its thread waits for the interval
    clock.advance(ms=5)
    sent(broker, b"3")
    archiver._turn()
    assert archiver.pieces == 3
    assert restored_payloads(tmp_path, instant) == {b"1", b"2"}
    broker.stop()


class TornArchiver(Archiver):
    """A turn begins whenever somebody has looked at one of what says how far behind it is."""

    instants: ClassVar[dict[str, int]] = {}

    def _look(self, name: str) -> int:
        found, instants = self.instants.get(name, 0), self.instants
        if instants.get("changed"):
            instants["oldest"], instants["changed"] = instants["changed"], 0
        return found

    _changed_us = property(
        lambda self: self._look("changed"), lambda self, at: self.instants.update(changed=at)
    )
    _oldest_us = property(
        lambda self: self._look("oldest"), lambda self, at: self.instants.update(oldest=at)
    )


def test_who_asks_while_a_turn_begins_is_told_how_far_behind_it_is(broker: Broker) -> None:
    with ThreadPoolExecutor(1) as executor:
        archiver = TornArchiver(broker, executor)
        for _ in range(2):
            archiver._changed_us = broker.clock.now_us() - 1_000
            archiver._oldest_us = 0
            assert archiver.lag_us() >= 1_000


def test_topics_that_come_and_go_behind_the_backup_are_as_they_were(
    tmp_path: Path, broker: Broker
) -> None:
    client = client_of(broker)
    client.create_topic("gone")
    sent(broker, b"1", topic="gone")
    client.create_topic("late", partitions=2)
    sent(broker, b"2", topic="late")
    sent(broker, b"3")
    client.delete_topic("gone")
    archived(broker)
    report = restored(tmp_path / "backups", tmp_path / "new", RestorePlan(follows=True))
    assert (sorted(report.topics), report.messages) == (["a", "late"], 2)


def test_a_stop_archives_what_was_done_last(tmp_path: Path) -> None:
    broker = started(tmp_path, interval_ms=60_000)
    client_of(broker).create_topic("a")
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    sent(broker, b"0")
    client_of(broker).create_topic("b", partitions=16)
    sent(broker, *(b"%d" % number for number in range(1, 16)), topic="b")
    broker.stop()
    report = restored(tmp_path / "backups", tmp_path / "new", RestorePlan(follows=True))
    assert report.messages == 16


def test_entries_that_were_given_back_end_the_chain__the_next_backup_begins_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    def given_back(*_: object) -> LogSlice:
        raise JournalDamaged("entry 7 was given back")

    before = chain_of(tmp_path).name
    with monkeypatch.context() as patch:
        patch.setattr(archiver_module, "read_slice", given_back)
        sent(broker, b"1")
        until(lambda: bool(broker.backups.archiver.trouble()), "it ends")
    sent(broker, b"2")
    assert broker.backups.archiver.lag_us() > 0
    assert restored_payloads(tmp_path) == set()
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    sent(broker, b"3")
    archived(broker)
    assert broker.backups.trouble() == ""
    assert chain_of(tmp_path).name != before
    until(lambda: chain_names(chain_of(tmp_path)._bucket) == {chain_of(tmp_path).name}, "one")
    assert restored_payloads(tmp_path) == {b"1", b"2", b"3"}


def test_what_cannot_be_archived_is_refused_at_the_start(tmp_path: Path) -> None:
    backup = archiving(tmp_path).backup
    nowhere = BackupSettings(archive_interval_ms=100)
    wrong: list[tuple[Broker, str]] = [
        (
            Broker(
                settings_of(f"sqlite:///{tmp_path}/x.db").model_copy(update={"backup": backup}),
                store=MemoryStore(),  # whose settings say something else
            ),
            r"^backup\.archive_interval_ms: 0, but for journals in a directory, .* or on servers",
        ),
        (
            Broker(settings_of(tmp_path / "y").model_copy(update={"backup": nowhere})),
            r"^backup\.archive_interval_ms: 0 without backup\.url",
        ),
    ]
    for broker, text in wrong:
        with pytest.raises(BadRequest, match=text):
            broker.start()


def test_an_archive_that_is_behind_is_told(
    tmp_path: Path, faults: list[str], monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    monkeypatch.setattr(archiver_module, "LATE_MS", 20)
    archived(broker)
    faults += ["refused"] * 1_000_000
    sent(broker, b"1")
    until(lambda: "behind: the log says why" in broker.backups.trouble(), "it is told")
    assert any("the archive is 0 s behind" in one for one in health_of(broker).warnings)
    faults.clear()
    archived(broker)
    assert broker.backups.trouble() == ""
    assert restored_payloads(tmp_path) == {b"1"}


def test_an_entry_that_its_partition_was_not_told_of_at_the_cut_is_archived(
    tmp_path: Path, broker: Broker
) -> None:
    sent(broker, b"1", b"2", b"3")
    archiver, served = broker.backups.archiver, broker.runtime("a")
    note = archiver.note()
    held = [
        HeldPartition(served, part.core, part.core.journal, part.core.position)
        for part in served.partitions
    ]
    assert archiver.bounds(note, held) == note.logs
    used = max(held, key=lambda one: one.position)
    early = used._replace(position=used.position - 1)
    found = archiver.bounds(note, [early])
    journal = used.journal
    assert isinstance(journal, SegmentJournal)
    behind = journal.log.part(journal.number).runs.position_of(used.position)
    (name,) = (name for name, log in broker.store.open_logs().items() if log is journal.log)  # type: ignore[attr-defined]
    assert found == note.logs | {name: behind - 1}


def lives(tmp_path: Path) -> Broker:
    """One whose journals have many small files, with a backup and a topic `a`."""
    settings = archiving(tmp_path)
    small = settings.journal.model_copy(update={"segment_bytes": 1 << 16})
    broker = Broker(settings.model_copy(update={"journal": small}))
    broker.start()
    return broker


def segments_of(tmp_path: Path) -> int:
    return len(list((tmp_path / "data").rglob("*.segment")))


def fill(broker: Broker, topic: str, partitions: int) -> None:
    """Each batch is a file of the journal, but for the last ones."""
    client = client_of(broker)
    client.create_topic(topic, partitions=partitions)
    for _ in range(10 + 2 * partitions):
        rows = [{"payload": bytes(8_000), "delay": FAR}] * 10
        client.send_batch(topic, rows).raise_for_status()


@pytest.fixture
def away(tmp_path: Path, faults: list[str], monkeypatch: pytest.MonkeyPatch) -> Broker:
    """The archive is away, and a topic was filled and deleted meanwhile."""
    monkeypatch.setattr(archiver_module, "STOP_SECONDS_MAX", 0.05)
    monkeypatch.setattr(archiver_module, "AGAIN_MS_MAX", 5)
    broker = lives(tmp_path)
    client_of(broker).create_topic("a")
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    sent(broker, b"before")
    archived(broker)
    faults += ["refused"] * 1_000_000
    fill(broker, "scratch", 1)
    client_of(broker).delete_topic("scratch")
    return broker


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_topic_had_that_is_deleted_stays_until_it_is_archived(
    tmp_path: Path, faults: list[str], away: Broker, restarts: bool
) -> None:
    broker = away
    if restarts:
        broker.stop()
        broker = lives(tmp_path)
    fill(broker, "later", 16)  # it is in all logs
    sent(broker, b"behind")
    count = segments_of(tmp_path)
    faults.clear()
    archived(broker)
    assert broker.backups.archiver.trouble() == ""
    assert restored_payloads(tmp_path) == {b"before", b"behind"}
    until(lambda: segments_of(tmp_path) <= count - 8, "its room is given back")
    broker.stop()


def test_an_archive_that_is_behind_for_long_does_not_keep_room(
    tmp_path: Path, faults: list[str], away: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(away, "later", 16)
    count = segments_of(tmp_path)
    monkeypatch.setattr(archiver_module, "KEEP_US", 0)
    until(lambda: segments_of(tmp_path) <= count - 8, "its room is given back")
    faults.clear()
    assert taken(away, tmp_path / "backups")["state"] == "done"
    archived(away)
    assert away.backups.archiver.trouble() == ""
    away.stop()
