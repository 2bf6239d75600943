"""Orders become letters: each order is done and its two letters are sent, or neither."""

import dejaqueue


def letters_for(order: str) -> list[str]:
    """What an order asks for."""
    return [f"invoice for {order}", f"thanks for {order}"]


with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("orders")
    queue.create_topic("letters")
    queue.send_batch("orders", ["tea", "cake"])

    trouble = True
    for order in queue.consume("orders", max_messages=3):
        name = order.payload.decode()
        try:
            with queue.transaction(timeout=10) as transaction:
                invoice, thanks = letters_for(name)
                transaction.send("letters", invoice)
                if trouble:
                    raise ConnectionError("the printer is out of paper")
                transaction.send("letters", thanks)
                transaction.ack(order)
        except ConnectionError as error:
            print(f"{name}: {error}; letters so far: {queue.peek('letters').num_rows}")
            trouble = False
            order.nack()
        else:
            print(f"{name}: done at attempt {order.attempt}")

    letters = queue.peek("letters")["payload"].to_pylist()
    print(sorted(letter.decode() for letter in letters))
