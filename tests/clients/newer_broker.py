"""A later broker, as clients of today will meet it: its answers have more than they know.

It passes calls on to a broker of today and adds to what comes back: a field to each JSON answer and
error, bytes behind the last field of frames, a column to what is streamed. Its clock may be off.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from pyarrow import flight

from dejaqueue.wire import frames
from dejaqueue.wire.frames import DeliveryHead, FrameType, Pong, Reply, StreamError
from tests.patience import PATIENCE_SECONDS

MORE = {"colour": "red", "depth": {"of": ["field", 1]}}
GROWN_FIELD = pa.field("colour", pa.utf8())


def grown_json(content: bytes) -> bytes:
    values = json.loads(content)
    return json.dumps(values | MORE | {"fields": values.get("fields", {}) | MORE}).encode()


def grown_error(wrong: Exception) -> flight.FlightError:
    """The same error, with a field more."""
    told, mark, content = str(wrong).partition("\ndejaq:")
    if mark:
        values, _ = json.JSONDecoder().raw_decode(content)
        told = f"{told}{mark}{grown_json(json.dumps(values).encode()).decode()}"
    return flight.FlightServerError(told)


def grown_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, with a column more, in front."""
    colours = pa.array(["red"] * batch.num_rows, pa.utf8())
    return pa.RecordBatch.from_arrays(
        [colours, *batch.columns], schema=pa.schema([GROWN_FIELD, *batch.schema])
    )


class NewerBroker(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Stands before a broker.

    Args:
        shift_us: its clock less the broker's.
    """

    def __init__(self, broker_port: int, shift_us: int = 0) -> None:
        super().__init__("grpc+tcp://127.0.0.1:0")
        self.shift_us = shift_us
        self._broker = flight.connect(f"grpc+tcp://127.0.0.1:{broker_port}")

    def close(self) -> None:
        """End; a stream that a test which failed left open is not waited for."""
        ending = threading.Thread(target=self.shutdown, daemon=True)
        ending.start()
        ending.join(PATIENCE_SECONDS)
        self._broker.close()

    def grown_frame(self, content: bytes) -> bytes:
        """The frame with bytes behind it; nobody knows what they will mean."""
        frame = frames.decode(content)
        if isinstance(frame, Pong | DeliveryHead):
            frame = replace(frame, broker_us=frame.broker_us + self.shift_us)
        if isinstance(frame, StreamError) or (isinstance(frame, Reply) and frame.error):
            return content[: content.index(b"{")] + grown_json(content[content.index(b"{") :])
        return frames.encode(frame) + b"\x07\x06\x05\x04\x03"

    def do_action(
        self, _context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        if action.type == "lane":  # it would go past this broker
            yield flight.Result(grown_json(b'{"port": null, "name": null}'))
            return
        try:
            for result in self._broker.do_action(action):
                yield flight.Result(grown_json(result.body.to_pybytes()))
        except (pa.ArrowException, OSError) as wrong:
            raise grown_error(wrong) from None

    def do_get(
        self, _context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        found = self._broker.do_get(ticket).read_all()
        colours = pa.array(["red"] * found.num_rows, pa.utf8())
        return flight.RecordBatchStream(found.add_column(0, GROWN_FIELD, colours))

    def do_put(
        self,
        _context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        there, answers = self._broker.do_put(descriptor, reader.schema)
        try:
            for chunk in reader:
                if chunk.app_metadata is None:
                    there.write_batch(chunk.data)
                else:
                    there.write_with_metadata(chunk.data, chunk.app_metadata)
                # One after the other, so that a stream that was refused ends at once.
                reply = answers.read()
                if reply is None:
                    break
                writer.write(pa.py_buffer(self.grown_frame(reply.to_pybytes())))
            there.close()
        except (pa.ArrowException, OSError) as wrong:
            raise grown_error(wrong) from None

    def do_exchange(
        self,
        _context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        there, deliveries = self._broker.do_exchange(descriptor)
        writer.begin(pa.schema([GROWN_FIELD, *deliveries.schema]))

        def deliver() -> None:
            with suppress(StopIteration, pa.ArrowException, OSError):
                while True:
                    chunk = deliveries.read_chunk()
                    frame = pa.py_buffer(self.grown_frame(chunk.app_metadata.to_pybytes()))
                    if chunk.data is None:
                        writer.write_metadata(frame)
                    else:
                        writer.write_with_metadata(grown_batch(chunk.data), frame)

        delivering = threading.Thread(target=deliver, daemon=True)
        delivering.start()
        frame = b""
        with suppress(StopIteration, pa.ArrowException, OSError):
            # The stream is read by this thread alone: it ends when this function returns.
            while not frame or frame[1] != FrameType.CLOSE:
                frame = reader.read_chunk().app_metadata.to_pybytes()
                there.write_metadata(pa.py_buffer(frame))
        if not frame or frame[1] != FrameType.CLOSE:
            deliveries.cancel()
        delivering.join(PATIENCE_SECONDS)
        with suppress(pa.ArrowException, OSError):
            there.close()
