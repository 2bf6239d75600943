"""Tracing: spans of sends and of work, links over the queue, and nothing at all where it is off.

Covered: single sends, batches, producers, consumers of both kinds, both clients, headers that are
there already or full, errors, threads, cost of nothing. Every test has spans of its own in memory.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import dejaqueue
from dejaqueue import AsyncClient, Client
from dejaqueue.broker.broker import Broker
from dejaqueue.client import tracing
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings
from dev.reaper import marks

OTHERS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    """What was traced."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    tracing.use(found.provider)
    yield found
    tracing.use(None)
    found.provider.shutdown()


@pytest.fixture
def queue() -> Iterator[Client]:
    with dejaqueue.open("memory:") as opened:
        opened.create_topic("t")
        yield opened


def parent_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def test_a_send_is_a_span_and_travels_with_the_message(queue: Client, spans: Spans) -> None:
    message_id = queue.send("t", b"x", headers={"a": "b"}, key="k")
    span = spans.one("send t")
    assert span.kind is trace.SpanKind.PRODUCER
    assert dict(span.attributes or {}) == {
        "messaging.system": "dejaq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.message.id": str(message_id),
    }
    (headers,) = queue.peek("t")["headers"].to_pylist()
    assert dict(headers) == {"a": "b", "traceparent": parent_of(span)}


def test_a_span_around_a_send_is_its_parent(queue: Client, spans: Spans) -> None:
    with spans.provider.get_tracer("mine").start_as_current_span("order") as order:
        queue.send("t", b"x")
    parent = spans.one("send t").parent
    assert parent is not None
    assert parent.span_id == order.get_span_context().span_id


def test_a_consumed_message_is_a_span_that_is_linked_to_its_send(
    queue: Client, spans: Spans
) -> None:
    queue.send("t", b"x")
    with queue.consume("t", max_messages=1) as consumer:
        seen = []
        for message in consumer:
            seen.append((message.id, trace.get_current_span().get_span_context().span_id))
            message.ack()
    assert not trace.get_current_span().get_span_context().is_valid
    [(number, current)] = seen
    span = spans.one("process t")
    assert (span.kind, id_of(span)) == (trace.SpanKind.CONSUMER, current)
    assert linked(span) == [id_of(spans.one("send t"))]
    attributes = span.attributes or {}
    assert attributes["messaging.message.id"] == str(number)
    assert attributes["dejaq.message.attempt"] == 1


def test_each_message_has_a_span_of_its_own_that_ends_at_the_next(
    queue: Client, spans: Spans
) -> None:
    for _ in range(3):
        queue.send("t", b"x")
    with queue.consume("t", max_messages=3) as consumer:
        for number, message in enumerate(consumer):
            assert len(spans.named("process t")) == number
            message.ack()
    sent = [id_of(span) for span in spans.named("send t")]
    assert [linked(span) for span in spans.named("process t")] == [[one] for one in sent]


def test_work_that_fails_is_a_span_with_the_error(queue: Client, spans: Spans) -> None:
    queue.send("t", b"x")
    with pytest.raises(ValueError), queue.consume("t") as consumer:
        next(consumer)
        raise ValueError("broken")
    span = spans.one("process t")
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert [event.name for event in span.events] == ["exception"]


def test_a_send_that_fails_is_a_span_with_the_error(queue: Client, spans: Spans) -> None:
    with pytest.raises(TopicUnknown):
        queue.send("nobody", b"x")
    with pytest.raises(BadRequest):
        queue.send("t", b"x", delay=-1)
    kinds = [(span.attributes or {})["error.type"] for span in spans.named("send t")]
    assert kinds == ["BadRequest"]
    assert spans.one("send nobody").status.status_code is trace.StatusCode.ERROR


def test_a_batch_is_one_span_and_its_context_is_in_every_row(queue: Client, spans: Spans) -> None:
    batch = pa.record_batch({"payload": pa.array([b"x"] * 10_000)})
    assert len(queue.send_batch("t", batch).ids) == 10_000
    span = spans.one("send t")
    assert (span.attributes or {})["messaging.batch.message_count"] == 10_000
    found = {dict(headers)["traceparent"] for headers in queue.peek("t")["headers"].to_pylist()}
    assert found == {parent_of(span)}


def test_a_batch_with_headers_is_sent_as_it_is(queue: Client, spans: Spans) -> None:
    queue.send_batch("t", [{"payload": b"x", "headers": {"a": "b"}}, {"payload": b"y"}])
    shown = queue.peek("t")["headers"].to_pylist()
    assert sorted(len(headers or ()) for headers in shown) == [0, 1]
    assert len(spans.named("send t")) == 1


