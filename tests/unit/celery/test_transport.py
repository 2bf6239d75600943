"""The transport by itself: URLs, waking, errors; messages: test_channel.py."""

from __future__ import annotations

import select

import pytest
from kombu import Connection, Consumer, Queue

import dejaqueue.celery
from dejaqueue.celery.transport import Transport, tls_of, url_of, without_key
from dejaqueue.client import Client
from dejaqueue.errors import BadRequest, TopicUnknown
from tests.patience import until


def test_kombu_knows_the_scheme_once_it_is_imported(url: str) -> None:
    assert dejaqueue.celery.Transport is Transport
    with Connection(url) as connection:
        assert type(connection.transport) is Transport
        assert connection.connect() is connection.transport
        assert connection.transport.driver_version() == dejaqueue.__version__


def test_a_class_path_is_enough(url: str) -> None:
    with Connection(url, transport="dejaqueue.celery:Transport") as connection:
        assert type(connection.connect()) is Transport


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("dejaq://h:1", ("dejaq://h:1", None)),
        ("dejaqs://:a%2Fb@h:1,g:2", ("dejaqs://h:1,g:2", "a/b")),
        ("dejaq://", ("dejaq://localhost", None)),
        ("dejaq://h:1/", ("dejaq://h:1", None)),
    ],
)
def test_the_password_of_a_url_is_the_api_key(url: str, found: tuple[str, str | None]) -> None:
    assert without_key(url) == found


def test_a_url_of_another_kind_is_refused() -> None:
    with pytest.raises(BadRequest, match="broker_url"):
        without_key("amqp://h")


def test_a_url_is_shown_without_its_key() -> None:
    connection = Connection("dejaq://:secret@h:1")
    assert connection.as_uri() == "dejaq://:**@h:1"
    assert connection.as_uri(include_password=True) == "dejaq://:secret@h:1"


def test_a_url_that_kombu_took_apart_is_put_together() -> None:
    connection = Connection("dejaq://h:1;dejaqs://:key@g:2")
    connection.switch("dejaqs://:key@g:2")
    assert url_of(connection) == "dejaqs://:key@g:2"


def test_files_of_broker_use_ssl_are_ours() -> None:
    assert tls_of({"ca_certs": "ca.pem", "cert_reqs": 2}) == {"ca": "ca.pem"}
    assert tls_of(True) == {}


def test_nothing_is_a_time_out_of_the_socket(url: str) -> None:
    with Connection(url) as connection:
        connection.connect()
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.01)


class Loop:
    """What the transport asks of an event loop."""

    def __init__(self) -> None:
        self.readers: dict[int, object] = {}

    def add_reader(self, descriptor: int, *callback: object) -> None:
        self.readers[descriptor] = callback

    def remove_reader(self, descriptor: int) -> None:
        del self.readers[descriptor]


def test_a_message_wakes_the_event_loop(url: str) -> None:
    got: list[object] = []
    with Connection(url) as connection:
        loop, transport = Loop(), connection.transport
        queue = Queue("transport-loop", routing_key="transport-loop")
        consumer = Consumer(connection, [queue], callbacks=[lambda body, _: got.append(body)])
        connection.register_with_event_loop(loop)
        (descriptor,) = loop.readers
        with consumer:
            assert select.select([descriptor], [], [], 0) == ([], [], [])
            connection.Producer().publish({"n": 1}, routing_key="transport-loop", exchange="")
            until(lambda: select.select([descriptor], [], [], 1)[0], "the loop to be woken")
            transport.on_readable(connection.connection, loop)
            assert got == [{"n": 1}]
            assert select.select([descriptor], [], [], 0) == ([], [], [])
        transport.on_readable(connection.connection, loop)
        transport.unregister_from_event_loop(connection.connection, loop)
        assert loop.readers == {}


def test_a_queue_that_is_deleted_ends_the_connection(url: str, client: Client) -> None:
    with Connection(url) as connection:
        consumer = Consumer(connection, [Queue("transport-deleted")], callbacks=[print])
        with consumer:
            client.delete_topic("transport-deleted")
            with pytest.raises(TopicUnknown):
                connection.drain_events(timeout=30)
        assert TopicUnknown in connection.connection_errors
