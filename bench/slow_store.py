"""An object store that is slow to store: passes requests on to one, each PUT after a while.

Room: bench. A program of its own on an event loop. Arguments: the store's port, the port to listen
at, milliseconds. Prints `ready`; then for each line on its input one line of JSON on its output,
what came since the line before, until the input ends.

    {"puts", "others"}

Only what clients of object stores send is understood: requests of HTTP/1.1 whose bodies have a
length, answers with a length, in chunks, or without a body.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio import StreamReader, StreamWriter
from collections import Counter

import uvloop

HEAD_BYTES_MAX = 64 << 10


class SlowStore:
    """Where requests are counted and held.

    Args:
        port: of the store.
        seconds: how long a PUT waits before it is passed on.
    """

    def __init__(self, port: int, seconds: float) -> None:
        self._port, self._seconds = port, seconds
        self.counts: Counter[str] = Counter()

    async def serve(self, client: StreamReader, to_client: StreamWriter) -> None:
        """One connection, and one of its own to the store."""
        store, to_store = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=HEAD_BYTES_MAX
        )
        try:
            while True:
                head = await client.readuntil(b"\r\n\r\n")
                method = head.split(b" ", 1)[0]
                body = await client.readexactly(int(field(head, b"content-length") or 0))
                self.counts["puts" if method == b"PUT" else "others"] += 1
                if method == b"PUT":
                    await asyncio.sleep(self._seconds)
                to_store.writelines([head, body])
                await answer(store, to_client, has_body=method != b"HEAD")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # one of the two has closed
        finally:
            to_client.close()
            to_store.close()


def field(head: bytes, name: bytes) -> bytes:
    """The value of a header, "" if it is not there.

    >>> field(b"PUT /a HTTP/1.1\\r\\nContent-Length: 12\\r\\n\\r\\n", b"content-length")
    b'12'
    """
    for line in head.split(b"\r\n")[1:]:
        found, _, value = line.partition(b":")
        if found.strip().lower() == name:
            return value.strip().lower()
    return b""


async def answer(store: StreamReader, to_client: StreamWriter, *, has_body: bool) -> None:
    """Pass an answer on."""
    head = await store.readuntil(b"\r\n\r\n")
    while head.split(b" ", 2)[1] == b"100":
        head = await store.readuntil(b"\r\n\r\n")
    to_client.write(head)
    if not has_body or head.split(b" ", 2)[1] in (b"204", b"304"):
        pass
    elif field(head, b"transfer-encoding") == b"chunked":
        size = -1
        while size:
            line = await store.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            to_client.write(line + await store.readexactly(size + 2))
    else:
        to_client.write(await store.readexactly(int(field(head, b"content-length") or 0)))
    await to_client.drain()


async def main(store_port: int, port: int, delay_ms: int) -> None:
    """Serve until the input ends."""
    slow = SlowStore(store_port, delay_ms / 1_000)
    server = await asyncio.start_server(slow.serve, "127.0.0.1", port, limit=HEAD_BYTES_MAX)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(
            json.dumps({"puts": slow.counts["puts"], "others": slow.counts["others"]}), flush=True
        )
        slow.counts.clear()
    server.close()


if __name__ == "__main__":
    uvloop.run(main(*(int(argument) for argument in sys.argv[1:])))
