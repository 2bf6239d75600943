"""Urgent mail overtakes newsletters, whenever it comes; what waits can be made urgent."""

import dejaqueue

URGENT, LATER = 0, 60_000

with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("mail", kind="priority")
    queue.send_batch(
        "mail",
        [{"payload": f"newsletter {number}", "priority": LATER} for number in (1, 2)],
    )
    queue.send("mail", "a question")  # 32,768: in the middle
    queue.send("mail", "reset your password", priority=URGENT)
    queue.send("mail", "an invoice", priority=LATER, key="invoice-7")
    queue.move("mail", key="invoice-7", priority=1)

    # One at a time: what a consumer has already, nothing overtakes.
    for message in queue.consume("mail", prefetch=1, max_messages=5):
        print(f"{message.priority:6} {message.payload.decode()}")
        message.ack()
