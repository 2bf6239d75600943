"""The Flight server by what a bare Arrow client sees: topics, pages, errors, its own end.

Not covered: streams (test_produce.py, test_consume.py), roles of every call
(tests/integration/test_access.py), other brokers (tests/integration/test_forwarding.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import flight

import dejaqueue
from dejaqueue.access.calls import ACTIONS
from dejaqueue.access.gate import Gate
from dejaqueue.client.flight_errors import error_of
from dejaqueue.errors import BadRequest, DejaQError, Forbidden, TopicUnknown, Unauthenticated
from dejaqueue.flight.server import FlightServer, _Service
from dejaqueue.schema.messages import SEND
from tests.integration.access_fixture import Site, running


@pytest.fixture
def site() -> Iterator[Site]:
    with running() as site:
        with dejaqueue.Client(site.flight.url) as client:
            client.create_topic("t", partitions=3)
            client.send("t", b"secret", key="k", delay=3_600)
        yield site


class Bare:
    """A client of Arrow's own, which knows nothing of ours."""

    def __init__(self, site: Site, key: str | None = None) -> None:
        self.client = flight.FlightClient(site.flight.url.replace("dejaq://", "grpc+tcp://"))
        headers = [(b"authorization", f"Bearer {key}".encode())] if key else []
        self.options = flight.FlightCallOptions(headers=headers)

    def act(self, name: str, body: bytes) -> dict[str, Any]:
        [result] = self.client.do_action(flight.Action(name, body), self.options)
        return cast(dict[str, Any], json.loads(result.body.to_pybytes()))

    def get(self, **ticket: Any) -> pa.Table:
        asked = flight.Ticket(json.dumps(ticket).encode())
        return self.client.do_get(asked, self.options).read_all()

    def info(self, *path: str) -> flight.FlightInfo:
        return self.client.get_flight_info(flight.FlightDescriptor.for_path(*path), self.options)


def refusal(call: Any) -> DejaQError:
    with pytest.raises(Exception) as refused:
        call()
    found = error_of(refused.value)
    assert isinstance(found, DejaQError)
    assert "Traceback" not in str(refused.value)
    return found


def test_a_topic_is_a_flight_with_an_endpoint_for_each_partition(site: Site) -> None:
    info = Bare(site).info("t")
    assert info.schema.names == SEND.names
    assert json.loads(info.schema.metadata[b"topic"])["name"] == "t"
    tickets = [json.loads(endpoint.ticket.ticket) for endpoint in info.endpoints]
    assert tickets == [{"op": "peek", "topic": "t", "partition": n} for n in range(3)]
    # It is served here: the connection that there is will do.
    assert {one.uri for end in info.endpoints for one in end.locations} == {
        b"arrow-flight-reuse-connection://?"
    }
    bare = Bare(site)
    [listed] = bare.client.list_flights(b"", bare.options)
    assert listed.descriptor.path == [b"t"]


def test_a_flight_without_a_name_or_a_topic_is_refused(site: Site) -> None:
    assert isinstance(refusal(lambda: Bare(site).info("nothing")), TopicUnknown)
    command = flight.FlightDescriptor.for_command(b"x")
    unnamed = refusal(lambda: Bare(site).client.get_flight_info(command))
    assert isinstance(unnamed, BadRequest)
    assert unnamed.field == "descriptor.path"


def test_every_action_is_listed_with_its_body(site: Site) -> None:
    listed = {one.type: one.description for one in Bare(site).client.list_actions()}
    assert listed.keys() == ACTIONS.keys()
    assert all(f"Body: {ACTIONS[name].body}." in text for name, text in listed.items())


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("fly", b"{}", "action"),
        ("stats", b"[]", "action.body"),
        ("stats", b"{", "action.body"),
        ("describe_topic", b'{"name": 7}', "name"),
    ],
)
def test_a_wrong_action_is_refused_by_the_field_that_is_wrong(
    site: Site, name: str, body: bytes, field: str
) -> None:
    found = refusal(lambda: Bare(site).act(name, body))
    assert isinstance(found, BadRequest)
    assert found.field == field


def test_a_body_may_be_left_out(site: Site) -> None:
    assert "topics" in Bare(site).act("stats", b"")


