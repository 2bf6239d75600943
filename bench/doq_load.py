"""A load of DOQ's gRPC streams: each says its next request when it has an answer.

Room: bench. A program of its own. Argument: number of streams of a kind. Prints `ready`; then for
each line of JSON on its input one line of JSON on its output, until the input ends.

    {"address", "case", "queue", "seconds", "rows"} → {"messages", "seconds"}

Cases: `enqueue` (until the time is up), `dequeue` (`rows` messages, with `ack`), `both` at once
(messages that were sent and taken).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import uvloop
from grpc import aio

from dejaqueue.http.doq.door.protocol import SERVICE, load_calls

CONTENT = "x" * 100
GROUPS = 100
CALLS = load_calls()


class Load:
    """Streams of one queue.

    Attributes:
        sent, taken: messages so far.
    """

    def __init__(self, channel: Any, values: dict[str, Any]) -> None:
        self._channel = channel
        self._queue = str(values["queue"])
        self._ends = time.monotonic() + float(values["seconds"])
        self._rows = int(values["rows"])
        self.sent = self.taken = 0

    def _open(self, name: str) -> Any:
        call = CALLS[name]
        return self._channel.stream_stream(
            f"/{SERVICE}/{name}",
            request_serializer=call.request.SerializeToString,
            response_deserializer=call.response.FromString,
        )()

    async def enqueue(self) -> None:
        """One stream that sends."""
        stream, request = self._open("EnqueueStream"), CALLS["EnqueueStream"].request
        while time.monotonic() < self._ends:
            group, priority = f"group-{self.sent % GROUPS}", self.sent % 10
            await stream.write(
                request(queueName=self._queue, group=group, priority=priority, content=CONTENT)
            )
            answer = await stream.read()
            if not answer.success:
                raise RuntimeError(f"not enqueued: {answer}")
            self.sent += 1
        await stream.done_writing()

    async def dequeue(self) -> None:
        """One stream that takes, until as many as wanted were taken by all."""
        stream, request = self._open("DequeueStream"), CALLS["DequeueStream"].request
        while self.taken < self._rows and time.monotonic() < self._ends:
            await stream.write(request(queueName=self._queue, ack=True))
            answer = await stream.read()
            if not answer.success:
                raise RuntimeError(f"not dequeued: {answer}")
            self.taken += 1
        stream.cancel()


async def run(values: dict[str, Any], streams: int) -> dict[str, float]:
    """One case."""
    async with aio.insecure_channel(values["address"]) as channel:
        load = Load(channel, values)
        case, began = values["case"], time.monotonic()
        senders = [load.enqueue() for _ in range(streams if case != "dequeue" else 0)]
        takers = [load.dequeue() for _ in range(streams if case != "enqueue" else 0)]
        takings = [asyncio.ensure_future(one) for one in takers]
        await asyncio.gather(*senders)
        if takings and not senders:
            seconds = float(values["seconds"])
            done, _ = await asyncio.wait(takings, timeout=seconds, return_when="FIRST_COMPLETED")
            for taking in done:
                taking.result()
        for taking in takings:
            taking.cancel()  # it may wait for a message that nobody sends any more
        await asyncio.gather(*takings, return_exceptions=True)
        took = time.monotonic() - began
    return {"messages": load.sent + load.taken, "seconds": took}


def main() -> None:
    """Answer lines until there are no more."""
    streams = int(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(uvloop.run(run(json.loads(line), streams))), flush=True)


if __name__ == "__main__":
    main()
