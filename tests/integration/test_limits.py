"""Covers: every limit of limits.py, exactly at it and one beyond, at every door of the broker.

The doors: Arrow Flight as a foreign client speaks it, the queue in this process, one message over
HTTP, many messages over HTTP. A limit is a case here, or names the test that tries it, or says why
there is nothing to refuse; a new limit without any of these fails. Large limits are made small for
their test, as only the comparison is tried.

Not covered: how much memory what is within the limits takes (tests/rules/test_rule_14_bounded.py).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import dejaqueue
from dejaqueue import limits
from dejaqueue.access.api_keys import grants_of
from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import BadRequest
from dejaqueue.flight.server import FlightServer
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from dejaqueue.schema import packing
from dejaqueue.schema.messages import HEADERS, TAGS
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire import frames
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream, decode
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
TYPES = {
    "payload": pa.binary(),
    "due": pa.int64(),
    "expires": pa.int64(),
    "priority": pa.int32(),
    "tags": TAGS,
    "headers": HEADERS,
}
Row = dict[str, Any]


class Refusal(Exception):
    """What a door said no with."""


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    names = list(rows[0])
    columns = {
        name: pa.array([row[name] for row in rows], TYPES.get(name, pa.string())) for name in names
    }
    return pa.record_batch(columns)


def shown(row: Row) -> Row:
    """A row as JSON for HTTP."""
    values = {**row, "payload": row["payload"].decode()}
    if "headers" in row:
        values["headers"] = dict(row["headers"])
    return values


class Flight:
    """A foreign client: raw streams and actions, no check of its own."""

    def __init__(self, server: FlightServer, _http: httpx.Client) -> None:
        self._raw = flight.connect(f"grpc+tcp://127.0.0.1:{server.port}")

    def send(self, rows: list[Row], **descriptor: Any) -> None:
        batch = batch_of(rows)
        command = json.dumps({"topic": "t", **descriptor}).encode()
        try:
            writer, reader = self._raw.do_put(
                flight.FlightDescriptor.for_command(command), batch.schema
            )
            with writer:
                writer.write_batch(batch)
                writer.done_writing()
                reply = frames.decode(memoryview(reader.read()))
        except (pa.ArrowException, flight.FlightError) as error:
            raise Refusal(str(error)) from None
        assert isinstance(reply, Reply)
        if reply.error is not None:
            raise Refusal(str(reply.error))

    def act(self, name: str, body: dict[str, Any]) -> None:
        try:
            list(self._raw.do_action(flight.Action(name, json.dumps(body).encode())))
        except (pa.ArrowException, flight.FlightError) as error:
            raise Refusal(str(error)) from None

    def peek(self, keys: list[str]) -> None:
        ticket = json.dumps({"op": "peek", "topic": "t", "keys": keys}).encode()
        try:
            self._raw.do_get(flight.Ticket(ticket)).read_all()
        except (pa.ArrowException, flight.FlightError) as error:
            raise Refusal(str(error)) from None

    def close(self) -> None:
        self._raw.close()


class Embedded:
    """The queue in this process."""

    def __init__(self, *_: object) -> None:
        self._queue = dejaqueue.open("memory:")
        self._queue.create_topic("t")
        self._queue.create_topic("c", kind="cron")
        self.act("cron_put", entry(name="kept"))

    def send(self, rows: list[Row]) -> None:
        try:
            self._queue.send_batch("t", batch_of(rows))
        except dejaqueue.DejaQError as error:
            raise Refusal(str(error)) from None

    def act(self, name: str, body: dict[str, Any]) -> None:
        try:
            self._queue._action(name, body)
        except dejaqueue.DejaQError as error:
            raise Refusal(str(error)) from None

    def close(self) -> None:
        self._queue.close()


class Http:
    """The HTTP API: one message in a request if there is one, else many."""

    def __init__(self, _server: FlightServer, http: httpx.Client) -> None:
        self._http = http

    def _post(self, path: str, body: Any) -> None:
        answer = self._http.post(path, json=body)
        if answer.status_code >= 300:
            assert answer.status_code < 500, answer.text
            raise Refusal(answer.text)

    def send(self, rows: list[Row]) -> None:
        body = shown(rows[0]) if len(rows) == 1 else {"messages": [shown(row) for row in rows]}
        self._post("/v1/topics/t/messages", body)

    def act(self, name: str, body: dict[str, Any]) -> None:
        if name == "create_topic":
            self._post("/v1/topics", body)
        else:
            raise AssertionError(name)

    def lease_one(self, wait_ms: int) -> None:
        """With a message that is due: nothing to wait for."""
        self.send([message()])
        self._post("/v1/topics/t/lease", {"max": 1, "wait_ms": wait_ms})

    def close(self) -> None:
        pass


class HttpMany(Http):
    """The HTTP API, one message as a list of one."""

    def send(self, rows: list[Row]) -> None:
        self._post("/v1/topics/t/messages", {"messages": [shown(row) for row in rows]})


DOORS = (Flight, Embedded, Http, HttpMany)
Door = Flight | Embedded | Http


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[FlightServer, httpx.Client]]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker)
    server.start()
    http = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    http.start()
    client = httpx.Client(
        base_url=f"http://127.0.0.1:{http.port}", timeout=PATIENCE_SECONDS, trust_env=False
    )
    with dejaqueue.Client(server.url) as queue:
        queue.create_topic("t")
        queue.create_topic("c", kind="cron")
        queue._action("cron_put", entry(name="kept"))
    yield server, client
    client.close()
    http.stop()
    server.stop()
    broker.stop()


@pytest.fixture(params=DOORS, ids=lambda kind: kind.__name__)
def door(
    request: pytest.FixtureRequest, servers: tuple[FlightServer, httpx.Client]
) -> Iterator[Door]:
    opened = request.param(*servers)
    yield opened
    opened.close()


@dataclass(frozen=True)
class Case:
    """One limit.

    Attributes:
        try_it: sends or does something of this size.
        field: what the refusal has to name.
        doors: where it can be tried.
        small: the limit for the test, where its own is large.
        low: True if it is the least and not the most.
    """

    try_it: Callable[[Any, int], object]
    field: str
    doors: tuple[type, ...] = DOORS
    small: int = 0
    low: bool = False


def message(**fields: Any) -> Row:
    return {"payload": b"x", **fields}


def header_of(byte_count: int) -> list[tuple[str, str]]:
    """A header that takes so many bytes as it is kept."""
    one = packing.pack_headers(pa.array([[("a", "")]], HEADERS))[0].as_py()
    return [("a", "x" * (byte_count - len(one)))]


def many(rows: int) -> list[Row]:
    return [message()] * rows


_number = iter(range(1_000_000))


def topic(**settings: Any) -> dict[str, Any]:
    return {"name": f"made-{next(_number)}", **settings}


def setting(name: str, *, kind: str = "timeline") -> Callable[[Any, int], None]:
    return lambda door, n: door.act("create_topic", topic(kind=kind, **{name: n}))


def entry(**fields: Any) -> dict[str, Any]:
    return {"topic": "c", "entries": [{"name": "e", "every_ms": 60_000, **fields}]}


def expression(byte_count: int) -> str:
    """A cron expression of so many bytes."""
    rest = " 0 * * *"
    room = byte_count - len(rest)
    first = "10," if room % 2 == 0 else ""
    return first + "0," * ((room - len(first) - 1) // 2) + "0" + rest


FRAMED = (Flight, Embedded)
"""Doors that take actions as they are."""

CASES: dict[str, Case] = {
    "TOPIC_NAME_BYTES_MAX": Case(
        lambda door, n: door.act(
            "create_topic", {"name": f"{next(_number)}".rjust(n, "n"), "exist_ok": True}
        ),
        "name",
    ),
    "KEY_BYTES_MAX": Case(
        lambda door, n: door.send([message(key=f"{next(_number)}".rjust(n, "k"))]), "key"
    ),
    "GROUP_BYTES_MAX": Case(lambda door, n: door.send([message(group="g" * n)]), "group"),
    "SUBSCRIPTIONS_MAX": Case(
        lambda door, n: door.act(
            "create_topic",
            {"name": f"s{next(_number)}", "subscriptions": {f"s{i}": {} for i in range(n)}},
        ),
        "topic.subscriptions",
    ),
    "TAGS_MAX": Case(
        lambda door, n: door.send([message(tags=[f"t{i}" for i in range(n)])]), "tags"
    ),
    "TAG_BYTES_MAX": Case(lambda door, n: door.send([message(tags=["t" * n])]), "tags"),
    "HEADERS_BYTES_MAX": Case(
        lambda door, n: door.send([message(headers=header_of(n))]), "headers"
    ),
    "PAYLOAD_BYTES_DEFAULT": Case(lambda door, n: door.send([{"payload": b"x" * n}]), "payload"),
    "INSTANT_MS_MIN": Case(lambda door, n: door.send([message(due=n)]), "due", low=True),
    "INSTANT_MS_MAX": Case(lambda door, n: door.send([message(due=n)]), "due"),
    "PRIORITY_MAX": Case(lambda door, n: door.send([message(priority=n)]), "priority"),
    "BATCH_ROWS_MAX": Case(
        lambda door, n: door.send(many(n)), "rows", (Flight, Embedded, HttpMany), small=40
    ),
    "BATCH_BYTES_MAX": Case(
        lambda door, n: door.send([message(group="g" * 50), message(group="g" * (n - 52))]),
        "batch",
        (Flight, Embedded, HttpMany),
        small=200,
    ),
    "PAYLOAD_BYTES_MAX": Case(
        lambda door, n: door.send([{"payload": b"x" * n}]), "payload", small=40
    ),
    "STREAMED_BYTES_MAX": Case(setting("max_payload_bytes"), "max_payload_bytes"),
    "LEASE_MS_MIN": Case(setting("lease_ms"), "lease_ms", low=True),
    "LEASE_MS_MAX": Case(setting("lease_ms"), "lease_ms"),
    "LEASE_AHEAD_MS_MAX": Case(setting("lease_ahead_ms"), "lease_ahead_ms"),
    "SPIKE_AHEAD_MS_MAX": Case(setting("spike_ahead_ms"), "spike_ahead_ms"),
    "ATTEMPTS_MAX": Case(setting("max_attempts"), "max_attempts"),
    "BACKOFF_MS_MAX": Case(
        lambda door, n: door.act("create_topic", topic(backoff_ms=1, backoff_max_ms=n)),
        "backoff_max_ms",
    ),
    "CREDIT_MAX": Case(setting("group_in_flight_max", kind="fair"), "group_in_flight_max"),
    "WEIGHT_MAX": Case(
        lambda door, n: door.act("create_topic", topic(kind="fair", weights={"g": n})), "weights"
    ),
    "WEIGHTS_MAX": Case(
        lambda door, n: door.act(
            "create_topic", topic(kind="fair", weights={f"g{i}": 2 for i in range(n)})
        ),
        "weights",
    ),
    "CLAIM_ROWS_MAX": Case(
        lambda door, n: door.act("claim", {"topic": "t", "partition": 0, "rows": n}),
        "rows",
        (Flight,),
    ),
    "PRODUCER_NAME_BYTES_MAX": Case(
        lambda door, n: door.send([message()], producer=f"{next(_number)}".rjust(n, "p")),
        "producer",
        (Flight,),
    ),
    "TRANSACTION_MS_MAX": Case(
        lambda door, n: door.act("begin_transaction", {"topic": "t", "timeout_ms": n}),
        "timeout_ms",
        FRAMED,
    ),
    "PEEK_ROWS_MAX": Case(
        lambda door, n: door.peek([f"k{i}" for i in range(n)]), "keys", (Flight,)
    ),
    "COUNTS_ROWS_MAX": Case(
        lambda door, n: door.act("counts", {"topic": "t", "limit": n}), "limit", FRAMED
    ),
    "BUCKETS_MAX": Case(
        lambda door, n: door.act(
            "histogram", {"topic": "t", "bucket_ms": 10, "due_from": 0, "due_to": 10 * n}
        ),
        "bucket_ms",
        FRAMED,
    ),
    "CRON_EVERY_MS_MIN": Case(
        lambda door, n: door.act("cron_put", entry(every_ms=n)), "every_ms", FRAMED, low=True
    ),
    "CRON_JITTER_MS_MAX": Case(
        lambda door, n: door.act("cron_put", entry(jitter_ms=n)), "jitter_ms", FRAMED
    ),
    "CRON_EXPRESSION_BYTES_MAX": Case(
        lambda door, n: door.act("cron_put", entry(every_ms=0, cron=expression(n))), "cron", FRAMED
    ),
    "CRON_PAYLOAD_BYTES_MAX": Case(
        lambda door, n: door.act("cron_put", entry(payload=base64.b64encode(b"x" * n).decode())),
        "payload",
        FRAMED,
    ),
    "CRON_CALL_ENTRIES_MAX": Case(
        lambda door, n: door.act(
            "cron_put",
            {"topic": "c", "entries": [entry(name=f"e{i}")["entries"][0] for i in range(n)]},
        ),
        "entries",
        FRAMED,
        small=3,
    ),
    "CRON_PREVIEW_MAX": Case(
        lambda door, n: door.act("cron_next", {"topic": "c", "name": "kept", "count": n}),
        "count",
        FRAMED,
    ),
    "DISPATCH_ROWS_MAX": Case(
        lambda _, n: decode(
            ConsumeStream, json.dumps({"topic": "t", "batch_rows_max": n}).encode()
        ),
        "batch_rows_max",
        (Flight,),
    ),
    "REASON_BYTES_MAX": Case(
        lambda _, n: decode(
            WriteStream, json.dumps({"topic": "t", "op": "nack", "reason": "r" * n}).encode()
        ),
        "reason",
        (Flight,),
    ),
    "LEASE_ROWS_MAX": Case(
        lambda door, n: door._post("/v1/topics/t/lease", {"max": n}), "max", (Http,)
    ),
    "LEASE_WAIT_MS_MAX": Case(lambda door, n: door.lease_one(n), "wait_ms", (Http,)),
    "API_KEY_GRANTS_MAX": Case(lambda _, n: grants_of(["consume:t"] * n), "grants", (Flight,)),
}

ELSEWHERE: dict[str, str] = {
    "EPHEMERAL_MS_MIN": "unit/test_subscriptions.py::test_what_is_no_subscription_is_refused",
    "EPHEMERAL_MS_MAX": "unit/test_subscriptions.py::test_what_is_no_subscription_is_refused",
    "WINDOW_ROWS_MAX": (
        "rules/test_browsing.py::test_a_window_for_more_than_is_kept_in_memory_is_refused"
    ),
    "API_KEYS_REVOKED_MAX": (
        "unit/access/test_key_ring.py::test_revoked_keys_are_remembered_up_to_a_limit"
    ),
    "CLUSTER_SECRET_LENGTH_MIN": (
        "unit/cluster/test_secret.py::test_a_secret_that_is_short_is_refused"
    ),
    "UNPACKED_BYTES_MAX": (
        "hostile/test_malformed.py::"
        "test_what_is_small_only_when_packed_is_refused_before_it_is_unpacked"
    ),
    "PART_BYTES": "unit/broker/payloads/test_streamed.py::test_what_is_no_part_is_refused",
    "UNSTREAMED_BYTES_MAX": "unit/client/test_streamed.py::test_what_is_small_is_sent_as_it_is",
    "CONTENT_HEAD_BYTES_MAX": (
        "integration/test_streamed_payloads.py::test_the_json_before_a_part_is_bounded"
    ),
    "FLIGHT_STREAMS_MAX": (
        "integration/test_access.py::test_streams_beyond_the_limit_are_refused_until_one_ends"
    ),
    "PARTITIONS_MAX": "integration/test_limits.py::test_partitions_are_bounded",
    "SEQUENCE_MAX": "unit/test_model.py::test_an_id_unpacks_to_what_went_in",
    "POSITION_MAX": "unit/journal/test_format.py::test_what_was_encoded_is_decoded",
    "TOPICS_MAX": "integration/test_limits.py::test_topics_are_bounded",
    "CONSUMERS_PER_TOPIC_MAX": "unit/broker/consumers/test_dispatch.py::test_too_many_consumers",
    "LEASES_PER_EXTENSION_MAX": (
        "unit/wire/test_frames.py::test_the_leases_of_one_extension_are_bounded"
    ),
    "PRODUCER_WINDOW_BATCHES": (
        "unit/engine/test_producers.py::test_the_window_of_answers_moves_on"
    ),
    "PRODUCERS_MAX": (
        "unit/engine/test_producers.py::test_of_too_many_producers_the_longest_silent_is_forgotten"
    ),
    "PRODUCER_IDLE_MS_MAX": (
        "unit/engine/test_producers.py::test_a_silent_producer_is_forgotten_when_another_is_heard"
    ),
    "TRANSACTION_MEMORY_MS": (
        "rules/test_rule_12_transactions.py::test_decisions_are_forgotten_when_nobody_can_ask"
    ),
    "TRANSACTION_DECISIONS_MAX": (
        "rules/test_rule_12_transactions.py::test_remembered_decisions_are_bounded"
    ),
    "TRANSACTIONS_OPEN_MAX": (
        "rules/test_rule_12_transactions.py::test_many_open_transactions_are_bounded"
    ),
    "TRANSACTION_PARTICIPANTS_MAX": (
        "unit/broker/transactions/test_names.py::test_participants_are_each_named_once"
    ),
    "TRANSACTION_BRANCHES_MAX": (
        "unit/broker/transactions/test_record.py::test_the_number_of_branches_is_bounded"
    ),
    "BRANCHED_MS_MAX": (
        "unit/broker/transactions/test_names.py"
        "::test_a_name_says_where_its_home_is_and_when_its_time_is_over"
    ),
    "HTTP_HEAD_BYTES_MAX": "unit/http/test_protocol.py::test_large_headers_get_431",
    "HTTP_HEADERS_MAX": "unit/http/test_protocol.py::test_large_headers_get_431",
    "HTTP_BODY_BYTES_PER_SECOND_MIN": (
        "unit/http/test_protocol.py::test_a_body_that_trickles_in_gets_408"
    ),
    "HTTP_PIPELINED_MAX": (
        "unit/http/test_protocol.py::test_a_flood_of_requests_on_one_connection_is_cut_off"
    ),
    "BODY_BYTES_MAX": ("unit/http/test_bodies.py::test_a_body_that_is_too_large_or_never_comes"),
    "ACTION_BYTES_MAX": (
        "integration/test_access.py::test_a_body_beyond_the_limit_is_refused_by_name"
    ),
    "API_KEYS_MAX": "unit/access/test_key_ring.py::test_there_are_not_more_keys_than_the_limit",
    "OIDC_TOKEN_BYTES_MAX": "unit/access/test_oidc.py::test_what_is_forged_is_refused",
    "OIDC_TOKENS_MAX": (
        "unit/access/test_oidc.py::test_no_more_tokens_are_remembered_than_the_limit"
    ),
    "OIDC_ROLES_MAX": "unit/access/test_oidc.py::test_roles_beyond_the_limit_are_not_looked_at",
    "OIDC_KEYS_MAX": (
        "unit/access/test_issuer_keys.py::test_no_more_keys_are_taken_than_the_limit"
    ),
    "OIDC_KEYS_BYTES_MAX": (
        "unit/access/test_issuer_keys.py::test_what_is_no_answer_changes_nothing"
    ),
    "FLIGHT_GENERATIONS_MAX": (
        "unit/flight/test_generations.py::test_of_too_many_old_servers_the_oldest_tells_its_streams"
    ),
    "API_KEY_BYTES_MAX": "unit/access/test_api_keys.py::test_a_key_has_an_id_and_256_random_bits",
    "LABEL_BYTES_MAX": (
        "unit/broker/calls/test_reports.py::test_a_wrong_note_is_refused_by_its_field"
    ),
    "LABELS_BYTES_MAX": "unit/test_model.py::test_labels_are_texts_of_a_bounded_size",
    "LANE_WAITING_MAX": ("unit/http/test_lane.py::test_many_more_than_may_wait_are_all_answered"),
    "SPREAD_MAX": "integration/test_limits.py::test_shards_are_bounded",
    "LATENESS_BUCKETS": (
        "unit/wire/test_frames.py::test_a_ping_with_a_report_begins_as_one_without"
    ),
}
NOTHING_TO_REFUSE: dict[str, str] = {
    "FLIGHT_STREAMS_EXPECTED": "what quotas.streams_max has its default of",
    "FLIGHT_OPENINGS_PER_S": "what quotas.openings_per_s has its default of",
    "INGRESS_BYTES_PER_S": "what quotas.bytes_per_s has its default of",
    "OIDC_REFRESH_MS": "when the broker asks an issuer",
    "OIDC_REFETCH_MS": "when the broker asks an issuer",
    "SEQUENCE_BITS": "the layout of an id",
    "ROW_BITS": "the layout of a locator",
    "SLAB_BITS": "the layout of the message table",
    "SLAB_ROWS": "the layout of the message table",
    "PRIORITY_DEFAULT": "a default",
    "TRANSACTION_MS_DEFAULT": "a default",
    "DISPATCH_BYTES_MAX": "what the broker puts into one delivery",
    "BROWSE_ROWS_MAX": "what the broker looks at in one stretch",
    "CHANGE_ROWS_MAX": "what the broker changes in one stretch",
    "CRON_AHEAD_MS": "when the broker fires",
    "CRON_GRACE_MS": "when the broker calls a firing missed",
    "CRON_STEP_ENTRIES_MAX": "what the broker looks at in one step",
}


@pytest.mark.parametrize("name", CASES)
def test_at_the_limit_is_taken_and_one_beyond_is_refused(
    name: str, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    if type(door) not in case.doors:
        return
    if case.small:
        monkeypatch.setattr(limits, name, case.small)
    limit = getattr(limits, name)
    beyond = limit - 1 if case.low else limit + 1
    case.try_it(door, limit)
    with pytest.raises((Refusal, BadRequest)) as refused:
        case.try_it(door, beyond)
    assert case.field in str(refused.value)
    case.try_it(door, limit)  # and nothing is broken by it


@pytest.mark.parametrize("door", [Flight, Embedded, Http], indirect=True)
def test_topics_are_bounded(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOPICS_MAX", 0)
    with pytest.raises(Refusal, match="this broker has 0 topics, the limit"):
        door.act("create_topic", topic())
    monkeypatch.undo()
    door.act("create_topic", topic())


@pytest.mark.parametrize("door", [Flight, Embedded, Http], indirect=True)
def test_partitions_are_bounded(door: Door) -> None:
    with pytest.raises(Refusal, match="partitions"):
        door.act("create_topic", topic(partitions=limits.PARTITIONS_MAX + 1))
    assert Topic("at", partitions=limits.PARTITIONS_MAX).check()


@pytest.mark.parametrize("door", [Flight, Embedded, Http], indirect=True)
def test_shards_are_bounded(door: Door) -> None:
    beyond = limits.SPREAD_MAX + 1
    with pytest.raises(Refusal, match="spread"):
        door.act("create_topic", topic(spread=beyond, partitions=beyond))
    assert Topic("at", spread=limits.SPREAD_MAX, partitions=limits.SPREAD_MAX).check()


def test_every_limit_is_tried_somewhere() -> None:
    text = Path(limits.__file__).read_text(encoding="utf-8")
    names = re.findall(r"^([A-Z][A-Z0-9_]*): Final", text, re.MULTILINE)
    assert sorted(names) == sorted([*CASES, *ELSEWHERE, *NOTHING_TO_REFUSE])
    for place in ELSEWHERE.values():
        path, _, test = place.partition("::")
        assert f"def {test}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), place
