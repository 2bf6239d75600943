"""Every call of both servers as every role: what is allowed is said here once more, by hand.

A call, stream or route that is not in these tables fails the test.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from dejaqueue.access import audit, calls, rules
from dejaqueue.access.roles import Role
from dejaqueue.access.routes import RULES
from dejaqueue.client.flight_errors import error_of
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import BadRequest, DejaQError, Forbidden, NotAllowed, Unauthenticated
from dejaqueue.flight import server as flight_server
from dejaqueue.http.app import build_app
from dejaqueue.http.service import Service
from dejaqueue.log_rate import LogRate
from dejaqueue.wire.descriptors import WRITE_OPS, ConsumeStream, WriteStream
from dejaqueue.wire.frames import Ping
from tests.integration.access_fixture import (
    CRON,
    MINE,
    THEIRS,
    Site,
    give_keys,
    make_topics,
    running,
)
from tests.patience import PATIENCE_SECONDS

LETTERS = {
    "P": Role.PRODUCE,
    "C": Role.CONSUME,
    "M": Role.MANAGE,
    "O": Role.OBSERVE,
    "A": Role.ADMIN,
}
ANY = "PCMOA"
BAD_KEYS = ("none", "unknown", "wrong secret", "revoked")

# Which roles on the topic are enough, and a call. "key" = any key; "root" = an admin of everything;
# "some" = any key with a role anywhere: the answer shows what its bearer may see.
ACTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "create_topic": ("M", {"name": MINE, "exist_ok": True}),
    "alter_topic": ("M", {"name": MINE, "lease_ms": 5_000}),
    "delete_topic": ("M", {"name": MINE}),
    "describe_topic": (ANY, {"name": MINE}),
    "list_topics": ("key", {}),
    "redrive": ("M", {"topic": MINE}),
    "stats": ("MO", {"topic": MINE}),
    "assignments": ("MO", {"name": MINE}),
    "cluster": ("key", {}),
    "remove_node": ("root", {"node": "x"}),
    "repair_node": ("root", {"node": "x"}),
    "node_progress": ("root", {"node": "x", "change": "repair_node"}),
    "scan_ranges": ("M", {"name": MINE}),
    "history_files": ("M", {"name": MINE}),
    "message_history": ("MO", {"topic": MINE, "id": 0}),
    "claim": ("C", {"topic": MINE, "partition": 0, "rows": 1}),
    "extend_claims": ("C", {"topic": MINE, "claims": {}}),
    "ack_claims": ("C", {"topic": MINE, "claims": {}}),
    "check_cluster": ("root", {}),
    "counts": ("MO", {"topic": MINE}),
    "histogram": ("MO", {"topic": MINE, "due_from": 0, "due_to": 10, "bucket_ms": 5}),
    "due": ("MO", {"topic": MINE}),
    "move_where": ("M", {"topic": MINE}),
    "cancel_where": ("M", {"topic": MINE}),
    "erase": ("M", {"topic": MINE, "keys": ["k"]}),
    "seek": ("M", {"topic": MINE, "to": "end"}),
    "clock": ("key", {}),
    "lane": ("key", {}),
    "cron_put": ("M", {"topic": CRON, "entries": []}),
    "cron_list": ("M", {"topic": CRON}),
    "cron_get": ("M", {"topic": CRON, "name": "x"}),
    "cron_pause": ("M", {"topic": CRON, "names": []}),
    "cron_drop": ("M", {"topic": CRON, "names": []}),
    "cron_run": ("M", {"topic": CRON, "name": "x"}),
    "cron_next": ("M", {"topic": CRON, "name": "x"}),
    "begin_transaction": ("PC", {"topic": MINE}),
    "commit_transaction": ("PC", {"transaction": f"{MINE}/0/1-1-{'0' * 32}", "participants": []}),
    "commit_epoch": ("PC", {"topic": MINE, "participants": []}),
    "abort_transaction": ("PC", {"transaction": f"{MINE}/0/1-1-{'0' * 32}", "participants": []}),
    "transactions": ("MO", {"topic": MINE}),
    "tell_transaction": ("brokers", {}),
    "ask_transaction": ("brokers", {}),
    "ask_home": ("brokers", {}),
    "ask_shard": ("brokers", {}),
    "ask_keys": ("brokers", {"topic": MINE, "keys": []}),
    "bring_letters": ("brokers", {"producer": "", "number": "1"}),
    "ask_history": ("brokers", {"id": 0}),
    "ask_erasure": ("brokers", {"partition": 0, "step": "find"}),
    "ask_backup": ("brokers", {"backup": "x", "step": "look"}),
    "ask_turn": ("brokers", {"step": "look"}),
    "read_ahead": ("brokers", {"topic": MINE}),
    "note_write": ("P", {"topic": MINE, "label": "x", "counts": {"OK": 1}}),
    "writes": ("PM", {"topic": MINE}),
    "begin_payload": ("P", {"topic": MINE}),
    "put_payload_part": ("P", {"topic": MINE, "upload": "", "index": 0, "digest": ""}),
    "end_payload": ("P", {"topic": MINE, "upload": "", "bytes": 1, "digests": ""}),
    "sign_upload": ("P", {"topic": MINE, "bytes": 1}),
    "sign_payload": ("CM", {"topic": MINE, "voucher": ""}),
    "read_keys": ("brokers", {}),
    "create_key": ("root", {"name": "", "grants": []}),
    "list_keys": ("root", {}),
    "revoke_key": ("root", {"key": "nobody"}),
    "backup": ("root", {"url": "nowhere://"}),
    "backup_progress": ("root", {}),
    "standby": ("root", {}),
    "promote": ("root", {}),
}

STREAMS = {
    "enqueue": "P", "move": "P", "cancel": "P", "ack": "C", "nack": "C", "extend": "C",
    "consume": "C", "peek": "MO", "scan": "M", "history": "M", "claim": "C", "payload": "CM",
    "get_flight_info": ANY,
    "list_flights": "key", "list_actions": "key",
}  # fmt: skip

T, Q = "/v1/topics/{topic}", "/API/v1/queues/{queue_name}"
ROUTES: dict[tuple[str, str], tuple[str, Any]] = {
    ("GET", "/livez"): ("public", None),
    ("GET", "/readyz"): ("public", None),
    ("GET", "/healthz"): ("public", None),
    ("GET", "/openapi.json"): ("public", None),
    ("GET", "/docs"): ("public", None),
    ("GET", "/stats"): ("root MO", None),
    ("GET", "/metrics"): ("root MO", None),
    ("GET", "/v1/cluster"): ("key", None),
    ("GET", "/v1/standby"): ("root", None),
    ("POST", "/v1/standby/promotion"): ("root", None),
    ("POST", "/v1/cluster/nodes/{node}/remove"): ("root", None),
    ("POST", "/v1/cluster/nodes/{node}/repair"): ("root", None),
    ("GET", "/v1/cluster/nodes/{node}/progress"): ("root", None),
    ("POST", "/v1/backups"): ("root", {"url": "nowhere://"}),
    ("GET", "/v1/backups/progress"): ("root", None),
    ("GET", "/v1/audit"): ("root", None),
    ("GET", "/v1/findings"): ("root", None),
    ("GET", "/v1/keys"): ("root", None),
    ("POST", "/v1/keys"): ("root", {"name": "", "grants": []}),
    ("DELETE", "/v1/keys/{key}"): ("root", None),
    ("GET", "/v1/topics"): ("key", None),
    ("POST", "/v1/topics"): ("M", {"name": MINE, "exist_ok": True}),
    ("GET", T): (ANY, None),
    ("PATCH", T): ("M", {"lease_ms": 5_000}),
    ("DELETE", T): ("M", None),
    ("POST", f"{T}/pause"): ("M", None),
    ("POST", f"{T}/resume"): ("M", None),
    ("POST", f"{T}/purge"): ("M", None),
    ("POST", f"{T}/erase"): ("M", {"keys": ["k"]}),
    ("POST", f"{T}/seek"): ("M", {"to": "end"}),
    ("GET", "/v1/stats"): ("root MO", None),
    ("GET", f"{T}/assignments"): ("MO", None),
    ("GET", f"{T}/consumers"): ("MO", None),
    ("GET", f"{T}/counts"): ("MO", None),
    ("GET", f"{T}/due"): ("MO", None),
    ("GET", f"{T}/histogram"): ("MO", None),
    ("GET", f"{T}/stats"): ("MO", None),
    ("GET", f"{T}/messages"): ("MO", None),
    ("GET", f"{T}/messages/{{id}}"): ("MO", None),
    ("GET", f"{T}/messages/{{id}}/history"): ("MO", None),
    ("POST", f"{T}/move"): ("P", {"messages": [{"id": "1", "due": 5}]}),
    ("POST", f"{T}/cancel"): ("P", {"messages": [{"id": "1"}]}),
    ("GET", f"{T}/dead-letters"): ("MO", None),
    ("POST", f"{T}/dead-letters/purge"): ("M", {}),
    ("POST", f"{T}/dead-letters/redrive"): ("M", {}),
    ("POST", "/v1/transactions"): ("PC", {"topic": MINE}),
    ("POST", "/v1/transactions/commit"): ("PC", {"transaction": f"{MINE}/0/1-1-{'0' * 32}"}),
    ("POST", "/v1/transactions/abort"): ("PC", {"transaction": f"{MINE}/0/1-1-{'0' * 32}"}),
    ("GET", f"{T}/transactions"): ("MO", None),
    ("POST", "/v1/cron/preview"): ("key", {"cron": "* * * * *"}),
    ("GET", f"{T}/cron"): ("M", None),
    ("POST", f"{T}/cron"): ("M", {"entries": []}),
    ("GET", f"{T}/cron/{{name}}"): ("M", None),
    ("GET", f"{T}/subscriptions"): (ANY, None),
    ("GET", f"{T}/subscriptions/{{subscription}}"): (ANY, None),
    ("PUT", f"{T}/subscriptions/{{subscription}}"): ("M", {}),
    ("DELETE", f"{T}/subscriptions/{{subscription}}"): ("M", None),
    ("PUT", f"{T}/cron/{{name}}"): ("M", {"cron": "* * * * *"}),
    ("DELETE", f"{T}/cron/{{name}}"): ("M", None),
    ("GET", f"{T}/cron/{{name}}/firings"): ("M", None),
    ("POST", f"{T}/cron/{{name}}/pause"): ("M", None),
    ("POST", f"{T}/cron/{{name}}/resume"): ("M", None),
    ("POST", f"{T}/cron/{{name}}/run"): ("M", None),
    ("POST", f"{T}/messages"): ("P", {"payload": "x"}),
    ("PUT", f"{T}/payload"): ("P", None),
    ("GET", f"{T}/payload"): ("CM", None),
    ("POST", f"{T}/payload/uploads"): ("P", {"bytes": 1}),
    ("POST", f"{T}/payload/end"): ("P", {"upload": "", "bytes": 1, "digests": ""}),
    ("POST", f"{T}/payload/urls"): ("CM", {"voucher": ""}),
    ("POST", f"{T}/lease"): ("C", {"max": 1}),
    ("GET", f"{T}/events"): ("C", None),
    ("POST", f"{T}/ack"): ("C", {"messages": [{"id": "1", "attempt": 1}]}),
    ("POST", f"{T}/nack"): ("C", {"messages": [{"id": "1", "attempt": 1}]}),
    ("POST", f"{T}/extend"): ("C", {"messages": [{"id": "1", "attempt": 1}]}),
    ("GET", "/API/v1/queues"): ("key", None),
    ("POST", "/API/v1/queues"): ("M", {"name": MINE, "type": "delayed"}),
    ("GET", Q): ("MO", None),
    ("PUT", Q): ("M", {"settings": {}}),
    ("DELETE", Q): ("M", None),
    ("POST", "/API/v1/ids"): ("key", {"number": 1}),
    ("GET", "/API/v1/cluster/servers"): ("root M", None),
    ("POST", f"{Q}/messages"): ("P", {"content": "x", "priority": 5}),
    ("GET", f"{Q}/messages"): ("C", None),
    ("GET", f"{Q}/messages/{{id}}"): ("M", None),
    ("DELETE", f"{Q}/messages/{{id}}"): ("P", None),
    ("POST", f"{Q}/messages/{{id}}/ack"): ("C", None),
    ("POST", f"{Q}/messages/{{id}}/nack"): ("C", None),
    ("POST", f"{Q}/messages/{{id}}/touch"): ("C", None),
    ("PUT", f"{Q}/messages/{{id}}/priority"): ("P", {"priority": 5}),
}

OWN = {
    "counts", "histogram", "move_where", "cancel_where", "peek", "writes",
    f"GET {T}/counts", f"GET {T}/histogram", f"GET {T}/messages", f"GET {T}/messages/{{id}}",
}  # fmt: skip
"""What a manager of its own messages may call."""

QUERIES = {
    f"{T}/histogram": "?due_from=0&due_to=10&bucket_ms=5",
    f"{T}/events": "?idle_ms=1",
}
"""What routes want beside a body: what is wrong is refused before it is looked at who asks."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    with running() as site:
        give_keys(site)
        yield site