@pytest.mark.parametrize("op", ["fly", None, "stats"])
def test_a_ticket_is_for_one_of_the_reads_that_there_are(site: Site, op: str | None) -> None:
    found = refusal(lambda: Bare(site).get(op=op, topic="t"))
    assert isinstance(found, BadRequest)
    assert found.field == "ticket.op"


def test_a_page_has_payloads_for_those_alone_who_may_read_them(site: Site) -> None:
    make = site.broker.keys.create
    keys = {"root": make("root", ["admin:*"])[1]}
    for role in ("observe", "manage"):
        keys[role] = make(role, [f"{role}:t"])[1]
    keys["other"] = make("other", ["observe:u"])[1]
    page = Bare(site, keys["manage"]).get(op="peek", topic="t")
    assert page["payload"].to_pylist() == [b"secret"]
    page = Bare(site, keys["observe"]).get(op="peek", topic="t")
    assert "payload" not in page.column_names
    assert page["key"].to_pylist() == ["k"]
    stranger = Bare(site, keys["other"])
    assert isinstance(refusal(lambda: stranger.get(op="peek", topic="t")), Forbidden)
    assert isinstance(refusal(lambda: Bare(site).get(op="peek", topic="t")), Unauthenticated)
    for caller, names in (("observe", [[b"t"]]), ("other", [])):
        bare = Bare(site, keys[caller])
        assert [one.descriptor.path for one in bare.client.list_flights(b"", bare.options)] == names
    assert isinstance(refusal(lambda: stranger.info("t")), Forbidden)


def test_a_scan_ends_when_the_key_does(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = site.broker.keys
    keys.create("root", ["admin:*"])
    made, text = keys.create("reader", ["manage:t"])
    batch = pa.record_batch({"id": pa.array([1], pa.int64())})
    given: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(1_000):
            given.append(number)
            if number == 1:
                keys.revoke(made.id)
            yield batch

    monkeypatch.setattr(site.broker, "read", lambda *asked: (batch.schema, batches()))
    asked = refusal(lambda: Bare(site, text).get(op="scan", topic="t", partition=0))
    assert isinstance(asked, Unauthenticated)
    assert len(given) == 2


# --- its own beginning and end ------------------------------------------------------------------


def test_a_port_that_is_taken_is_refused_by_the_name_of_its_setting(site: Site) -> None:
    second = FlightServer(site.broker, "127.0.0.1", site.flight.port, gate=Gate(site.broker.keys))
    try:
        with pytest.raises(BadRequest, match=r"server\.port: a free port of 127\.0\.0\.1"):
            second.start()
    finally:
        second.stop()


def test_it_may_be_stopped_before_it_was_started__and_twice(site: Site) -> None:
    server = FlightServer(site.broker)
    assert server.stop()
    server = FlightServer(site.broker)
    server.start()
    assert server.url == f"dejaq://127.0.0.1:{server.port}"
    assert server.stop()
    assert server.stop()


def test_a_stream_that_opens_while_it_stops_is_ended_at_once(site: Site) -> None:
    service = _Service(
        site.broker,
        Gate(site.broker.keys),
        "127.0.0.1",
        0,
        None,
        (
            site.flight.forwarding,
            site.flight.sharded,
            site.flight._open_streams,
            site.flight._open_calls,
        ),
    )
    try:
        told: list[str] = []
        ends = {name: (lambda name=name: told.append(name)) for name in ("early", "gone", "late")}
        service.register(ends["early"])
        service.register(ends["gone"])
        service.unregister(ends["gone"])
        service.end_streams()
        assert told == ["early"]
        service.register(ends["late"])
        assert told == ["early", "late"]
    finally:
        service.shutdown()


def test_it_has_all_that_calls_need_before_it_listens(site: Site) -> None:
    service = _Service.__new__(_Service)
    there: list[set[str]] = []

    class Host(str):
        """The last that is asked before the port is opened."""

        __slots__ = ()

        def __format__(self, _: str) -> str:
            there.append(set(vars(service)))
            return "127.0.0.1"

    served = site.flight
    shared = served.forwarding, served.sharded, served._open_streams, served._open_calls
    service.__init__(site.broker, served._gate, Host(), 0, None, shared)  # type: ignore[misc]
    service.shutdown()
    assert there == [set(vars(service))]
