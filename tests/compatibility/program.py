"""What somebody wrote with a client of ours: run by that release's client, and by today's.

Only what `import dejaqueue` offers, and only what the release has, too. Ends with status 0 when
each answer was right, and prints as JSON which code it ran on and what it did.

    python program.py dejaq://127.0.0.1:7464
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import dejaqueue
from dejaqueue import Client

IDLE_MS = 20_000
"""A delivery that does not come is a fault; this is how long the program waits to say so."""


def taken(client: Client, topic: str, count: int, prefetch: int = 100) -> list[bytes]:
    """The payloads of the next messages, which are done."""
    found = []
    with client.consume(topic, prefetch=prefetch, max_messages=count, idle_ms=IDLE_MS) as messages:
        for message in messages:
            found.append(message.payload)
            message.ack()
    return found


def live(client: Client, topic: str) -> int:
    stats = client.stats(topic)
    return int(stats["scheduled"] + stats["leased"])


def send_and_consume(client: Client) -> None:
    client.create_topic("plain", partitions=2)
    assert client.topic("plain").partitions == 2
    assert "plain" in [topic.name for topic in client.topics()]
    client.send("plain", b"alone", headers={"a": "b"})
    client.send_batch("plain", [{"payload": b"one"}, {"payload": b"two"}])
    assert sorted(taken(client, "plain", 3)) == [b"alone", b"one", b"two"]
    assert live(client, "plain") == 0


def producer(client: Client) -> None:
    client.create_topic("produced")
    with client.producer("produced") as sending:
        futures = [sending.send(str(number)) for number in range(20)]
        sending.flush()
        assert len({future.result() for future in futures}) == 20
    assert len(taken(client, "produced", 20)) == 20


def key_is_taken_once(client: Client) -> None:
    client.create_topic("keyed")
    client.send("keyed", b"first", key="k")
    try:
        client.send("keyed", b"second", key="k")
    except dejaqueue.errors.DuplicateKey:
        pass
    else:
        raise AssertionError("two live messages of one key")
    assert taken(client, "keyed", 1) == [b"first"]


def priority_and_fair(client: Client) -> None:
    client.create_topic("urgent", kind="priority")
    client.send_batch(
        "urgent", [{"payload": b"late", "priority": 9}, {"payload": b"soon", "priority": 1}]
    )
    assert taken(client, "urgent", 2, prefetch=1) == [b"soon", b"late"]
    client.create_topic("shared", kind="fair")
    client.send_batch("shared", [{"payload": b"x", "group": group} for group in "aab"])
    assert len(taken(client, "shared", 3)) == 3


def nack_brings_it_again(client: Client) -> None:
    client.create_topic("again")
    client.send("again", b"x")
    seen = []
    with client.consume("again", max_messages=2, idle_ms=IDLE_MS) as messages:
        for message in messages:
            seen.append(message.attempt)
            if len(seen) == 1:
                message.nack(delay=0, reason="not yet")
            else:
                message.ack()
    assert seen == [1, 2], seen
    assert live(client, "again") == 0


def batches_are_acked(client: Client) -> None:
    client.create_topic("batches")
    client.send_batch("batches", [{"payload": str(number)} for number in range(50)])
    count = 0
    with client.consume_batches("batches", max_messages=50, idle_ms=IDLE_MS) as batches:
        for batch in batches:
            batch.extend(60)
            count += batch.batch.num_rows
            batch.ack()
    assert count == 50
    assert live(client, "batches") == 0


def move_and_cancel(client: Client) -> None:
    client.create_topic("moved")
    ids = [client.send("moved", text, delay=3_600) for text in ("a", "b", "c")]
    assert live(client, "moved") == 3
    assert client.cancel("moved", id=ids[0]).name == "OK"
    assert client.move("moved", id=ids[1], due=0).name == "OK"
    assert taken(client, "moved", 1) == [b"b"]
    assert live(client, "moved") == 1


def transactions(client: Client) -> None:
    client.create_topic("from")
    client.create_topic("to")
    client.send("from", b"in")
    with client.consume("from", max_messages=1, idle_ms=IDLE_MS) as messages:
        for message in messages:
            with client.transaction() as transaction:
                transaction.send("to", b"out")
                transaction.ack(message)
    assert (live(client, "from"), live(client, "to")) == (0, 1)
    transaction = client.transaction()
    transaction.__enter__()
    transaction.send("to", b"never")
    transaction.abort()
    assert taken(client, "to", 1) == [b"out"]
    assert live(client, "to") == 0


def errors_have_their_class(client: Client) -> None:
    try:
        client.send("nowhere", b"x")
    except dejaqueue.errors.TopicUnknown as unknown:
        assert "nowhere" in str(unknown)
    else:
        raise AssertionError("there is no such topic")
    client.delete_topic("plain")
    assert "plain" not in [topic.name for topic in client.topics()]


STEPS: tuple[Callable[[Client], None], ...] = (
    send_and_consume,
    producer,
    key_is_taken_once,
    priority_and_fair,
    nack_brings_it_again,
    batches_are_acked,
    move_and_cancel,
    transactions,
    errors_have_their_class,
)


def main(url: str) -> None:
    with Client(url) as client:
        for step in STEPS:
            step(client)
    done = [step.__name__ for step in STEPS]
    print(json.dumps({"code": dejaqueue.__file__, "steps": done}))


if __name__ == "__main__":
    main(sys.argv[1])
