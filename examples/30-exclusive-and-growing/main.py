"""Each partition has one consumer, a paused topic waits, and a topic gets more partitions."""

import dejaqueue
from dejaqueue.errors import DuplicateKey

with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("accounts", partitions=1, assignment="exclusive")
    queue.pause_topic("accounts")
    queue.send("accounts", "open", key="anna", delay=3_600)
    print("partitions:", queue.alter_topic("accounts", partitions=4).partitions)
    try:
        queue.send("accounts", "open again", key="anna", delay=3_600)
    except DuplicateKey:
        print("anna is there already")
    queue.resume_topic("accounts")
    with queue.consume("accounts"), queue.consume("accounts"):
        found = queue.assignments("accounts")
        print(found["assignment"], len(found["partitions"]), found["standby"])
