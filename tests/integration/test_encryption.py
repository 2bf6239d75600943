"""Covers: a broker that encrypts, as its users run it: `dejaq serve`, killed, with other keys; and
what is said where a key is not there. No file of the data directory has a marker.

Not covered: forged files (tests/unit/journal/segments/test_clear_text.py).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue import Client, EncryptionKeyMissing
from dejaqueue.broker.broker import Broker
from dejaqueue.setting_groups import EncryptionSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS

MARKER = b"MARKER-that-nobody-may-find"
TEXT = MARKER.decode()


def lines(*keys: int) -> str:
    return "\n".join(base64.b64encode(bytes([key]) * 32).decode() for key in keys)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "master.key"
    path.touch(mode=0o600)
    path.write_text(lines(1))
    return path


@pytest.fixture
def broker(tmp_path: Path, key_file: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "data",
        tmp_path / "broker.log",
        encryption__master_key=f"file:{key_file}",
        journal__segment_bytes=1 << 18,
        journal__snapshot_entries=50,
    )
    process.start()
    yield process
    process.kill()


def settings_of(data: Path, source: str) -> BrokerSettings:
    return BrokerSettings(
        journal=JournalSettings(url=str(data)), encryption=EncryptionSettings(master_key=source)
    )


def marked_files(directory: Path) -> list[Path]:
    """Files in which the marker is: in one piece, or as its words in UTF-16 or Base64."""
    needles = (MARKER, base64.b64encode(MARKER)[3:-4], TEXT.encode("utf-16-le"))
    found = [path for path in directory.rglob("*") if path.is_file()]
    assert len(found) > 3
    return [path for path in found if any(needle in path.read_bytes() for needle in needles)]


def send_marked(client: Client, count: int, start: int = 0) -> None:
    client.send_batch(
        "secrets",
        [
            {
                "payload": MARKER + str(start + number).encode(),
                "key": f"{TEXT}-{start + number}",
                "group": TEXT,
                "headers": {"of": TEXT},
                "tags": [TEXT],
            }
            for number in range(count)
        ],
    )


def test_nothing_readable_is_on_the_disk__also_after_kills_a_new_master_key_and_a_stop(
    broker: BrokerProcess, tmp_path: Path, key_file: Path
) -> None:
    data = tmp_path / "data"
    sent = 0
    with Client(broker.url) as client:
        client.create_topic("secrets", history=True)
        client.create_topic("yearly", kind="cron")
        client.cron("yearly").put("every", cron="0 0 1 1 *", payload=MARKER)
    for life in range(3):
        with Client(broker.url) as client:
            for _ in range(120):  # small entries, and snapshots
                client.send("secrets", MARKER + str(sent).encode(), key=f"{TEXT}-{sent}")
                sent += 1
            send_marked(client, 2_000, sent)  # a large one
            sent += 2_000
        assert not marked_files(data)
        if life == 0:
            broker.kill()
        else:
            broker.stop()
        assert not marked_files(data)
        key_file.write_text(lines(2, 1) if life == 0 else lines(2))
        broker.start()
    with Client(broker.url) as client:
        got: set[bytes] = set()
        idle_ms = int(PATIENCE_SECONDS * 1_000)
        with client.consume("secrets", name=TEXT, max_messages=sent, idle_ms=idle_ms) as consumer:
            for message in consumer:
                got.add(bytes(message.payload))
                message.ack()
        assert got == {MARKER + str(number).encode() for number in range(sent)}
        assert client.cron("yearly").get("every").payload == MARKER
    broker.stop()
    assert not marked_files(data)
    keys = keys_of_history(settings_of(data, f"file:{key_file}"))
    assert f"{TEXT}-{sent - 1}" in keys
    assert not marked_files(data)


def keys_of_history(settings: BrokerSettings) -> list[str | None]:
    """The keys of all that happened in `secrets`, as the broker tells it."""
    broker = Broker(settings)
    broker.start()
    try:
        keys: list[str | None] = []
        for file in broker.call("history_files", {"name": "secrets"})["files"]:
            named = {"topic": "secrets", "partition": file["partition"], "file": file["name"]}
            for batch in broker.read("history", named)[1]:
                keys += batch.column("key").to_pylist()
        return keys
    finally:
        broker.stop()


def test_a_key_that_is_not_there_or_is_another_one_is_named__and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings(source: str) -> BrokerSettings:
        return settings_of(tmp_path / "data", source)

    monkeypatch.setenv("MASTER", lines(1))
    with dejaqueue.open("", settings=settings("env:MASTER")) as queue:
        queue.create_topic("secrets")
        queue.send("secrets", MARKER)
    assert not marked_files(tmp_path / "data")
    for source, text in (
        ("", "is encrypted, and encryption.master_key is not set"),
        ("env:MASTER_OF_NOBODY", "the variable MASTER_OF_NOBODY is not set"),
        ("env:OTHER", r"is wrapped with master key [0-9a-f]{16}, which was not given; given: "),
    ):
        monkeypatch.setenv("OTHER", lines(3))
        with pytest.raises(EncryptionKeyMissing, match=text):
            dejaqueue.open("", settings=settings(source)).close()
    keys = list((tmp_path / "data" / "data-keys").iterdir())
    assert len(keys) == 1
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    moved = keys[0].rename(tmp_path / "lost.json")
    with pytest.raises(EncryptionKeyMissing, match=f"data key {moved.stem}|data key .* is missing"):
        dejaqueue.open("", settings=settings("env:MASTER")).close()
    moved.rename(keys[0])
    with dejaqueue.open("", settings=settings("env:MASTER")) as queue:
        assert queue.peek("secrets").column("payload").to_pylist() == [MARKER]


def test_records_on_a_server_and_the_copy_here_are_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER", lines(1))
    settings = BrokerSettings(
        journal=JournalSettings(
            url=f"sqlite:///{tmp_path}/records.db", mirror=str(tmp_path / "mirror")
        ),
        encryption=EncryptionSettings(master_key="env:MASTER"),
    )
    for life in range(2):
        with dejaqueue.open("", settings=settings) as queue:
            if not life:
                queue.create_topic("secrets")
            send_marked(queue, 300, 300 * life)
            queue.send("secrets", MARKER)
            payloads = queue.peek("secrets", limit=1_000).column("payload").to_pylist()
            assert len(payloads) == 301 * (life + 1)
            assert all(payload.startswith(MARKER) for payload in payloads)
            assert not marked_files(tmp_path)
        assert not marked_files(tmp_path)
