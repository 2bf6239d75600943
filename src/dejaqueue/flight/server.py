"""The Flight server: gRPC streams in, broker calls out.

Room: flight. Decides nothing about messages; translates errors once, at this boundary.
Holds: every batch gets one reply; a stream that fails says why in a form the client can read.
See: docs/wire.md.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from dejaqueue import limits
from dejaqueue.access import administration, audit, rules
from dejaqueue.access.calls import ACTIONS, TICKETS, bytes_past
from dejaqueue.access.gate import Gate
from dejaqueue.access.near_names import telling_near_names
from dejaqueue.access.quotas import Opening
from dejaqueue.access.roles import Principal
from dejaqueue.access.tls import ServerTls
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import Writer
from dejaqueue.client.flight_transport import flight_location
from dejaqueue.errors import BadRequest, Elsewhere
from dejaqueue.flight.bounds import OpenStreams, bounded
from dejaqueue.flight.callers import (
    KEY,
    Caller,
    Callers,
    caller_of,
    onward,
    onward_sharded,
)
from dejaqueue.flight.calls import CallCounter, OpenCalls
from dejaqueue.flight.consume import serve_consumer
from dejaqueue.flight.errors import translated
from dejaqueue.flight.forwarding import Forwarding
from dejaqueue.flight.gathering import stats_of_all
from dejaqueue.flight.generations import Generations
from dejaqueue.flight.peers import FlightPeers
from dejaqueue.flight.produce import serve_writer
from dejaqueue.flight.sharded import ShardedBrokers
from dejaqueue.flight.topic_writers import TopicWriters
from dejaqueue.model import Topic
from dejaqueue.schema.messages import CARRIED, SEND
from dejaqueue.wire import descriptors
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream


class FlightServer:
    """Serves a broker on a port.

    Args:
        broker: a started broker.
        host: address to listen on.
        port: 0 = any free port.
        gate: says who calls; None = a gate of the broker's keys.
        tls: None = in plain text.
        forwarding: to brokers that serve other topics; None = by the system's certificates.

    Attributes:
        forwarding: connections to other brokers.
    """

    def __init__(
        self,
        broker: Broker,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        gate: Gate | None = None,
        tls: ServerTls | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        self.forwarding = forwarding or Forwarding()
        self.sharded = ShardedBrokers(broker, self.forwarding.tls)
        self._peers = FlightPeers(self.forwarding, lambda: broker.keys.peers_key)
        self._broker = broker
        self._gate = gate or Gate(broker.keys)
        self._tls = tls
        self._host = host
        self._port = port
        self._open_streams = OpenStreams(limits.FLIGHT_STREAMS_MAX)
        self._open_calls = OpenCalls()
        self._generations = Generations(self._make)
        self._shared: Generations | None = None

    def _make(self, port: int) -> _Service:
        shared = self.forwarding, self.sharded, self._open_streams, self._open_calls
        return _Service(self._broker, self._gate, self._host, port, self._tls, shared)

    def start(self) -> None:
        """Return when the port is open. Raises BadRequest if it cannot be."""
        try:
            self._generations.start(self._port)
        except (OSError, pa.ArrowException) as error:
            raise BadRequest("server.port", f"a free port of {self._host}", self._port) from error
        self._broker.peers = self._peers
        if self._tls is not None:
            self._tls.on_change.append(self._generations.renew)

    def enter(self, port: int) -> None:
        """Listen at a second port, too: the address that several processes have in turn. Returns
        when it is open; until another process has given it back, that waits."""
        if self._shared is None:
            self._shared = Generations(self._make)
            self._shared.start_again(port)
            if self._tls is not None:
                self._tls.on_change.append(self._shared.renew)

    def drop(self, url: str) -> None:
        """A broker is gone: what was passed on or said to it ends now."""
        self.forwarding.drop(url)
        self._peers.drop(url)

    @property
    def port(self) -> int:
        """The port that is open."""
        return self._generations.port

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"{'dejaq' if self._tls is None else 'dejaqs'}://{self._host}:{self.port}"

    def _owes(self) -> bool:
        """True while a client waits for something, and not the other way round."""
        busy = self._open_calls.count > self._open_streams.idle_count()
        return busy or self.forwarding.owes()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """End all streams and close the port. Twice or before start is fine.

        Args:
            timeout_seconds: for answers that clients wait for. A stream that waits for its client
                is not waited for.

        Returns:
            False if streams of clients that do not end them were given up: gRPC has no way to
            close them, the process does it when it ends. Their threads still run, so it must end
            without the interpreter's own clearing up, which they would disturb.
        """
        ports = [one for one in (self._shared, self._generations) if one is not None]
        ended = [one.stop(timeout_seconds, self._owes) for one in ports]
        for one in ports:
            if self._tls is not None and one.renew in self._tls.on_change:
                self._tls.on_change.remove(one.renew)
        self._peers.close()
        self.forwarding.close()
        self.sharded.close()
        return all(ended)


class _Service(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """What gRPC calls, on a thread per call."""

    def __init__(
        self,
        broker: Broker,
        gate: Gate,
        host: str,
        port: int,
        tls: ServerTls | None,
        shared: tuple[Forwarding, ShardedBrokers, OpenStreams, OpenCalls],
    ) -> None:
        secured: dict[str, Any] = {}
        if tls is not None:
            secured["tls_certificates"] = [(tls.certificate, tls.key)]
            if tls.client_ca is not None:
                secured |= {"verify_client": True, "root_certificates": tls.client_ca}
        scheme = "grpc+tcp" if tls is None else "grpc+tls"
        mutual = tls is not None and tls.client_ca is not None
        self.forwarding, self.sharded, self._open_streams, open_calls = shared
        middleware = {KEY: CallCounter(broker, Callers(gate, mutual=mutual), open_calls)}
        self._broker = broker
        self._gate = gate
        self._streams: set[Callable[[], None]] = set()
        self._streams_lock = threading.Lock()
        self._ending = False
        # The last of all: it listens from here on, and whoever waited for the port calls at once.
        super().__init__(f"{scheme}://{host}:{port}", middleware=middleware, **secured)

    def _near_names(self, caller: Principal) -> telling_near_names:
        return telling_near_names(self._broker.topics, caller.sees)

    # --- streams ------------------------------------------------------------------------------

    def end_streams(self) -> None:
        """Tell every open consumer that the broker goes away."""
        with self._streams_lock:
            self._ending = True
            streams = list(self._streams)
        for end in streams:
            end()

    def register(self, end: Callable[[], None]) -> None:
        """Call `end` when the server stops; at once if it is stopping."""
        with self._streams_lock:
            self._streams.add(end)
            ending = self._ending
        if ending:
            end()

    def unregister(self, end: Callable[[], None]) -> None:
        """The stream has ended."""
        with self._streams_lock:
            self._streams.discard(end)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """A stream of batches (WriteStream)."""
        with translated():
            caller = caller_of(context)
            opened = self._broker.quotas.opening(caller, context.peer())
            with self._near_names(caller), opened as opening, self._open_streams.opened() as here:
                stream = descriptors.decode(WriteStream, descriptor.command)
                check = partial(self._gate.check, caller)
                if not stream.topic:
                    open_writer = partial(self._open_write, caller, context.peer(), opening)
                    writers = TopicWriters(stream, open_writer, self._broker.is_served_by)
                    serve_writer(writers, stream, reader, writer, opening, here, check)
                    return
                with audit.recorded(caller.name, context.peer(), stream.op, stream.topic):
                    sender = rules.require_write(caller, stream)
                try:
                    target = self._broker.open_write(stream, sender, opening.account)
                except Elsewhere as other:
                    opening.waits()
                    if other.spread:
                        shards = onward_sharded(context, other, self.sharded)
                        with closing(shards.open_stream(stream)) as sharded:
                            serve_writer(sharded, stream, reader, writer, opening, here, check)
                        return
                    wants_replies = stream.acks != "none"
                    there = onward(context, other)
                    self.forwarding.put(
                        there, descriptor, reader, writer, wants_replies=wants_replies
                    )
                    return
                serve_writer(target, stream, reader, writer, opening, here, check)

    def _open_write(
        self, caller: Principal, peer: str, opening: Opening, stream: WriteStream
    ) -> Writer:
        """A writer for batches of one topic, on a stream without one. Raises Elsewhere, too: what
        another broker serves is not passed on batch by batch."""
        with audit.recorded(caller.name, peer, stream.op, stream.topic):
            sender = rules.require_write(caller, stream)
        with self._near_names(caller):
            return self._broker.open_write(stream, sender, opening.account)

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """A consumer (ConsumeStream)."""
        with translated():
            caller = caller_of(context)
            admit = partial(self._gate.admit, caller)
            stops = self.register, self.unregister
            opened = self._broker.quotas.opening(caller, context.peer())
            with self._near_names(caller), opened as opening, self._open_streams.opened() as here:
                options = descriptors.decode(ConsumeStream, descriptor.command)
                with audit.recorded(caller.name, context.peer(), "consume", options.topic):
                    rules.require_consume(caller, options)
                try:
                    serve_consumer(
                        self._broker, options, reader, writer, stops, admit, opening, here
                    )
                except Elsewhere as other:
                    opening.waits()
                    if other.spread:
                        shards = onward_sharded(context, other, self.sharded)
                        serve_consumer(shards, options, reader, writer, stops, admit, opening, here)
                        return
                    there = onward(context, other)
                    self.forwarding.exchange(there, descriptor, reader, writer, stops)

    # --- one call, one answer -----------------------------------------------------------------

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        """Administration: JSON in, JSON out; one has bytes behind its JSON."""
        with translated(), self._near_names(caller_of(context)):
            if action.type not in ACTIONS:
                raise BadRequest("action", f"one of {', '.join(ACTIONS)}", action.type)
            if ACTIONS[action.type].content:
                values = self._with_content(action.body, context)
            else:
                body = bounded(action.body, "action.body")
                values = descriptors.json_object(body or b"{}", "action.body")
            try:
                answer = self._act(action.type, values, caller_of(context), context.peer())
            except Elsewhere as other:
                if other.spread:
                    shards = onward_sharded(context, other, self.sharded)
                    answer = shards.call(action.type, values)
                    return iter([flight.Result(json.dumps(answer).encode())])
                there = onward(context, other)
                if ACTIONS[action.type].repeats:
                    return iter(self.forwarding.repeated(there, action))
                return iter(self.forwarding.action(there, action))
            if action.type == "stats" and values.get("topic") is None:
                answer = self._with_others(context, answer)
            return iter([flight.Result(json.dumps(answer).encode())])

    def _with_content(
        self, body: pa.Buffer | None, context: flight.ServerCallContext
    ) -> dict[str, Any]:
        """The values of a call that has bytes, and these as `content`; they are not copied."""
        # Arrow's bytes have a sign, which ciphers do not take.
        content = memoryview(b"" if body is None else body).cast("B")
        head = bytes(content[: limits.CONTENT_HEAD_BYTES_MAX]).partition(b"\n")[0]
        values = descriptors.json_object(head, "action.body")
        content = content[len(head) + 1 :]
        account = self._broker.quotas.of(caller_of(context), context.peer())
        account.take_sent(0, len(content))
        return values | {"content": content}

    def _with_others(
        self, context: flight.ServerCallContext, own: dict[str, Any]
    ) -> dict[str, Any]:
        caller: Caller = context.get_middleware(KEY)
        if caller.is_forwarded:
            return own
        return stats_of_all(self._broker, self.forwarding, caller.bearer, own)

    def _act(self, name: str, body: dict[str, Any], caller: Principal, peer: str) -> dict[str, Any]:
        """One action, if its rule lets the caller, with a line in the audit log."""
        rule = ACTIONS[name].rule
        topic, more = str(body.get(rule.field) or ""), audit.facts(name, body)
        with audit.recorded(caller.name, peer, name, topic, always=rule.audited, more=more):
            rule.require(caller, body)
            if byte_count := bytes_past(name, body):
                self._broker.quotas.of(caller, peer).take_sent(0, byte_count)
            by = rule.requester(caller, body, is_near=administration.is_near(peer))
            answer = self._broker.call(name, body, by)
            more |= audit.facts_of_answer(name, answer)
            return rules.shown(caller, name, answer)

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        """The actions there are."""
        with translated():
            caller_of(context)
        return [(call.name, f"{call.sentence} Body: {call.body}.") for call in ACTIONS.values()]

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        """Rows without leasing: {"op": "peek", …}, scan, claim or history."""
        with translated(), self._near_names(caller_of(context)):
            values = descriptors.json_object(
                bounded(pa.py_buffer(ticket.ticket), "ticket"), "ticket"
            )
            op = values.pop("op", None)
            if op not in TICKETS:
                raise BadRequest("ticket.op", " or ".join(TICKETS), op)
            caller, topic = caller_of(context), str(values.get("topic"))
            with audit.recorded(caller.name, context.peer(), op, topic):
                rule = TICKETS[op].rule
                rule.require(caller, values)
            by = rule.requester(caller, values)
            try:
                if op == "peek":
                    _, [page] = self._broker.read(op, values, by)
                    if not self._gate.reads(caller, topic):
                        page = page.select([n for n in page.schema.names if n not in CARRIED])
                    return flight.RecordBatchStream(pa.Table.from_batches([page]))
                values |= {"topic": self._broker.shard_of(topic, values.get("partition"))}
                ticket = flight.Ticket(json.dumps({"op": op} | values).encode())
                schema, batches = self._broker.read(op, values, by)
            except Elsewhere as other:
                if other.spread:
                    shards = onward_sharded(context, other, self.sharded)
                    _, [page] = shards.read(op, values)
                    return flight.RecordBatchStream(pa.Table.from_batches([page]))
                schema, batches = self.forwarding.get(onward(context, other), ticket)
            check = partial(self._gate.check, caller)
            return flight.GeneratorStream(schema, _translating(batches, check))

    def list_flights(
        self, context: flight.ServerCallContext, criteria: bytes
    ) -> Iterator[flight.FlightInfo]:
        """One flight per topic that the caller has a role for."""
        with translated():
            sees = caller_of(context).sees
            topics = [topic for topic in self._broker.topics() if sees(topic.name)]
            return iter([self._flight_info(topic) for topic in topics])

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """A topic (descriptor path = its name): one endpoint per partition, at its owner."""
        with translated(), self._near_names(caller_of(context)):
            if not descriptor.path:
                raise BadRequest("descriptor.path", "the name of a topic", None)
            name = descriptor.path[0].decode(errors="replace")
            caller = caller_of(context)
            with audit.recorded(caller.name, context.peer(), "get_flight_info", name):
                rules.require_any(caller, rules.ANY, name)
            return self._flight_info(self._broker.topic(name))

    def get_schema(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.SchemaResult:
        """What can be sent to a topic (descriptor path = its name)."""
        return flight.SchemaResult(self.get_flight_info(context, descriptor).schema)

    def _flight_info(self, topic: Topic) -> flight.FlightInfo:
        names = self._broker.served_names(topic)
        homes = [self._broker.home(name) for name in names]
        # "Reuse this connection": this broker serves it, or passes calls on to its owner.
        reuse = "arrow-flight-reuse-connection://?"
        places = [flight_location(url) if url else reuse for url in homes]
        endpoints = [
            flight.FlightEndpoint(
                json.dumps({"op": "peek", "topic": topic.name, "partition": number}).encode(),
                [places[number % len(places)]],
            )
            for number in range(topic.partitions)
        ]
        descriptor = flight.FlightDescriptor.for_path(topic.name)
        schema = SEND.with_metadata({b"topic": json.dumps(topic.to_dict()).encode()})
        return flight.FlightInfo(schema, descriptor, endpoints, -1, -1)


def _translating(
    batches: Iterator[pa.RecordBatch], check_caller: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    """The batches; an error on the way is Flight's. Each is for a caller who still has a key."""
    with translated():
        for batch in batches:
            check_caller()
            yield batch
