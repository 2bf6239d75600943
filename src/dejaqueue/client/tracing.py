"""Tracing: spans for sends and for what consumers do, where OpenTelemetry is used.

Room: client. The one file that imports OpenTelemetry, and only when the program around it has done
so already and has set a tracer provider: nobody else pays more than a look into `sys.modules`.
Holds: tracing never refuses or changes a message but for two headers, `traceparent` and
`tracestate` (W3C Trace Context); headers that the user set are left alone, and so is a message that
has no room for more.
See: docs/guides/tracing.md. Names are those of OpenTelemetry's conventions for messaging.

    producer   send ──────────┐ a span for each call, a batch is one call
                              ┆ traceparent, in the headers: hours may pass
    consumer   process ───────┘ a span for each message or batch handed over, with links
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from dejaqueue.client.consuming.messages import BatchFields, MessageFields
from dejaqueue.client.results import SendResult
from dejaqueue.errors import BadRequest
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.trace_context import PARENT, batch_with_context, with_context
from dejaqueue.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Tracer, TracerProvider

SYSTEM = "dejaq"
LINKS_MAX = 128
"""Producers' contexts that the span of a batch is linked to at most."""
MODULE = "opentelemetry.trace"

Answer = TypeVar("Answer")

_tracer: Tracer | None = None


class Carried(dict[str, str]):
    """Headers that carry a trace context: their message is being traced already."""


def is_on() -> bool:
    """True if this program traces."""
    return _tracer is not None or (MODULE in sys.modules and _look())


def _look() -> bool:
    """Take the program's tracer provider, once it is set; that happens once in a program."""
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return False
    use(provider)
    return True


def use(provider: TracerProvider | None) -> None:
    """Trace with this provider from now on; None = look for the program's own."""
    global _tracer
    _tracer = None if provider is None else provider.get_tracer("dejaqueue", __version__)


def _start(operation: str, topic: str, kind: SpanKind, links: list[Link], **more: Any) -> Span:
    assert _tracer is not None
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
        **more,
    }
    return _tracer.start_span(f"{operation} {topic}", kind=kind, attributes=attributes, links=links)


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None:
        from opentelemetry.trace import Status, StatusCode

        span.record_exception(error)
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR, type(error).__name__))
    span.end()


# --- sending --------------------------------------------------------------------------------------


class Sending:
    """The span of one call that sends. Begun when it is made, ended by the `with` block."""

    def __init__(self, topic: str) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._span = _start("send", topic, SpanKind.PRODUCER, [])
        self._context: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(self._context, set_span_in_context(self._span))
        self._rows = 0

    def __enter__(self) -> Sending:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._rows:
            self._span.set_attribute("messaging.batch.message_count", self._rows)
        _end(self._span, error)

    def carried(self, headers: Mapping[str, str] | None) -> Carried:
        """The headers of one message, with the context if it is not there and has room."""
        return Carried(with_context(headers or {}, self._context))

    def carry(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the context in the headers of each row; with headers of its own as is."""
        self._rows += batch.num_rows
        return batch_with_context(batch, self._context)

    def sent(self, answer: Answer) -> Answer:
        """Note what came of it; gives it back."""
        if isinstance(answer, int):
            self._span.set_attribute("messaging.message.id", str(answer))
        elif isinstance(answer, SendResult):
            self._rows = len(answer.ids)
        return answer


# --- consuming ------------------------------------------------------------------------------------


class _Processing:
    """The span of what was handed over, current in its thread or coroutine until the next one."""

    def __init__(self, owner: object, span: Span, outer: _Processing | None) -> None:
        from opentelemetry import context
        from opentelemetry.trace import set_span_in_context

        self.owner = weakref.ref(owner)
        self.outer = outer
        self._span = span
        self._token: Token[Context] = context.attach(set_span_in_context(span))

    def end(self, error: BaseException | None) -> None:
        """What was handed over is dealt with."""
        from opentelemetry import context

        context.detach(self._token)
        _end(self._span, error)


# By thread and by coroutine: consumers may be shared, and have turns.
_current: ContextVar[_Processing | None] = ContextVar("dejaq_processing", default=None)


def handed_over(owner: object, topic: str, message: MessageFields) -> None:
    """A message leaves a consumer: the work on it begins."""
    from opentelemetry.trace import SpanKind

    span = _start(
        "process",
        topic,
        SpanKind.CONSUMER,
        _links(_carriers(message)),
        **{
            "messaging.message.id": str(message.id),
            "dejaq.message.attempt": message.attempt,
            "dejaq.message.lateness_us": message.lateness_us,
        },
    )
    _current.set(_Processing(owner, span, _current.get()))


def batch_handed_over(owner: object, topic: str, batch: BatchFields) -> None:
    """A batch leaves a consumer: the work on it begins."""
    from opentelemetry.trace import SpanKind

    span = _start(
        "process",
        topic,
        SpanKind.CONSUMER,
        _links(_contexts(batch.batch)),
        **{
            "messaging.batch.message_count": len(batch),
            "dejaq.message.lateness_us": int(batch.lateness_us.max(initial=0)),
        },
    )
    _current.set(_Processing(owner, span, _current.get()))


def _carriers(message: MessageFields) -> list[dict[str, str]]:
    try:
        return [message.headers]
    except BadRequest:  # they are no text: whoever asks for them is told
        return []


def dealt_with(owner: object, error: BaseException | None = None) -> None:
    """The consumer is asked for more, or ends: the work on what it gave last is over."""
    current = _current.get()
    while current is not None and current.owner() in (owner, None):
        current.end(error if current.owner() is owner else None)
        current = current.outer
    _current.set(current)


def _contexts(batch: pa.RecordBatch) -> list[dict[str, str]]:
    """The different contexts in a batch's headers, in order, no more than are linked to."""
    place = batch.schema.get_field_index("headers")
    if place < 0 or batch.column(place).null_count == batch.num_rows:
        return []
    column = batch.column(place)
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    names, values = column.keys.slice(first, last - first), column.items.slice(first, last - first)
    parents = values.filter(pc.equal(names, PARENT)).unique()
    return [{PARENT: parent} for parent in parents[:LINKS_MAX].to_pylist()]


def _links(carriers: list[dict[str, str]]) -> list[Link]:
    """Links to the producers' spans; what is no context is passed over."""
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    links = []
    for carrier in carriers:
        context = TraceContextTextMapPropagator().extract(carrier, Context())
        producer = trace.get_current_span(context).get_span_context()
        if producer.is_valid:
            links.append(trace.Link(producer))
    return links
