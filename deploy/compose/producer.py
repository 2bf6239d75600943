"""Something to look at: reminders that are sent, moved, cancelled, and taken when they are due.

Started by `docker compose --profile demo` (docs/guides/containers.md). DEMO_RATE is how many a
second, DEMO_SECONDS for how long (0 = until it is stopped).
"""

import os
import random
import signal
import sys
import threading
from datetime import UTC, datetime, timedelta

import dejaqueue

URL = os.environ["DEJAQ_URL"]
RATE = int(os.environ.get("DEMO_RATE", "100"))
SECONDS = float(os.environ.get("DEMO_SECONDS", "0"))
TOPIC = "reminders"

over = threading.Event()


def send(client: dejaqueue.Client) -> None:
    """A batch each second, due within two minutes; of the last one, some are moved or cancelled."""
    count, keys = 0, []
    while not over.wait(1):
        now = datetime.now(UTC)  # noqa: TID251 - a program of a user
        if keys:
            client.move(TOPIC, keys=random.sample(keys, RATE // 10), due=now + timedelta(minutes=1))
            client.cancel(TOPIC, keys=random.sample(keys, RATE // 20))
        keys = [f"user-{count + n}" for n in range(RATE)]
        client.send_batch(
            TOPIC,
            [
                {
                    "payload": f"remind {key}",
                    "key": key,
                    "due": now + timedelta(seconds=random.uniform(0, 120)),
                }
                for key in keys
            ],
        )
        count += RATE


def take(client: dejaqueue.Client) -> None:
    """Ack what is due."""
    taken = 0
    while not over.is_set():
        for message in client.consume(TOPIC, idle_ms=500):
            message.ack()
            taken += 1
            if taken % 1_000 == 0:
                late_ms = message.lateness_us / 1_000
                print(f"{taken} reminders taken, the last {late_ms:.1f} ms late", flush=True)
            if over.is_set():
                break
    print(f"{taken} reminders taken", flush=True)


def main() -> int:
    """Until SIGTERM, or for so long as it is to last."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with dejaqueue.Client(URL) as client:
        client.create_topic(TOPIC)
        work = [threading.Thread(target=one, args=(client,)) for one in (send, take)]
        for one in work:
            one.start()
        over.wait(SECONDS or None)
        over.set()
        for one in work:
            one.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
