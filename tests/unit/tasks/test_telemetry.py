"""Covers: a span for each attempt, below the one that sent it, current while the function runs.

Not covered: the client's own spans (tests/unit/client/test_tracing.py).
"""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dejaqueue.tasks import Tasks
from dejaqueue.tasks.attempt import Attempt
from dejaqueue.tasks.execution import Execution
from dejaqueue.tasks.telemetry import OpenTelemetry

PARENT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


@pytest.mark.parametrize("fails", [False, True])
def test_an_attempt_is_a_span(fails: bool) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    inside = []

    def work() -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)
        if fails:
            raise ValueError("no")

    app = Tasks(middleware=[OpenTelemetry(provider)])
    attempt = Attempt(app.add(work, "work", {}), 7, "t", 2, headers=PARENT)
    try:
        Execution(app).call(attempt)
    except ValueError:
        assert fails
    [span] = exporter.get_finished_spans()
    assert span.name == "run work"
    assert span.context.span_id == inside[0]
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert span.attributes is not None
    assert span.attributes["dejaqueue.attempt"] == 2
    assert (span.status.status_code is trace.StatusCode.ERROR) == fails
    assert not trace.get_current_span().get_span_context().is_valid
    provider.shutdown()