def test_a_batch_that_is_consumed_is_one_span_with_bounded_links(
    queue: Client, spans: Spans
) -> None:
    count = tracing.LINKS_MAX + 5
    for _ in range(count):
        queue.send("t", b"x")
    queue.send_batch("t", [{"payload": b"x"}] * 100)
    with queue.consume_batches("t", max_messages=count + 100, batch_rows=1_000) as consumer:
        for messages in consumer:
            messages.ack()
    found = spans.named("process t")
    counts = [(span.attributes or {})["messaging.batch.message_count"] for span in found]
    assert sum(counts) == count + 100  # type: ignore[arg-type]
    assert max(len(span.links) for span in found) <= tracing.LINKS_MAX
    sent = {id_of(span) for span in spans.named("send t")}
    assert {one for span in found for one in linked(span)} <= sent


def test_headers_of_the_user_win(queue: Client, spans: Spans) -> None:
    queue.send("t", b"x", headers={"traceparent": OTHERS})
    with queue.consume("t", max_messages=1) as consumer:
        for message in consumer:
            assert message.headers == {"traceparent": OTHERS}
            message.ack()
    assert linked(spans.one("process t")) == [0xB7AD6B7169203331]


@pytest.mark.parametrize("wrong", ["", "x", "00-0-0-00", "00-" + "0" * 32 + OTHERS[35:]])
def test_a_context_that_is_none_is_passed_over(queue: Client, spans: Spans, wrong: str) -> None:
    queue.send("t", b"x", headers={"traceparent": wrong})
    with queue.consume("t", max_messages=1) as consumer:
        for message in consumer:
            message.ack()
    assert linked(spans.one("process t")) == []


def test_headers_that_are_full_stay_as_they_are(queue: Client, spans: Spans) -> None:
    full = {"a": "x" * (4_096 - 4)}
    queue.send("t", b"x", headers=full)
    (headers,) = queue.peek("t")["headers"].to_pylist()
    assert dict(headers) == full
    spans.one("send t")


def test_the_state_of_a_trace_travels_too(queue: Client, spans: Spans) -> None:
    remote = trace.SpanContext(
        0xAF7651916CD43DD8448EB211C80319C,
        0xB7AD6B7169203331,
        is_remote=True,
        trace_flags=trace.TraceFlags(1),
        trace_state=trace.TraceState([("vendor", "value")]),
    )
    context = trace.set_span_in_context(trace.NonRecordingSpan(remote))
    with spans.provider.get_tracer("mine").start_as_current_span("order", context):
        queue.send("t", b"x")
    (headers,) = queue.peek("t")["headers"].to_pylist()
    assert dict(headers)["tracestate"] == "vendor=value"


def test_a_producer_traces_each_call(queue: Client, spans: Spans) -> None:
    with queue.producer("t") as producer:
        producer.send(b"one")
        producer.send_batch([{"payload": b"two"}, {"payload": b"three"}])
        producer.flush()
    counts = [
        (span.attributes or {}).get("messaging.batch.message_count")
        for span in spans.named("send t")
    ]
    assert counts == [None, 2]
    assert len(queue.peek("t")) == 3
    assert all(headers for headers in queue.peek("t")["headers"].to_pylist())


def test_threads_that_share_a_consumer_have_spans_of_their_own(queue: Client, spans: Spans) -> None:
    for _ in range(2):
        queue.send("t", b"x")
    together = threading.Barrier(2)
    seen: list[int] = []
    with queue.consume("t") as consumer:

        def work() -> None:
            message = next(consumer)
            together.wait(30)
            seen.append(trace.get_current_span().get_span_context().span_id)
            message.ack()
            tracing.dealt_with(consumer)

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(30)
    assert sorted(seen) == sorted(id_of(span) for span in spans.named("process t"))
    assert len(set(seen)) == 2


def test_the_asynchronous_client_over_the_wire(spans: Spans) -> None:
    async def work(url: str) -> None:
        async with AsyncClient(url) as client:
            await client.create_topic("t")
            await client.send("t", b"x")
            await client.send_batch("t", [{"payload": b"y"}] * 3)
            async with client.consume("t", max_messages=4) as consumer:
                async for message in consumer:
                    await message.ack()

    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker)
    server.start()
    asyncio.run(work(server.url))
    server.stop()
    broker.stop()
    one, batch = (id_of(span) for span in spans.named("send t"))
    assert [linked(span) for span in spans.named("process t")] == [[one]] + [[batch]] * 3


def test_without_a_provider_nothing_is_traced_or_sent(queue: Client) -> None:
    assert not tracing.is_on()
    queue.send("t", b"x")
    queue.send_batch("t", [{"payload": b"x"}])
    assert queue.peek("t")["headers"].null_count == 2


def test_opentelemetry_is_not_loaded_by_us_and_a_provider_is_found_when_it_is_set() -> None:
    program = """
import sys, dejaqueue
with dejaqueue.open("memory:") as queue:
    queue.create_topic("t")
    queue.send("t", b"x")
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    from opentelemetry import trace
    queue.send("t", b"x")
    from opentelemetry.sdk.trace import TracerProvider
    trace.set_tracer_provider(TracerProvider())
    queue.send("t", b"x")
    print(len([1 for headers in queue.peek("t")["headers"].to_pylist() if headers]))
"""
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=marks() | {"PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert found.stdout == "1\n"
