"""What a type checker must accept of the client, and what it must refuse."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]

ACCEPTED = """
from datetime import datetime, timedelta

import pyarrow as pa

from dejaqueue import RowStatus, TopicKind
from dejaqueue.client import (
    AsyncClient, AsyncMessage, Client, DueHistogram, Message, MessageBatch, MessageView,
    SendResult, Settled, TopicSettings, Where
)

def program(when: datetime) -> int:
    with Client("dejaq://localhost", name="me") as client:
        client.create_topic("t", lease_ms=5_000, kind="fair", weights={"a": 2})
        client.create_topic("t", kind=TopicKind.FAIR, partitions="auto", exist_ok=False)
        client.alter_topic("t", paused=True, on_duplicate="keep")
        settings: TopicSettings = {"lease_ms": 5_000}
        client.create_topic("t", **settings)
        number: int = client.send("t", b"x", due=when, key="k", tags=["a"], headers={"a": "b"})
        client.send("t", "text", delay=timedelta(seconds=5))
        client.send("t", json={"a": [1, None]})
        sent: SendResult = client.send_batch("t", pa.table({"payload": [b"x"]}))
        sent.raise_for_status()
        moved: RowStatus = client.move("t", id=number, due=when)
        cancelled: Settled = client.cancel("t", keys=["a", "b"])
        for message in client.consume("t", max_messages=1):
            one: Message = message
            value = one.json()
            payload: bytes = one.payload
            when = one.due
            one.nack(delay=1.5)
            status: RowStatus = one.ack(wait=True)
            status = one.extend(5, wait=True)
        with client.consume_batches("t", batch_rows=10) as batches:
            for batch in batches:
                whole: MessageBatch = batch
                settled: Settled = whole.ack()
                settled = whole.nack(reason="again")
                settled = whole.extend(5)
                print(settled.ok_count, batches.lateness().quantile_us(0.99))
        with client.producer("t") as producer:
            sent = producer.send_batch([b"a"]).result()
            number = producer.send(b"x").result()
        table: pa.Table = client.peek("t", limit=10, due_from=when, tags_any=["a"])
        seen: MessageView | None = client.get("t", key="k")
        if seen is not None:
            moved = client.cancel("t", id=seen.id, if_due=seen.due)
        states: dict[str, int] = client.counts("t")
        found: DueHistogram = client.histogram("t", bucket=60, due_from=when, due_to=when)
        moved = client.move("t", id=1, priority=5, group="a")
        assert moved is RowStatus.OK
        number = client.move_where("t", by=timedelta(hours=1), group="a", due_to=when)
        number += client.move_where("t", window=(when, when))
        where: Where = {"group": "a", "state": "ready"}
        number += client.cancel_where("t", dry_run=True, **where) + client.purge("t") + len(found)
        client.consume("t", tags_any=("a", "b"), tags_none=["c"]).drain()
        client.run("t", lambda message: print(message.key), concurrency=8, idle_ms=5)
        client.drain()
        return number + cancelled.ok_count + len(payload) + int(table.num_rows)

async def handle(message: AsyncMessage) -> None:
    print(message.id)

async def coroutine() -> int:
    async with AsyncClient() as client:
        number: int = await client.send("t", b"x")
        async for message in client.consume("t"):
            status: RowStatus = await message.ack(wait=True)
            status = await message.nack(dead=True)
            await message.ack(wait=False)
        await client.run("t", handle, concurrency=8)
        async with client.producer("t") as producer:
            sent = await producer.send(b"x")
            number = await sent
            result: SendResult = await (await producer.send_batch([b"a"]))
        return number + len(result)
"""

REFUSED = """
from dejaqueue import RowStatus
from dejaqueue.client import AsyncClient, Client, Message, MessageBatch, Settled

def wrong(client: Client) -> None:
    client.send("t", 5)
    client.send(b"t", b"x")
    client.send("t", b"x", due="tomorrow")
    client.consume("t", prefetch="many")
    client.producer("t").send(b"x").outcome()
    client.peek("t", colour="red")
    client.move_where("t", by="1h")
    client.run("t", print, colour="red")
    client.create_topic("t", leese_ms=5)
    client.create_topic("t", kind="fare")
    client.alter_topic("t", kind="fair")

def wrong_answers(message: Message, batch: MessageBatch) -> None:
    status: RowStatus = message.ack(wait=False)
    settled: Settled = batch.nack(wait=False)

async def wrong_too(client: AsyncClient) -> None:
    number: int = client.send("t", b"x")
"""


def check(tmp_path: Path, program: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    command += ["--cache-dir", str(tmp_path / "cache"), "--follow-imports", "silent", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return [line for line in run.stdout.splitlines() if "error:" in line]


def test_a_program_as_in_the_docs_is_accepted(tmp_path: Path) -> None:
    assert check(tmp_path, ACCEPTED) == []


def test_mistakes_are_found(tmp_path: Path) -> None:
    errors = check(tmp_path, REFUSED)
    wrong_lines = {int(line.split(":")[1]) for line in errors}
    assert wrong_lines == {6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 20, 23}, errors
