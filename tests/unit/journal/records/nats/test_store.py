import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.cli.ports import free_port
from dejaqueue.cluster.jetstream import find_program
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.url import read_url
from dejaqueue.errors import Refused, Unavailable
from dejaqueue.journal.records.nats.store import (
    BATCH_BYTES,
    BATCH_RECORDS,
    SMALL_BYTES,
    NatsRecordStore,
    batches,
)
from tests.record_servers import wait_for_port

pytest.importorskip("nats")


def sizes(contents: list[bytes], takes_batches: bool = True) -> list[list[int]]:
    return [[len(one) for one in batch] for batch in batches(contents, takes_batches)]


def test_small_records_go_together_and_large_ones_alone() -> None:
    small, large = b"x" * 10, b"x" * (SMALL_BYTES + 1)
    assert sizes([small, small, large, small]) == [[10, 10], [SMALL_BYTES + 1], [10]]
    assert sizes([large, large]) == [[SMALL_BYTES + 1]] * 2
    assert sizes([small] * 3, takes_batches=False) == [[10]] * 3


def test_a_batch_has_a_most_of_bytes_and_of_records() -> None:
    most = BATCH_BYTES // SMALL_BYTES
    assert [len(one) for one in sizes([b"x" * SMALL_BYTES] * (2 * most + 1))] == [most, most, 1]
    assert [len(one) for one in sizes([b""] * (BATCH_RECORDS + 1))] == [BATCH_RECORDS, 1]


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


def test_nobody_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="cannot connect"):
        NatsRecordStore(f"nats://127.0.0.1:{free_port()}")
