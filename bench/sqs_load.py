"""A load of SQS's calls: connections that each send the next request when they have an answer.

Room: bench. A program of its own, with raw sockets on an event loop, so that it takes little of the
core that the server has: requests are signed as AWS's clients sign them, those of `send` once for
all, as every message is the same. Prints `ready`; then for each line of JSON on its input one line
of JSON on its output, until the input ends.

    {"port", "path", "queue_url", "key_id", "secret", "case", "connections", "seconds", "messages"}
    → {"messages", "seconds", "failed"}

Cases: `send` (one message a request), `fill` (ten a request), `receive_delete` (receives ten,
deletes those in one batch, and again). A server that closes after each answer is opened anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import random
import re
import string
import sys
import time
from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

import orjson
import uvloop

from dejaqueue.clock import SystemClock

REGION = "us-east-1"
ROWS = 10
PAYLOAD_CHARACTERS = 100
Requests = Generator[bytes, bytes, None]
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SIGNED = "content-type;host;x-amz-date;x-amz-target"
_TYPE = "application/x-amz-json-1.0"


class Signer:
    """Signs requests to one address (Signature Version 4)."""

    def __init__(self, host: str, path: str, key_id: str, secret: str) -> None:
        self._host, self._path = host, path
        now = SystemClock().utc_ms() / 1_000
        self._time = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
        self._scope = f"{self._time[:8]}/{REGION}/sqs/aws4_request"
        self._credential = f"{key_id}/{self._scope}"
        key = f"AWS4{secret}".encode()
        for part in self._scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._key = key

    def request(self, name: str, values: dict[str, Any]) -> bytes:
        """A whole signed request."""
        body, target = orjson.dumps(values), f"AmazonSQS.{name}"
        canonical = (
            f"POST\n{self._path}\n\ncontent-type:{_TYPE}\nhost:{self._host}\n"
            f"x-amz-date:{self._time}\nx-amz-target:{target}\n\n{_SIGNED}\n"
            f"{hashlib.sha256(body).hexdigest()}"
        )
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{self._time}\n{self._scope}\n{digest}"
        signature = hmac.digest(self._key, text.encode(), "sha256").hex()
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {_TYPE}\r\n"
            f"X-Amz-Date: {self._time}\r\nX-Amz-Target: {target}\r\n"
            f"Authorization: AWS4-HMAC-SHA256 Credential={self._credential}, "
            f"SignedHeaders={_SIGNED}, Signature={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Case:
    """What is asked in one case, and how much of it was answered.

    Attributes:
        messages: sent, or deleted.
        done: when no connection asks any more.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self._case = str(values["case"])
        self._queue_url = values["queue_url"]
        host = f"127.0.0.1:{values['port']}"
        self._signer = Signer(host, values["path"], values["key_id"], values["secret"])
        letters = string.ascii_letters + string.digits
        body = "".join(random.Random(7).choices(letters, k=PAYLOAD_CHARACTERS))
        entries = [{"Id": str(number), "MessageBody": body} for number in range(ROWS)]
        self._send = self._request("SendMessage", MessageBody=body)
        self._fill = self._request("SendMessageBatch", Entries=entries)
        self._receive = self._request("ReceiveMessage", MaxNumberOfMessages=ROWS, WaitTimeSeconds=1)
        self._ends_at = time.perf_counter() + float(values["seconds"])
        self.messages = self.failed = self._asked = 0
        self.resting = 0

    def _request(self, name: str, **values: Any) -> bytes:
        return self._signer.request(name, {"QueueUrl": self._queue_url, **values})

    def requests(self) -> Requests:
        """What one connection asks; it is told each answer by `send`."""
        while time.perf_counter() < self._ends_at and self._asked < self._values["messages"]:
            self._asked += ROWS if self._case != "send" else 1
            if self._case == "receive_delete":
                yield from self._receive_delete()
                continue
            answer = yield self._send if self._case == "send" else self._fill
            sent = b'"MessageId"' in answer and b'"Failed":[{' not in answer
            self.messages += (1 if self._case == "send" else ROWS) if sent else 0
            self.failed += not sent

    def _receive_delete(self) -> Requests:
        answer = yield self._receive
        if not answer.startswith(b"HTTP/1.1 200"):
            self.failed += 1
            return
        messages = orjson.loads(answer[answer.index(b"\r\n\r\n") + 4 :]).get("Messages", [])
        if not messages:
            return
        entries = [
            {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
            for number, message in enumerate(messages)
        ]
        answer = yield self._request("DeleteMessageBatch", Entries=entries)
        count = answer.count(b'"Id"')
        is_done = answer.startswith(b"HTTP/1.1 200") and b'"Code"' not in answer
        self.messages += count if is_done else 0
        self.failed += not is_done


class Connection(asyncio.Protocol):
    """One connection: as soon as an answer is whole, the next request goes out."""

    def __init__(self, case: Case, port: int) -> None:
        self._case, self._port = case, port
        self._requests = case.requests()
        self._request: bytes | None = None
        self._buffer = b""
        self._wanted = -1
        self._is_over = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open; after the first time the request that was left goes out."""
        self.transport = transport
        if self._request is not None:
            self.transport.write(self._request)

    def ask(self, answer: bytes | None = None) -> None:
        """Send the next request, or rest."""
        try:
            self._request = next(self._requests) if answer is None else self._requests.send(answer)
        except StopIteration:
            self._is_over = True
            self._case.resting += 1
            return
        if not self.transport.is_closing():
            self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:  # tidy: allow name, because asyncio calls it so
        """A piece of an answer."""
        self._buffer = self._buffer + data if self._buffer else data
        if self._wanted < 0:
            head_end = self._buffer.find(b"\r\n\r\n")
            if head_end < 0:
                return
            found = _LENGTH.search(self._buffer, 0, head_end)
            assert found is not None, self._buffer[:head_end]
            self._wanted = head_end + 4 + int(found[1])
        if len(self._buffer) >= self._wanted:
            answer, self._buffer, self._wanted = self._buffer, b"", -1
            if answer.startswith(b"HTTP/1.0") or b"onnection: close" in answer:
                answer = answer.replace(b"HTTP/1.0", b"HTTP/1.1", 1)
                self.transport.close()
            self.ask(answer)

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed: by us at the end, or by a server that closes after each answer."""
        if not self._is_over:
            loop = asyncio.get_running_loop()
            opening = loop.create_connection(lambda: self, "127.0.0.1", self._port)
            self._opening = loop.create_task(opening)


async def run(values: dict[str, Any]) -> dict[str, Any]:
    """One case, to its end."""
    loop = asyncio.get_running_loop()
    case, port = Case(values), int(values["port"])
    connections = [Connection(case, port) for _ in range(values["connections"])]
    for connection in connections:
        await loop.create_connection(lambda one=connection: one, "127.0.0.1", port)  # type: ignore[misc]
    began = time.perf_counter()
    case._ends_at = began + float(values["seconds"])
    for connection in connections:
        connection.ask()
    while case.resting < len(connections):
        await asyncio.sleep(0.001)  # tidy: allow sleep, because it is a stopwatch
    seconds = time.perf_counter() - began
    for connection in connections:
        connection.transport.close()
    return {"messages": case.messages, "seconds": seconds, "failed": case.failed}


def main() -> None:
    """Do what the lines on the input say."""
    print("ready", flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            print(json.dumps(runner.run(run(json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
