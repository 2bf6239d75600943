"""A million reminders, each at its own second of the year to come; some are moved, some cancelled.

Another number as the first argument: `python main.py 10000`.
"""

import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

import dejaqueue

count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
tomorrow = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
tomorrow_ms = int(tomorrow.timestamp() * 1_000)
seconds = np.random.default_rng(2026).integers(0, 365 * 86_400, count)

reminders = pa.table(
    {
        "key": pa.array(np.arange(count)).cast(pa.string()),
        "due": tomorrow_ms + seconds * 1_000,
        "payload": pa.array(["time to stretch"] * count),
    }
)

with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("reminders")
    sent = queue.send_batch("reminders", reminders)
    print(f"scheduled: {sent.ok}, all of them: {len(sent) == count}")

    moved = queue.move("reminders", ids=sent.ids[:1_000], due=tomorrow)
    cancelled = queue.cancel("reminders", ids=sent.ids[-500:])
    print("moved to tomorrow:", moved.ok_count)
    print("cancelled:", cancelled.ok_count)

    left = queue.stats("reminders").scheduled
    print("still scheduled:", left == count - 500)
    first = queue.peek("reminders", limit=1).to_pylist()[0]
    print("the first is due tomorrow:", first["due"] == tomorrow_ms)
