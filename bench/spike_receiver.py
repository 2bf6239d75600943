"""Consumers in a program of its own, which note when they were given what.

Room: bench. Arguments: URL, topic, consumers, what each asks for ahead, the instant in UTC
milliseconds. Prints `ready`; consumes and acks until its input ends; then prints a line of
JSON: messages, how many came before the instant, and seconds from the instant until the last
was handed over.
"""

from __future__ import annotations

import json
import sys
import threading

from dejaqueue import Client
from dejaqueue.clock import SystemClock

BATCH_ROWS = 8_192
IDLE_MS = 600_000
"""None of them ends by itself: what it holds would go back."""


def take(url: str, topic: str, prefetch: int, given: list[tuple[int, int]]) -> None:
    """Consume, and note when each batch was handed over, clock µs, and its messages."""
    clock = SystemClock()
    with Client(url) as client:
        for batch in client.consume_batches(
            topic, batch_rows=BATCH_ROWS, prefetch=prefetch, idle_ms=IDLE_MS
        ):
            given.append((clock.now_us(), len(batch)))
            batch.ack(wait=False)


def main() -> None:
    """Receive, as the arguments say."""
    url, topic, *numbers = sys.argv[1:]
    consumers, prefetch, instant_ms = map(int, numbers)
    given: list[tuple[int, int]] = []
    for _ in range(consumers):
        arguments = (url, topic, prefetch, given)
        threading.Thread(target=take, args=arguments, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    instant_us = 1_000 * instant_ms
    print(
        json.dumps(
            {
                "messages": sum(rows for _, rows in given),
                "early": sum(rows for at_us, rows in given if at_us < instant_us),
                "last": max(((at_us - instant_us) / 1e6 for at_us, _ in given), default=0.0),
            }
        )
    )


if __name__ == "__main__":
    main()
