"""One message that is due in a fifth of a second, in a queue in this process."""

import dejaqueue

with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("reminders")
    queue.send("reminders", "the tea is ready", delay=0.2)

    for message in queue.consume("reminders", max_messages=1):
        print(message.payload.decode())
        message.ack()
