"""Findings of a broker: what of its machine and settings will hurt, and what is no finding.

Not covered: ends of certificates (tests/unit/access/test_certificates.py), when a backup is late
(tests/unit/broker/backup/test_backup_counts.py), the page (tests/unit/console/test_checks.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.broker.watching.findings import (
    BACKUP_AGE_MS,
    check_backups,
    check_papers,
    check_payloads,
    check_room,
    check_stored,
    check_subscriptions,
    findings_of,
)
from dejaqueue.configuration import ENVIRONMENT_PREFIX
from dejaqueue.findings import Level
from dejaqueue.model import Topic
from dejaqueue.setting_groups import BackupSettings, EncryptionSettings, PayloadSettings
from dejaqueue.settings import (
    BrokerSettings,
    JournalSettings,
    ServerSettings,
    known_settings,
)

DAY_MS = 86_400_000
STORED = JournalSettings(url="/var/lib/none", reserve_bytes=0)
TLS = ServerSettings(tls_certificate="/nowhere/a.pem", tls_key="/nowhere/b.pem")


@pytest.mark.parametrize(
    ("kept_ms", "backup_ms", "is_told"),
    [
        (DAY_MS, DAY_MS, False),
        (DAY_MS - 1, DAY_MS, True),
        (DAY_MS, 0, True),
        (0, DAY_MS, True),
    ],
)
def test_payloads_that_go_before_their_backups_are_told(
    kept_ms: int, backup_ms: int, is_told: bool
) -> None:
    payloads = PayloadSettings(url="/var/payloads", keep_ms=kept_ms)
    backup = BackupSettings(url="/var/backups", keep_ms=backup_ms)
    settings = BrokerSettings(journal=STORED, payloads=payloads, backup=backup)
    found = [one.level for one in check_payloads(settings)]
    assert found == [Level.LOOK] * is_told
    assert not list(check_payloads(BrokerSettings(journal=STORED, backup=backup)))


def test_a_subscription_that_fills_its_topic_is_told() -> None:
    topic = Topic("t", max_backlog_count=10, max_backlog_bytes=100)
    backlogs = {"a": Backlog(7, 79), "b": Backlog(8, 10), "c": Backlog(1, 100)}
    found = [(one.level, one.text) for one in check_subscriptions(topic, backlogs)]
    assert found == [
        (Level.LOOK, "t@b has 8 of the 10 messages that t may hold: its producers will be refused"),
        (Level.HURTS, "t@c has 100 of the 100 bytes that t may hold: its producers are refused"),
    ]
    assert not list(check_subscriptions(Topic("t"), backlogs))


def test_room_is_judged_by_the_reserve(tmp_path: Path) -> None:
    levels = [check_room(tmp_path, tmp_path, byte_count).level for byte_count in (1 << 60, 0)]
    assert levels == [Level.HURTS, Level.FINE]


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        (BrokerSettings(journal=STORED, server=TLS), True),
        (BrokerSettings(journal=STORED), False),
        (BrokerSettings(journal=JournalSettings(url="memory:"), server=TLS), False),
        (BrokerSettings(journal=STORED, server=TLS,
                        encryption=EncryptionSettings(master_key="file:/k")), False),
    ],
)  # fmt: skip
def test_what_is_protected_on_the_way_alone_is_told(
    settings: BrokerSettings, is_told: bool
) -> None:
    assert [one.check for one in check_stored(settings)] == ["encryption"] * is_told


@pytest.mark.parametrize(
    ("settings", "last_ms", "part"),
    [
        (BrokerSettings(journal=STORED), 0, "lost with its disk"),
        (BrokerSettings(journal=STORED), 50 * DAY_MS, "50 days old"),
        (BrokerSettings(journal=STORED), 100 * DAY_MS - BACKUP_AGE_MS, ""),
        (BrokerSettings(journal=STORED, backup=BackupSettings(url="/b")), 0, ""),
        (BrokerSettings(journal=JournalSettings(url="memory:")), 0, ""),
    ],
)
def test_no_backup_is_told__and_an_old_one(
    settings: BrokerSettings, last_ms: int, part: str
) -> None:
    found = [one.text for one in check_backups(settings, last_ms, 100 * DAY_MS)]
    assert [part in text for text in found] == ([True] if part else [])


def test_a_certificate_that_cannot_be_read_is_a_finding_and_no_end() -> None:
    [one] = check_papers(BrokerSettings(server=TLS), 0)
    assert (one.level, "/nowhere/a.pem" in one.text) == (Level.HURTS, True)


def test_each_setting_that_mends_is_one() -> None:
    settings = BrokerSettings(journal=STORED, server=TLS)
    found = [*check_stored(settings), *check_backups(settings, 0, 0)]
    known = {f"{ENVIRONMENT_PREFIX}{group}__{name}".upper() for group, name, _ in known_settings()}
    assert len(found) == 2
    assert {one.mend.partition("=")[0] for one in found} <= known


def test_of_a_running_broker_what_is_fine_is_left_out__and_what_hurts_is_first(
    tmp_path: Path,
) -> None:
    made = Broker(BrokerSettings(journal=JournalSettings(url=str(tmp_path), reserve_bytes=1 << 50)))
    made.start()
    try:
        assert [one.check for one in findings_of(made)] == ["room", "backups"]
        made.backups.counts.fail()
        [_, backup] = findings_of(made)
        assert (backup.level, "the last backup failed" in backup.text) == (Level.HURTS, True)
    finally:
        made.stop()
    made = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    made.start()
    assert findings_of(made) == []
    made.stop()
