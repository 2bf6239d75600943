import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.cli.ports import free_port
from dejaqueue.cluster.jetstream import find_program
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.url import read_url
from dejaqueue.errors import Refused, Unavailable
from dejaqueue.journal.records.nats.store import NatsRecordStore
from tests.record_servers import wait_for_port

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


def test_nobody_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="cannot connect"):
        NatsRecordStore(f"nats://127.0.0.1:{free_port()}")
