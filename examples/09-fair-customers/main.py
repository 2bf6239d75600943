"""A customer with a thousand messages does not keep the others waiting; who pays more gets more."""

from collections import Counter

import dejaqueue


def served(queue: dejaqueue.Client, topic: str, count: int) -> Counter[str]:
    """How many messages of which customer are among the next ones."""
    found: Counter[str] = Counter()
    for message in queue.consume(topic, prefetch=1, max_messages=count):
        found[message.group] += 1
        message.ack()
    return found


with dejaqueue.open("./example-queue") as queue:
    queue.create_topic("reports", kind="fair")
    for customer, count in (("big", 1_000), ("small", 20), ("other", 30)):
        queue.send_batch("reports", [{"payload": "report", "group": customer}] * count)

    print("in turn:", dict(sorted(served(queue, "reports", 30).items())))

    queue.alter_topic("reports", weights={"small": 3})  # holds at once
    print("small counts threefold:", dict(sorted(served(queue, "reports", 15).items())))
    print("nobody waits for who has nothing:", dict(served(queue, "reports", 50).most_common(1)))

    # Groups within groups: each tenant gets a half, however many users it has.
    queue.create_topic("mail", kind="fair")
    for group in ("acme.ann", "acme.bob", "acme.cy", "umbrella.dan"):
        queue.send_batch("mail", [{"payload": "letter", "group": group}] * 50)
    print("tenants and their users:", dict(sorted(served(queue, "mail", 30).items())))

    # One at a time for each account: strict order, and no two workers on one account.
    queue.create_topic("accounts", kind="fair", group_in_flight_max=1)
    queue.send_batch(
        "accounts",
        [{"payload": text, "group": text[:1]} for text in ("a opens", "a pays", "b opens")],
    )
    left = 3
    for batch in queue.consume_batches("accounts"):
        print("held together:", batch.batch.column("payload").to_pylist())
        batch.ack()
        left -= len(batch)
        if not left:
            break
