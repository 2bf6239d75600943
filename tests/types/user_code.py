"""What mypy must accept and refuse in a user's program. Checked by `make types`, never run.

A line with `type: ignore` is one that must be refused: were it accepted, mypy would report the
ignore as unused.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

import dejaqueue


def accepted(table: pa.Table, key: str | None) -> dict[str, object]:
    """A program as the documentation shows it."""
    with dejaqueue.Client("dejaq://localhost:7464", name="types") as client:
        topic: dejaqueue.Topic = client.create_topic("mails", lease_ms=60_000)
        message_id: int = client.send(topic.name, b"x", delay=timedelta(seconds=1), key=key)
        client.send("mails", "text", due=datetime(2030, 1, 1, tzinfo=UTC), tags=["a"])
        client.send_batch("mails", table).raise_for_status()
        client.send_batch("mails", [{"payload": b"x", "due": 1}])
        moved: bool = client.move("mails", id=message_id, due=0).ok
        for message in client.consume("mails", prefetch=10):
            size: int = len(message.payload) + message.attempt + message.lateness_us
            message.nack(delay=0.5 if moved else size)
        for batch in client.consume_batches("mails"):
            assert batch.ack() is not None
        return client.stats("mails")


async def accepted_async() -> None:
    """The same names, awaited."""
    async with dejaqueue.open_async("./queue") as client:
        await client.send("mails", b"x")
        async for message in client.consume("mails"):
            await message.ack()


def refused(client: dejaqueue.Client) -> None:
    """Each line has one mistake."""
    client.send("mails")  # type: ignore[call-arg]
    client.send("mails", 5)  # type: ignore[arg-type]
    client.send("mails", b"x", due="tomorrow")  # type: ignore[arg-type]
    client.send("mails", b"x", 5)  # type: ignore[call-arg]
    client.move("mails", key="alice")  # type: ignore[call-arg]
    client.consume("mails", prefetch="many")  # type: ignore[arg-type]
    wrong: str = client.send("mails", b"x")  # type: ignore[assignment]
    print(wrong)
