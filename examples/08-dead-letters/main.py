"""Work that always fails ends as a dead letter; once the fault is mended, it is sent back."""

import dejaqueue

ADDRESSES = {"alice": "Lake Road 3"}


def deliver(name: str) -> str:
    """Work that fails for whoever has no address."""
    return f"{name}: {ADDRESSES[name]}"


with dejaqueue.open("./example-queue") as queue:
    # Three deliveries: at once, after 20 ms, after 40 ms more.
    queue.create_topic("letters", max_attempts=3, backoff_ms=20, backoff_jitter=0)
    queue.create_topic("letters.dead")
    queue.send_batch("letters", ["bob", "alice"])

    for message in queue.consume("letters", max_messages=4):
        name = message.payload.decode()
        try:
            print(deliver(name))
            message.ack()
        except KeyError:
            print(f"{name}: attempt {message.attempt} failed")
            message.nack(reason="no address")

    with queue.consume("letters.dead", max_messages=1) as letters:
        for letter in letters:
            headers = letter.headers
            print("dead letter:", letter.payload.decode(), "of", headers["dejaq-dead-origin"])
            print("reason:", headers["dejaq-dead-reason"])
            print("attempts:", headers["dejaq-dead-attempts"])
            letter.nack()  # it stays where it is

    ADDRESSES["bob"] = "Hill Street 12"
    print("sent back:", queue.redrive("letters.dead").moved)
    for message in queue.consume("letters", max_messages=1):
        print(deliver(message.payload.decode()))
        message.ack()
