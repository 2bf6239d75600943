"""A consumer of the demo: a process of its own that receives, notes the time, and acks.

Room: cli. Started by `replay.py` as `python -m dejaqueue.cli.demo.consumer`, talks on its pipes.
Holds: it believes nobody: what it received and when goes to a file; the verdict comes later.

Standard output: `ready`, then the count of deliveries so far, a line now and then.
Standard input: a line when it is to begin; ends when it is to stop.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import pyarrow as pa

from dejaqueue.clock import SystemClock, Wake
from dejaqueue.errors import TryLater
from dejaqueue.model import RowStatus
from dejaqueue.schema.warm import warm_up

if TYPE_CHECKING:
    from dejaqueue.client import BatchConsumer, MessageBatch

SAY_EVERY_US = 100_000
BATCH_ROWS = 1_000
PREFETCH_ROWS = 10_000

RECEIVED = pa.schema(
    [
        pa.field("key", pa.utf8()),
        pa.field("due", pa.int64()),
        pa.field("attempts", pa.uint16()),
        pa.field("payload", pa.binary()),
        pa.field("received_us", pa.int64()),
        pa.field("acked", pa.bool_()),
    ]
)
"""A row a delivery: what `verdict.judge` takes."""


class Consumption:
    """What one consumer received.

    Attributes:
        count: deliveries so far.
    """

    def __init__(self, *, confirm: bool) -> None:
        """With `confirm`, every ack is waited for, so that it is known which are durable."""
        self._confirm = confirm
        self._batches: list[pa.RecordBatch] = []
        self._received_us: list[int] = []
        self._acked: list[np.ndarray[tuple[int], np.dtype[np.bool_]]] = []
        self.count = 0

    def take(self, batch: MessageBatch, received_us: int) -> None:
        """Note a delivery and ack it."""
        rows = batch.batch
        self._batches.append(rows)
        self._received_us.append(received_us)
        self.count += rows.num_rows
        self._acked.append(self._ack(batch))

    def _ack(self, batch: MessageBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """True for each row whose ack is durable, as far as is known."""
        if not self._confirm:
            batch.ack(wait=False)
            return np.ones(len(batch), dtype=np.bool_)
        try:
            settled = batch.ack()
        except TryLater:
            # The broker died with the ack on its way: whether it is durable, nobody knows.
            return np.zeros(len(batch), dtype=np.bool_)
        assert settled is not None
        return np.asarray(settled.statuses == RowStatus.OK, dtype=np.bool_)

    def to_table(self) -> pa.Table:
        """Everything received, as RECEIVED."""
        if not self._batches:
            return RECEIVED.empty_table()
        rows = pa.Table.from_batches(self._batches)
        counts = [batch.num_rows for batch in self._batches]
        return pa.table(
            {
                "key": rows["key"],
                "due": rows["due"],
                "attempts": rows["attempts"],
                "payload": rows["payload"],
                "received_us": np.repeat(np.array(self._received_us, dtype=np.int64), counts),
                "acked": np.concatenate(self._acked),
            },
            schema=RECEIVED,
        )


def _say_counts(consumption: Consumption, wake: Wake) -> None:
    """Print the count now and then, until woken; once more then."""
    clock = SystemClock()
    is_over = False
    while not is_over:
        is_over = clock.wait_until(clock.now_us() + SAY_EVERY_US, wake)
        print(consumption.count, flush=True)


def _close_at_end(consumer: BatchConsumer) -> None:
    """Close the consumer, which ends its loop, when standard input ends."""
    sys.stdin.read()
    consumer.close()


@click.command()
@click.option("--url", required=True)
@click.option("--topic", required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--confirm", is_flag=True)
def main(*, url: str, topic: str, out: Path, confirm: bool) -> None:
    """Consume until standard input ends, then write what came to a file."""
    from dejaqueue import Client

    # A thread that has to run waits at most this long for another that only reckons.
    sys.setswitchinterval(0.0005)
    # Opened at `begin`, but made ready before: importing is not part of what is measured.
    warm_up(has_pandas=False)
    consumption = Consumption(confirm=confirm)
    clock, wake = SystemClock(), Wake()
    with Client(url) as client:
        client.connect()
        print("ready", flush=True)
        sys.stdin.readline()
        speaker = threading.Thread(target=_say_counts, args=(consumption, wake), name="counts")
        speaker.start()
        consumer = client.consume_batches(topic, batch_rows=BATCH_ROWS, prefetch=PREFETCH_ROWS)
        threading.Thread(target=_close_at_end, args=(consumer,), name="stop", daemon=True).start()
        for batch in consumer:
            consumption.take(batch, clock.now_us())
        wake.ring()
        speaker.join()
    with pa.OSFile(str(out), "wb") as file, pa.ipc.new_file(file, RECEIVED) as writer:
        writer.write_table(consumption.to_table())


if __name__ == "__main__":
    main()
