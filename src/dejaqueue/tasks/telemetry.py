"""OpenTelemetry for tasks: a span for each attempt, in the trace of whoever sent it.

Room: tasks. Needs the extra `opentelemetry`; loaded by who uses it.
Holds: the span is current while the function runs, so that what it calls is below it; a span that
was begun is ended.
See: middleware.py; docs/guides/tracing.md for the client's own spans.
"""

from __future__ import annotations

from opentelemetry import context, propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider

from dejaqueue.tasks.attempt import Attempt
from dejaqueue.tasks.middleware import Middleware
from dejaqueue.version import __version__


class OpenTelemetry(Middleware):
    """Middleware that makes a span of each attempt.

    Args:
        provider: of the program; None = the global one.

    Example:
        >>> app.use(OpenTelemetry())                                  # doctest: +SKIP
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("dejaqueue.tasks", __version__, provider)

    def before(self, attempt: Attempt) -> None:
        """Begin the span, below the one that sent the task."""
        span = self._tracer.start_span(
            f"run {attempt.task.name}",
            propagate.extract(attempt.headers),
            SpanKind.CONSUMER,
            {
                "messaging.system": "dejaqueue",
                "messaging.destination.name": attempt.topic,
                "messaging.message.id": str(attempt.id),
                "dejaqueue.task": attempt.task.name,
                "dejaqueue.attempt": attempt.number,
            },
        )
        attempt.notes[__name__] = span, context.attach(trace.set_span_in_context(span))

    def after(self, attempt: Attempt, result: object) -> None:
        """End it."""
        span, token = attempt.notes.pop(__name__)
        context.detach(token)
        span.end()

    def error(self, attempt: Attempt, error: BaseException) -> None:
        """End it with the error."""
        if __name__ not in attempt.notes:
            return
        span, token = attempt.notes.pop(__name__)
        context.detach(token)
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()
