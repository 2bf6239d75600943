import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.cli.ports import free_port
from dejaqueue.cluster.jetstream import find_program
from dejaqueue.connections.nats.answers import Reply
from dejaqueue.connections.nats.connection import Message, NatsConnection
from dejaqueue.connections.nats.url import read_url
from dejaqueue.errors import Fenced, Refused, Unavailable
from dejaqueue.journal.interface import Entry, EntryKind
from dejaqueue.journal.records.nats.store import NatsRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from tests.record_servers import NatsServers, wait_for_port

pytest.importorskip("nats")


@pytest.fixture
def careless(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A server as it comes, which syncs every two minutes."""
    port, monitor = free_port(), free_port()
    command = [find_program(), "-a", "127.0.0.1", "-p", str(port), "-m", str(monitor), "-js"]
    with (tmp_path / "log").open("wb") as file:
        process = subprocess.Popen([*command, "-sd", str(tmp_path)], stderr=file)
    wait_for_port(port)
    yield port, monitor
    process.kill()
    process.wait()


def test_a_server_that_acknowledges_before_it_syncs_is_refused(careless: tuple[int, int]) -> None:
    port, monitor = careless
    with pytest.raises(Refused, match="sync_interval: always"):
        NatsRecordStore(f"nats://127.0.0.1:{port}?monitor=127.0.0.1:{monitor}")


def test_servers_that_do_not_tell_are_warned_of(
    careless: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    NatsRecordStore(f"nats://127.0.0.1:{careless[0]}?monitor=127.0.0.1:1").close()
    assert "0 of 1 servers tell their settings" in caplog.text


def test_a_stream_with_other_settings_is_refused(careless: tuple[int, int]) -> None:
    url = f"nats://127.0.0.1:{careless[0]}?monitor=127.0.0.1:1&prefix=one"
    connection = NatsConnection(read_url(url))
    name, subjects = "one-objects", ["one.object.>"]
    connection.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, "max_age": 10**12})
    with pytest.raises(Refused, match="one-objects has max_age"):
        NatsRecordStore(url)
    connection.close()


def test_a_hand_over_asks_little_of_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question is one for each of a hundred partitions, which change hands together."""
    servers = NatsServers(tmp_path)
    asked: Counter[str] = Counter()
    publish_each = NatsConnection.publish_each

    def counted(
        self: NatsConnection, messages: Sequence[Message], *more: Any
    ) -> list[Reply | None]:
        asked[messages[0].subject.removeprefix("$JS.API.").partition("-")[0]] += 1
        return publish_each(self, messages, *more)

    before, after = (RecordJournalStore(NatsRecordStore(servers.url)) for _ in range(2))
    try:
        before.make("t")
        owner = before.open("t", 0)
        owner.append([Entry(EntryKind.OPEN_EPOCH, 1)], 0, 1)
        monkeypatch.setattr(NatsConnection, "publish_each", counted)
        next_owner = after.open_ahead("t", 0)
        # Whether the stream is there, what its last number is, and the names of snapshots.
        assert asked.pop("STREAM.INFO.dejaq") == 3
        asked.clear()
        next_owner.follow()
        assert asked == {"STREAM.INFO.dejaq": 1}
        asked.clear()
        assert next_owner.take_over()
        assert asked == {"STREAM.INFO.dejaq": 2}
    finally:
        before.close()
        after.close()
        servers.stop()


def test_a_new_object_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = NatsServers(tmp_path)
    asked: list[str] = []
    publish_all = NatsConnection.publish_all

    def noted(self: NatsConnection, subject: str, *more: Any) -> list[Reply | None]:
        asked.append(subject)
        return publish_all(self, subject, *more)

    store = NatsRecordStore(servers.url)
    try:
        monkeypatch.setattr(NatsConnection, "publish_all", noted)
        store.put_object("a/b", b"x")
        assert [one for one in asked if one.startswith("$JS.API")] == [
            "$JS.API.STREAM.MSG.GET.dejaq-objects"
        ]
    finally:
        store.close()
        servers.stop()


def test_a_topic_is_not_dropped_from_a_full_server_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records go first, so the next try has room; what the server says is an error of ours."""
    servers = NatsServers(tmp_path)
    store = NatsRecordStore(servers.url)
    full = Reply("", b'{"error": {"code": 500, "err_code": 10047, "description": "full"}}')
    try:
        log = store.open("t", 0)
        log.append(0, [[b"x"]])
        with monkeypatch.context() as patch:
            patch.setattr(NatsConnection, "request", lambda *_: full)
            with pytest.raises(Unavailable, match="full"):
                store.drop("t")
        store.drop("t")
        with pytest.raises(Fenced):
            log.append(1, [[b"y"]])
    finally:
        store.close()
        servers.stop()


def test_nobody_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="cannot connect"):
        NatsRecordStore(f"nats://127.0.0.1:{free_port()}")
