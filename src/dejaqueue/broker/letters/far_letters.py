"""Letters for a topic that another broker of the cluster serves, as bytes between the two.

A dead-letter topic lies where its topics do, so letters stay on one broker; but whoever sends them
back names any topic. They go as one call of one broker to another, with the number that they have
as a batch, so that they are there once, however often they are sent (rule 10).

Room: broker. Pure but for the call itself; what comes is checked as far as another broker of this
cluster, which alone may make the call, can be wrong: by being of another version.
Holds: what was encoded is decoded as it was, to the byte, with who sent each row.
See: carrier.py; ../topic/peers.py; rule 18.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from dejaqueue.access.senders import THE_BROKER, Sender
from dejaqueue.broker.replies import ReplyTo
from dejaqueue.digits import number_of
from dejaqueue.engine.arrays import Words
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, InternalError
from dejaqueue.schema.checks import SendColumns
from dejaqueue.schema.references import payload_bytes
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply

_TEXTS = ("keys", "groups", "tags", "headers")
_NUMBERS = ("priorities", "expires_ms")


LETTERS = "bring_letters"
"""The name of the call in the table (access/calls.py)."""


class Peers(Protocol):
    """The way to other brokers."""

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        """As Peers.ask."""
        ...


class Writer(Protocol):
    """A stream of batches into one topic."""

    def submit_columns(
        self, number: int, columns: SendColumns, senders: Words | None, reply: ReplyTo
    ) -> None:
        """As Writer.submit_columns."""
        ...


OpenWrite = Callable[[WriteStream, Sender], Writer]


def encode(columns: SendColumns, senders: Words | None) -> bytes:
    """Checked rows, and who sent each, as an Arrow stream."""
    fields: dict[str, pa.Array] = {
        "dues_ms": pa.array(columns.dues_ms),
        "payloads": columns.payloads,
    }
    for name in (*_TEXTS, *_NUMBERS):
        column = getattr(columns, name)
        if column is not None:
            fields[name] = column if isinstance(column, pa.Array) else pa.array(column)
    if senders is not None:
        names = pa.array(senders.names, pa.utf8())
        fields["senders"] = names.take(pa.array(senders.indices))
    batch = pa.record_batch(fields)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode(content: bytes | memoryview) -> tuple[SendColumns, Words | None]:
    """What `encode` made bytes of. Raises BadRequest: it is something else."""
    try:
        [batch] = pa.ipc.open_stream(pa.py_buffer(content))
        batch.validate(full=True)
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        payloads = found["payloads"]
        texts = {name: found.get(name) for name in _TEXTS}
        numbers = {name: _numbers(found.get(name)) for name in _NUMBERS}
        columns = SendColumns(
            rows=batch.num_rows,
            dues_ms=_numbers(found["dues_ms"]),
            payloads=payloads,
            partitions=None,
            payload_bytes=payload_bytes(payloads),
            **texts,
            **numbers,
        )
        return columns, _words(found.get("senders"))
    except (pa.ArrowException, KeyError, ValueError, TypeError) as wrong:
        raise BadRequest("content", "letters, as a broker sends them", str(wrong)[:100]) from None


def _numbers(column: pa.Array | None) -> Any:
    return None if column is None else np.array(column)


def _words(column: pa.Array | None) -> Words | None:
    if column is None:
        return None
    names: dict[str, int] = {}
    indices = [names.setdefault(name, len(names)) for name in column.to_pylist()]
    return Words(tuple(names), np.array(indices, np.int32))


class FarLetterbox:
    """A stream of batches into a topic that another broker serves.

    Args:
        url: that broker's.
        stream: which topic, or shard, and as which producer.
    """

    def __init__(self, peers: Peers, url: str, stream: WriteStream) -> None:
        self._peers, self._url, self._stream = peers, url, stream

    def submit_columns(
        self, number: int, columns: SendColumns, senders: Words | None, reply: ReplyTo
    ) -> None:
        """Send a batch that was checked before; `reply` is called once, on any thread."""

        def answered(future: Future[dict[str, Any]]) -> None:
            error = None if future.cancelled() else future.exception()
            if future.cancelled():
                error = Elsewhere(f"the broker of topic {self._stream.topic} is gone", 50)
            if error is not None and not isinstance(error, DejaQError):
                error = InternalError(f"letters: {type(error).__name__}: {error}")
            if error is not None:
                reply(Reply(number, columns.rows, error=error))
                return
            statuses = future.result().get("statuses")
            found = None if statuses is None else np.array(statuses, np.uint8)
            reply(Reply(number, columns.rows, statuses=found))

        body = {
            "topic": self._stream.topic,
            "producer": self._stream.producer,
            "number": str(number),
            "content": encode(columns, senders),
        }
        self._peers.ask(self._url, LETTERS, body).add_done_callback(answered)


def take(open_write: OpenWrite, body: dict[str, Any]) -> Future[dict[str, Any]]:
    """Take letters that another broker brings.

    Returns:
        When they are durable: `statuses`, a RowStatus for each row, None = all are in. The future
        fails with why none is.

    Raises:
        BadRequest, TopicUnknown, Elsewhere, Unavailable.
    """
    producer, text = body.get("producer"), body.get("number")
    number = number_of(text) if isinstance(text, str) else None
    if not isinstance(producer, str) or number is None:
        raise BadRequest("number", "digits, and a producer", text)
    columns, senders = decode(body["content"])
    stream = WriteStream(body["topic"], producer=producer).check()
    answer: Future[dict[str, Any]] = Future()

    def replied(reply: Reply) -> None:
        if reply.error is not None:
            answer.set_exception(reply.error)
            return
        statuses = reply.statuses
        answer.set_result({"statuses": None if statuses is None else statuses.tolist()})

    open_write(stream, THE_BROKER).submit_columns(number, columns, senders, replied)
    return answer
