"""An order in steps: each step begets the next one, and a deadline cancels what is not paid."""

import dejaqueue

DEADLINE = 0.4  # seconds for all steps
STEPS = {"reserve": "pay", "pay": "ship", "ship": None}

with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("steps")
    queue.create_topic("deadlines")
    for order in ("tea", "cake"):
        # Both or neither: an order without a deadline could wait for ever.
        with queue.transaction(timeout=10) as transaction:
            transaction.send("steps", json={"order": order, "step": "reserve"})
            transaction.send("deadlines", json={"order": order}, key=order, delay=DEADLINE)

    for message in queue.consume("steps", max_messages=5):
        order, step = message.json()["order"], message.json()["step"]
        if (order, step) == ("cake", "pay"):
            print("cake: nobody pays")
            message.ack()
            continue
        print(f"{order}: {step}")
        following = STEPS[step]
        if following is None:
            print(f"{order}: deadline taken back: {queue.cancel('deadlines', key=order).name}")
            message.ack()
            continue
        # The step is done in the instant in which the next one exists.
        with queue.transaction(timeout=10) as transaction:
            transaction.send("steps", json={"order": order, "step": following})
            transaction.ack(message)

    for message in queue.consume("deadlines", max_messages=1):
        print(f"{message.json()['order']}: too late, what was reserved is given back")
        message.ack()
