"""A program of the case `single_4_programs`: threads that share a client and send one by one.

Room: bench. Arguments: URL, topic, threads, seconds, rows, seed. Prints `ready`, waits for a line,
sends, prints how many it sent and in how many seconds.
"""

from __future__ import annotations

import sys

from bench.load import far_load
from bench.systems.dejaq import send_singles
from dejaqueue import Client
from dejaqueue.clock import SystemClock


def main() -> None:
    """Send, as the arguments say."""
    url, topic, threads, seconds, rows, seed = sys.argv[1:]
    load = far_load(int(rows), SystemClock().now_ms(), int(seed))
    with Client(url) as client:
        client.send(topic, b"first", due=int(load.dues_ms[0]))
        print("ready", flush=True)
        sys.stdin.readline()
        measured = send_singles(client, topic, load, int(threads), float(seconds))
        print(measured.rows, measured.seconds, flush=True)


if __name__ == "__main__":
    main()
