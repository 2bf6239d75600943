from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.cli.ports import free_port
from dejaqueue.connections.redis import RedisConnection, split_url
from dejaqueue.errors import BadRequest, Refused, Unavailable
from tests.record_servers import RedisServer, redis_program


def test_what_is_ours_is_taken_out_of_the_url() -> None:
    assert split_url("redis://u:p@host:1/2?prefix=one") == ("redis://u:p@host:1/2", "one")
    assert split_url("rediss://host") == ("rediss://host", "dejaq")


@pytest.mark.parametrize(
    "url", ["http://a", "redis://", "redis://a?copies=1", "redis://a?prefix=a:b"]
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        split_url(url)


def test_a_refusal_does_not_show_the_password() -> None:
    with pytest.raises(BadRequest) as raised:
        split_url("http://user:secret@host")
    assert "secret" not in str(raised.value)


def test_nobody_there_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        RedisConnection(f"redis://127.0.0.1:{free_port()}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    made = RedisServer(redis_program(), tmp_path_factory.mktemp("redis"))
    yield made
    made.kill()


@pytest.mark.parametrize(
    ("setting", "value"),
    [("appendonly", "no"), ("appendfsync", "everysec"), ("maxmemory-policy", "allkeys-lru")],
)
def test_a_server_that_may_lose_what_it_acknowledged_is_refused(
    server: RedisServer, setting: str, value: str
) -> None:
    connection = RedisConnection(server.url)
    before = connection.client.config_get(setting)[setting]
    connection.client.config_set(setting, value)
    try:
        with pytest.raises(Refused, match=f"{setting} is {value}"):
            RedisConnection(server.url)
    finally:
        connection.client.config_set(setting, before)
        connection.close()


def test_a_replica_is_refused(server: RedisServer) -> None:
    connection = RedisConnection(server.url)
    connection.client.replicaof("127.0.0.1", free_port())
    try:
        with pytest.raises(Refused, match="replica"):
            RedisConnection(server.url)
    finally:
        connection.client.replicaof("NO", "ONE")
        connection.close()


def test_a_server_that_does_not_tell_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    silent = RedisServer(redis_program(), tmp_path, "--rename-command", "CONFIG", "")
    try:
        RedisConnection(silent.url).close()
    finally:
        silent.kill()
    assert "does not tell its settings" in caplog.text