@pytest.fixture
def site(shared: Site) -> Site:
    make_topics(shared.broker)
    return shared


def expected(caller: str, needs: str, call: str) -> type[DejaQError] | None:
    """What a caller is refused with; None = let through."""
    if needs == "public":
        return None
    if caller in BAD_KEYS:
        return Unauthenticated
    if needs == "brokers":
        return Forbidden
    if needs == "key" or caller == "root":
        return None
    role, _, where = caller.partition(" ")
    role, _, own = role.partition(".")
    if own and role == Role.MANAGE and needs != ANY and call not in OWN:
        return Forbidden
    enough = (
        {LETTERS[letter] for letter in needs if letter in LETTERS} if "root" not in needs else set()
    )
    allowed = where == "mine" and enough and Role(role) in {*enough, Role.ADMIN}
    return None if allowed else Forbidden


def outcome(error: BaseException | None) -> type[DejaQError] | None:
    """What a call was refused with; None = it was let through, whatever became of it then."""
    found = None if error is None else error_of(error)
    assert found is None or found.number != 90, found
    return type(found) if isinstance(found, NotAllowed) else None


def options(key: str | None) -> flight.FlightCallOptions:
    headers = [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
    return flight.FlightCallOptions(timeout=PATIENCE_SECONDS, headers=headers)


def attempt(call: Any) -> BaseException | None:
    try:
        call()
    except (flight.FlightError, pa.ArrowException, OSError, DejaQError) as error:
        return error
    return None


# --- Flight ---------------------------------------------------------------------------------------


def test_every_action_has_a_rule_and_a_line_here(site: Site) -> None:
    with flight.FlightClient(site.flight.url.replace("dejaq", "grpc")) as client:
        served = {action.type for action in client.list_actions(options(site.keys["root"]))}
    assert served == set(ACTIONS) == set(calls.ACTIONS)


def test_every_way_in_is_known() -> None:
    ways = {"do_put", "do_get", "do_exchange", "do_action"}
    ways |= {"list_flights", "get_flight_info", "get_schema", "list_actions"}
    ours = {name for name in vars(flight_server._Service) if hasattr(flight.FlightServerBase, name)}
    assert {name for name in ours if not name.startswith("_")} == ways
    assert set(WRITE_OPS) == set(rules.WRITES)
    assert set(STREAMS) >= {*WRITE_OPS, *calls.TICKETS}


def test_ways_that_are_not_served_say_nothing_either(site: Site) -> None:
    descriptor = flight.FlightDescriptor.for_path(MINE)
    with flight.FlightClient(site.flight.url.replace("dejaq", "grpc")) as client:
        for caller in BAD_KEYS:
            called = options(site.keys[caller])
            error = attempt(lambda called=called: client.get_schema(descriptor, called))
            assert outcome(error) is Unauthenticated
            ticket = flight.Ticket(b'{"op": "nonsense"}')
            with pytest.raises(flight.FlightUnauthenticatedError):
                client.do_get(ticket, options(site.keys[caller])).read_all()
            with pytest.raises(flight.FlightUnauthenticatedError):
                list(client.do_action(flight.Action("nonsense", b""), options(site.keys[caller])))
        with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
            client.authenticate_basic_token("root", "x")  # gRPC's handshake, which nobody serves
        assert MINE not in str(caught.value)


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_is_for_its_roles_alone(site: Site, name: str) -> None:
    needs, body = ACTIONS[name]
    action = flight.Action(name, json.dumps(body).encode())
    found, wanted = {}, {}
    with flight.FlightClient(site.flight.url.replace("dejaq", "grpc")) as client:
        for caller, key in site.keys.items():
            error = attempt(lambda key=key: list(client.do_action(action, options(key))))
            found[caller], wanted[caller] = outcome(error), expected(caller, needs, name)
    assert found == wanted


def stream(site: Site, name: str, key: str | None) -> BaseException | None:
    """Open a stream of this kind; how it was refused."""
    if name in WRITE_OPS:
        transport = FlightTransport(site.flight.url, key)
        try:
            batch = pa.record_batch({"nonsense": [1]})
            return (
                transport.open_write(WriteStream(MINE, name))
                .send(1, batch)
                .exception(PATIENCE_SECONDS)
            )
        finally:
            transport.close()
    if name == "consume":
        return consume(site, key)
    tickets = {
        "peek": {"op": "peek", "topic": MINE},
        "scan": {"op": "scan", "topic": MINE, "partition": 0},
        "history": {"op": "history", "topic": MINE, "partition": 0, "file": "x"},
        "claim": {"op": "claim", "topic": MINE, "partition": 0, "claim": 1},
        "payload": {"op": "payload", "topic": MINE, "voucher": ""},
    }
    with flight.FlightClient(site.flight.url.replace("dejaq", "grpc")) as client:
        if name in tickets:
            ticket = flight.Ticket(json.dumps(tickets[name]).encode())
            return attempt(lambda: client.do_get(ticket, options(key)).read_all())
        if name == "get_flight_info":
            descriptor = flight.FlightDescriptor.for_path(MINE)
            return attempt(lambda: client.get_flight_info(descriptor, options(key)))
        if name == "list_flights":
            return attempt(lambda: list(client.list_flights(options=options(key))))
        return attempt(lambda: list(client.list_actions(options(key))))


def consume(site: Site, key: str | None) -> BaseException | None:
    """Open a consumer, and wait for its first word."""
    transport = FlightTransport(site.flight.url, key)
    heard, errors = threading.Event(), []

    def end(error: DejaQError | None) -> None:
        errors.append(error)
        heard.set()

    try:
        try:
            channel = transport.open_consume(
                ConsumeStream(MINE), lambda _: None, lambda _: heard.set(), end
            )
        except DejaQError as error:  # the answer may come before the stream is open
            return error
        channel.ping(Ping(1, 1, 0, 0))
        assert heard.wait(PATIENCE_SECONDS)
        return errors[0] if errors else None
    finally:
        transport.close()


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_for_its_roles_alone(site: Site, name: str) -> None:
    found = {caller: outcome(stream(site, name, key)) for caller, key in site.keys.items()}
    assert found == {caller: expected(caller, STREAMS[name], name) for caller in site.keys}


def act(site: Site, caller: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
    transport = FlightTransport(site.flight.url, site.keys[caller])
    try:
        return transport.action(name, body).result(PATIENCE_SECONDS)
    finally:
        transport.close()


def test_lists_show_what_the_caller_may_see(site: Site) -> None:
    def names(caller: str) -> list[str]:
        return [topic["name"] for topic in act(site, caller, "list_topics", {})["topics"]]

    assert names("root") == sorted([MINE, CRON, THEIRS])
    for role in Role:
        assert names(f"{role.value} mine") == sorted([MINE, CRON])
        assert names(f"{role.value} theirs") == [THEIRS]
    with flight.FlightClient(site.flight.url.replace("dejaq", "grpc")) as client:
        found = client.list_flights(options=options(site.keys["consume theirs"]))
        assert [one.descriptor.path for one in found] == [[THEIRS.encode()]]
    assert list(act(site, "manage theirs", "stats", {})["topics"]) == [THEIRS]
    assert list(act(site, "produce theirs", "stats", {})["topics"]) == []


def test_a_role_on_one_topic_does_not_reach_another_through_a_call(site: Site) -> None:
    """Calls that name two topics need roles on both."""
    elsewhere = f"{THEIRS}/0/1-1-{'0' * 32}"
    for name, body in (
        ("redrive", {"topic": MINE, "to": THEIRS}),
        ("create_topic", {"name": "mine.new", "dead_letter": THEIRS}),
        ("alter_topic", {"name": MINE, "dead_letter": THEIRS}),
        ("commit_transaction", {"transaction": elsewhere, "participants": [f"{MINE}/0"]}),
        ("abort_transaction", {"transaction": ACTIONS["abort_transaction"][1]["transaction"],
                               "participants": [f"{MINE}/0", f"{THEIRS}/0"]}),
    ):  # fmt: skip
        with pytest.raises(Forbidden, match=THEIRS):
            act(site, "admin mine", name, body)


def test_a_forbidden_call_says_nothing_of_whether_the_topic_is_there(site: Site) -> None:
    texts = []
    for topic in (THEIRS, "nowhere"):
        with pytest.raises(Forbidden) as caught:
            act(site, "manage mine", "describe_topic", {"name": topic})
        texts.append(str(caught.value).replace(topic, "it"))
    assert texts[0] == texts[1]


def test_a_foreign_transaction_says_nothing_of_whether_its_topic_is_there(site: Site) -> None:
    """Nor does one among its topics that is foreign; over both doors, for every call."""
    said: dict[str, set[str]] = {}
    mine = f"{MINE}/0/1-1-{'0' * 32}"
    for topic in (THEIRS, "nowhere"):
        name = f"{topic}/0/1-1-{'0' * 32}"
        for caller in ("produce mine", "consume mine", "admin mine"):
            key = site.keys[caller]
            for action in ("commit_transaction", "abort_transaction"):
                bodies: tuple[dict[str, Any], ...] = (
                    {"transaction": name, "participants": [f"{MINE}/0"]},
                    {"transaction": name},
                    {"transaction": mine, "participants": [f"{topic}/0"]},
                    {"transaction": mine, "participants": [f"{topic}/99999"]},
                )
                for number, body in enumerate(bodies):
                    with pytest.raises(Forbidden) as caught:
                        act(site, caller, action, body)
                    place = f"{caller} {action} {number}"
                    said.setdefault(place, set()).add(str(caught.value).replace(topic, "it"))
                    url = f"{site.http_url}/v1/transactions/{action.partition('_')[0]}"
                    found = httpx.post(
                        url,
                        json=body,
                        headers={"Authorization": f"Bearer {key}"},
                        timeout=PATIENCE_SECONDS,
                    )
                    assert found.status_code == 403
                    said[place].add(found.json()["detail"].replace(topic, "it"))
            for op, call in (("enqueue", "messages"), ("ack", "ack")):
                if caller not in (
                    f"{'produce' if op == 'enqueue' else 'consume'} mine",
                    "admin mine",
                ):
                    continue
                place = f"{caller} {op}"
                transport = FlightTransport(site.flight.url, key)
                try:
                    batch = pa.record_batch({"nonsense": [1]})
                    stream = transport.open_write(WriteStream(MINE, op, transaction=name))
                    error = stream.send(1, batch).exception(PATIENCE_SECONDS)
                finally:
                    transport.close()
                assert isinstance(error, Forbidden)
                said.setdefault(place, set()).add(str(error).replace(topic, "it"))
                url = f"{site.http_url}/v1/topics/{MINE}/{call}"
                found = httpx.post(
                    url,
                    params={"transaction": name},
                    json={"payload": "x"} if op == "enqueue" else {"messages": []},
                    headers={"Authorization": f"Bearer {key}"},
                    timeout=PATIENCE_SECONDS,
                )
                assert found.status_code == 403
                said[place].add(found.json()["detail"].replace(topic, "it"))
    assert len(said) == 3 * 2 * 4 + 4
    assert {place: texts for place, texts in said.items() if len(texts) != 1} == {}


def test_a_call_without_a_topic_is_refused_by_name(site: Site) -> None:
    with pytest.raises(BadRequest, match="name"):
        act(site, "root", "create_topic", {})
    with pytest.raises(Forbidden):
        act(site, "manage mine", "create_topic", {})


# --- HTTP -----------------------------------------------------------------------------------------


def undocumented(found: Iterable[Any], prefix: str) -> Iterator[tuple[str, set[str]]]:
    """Paths and methods of routes as the framework keeps them, those of included routers too."""
    for route in found:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from undocumented(included.routes, prefix + route.include_context.prefix)
        else:
            yield prefix + route.path, route.methods or set()


def routes(site: Site) -> set[tuple[str, str]]:
    """Every route of the application: those of the document, and those it does not tell of."""
    app = build_app(Service(site.broker, site.flight._gate, lambda: True))
    documented = {
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    others = {
        (method, path)
        for path, methods in undocumented(app.routes, "")
        for method in methods - {"HEAD"}
    }
    return documented | others


def test_every_route_has_a_rule_and_a_line_here(site: Site) -> None:
    served = routes(site)
    assert served == set(ROUTES) == set(RULES)


def test_a_route_is_for_its_roles_alone(site: Site) -> None:
    wrong = []
    with httpx.Client(base_url=site.http_url, timeout=PATIENCE_SECONDS) as client:
        for method, path in sorted(routes(site)):
            needs, body = ROUTES[method, path]
            for caller, key in site.keys.items():
                make_topics(site.broker)
                status = request(client, method, path, body, key)
                wanted = expected(caller, needs, f"{method} {path}")
                refused = {401: Unauthenticated, 403: Forbidden}.get(status)
                if refused is not wanted or status >= 500:
                    wrong.append((method, path, caller, status, wanted))
    assert wrong == []


def request(client: httpx.Client, method: str, path: str, body: Any, key: str | None) -> int:
    named = {"topic": MINE, "queue_name": MINE, "key": "nobody", "id": "1", "name": "x"}
    named |= {"node": "x", "subscription": "s"}
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    url = path.format(**named) + QUERIES.get(path, "")
    return client.request(method, url, json=body, headers=headers).status_code


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    found = [vars(record)["audit"] for record in caplog.records if record.name == "dejaqueue.audit"]
    return [(one["principal"], one["action"], one["topic"]) for one in found]


def test_what_administers_has_one_line_each(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Every audited action and route, as an admin; and nothing else has a line."""
    caplog.set_level(logging.INFO, "dejaqueue.audit")
    wanted: list[tuple[str, str, str]] = []
    for name, (_, body) in ACTIONS.items():
        make_topics(site.broker)
        try:
            act(site, "root", name, body)
        except DejaQError as error:
            assert isinstance(error, NotAllowed) == calls.ACTIONS[name].rule.peers
        if calls.ACTIONS[name].rule.audited or calls.ACTIONS[name].rule.peers:  # refused
            wanted.append(("root", name, body.get("name" if "topic" in name else "topic", "")))
    with httpx.Client(base_url=site.http_url, timeout=PATIENCE_SECONDS) as client:
        for (method, path), (_, body) in ROUTES.items():
            make_topics(site.broker)
            request(client, method, path, body, site.keys["root"])
            if RULES[method, path].audited:
                has_topic = any(name in path for name in ("topics", "queues"))
                wanted.append(("root", f"{method} {path}", MINE if has_topic else ""))
    assert lines(caplog) == wanted
    assert len(wanted) > 30


def test_strangers_learn_nothing_from_what_is_not_there_or_wrong(site: Site) -> None:
    with httpx.Client(base_url=site.http_url, timeout=PATIENCE_SECONDS) as client:
        for method, path, body in (
            ("GET", "/v1/nowhere", None),
            ("GET", "/v1/topics/nowhere", None),
            ("POST", "/v1/keys", {"nonsense": 1}),
            ("POST", "/v1/topics/mine/lease", {"nonsense": 1}),
            ("PUT", "/livez/../stats", None),
        ):
            assert client.request(method, path, json=body).status_code == 401


def test_pages_in_a_browser_cannot_call_a_broker_without_keys(site: Site) -> None:
    key = {"Authorization": f"Bearer {site.keys['root']}"}
    with running() as bare:
        port = bare.http.port
        for headers, status in (
            ({}, 200),
            ({"Host": "localhost"}, 200),
            ({"Host": f"dejaq:{port}"}, 403),
            ({"Host": f"[::1]:{port}"}, 200),
            ({"Host": "a.localhost"}, 200),
            ({"Origin": f"http://127.0.0.1:{port}"}, 200),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
            ({"Host": f"evil.example:{port}"}, 403),
            ({"Host": "127.0.0.1.evil.example"}, 403),
        ):
            found = httpx.get(
                f"{bare.http_url}/v1/topics", headers=headers, timeout=PATIENCE_SECONDS
            )
            assert found.status_code == status, headers
        body = {"name": "root", "grants": ["admin:*"]}
        found = httpx.post(
            f"{bare.http_url}/v1/keys",
            json=body,
            headers={"Origin": "http://a.b"},
            timeout=PATIENCE_SECONDS,
        )
        assert found.status_code == 403
        assert not bare.broker.keys.required
    # With a key it is the key that counts: no page has one that was not given to it.
    url = f"{site.http_url}/v1/topics"
    assert (
        httpx.get(
            url, headers=key | {"Origin": "https://our.example"}, timeout=PATIENCE_SECONDS
        ).status_code
        == 200
    )


def test_two_authorizations_and_two_hosts_are_refused(site: Site) -> None:
    """What is before the broker may have looked at the other one."""
    root, own = f"Bearer {site.keys['root']}", f"Bearer {site.keys['produce mine']}"
    with running() as bare:
        for url, wanted in ((site.http_url, 401), (bare.http_url, 401)):
            for pair in ((root, root), (own, root), (root, ""), ("Basic x", root)):
                headers = [("Authorization", value) for value in pair]
                found = httpx.get(f"{url}/v1/topics", headers=headers, timeout=PATIENCE_SECONDS)
                assert found.status_code == wanted
                assert "one authorization header" in found.json()["detail"]
            port = int(url.rpartition(":")[2])
            with socket.create_connection(
                ("127.0.0.1", port), timeout=PATIENCE_SECONDS
            ) as connection:
                host = "Host: localhost\r\n"
                lines = f"GET /v1/topics HTTP/1.1\r\n{host}{host}Authorization: {root}\r\n\r\n"
                connection.sendall(lines.encode())
                assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")


def test_messages_that_a_get_takes_are_in_the_audit_log(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_rate", LogRate(3, 60.0))
    caplog.set_level(logging.INFO, "dejaqueue.audit")
    path = f"/API/v1/queues/{MINE}/messages"
    takes = {"Authorization": f"Bearer {site.keys['consume mine']}"}
    sends = {"Authorization": f"Bearer {site.keys['produce mine']}"}
    with httpx.Client(base_url=site.http_url, timeout=PATIENCE_SECONDS) as client:
        for ack in ("false", "true", "false", "true", "true"):
            client.post(path, json={"content": "x", "priority": 1}, headers=sends)
            assert client.get(path, params={"ack": ack}, headers=takes).status_code == 200
        while client.get(path, params={"ack": "true"}, headers=takes).status_code == 200:
            pass
    found = [
        (one["principal"], one["action"], one["topic"], one["outcome"], one["ack"])
        for one in (vars(record)["audit"] for record in caplog.records)
    ]
    line = ("consume.m", "GET /API/v1/queues/{queue_name}/messages", MINE, "done")
    assert found == [(*line, False), (*line, True), (*line, False)], "some of many, and no sends"


def test_messages_found_by_a_filter_are_a_managers_to_change(site: Site) -> None:
    body = {"where": {"group": "a"}, "due": 5}
    with httpx.Client(base_url=site.http_url, timeout=PATIENCE_SECONDS) as client:
        for caller, status in (("produce mine", 403), ("manage mine", 200)):
            headers = {"Authorization": f"Bearer {site.keys[caller]}"}
            found = client.post(f"/v1/topics/{MINE}/move", json=body, headers=headers)
            assert found.status_code == status


def test_a_refusal_over_http_is_a_problem(site: Site) -> None:
    found = httpx.get(f"{site.http_url}/v1/keys", timeout=PATIENCE_SECONDS)
    assert found.status_code == 401
    assert found.headers["www-authenticate"] == "Bearer"
    assert found.headers["content-type"] == "application/problem+json"
    assert found.json()["title"] == "Unauthenticated"
    headers = {"Authorization": f"Bearer {site.keys['manage mine']}"}
    found = httpx.get(f"{site.http_url}/v1/keys", headers=headers, timeout=PATIENCE_SECONDS)
    assert (found.status_code, found.json()["title"]) == (403, "Forbidden")


def test_keys_are_made_and_revoked_over_http(site: Site) -> None:
    headers = {"Authorization": f"Bearer {site.keys['root']}"}
    with httpx.Client(base_url=site.http_url, headers=headers, timeout=PATIENCE_SECONDS) as client:
        made = client.post("/v1/keys", json={"name": "web", "grants": [f"manage:{MINE}"]}).json()
        web = {"Authorization": f"Bearer {made['api_key']}"}
        assert client.get("/v1/keys", headers=web).status_code == 403
        listed = client.get("/v1/keys").json()
        assert listed["required"] is True
        assert [one["name"] for one in listed["keys"]][-1] == "web"
        assert "api_key" not in listed["keys"][-1]
        assert "digest" not in listed["keys"][-1]
        assert client.delete("/v1/keys/web").json()["id"] == made["id"]
        assert client.get("/v1/keys", headers=web).status_code == 401
        assert client.delete("/v1/keys/web").status_code == 400
        last = client.delete("/v1/keys/root")
        assert (last.status_code, last.json()["title"]) == (409, "Refused")
