"""A stream without a topic: each batch names its topic and producer.

Room: flight. Part of a DoPut stream (produce.py), on its thread.
Holds: whoever may not write to a topic, or names one that is not there, learns it by the reply of
that batch, and the stream goes on; a topic that was deleted, made again or handed over is looked up
anew by the next batch to it.
See: docs/wire.md, "Streams without a topic"; ADR 38.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa

from dejaqueue.broker.streams import ReplyTo, Writer
from dejaqueue.errors import BadRequest, DejaQError
from dejaqueue.schema.checks import check_schema
from dejaqueue.wire.descriptors import WriteStream, decode_address
from dejaqueue.wire.frames import Reply

WRITERS_MAX = 4_096
"""Writers that a stream keeps; when there are more, all of them are made anew."""
LOOK_AT = 16
"""With so many it is first looked which of them are of topics that are gone."""
_NUMBER_BYTES = 4
_NAMES_AT = 8  # behind the two numbers

Submit = Callable[[int, pa.RecordBatch, ReplyTo], None]


class TopicWriters:
    """The writers of one stream.

    Args:
        stream: as it was opened.
        open_writer: for one topic and producer. Raises what their batches are answered.
        is_served: whether the topic of a writer is still served by it.
    """

    def __init__(
        self,
        stream: WriteStream,
        open_writer: Callable[[WriteStream], Writer],
        is_served: Callable[[Writer], bool],
    ) -> None:
        self._stream = stream
        self._open_writer = open_writer
        self._is_served = is_served
        self._writers: dict[bytes, Writer] = {}
        self._look_at = min(LOOK_AT, WRITERS_MAX)

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise BadRequest if batches of this schema can't be what the stream is for."""
        check_schema(self._stream.op, schema)

    def addressed(self, metadata: pa.Buffer | None) -> tuple[int, Submit]:
        """A batch's number on the stream, and how it is submitted. Raises BadRequest."""
        content = b"" if metadata is None else metadata.to_pybytes()
        if len(content) <= _NAMES_AT:
            limit = "the batch's number and address"
            raise BadRequest("app_metadata", limit, content)
        return int.from_bytes(content[:_NUMBER_BYTES], "little"), partial(
            self._submit, content[_NUMBER_BYTES:]
        )

    def _submit(self, address: bytes, number: int, batch: pa.RecordBatch, reply: ReplyTo) -> None:
        try:
            writer = self.writer(address)
        except DejaQError as error:
            if self._stream.acks != "none":
                reply(Reply(number, batch.num_rows, error=error))
            return
        own_number = int.from_bytes(address[:_NUMBER_BYTES], "little")
        writer.submit(own_number, batch, partial(_answer, number, reply))

    def writer(self, address: bytes) -> Writer:
        """The writer for batches of this address. Raises why there is none."""
        names = address[_NAMES_AT - _NUMBER_BYTES :]
        writer = self._writers.get(names)
        if writer is None or not self._is_served(writer):
            writer = self._open(names, address)
        return writer

    def _open(self, names: bytes, address: bytes) -> Writer:
        self._writers.pop(names, None)
        named = decode_address(address)
        stream = replace(self._stream, topic=named.topic, producer=named.producer).check()
        writer = self._open_writer(stream)
        if len(self._writers) >= self._look_at:
            self._let_go()
        self._writers[names] = writer
        return writer

    def _let_go(self) -> None:
        """Forget writers of topics that are gone: each holds all that was served of its topic."""
        self._writers = {names: one for names, one in self._writers.items() if self._is_served(one)}
        if len(self._writers) >= WRITERS_MAX:
            self._writers.clear()
        self._look_at = min(max(LOOK_AT, 2 * len(self._writers)), WRITERS_MAX)


def _answer(number: int, reply_to: ReplyTo, reply: Reply) -> None:
    """Under the number that the batch has on the stream."""
    reply_to(Reply(number, reply.rows, reply.first_id, reply.ids, reply.statuses, reply.error))
