"""Work that fails is given back with a growing delay; after three attempts it is put aside."""

import dejaqueue

ATTEMPTS_MAX = 3


def do_work(payload: bytes) -> None:
    """Work that never succeeds for one of the messages."""
    if payload == b"a broken address":
        raise ValueError("nobody lives there")


with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("letters")
    queue.create_topic("letters.failed")
    queue.send_batch("letters", ["a broken address", "a good address"])

    for message in queue.consume("letters", max_messages=4):
        try:
            do_work(message.payload)
        except ValueError as error:
            if message.attempt < ATTEMPTS_MAX:
                print(f"attempt {message.attempt} of {message.payload.decode()!r}: {error}")
                message.nack(delay=0.05 * 2**message.attempt)
                continue
            # Sent before it is acked: if we die in between, it is there twice rather than never.
            queue.send("letters.failed", message.payload, headers={"reason": str(error)})
            print(f"{message.payload.decode()!r} is put aside")
        else:
            print(f"{message.payload.decode()!r} is done")
        message.ack()

    print("put aside:", queue.peek("letters.failed").num_rows)
