"""A table becomes messages, without a Python object for each row; one moves, one is cancelled."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa

import dejaqueue

start = datetime.now(UTC)
people = pa.table(
    {
        "key": ["alice", "bob", "carol", "dave"],
        "due": [start + timedelta(milliseconds=100 * n) for n in (1, 2, 3, 4)],
        "payload": ["call the bank", "water the plants", "buy bread", "go to bed"],
    }
)

with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("reminders")
    queue.send_batch("reminders", people).raise_for_status()

    queue.move("reminders", key="alice", due=start + timedelta(milliseconds=500))
    print("cancelled:", queue.cancel("reminders", keys=["bob", "nobody"]).ok_count)

    for batch in queue.consume_batches("reminders", batch_rows=1, max_messages=3):
        columns = batch.batch.to_pydict()
        print(columns["key"][0], "-", columns["payload"][0].decode())
        batch.ack()
