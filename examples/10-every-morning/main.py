"""A report at nine on weekdays where its reader lives, and something every second."""

from datetime import UTC, datetime

import dejaqueue

with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("reports", kind="cron")
    cron = queue.cron("reports")

    cron.put("berlin", cron="0 9 * * MON-FRI", zone="Europe/Berlin", payload=b"report for Berlin")
    cron.put("tokyo", cron="0 9 * * MON-FRI", zone="Asia/Tokyo", payload=b"report for Tokyo")

    # The last weekend of March: clocks go forward in Berlin, not in Tokyo.
    friday = datetime(2026, 3, 27, tzinfo=UTC)
    for entry in cron.entries():
        for due_ms in cron.next_ms(entry.name, 2, after=friday):
            print(entry.name, datetime.fromtimestamp(due_ms / 1000, UTC))

    cron.run("tokyo")  # now, beside its schedule
    cron.put("tick", cron="* * * * * *", payload=b"a second went by")  # six fields: with seconds

    for message in queue.consume("reports", max_messages=4):
        print(message.headers["dejaq-cron-entry"], message.payload.decode())
        message.ack()
