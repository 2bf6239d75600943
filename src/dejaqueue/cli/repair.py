"""`dejaq repair clock`: what a clock that was wrong has left behind, and how it is mended.

Room: cli. Uses what any client may: looking at a partition reads it, and that puts its time right.
See: docs/guides/clocks.md; broker/shard/timekeeping.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from dejaqueue import Client
    from dejaqueue.schema.cron import CronEntry

LATER_MS = 60_000
"""Entries that fire later than they should by no more than this are left alone: jitter, and the
time that it takes to ask."""


@click.group()
def repair() -> None:
    """Mend what went wrong outside of the broker."""


@repair.command()
@click.argument("topic", required=False)
@click.option("--apply", "applies", is_flag=True, help="Have the cron entries go on from now.")
@json_option("Print JSON.")
@url_option
def clock(topic: str | None, *, applies: bool, as_json: bool, url: str) -> None:
    """Bring partitions back to the time of the clock: of one TOPIC, or of all.

    Each partition is read, which puts its time right where its journal was ahead: leases and delays
    of retries keep what is left of them. Shows by how much it was off, and the cron entries that
    wait for a time beyond: they fired until then. With --apply these go on from now; what they
    fired already may fire again.
    """
    with connect(url) as client:
        topics = client.topics() if topic is None else [client.topic(topic)]
        rows = [row for one in topics for row in _partitions(client, one.name)]
        crons = [one.name for one in topics if str(one.kind) == "cron"]
        late = [(name, *found) for name in crons for found in _late(client, name)]
        if applies:
            for name in dict.fromkeys(name for name, *_ in late):
                names = [entry.name for of, entry, _ in late if of == name]
                client.cron(name).pause(*names)
                client.cron(name).resume(*names)
    entries = [
        {"topic": name, "entry": entry.name, "waits_for_ms": entry.next_ms, "should_ms": at_ms}
        for name, entry, at_ms in late
    ]
    if as_json:
        print_json({"partitions": rows, "entries": entries, "applied": applies})
        return
    print_rows(rows, as_json=False)
    if entries:
        click.echo()
        print_rows(entries, as_json=False)
        click.echo("they go on from now" if applies else "with --apply they go on from now")


def _partitions(client: Client, topic: str) -> Iterator[dict[str, Any]]:
    numbers = client.stats(topic).partitions
    for number, found in enumerate(numbers):
        yield {
            "topic": topic,
            "partition": number,
            "ahead_ms": found.ahead_ms,
            "times_set": found.times_set,
            "set_by_ms": found.set_by_ms,
        }


def _late(client: Client, topic: str) -> Iterator[tuple[CronEntry, int]]:
    """Entries that wait for later than they would if they were put now, and for when that is."""
    cron = client.cron(topic)
    for entry in cron.entries():
        if entry.paused or entry.next_ms < 0:
            continue
        first = cron.preview_ms(entry, 1)
        if first and entry.next_ms > first[0] + LATER_MS:
            yield entry, first[0]
