"""A load of HTTP requests: connections that each send the next request when they have an answer.

Room: bench. A program of its own, with raw sockets on an event loop and no HTTP library, so that it
takes little of the core that the server has. Argument: number of connections. Prints `ready`; then
for each line of JSON on its input one line of JSON on its output, until the input ends.

    {"port", "case", "topic", "seconds", "rows"} → {"requests", "seconds", "failed"}

Cases: `nothing` (POST /nothing), `send`, `lease`, `ack` (what `lease` got before), `ndjson` (1,000
messages a request).
"""

from __future__ import annotations

import asyncio
import json
import random
import string
import sys
import time
from collections import deque

import uvloop

LINES = 1_000
PAYLOAD_CHARACTERS = 100
LEASE_BODY = b'{"max":1,"wait_ms":1000}'

Held = deque[tuple[bytes, bytes]]


class Connection(asyncio.Protocol):
    """One connection: as soon as an answer is whole, the next request goes out."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._buffer = b""
        self._wanted = -1
        self.transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self.transport = transport  # type: ignore[assignment]  # uvloop's is no subclass

    def send(self) -> None:
        """Send the next request, or say that there is none."""
        request = self._load.next_request()
        if request is None:
            self._load.rests()
        else:
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:  # tidy: allow name, because asyncio calls it so
        """A piece of an answer."""
        self._buffer = self._buffer + data if self._buffer else data
        if self._wanted < 0:
            head_end = self._buffer.find(b"\r\n\r\n")
            if head_end < 0:
                return
            at = self._buffer.find(b"content-length: ") + 16
            length = int(self._buffer[at : self._buffer.index(b"\r\n", at)])
            self._wanted = head_end + 4 + length
        if len(self._buffer) >= self._wanted:
            answer, self._buffer, self._wanted = self._buffer, b"", -1
            self._load.answered(answer)
            self.send()

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed: by us at the end, or by the server, which is a failure."""
        self._load.lost()


class Load:
    """What is asked in one case, and how often it was answered."""

    def __init__(self, values: dict[str, object], held: Held) -> None:
        self._case = str(values["case"])
        self._topic = f"/v1/topics/{values.get('topic', '')}".encode()
        self._rows = int(str(values["rows"]))
        self._ends_at = time.perf_counter() + float(str(values["seconds"]))
        self._held = held
        self._is_over = False
        self.asked = self.count = self.failed = self.resting = 0
        self.done = asyncio.get_running_loop().create_future()
        draw = random.Random(7)
        letters = string.ascii_letters + string.digits
        text = "".join(draw.choices(letters, k=PAYLOAD_CHARACTERS))
        self._fixed = {
            "nothing": _post(b"/nothing", json.dumps({"payload": text}).encode()),
            "send": _post(self._topic + b"/messages", json.dumps({"payload": text}).encode()),
            "lease": _post(self._topic + b"/lease", LEASE_BODY),
            "ndjson": _post(
                self._topic + b"/messages",
                b"\n".join(
                    json.dumps({"payload": "".join(draw.choices(letters, k=100))}).encode()
                    for _ in range(LINES)
                ),
                b"application/x-ndjson",
            ),
        }.get(self._case)

    def next_request(self) -> bytes | None:
        """The next request; None when there is no more."""
        if self._is_over or self.asked >= self._rows or time.perf_counter() >= self._ends_at:
            self._is_over = True
            return None
        self.asked += 1
        if self._fixed is not None:
            return self._fixed
        if not self._held:
            return None
        message_id, attempt = self._held.popleft()
        body = b'{"messages":[{"id":"%b","attempt":%b}]}' % (message_id, attempt)
        return _post(self._topic + b"/ack", body)

    def answered(self, answer: bytes) -> None:
        """An answer is there, whole."""
        self.count += 1
        if answer[9] != 50:  # the 2 of `HTTP/1.1 200`
            self.failed += 1
        elif self._case == "lease":
            at = answer.find(b'{"id":"')
            if at < 0:
                self.failed += 1
                return
            end = answer.index(b'"', at + 7)
            start = answer.index(b":", end) + 1
            self._held.append((answer[at + 7 : end], answer[start : answer.index(b",", start)]))
        elif self._case == "ack" and b'"OK"' not in answer:
            self.failed += 1

    def rests(self) -> None:
        """A connection has nothing more to ask."""
        self.resting += 1

    def lost(self) -> None:
        """A connection is closed."""
        if not self.done.done():
            self.failed += 1
            self.resting += 1


def _post(path: bytes, body: bytes, kind: bytes = b"application/json") -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
        % (path, kind, len(body), body)
    )


async def run(values: dict[str, object], connection_count: int, held: Held) -> dict[str, object]:
    """One case, to its end."""
    loop = asyncio.get_running_loop()
    load = Load(values | {"seconds": 3_600}, held)
    port = int(str(values["port"]))
    opened = [
        await loop.create_connection(lambda: Connection(load), "127.0.0.1", port)
        for _ in range(connection_count)
    ]
    began = time.perf_counter()
    load._ends_at = began + float(str(values["seconds"]))
    for _, connection in opened:
        connection.send()
    while load.resting < connection_count:
        await asyncio.sleep(0.001)  # tidy: allow sleep, because it is a stopwatch
    seconds = time.perf_counter() - began
    load.done.set_result(None)
    for transport, _ in opened:
        transport.close()
    return {"requests": load.count, "seconds": seconds, "failed": load.failed}


def main() -> None:
    """Do what the lines on the input say."""
    connection_count = int(sys.argv[1])
    held: Held = deque()
    print("ready", flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            found = runner.run(run(json.loads(line), connection_count, held))
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
