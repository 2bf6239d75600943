"""What is due when, and for whom? One customer's messages of tomorrow are moved, another's go."""

from datetime import UTC, datetime, timedelta

import dejaqueue

MIDNIGHT = datetime(2040, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)

with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("reports")
    queue.send_batch(
        "reports",
        [
            {"payload": f"report {hour}", "due": MIDNIGHT + hour * DAY / 24, "group": group}
            for hour in range(36)
            for group in ("acme", "globex", "initech")
        ],
    )
    print(queue.counts("reports", by="group"))

    day = {"due_from": MIDNIGHT, "due_to": MIDNIGHT + 2 * DAY}
    print("by half days:", queue.histogram("reports", bucket=DAY / 2, **day).counts.tolist())

    # All of a customer's messages of the first day come a day later.
    first_day = {"due_to": MIDNIGHT + DAY, "group": "acme"}
    print("to move:", queue.move_where("reports", by=DAY, dry_run=True, **first_day))
    print("moved:", queue.move_where("reports", by=DAY, **first_day))

    # Another customer has left.
    print("cancelled:", queue.cancel_where("reports", group="globex"))

    print("by half days:", queue.histogram("reports", bucket=DAY / 2, **day).counts.tolist())
    last = queue.peek("reports", due_from=MIDNIGHT + DAY, group="acme", limit=3)
    print(last["payload"].to_pylist())
    print("left at the end:", queue.purge("reports"))
