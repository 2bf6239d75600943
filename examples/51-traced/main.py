"""A trace that goes through the queue: an order, the message it sends, the work on it.

Needs the SDK of OpenTelemetry: pip install opentelemetry-sdk
"""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import dejaqueue

# In earnest this is an exporter to a collector; DejaQ finds the provider by itself.
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")

with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("parcels")
    with tracer.start_as_current_span("order"):
        queue.send("parcels", "a book", delay=0.1)
    with queue.consume("parcels", max_messages=1) as parcels:
        for message in parcels:
            with tracer.start_as_current_span("wrap"):
                pass
            message.ack()

spans = exporter.get_finished_spans()
names = {span.context.span_id: span.name for span in spans}
for span in sorted(spans, key=lambda span: span.start_time):
    below = f" below {names[span.parent.span_id]}" if span.parent else ""
    linked = "".join(f", linked to {names[link.context.span_id]}" for link in span.links)
    print(f"{span.name}{below}{linked}")
