"""Clients that wait for messages over HTTP: each asks, waits for its answer, acks, asks again.

Room: bench. A program of its own, with raw sockets on an event loop and no HTTP library, so that it
takes little of the core that the server has. Arguments: HTTP URL, topic, how many. Prints `ready`
when all of them wait; when its input ends, a line of JSON with what they got, and ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from urllib.parse import urlsplit

import uvloop

LEASE = b'{"max":1,"wait_ms":20000}'


class Pollers:
    """What all of them together have done."""

    def __init__(self, http_url: str, topic: str) -> None:
        found = urlsplit(http_url)
        self._host, self._port = str(found.hostname), int(found.port or 0)
        self._path = f"/v1/topics/{topic}"
        self.counts = {"polls": 0, "messages": 0, "failed": 0}

    async def poll(self, opened: asyncio.Semaphore) -> None:
        """One client, until it is cancelled."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(self._post("lease", LEASE))
        opened.release()
        while True:
            status, body = await _answer(reader)
            self.counts["polls"] += 1
            if status != 200:
                self.counts["failed"] += 1
            got = json.loads(body).get("messages", []) if status == 200 else []
            if got:
                self.counts["messages"] += len(got)
                rows = [{"id": row["id"], "attempt": row["attempt"]} for row in got]
                writer.write(self._post("ack", json.dumps({"messages": rows}).encode()))
                if (await _answer(reader))[0] != 200:
                    self.counts["failed"] += 1
            writer.write(self._post("lease", LEASE))

    def _post(self, call: str, body: bytes) -> bytes:
        head = (
            f"POST {self._path}/{call} HTTP/1.1\r\nhost: localhost\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.lower().index(b"content-length: ") + 16
    length = int(head[at : head.index(b"\r\n", at)])
    return int(head[9:12]), await reader.readexactly(length)


async def main() -> None:
    """Poll, as the arguments say."""
    http_url, topic, count = sys.argv[1:]
    pollers, opened = Pollers(http_url, topic), asyncio.Semaphore(0)
    running = [asyncio.create_task(pollers.poll(opened)) for _ in range(int(count))]
    for _ in running:
        await opened.acquire()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    ended = [poller for poller in running if poller.done()]
    pollers.counts["failed"] += len(ended)
    for poller in running:
        poller.cancel()
        with suppress(asyncio.CancelledError, OSError, EOFError):
            await poller
    print(json.dumps(pollers.counts), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
