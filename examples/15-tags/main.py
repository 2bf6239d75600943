"""Two consumers of one topic: each takes the messages whose tags it asked for."""

import dejaqueue

MESSAGES = [
    ("a letter to Alice", ["mail"]),
    ("a text to Bob", ["text"]),
    ("a letter to nobody", ["mail", "test"]),
    ("a letter to Carol", ["mail", "urgent"]),
    ("a call to Dave", []),
]

with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("notes")
    queue.send_batch("notes", [{"payload": text, "tags": tags} for text, tags in MESSAGES])
    print(queue.counts("notes", by="tag"))

    with queue.consume("notes", tags_any=["mail"], tags_none=["test"], idle_ms=1_000) as letters:
        for message in letters:
            print("posted:", message.payload.decode())
            message.ack()

    # Who asks for nothing takes what is left.
    with queue.consume("notes", max_messages=3) as rest:
        for message in rest:
            print("left:", message.payload.decode())
            message.ack()
