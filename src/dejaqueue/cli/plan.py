"""`dejaq plan`: what a load takes of a machine, by figures that were measured.

Room: cli. Asks no broker and looks at no machine.
Holds: a rate here is no better than the one of bench/results/latest.json, which a test compares.
See: docs/guides/sizing.md, where the bytes come from; docs/benchmarks.md, the machine.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

import click

from dejaqueue.cli.connection import json_option
from dejaqueue.cli.output import print_json

CORES_MEASURED = 2
"""Of the machine of the figures; clients, and what was compared, ran on the same two."""
LOAD = 0.5
"""Of what was measured, so that a burst, a compaction and a restart have room."""
RATES = {
    "batches": {"enqueue": 1_320_000.0, "lease_ack": 700_000.0},
    "singles": {"single": 23_400.0, "lease_ack": 700_000.0},
    "http": {"send": 15_100.0, "lease": 13_500.0, "ack": 15_500.0},
}
"""By the way in: steps that each message takes, with messages a second on that machine."""
PEAK_RATE = 934_000.0
"""Of messages that are due in one millisecond, until all are acked: a million took 1.07 s."""
PROCESS_BYTES = 160 << 20
MESSAGE_BYTES = 64
"""In memory: 43 of each of 100 million, and up to 19 more while a snapshot is written."""
KEY_BYTES = 21
JOURNAL_BYTES = 100
"""Of a message beside its payload, over its life."""
SPACE_FACTOR = 2
"""Of live bytes on the disk: a segment is compacted when most of it is dead."""
RESERVE_BYTES = 64 << 20
WORKERS = 2
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]I?|)", re.IGNORECASE)


def number(text: str) -> float:
    """A number that may end in K, M, G, or Ki, Mi, Gi. Raises BadParameter for another text.

    >>> number("40M"), number("1.5Ki")
    (40000000.0, 1536.0)
    """
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"a number such as 5000, 5K or 40M, got: {text}")
    return float(found[1]) * _UNITS[found[2].upper()]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a load takes.

    Attributes:
        cores, memory_bytes, disk_bytes: of one broker that has all of it.
        file_cache_bytes: of the memory, for payloads that are due in the next minute.
        journal_bytes_day: written in a day; room comes back when messages are done.
        peak_seconds: until all messages of the peak are delivered and acked; 0 = no peak.
        cost_day: for all brokers, in the currency of the prices; None = none were given.
    """

    brokers: int
    partitions: int
    cores: int
    memory_bytes: int
    file_cache_bytes: int
    disk_bytes: int
    journal_bytes_day: int
    peak_seconds: float
    cost_day: float | None


@dataclass(frozen=True, slots=True)
class PriceTable:
    """What a provider asks for.

    Attributes:
        core_hour: of one core.
        memory_hour: of a GiB.
        disk_month: of a GiB, for 730 hours.
    """

    core_hour: float
    memory_hour: float
    disk_month: float


def cores_for(per_second: float, way: str) -> int:
    """Cores for so many messages a second, each sent, leased and acked, at half load."""
    seconds_each = sum(1 / rate for rate in RATES[way].values()) * CORES_MEASURED
    return max(1, math.ceil(per_second * seconds_each / LOAD))


def plan_load(
    messages: float,
    per_second: float,
    *,
    payload_bytes: float = 100,
    has_keys: bool = False,
    way: str = "batches",
    peak: float = 0,
    copies: int = 1,
    prices: PriceTable | None = None,
) -> Plan:
    """Compute what a load takes.

    Args:
        messages: that wait at the same time, at most.
        per_second: sent, delivered and acked, on average over the busiest hour.
        payload_bytes: of one message.
        way: of RATES.
        peak: messages that are due at one instant.
        copies: brokers that each have all messages; with 3 the loss of one loses nothing.
    """
    cores = cores_for(per_second, way)
    # One partition has one writer; more of them than workers share the same two.
    seconds_each = sum(1 / rate for rate in RATES[way].values())
    partitions = WORKERS if per_second * seconds_each > LOAD else 1
    cache = int(per_second * 60 * payload_bytes) + int(peak * payload_bytes)
    memory = PROCESS_BYTES + int(messages * (MESSAGE_BYTES + KEY_BYTES * has_keys)) + cache
    live = messages * (payload_bytes + JOURNAL_BYTES)
    disk = int(live * SPACE_FACTOR) + RESERVE_BYTES
    cost = None
    if prices is not None:
        day = 24 * (cores * prices.core_hour + memory / (1 << 30) * prices.memory_hour)
        cost = round(copies * (day + disk / (1 << 30) * prices.disk_month * 24 / 730), 2)
    return Plan(
        brokers=copies,
        partitions=partitions,
        cores=cores,
        memory_bytes=memory,
        file_cache_bytes=cache,
        disk_bytes=disk,
        journal_bytes_day=int(per_second * 86_400 * (payload_bytes + JOURNAL_BYTES)),
        peak_seconds=round(peak / PEAK_RATE / LOAD, 3),
        cost_day=cost,
    )


@click.command(
    epilog="Examples: `dejaq plan --messages 40M --per-second 5K` · "
    "`dejaq plan --messages 2M --per-second 300 --way http --copies 3 --core-hour 0.04`",
)
@click.option("--messages", type=number, required=True, help="That wait at the same time.")
@click.option("--per-second", type=number, required=True, help="Sent and delivered.")
@click.option("--payload", type=number, default="100", show_default=True, help="Bytes of one.")
@click.option("--keys", is_flag=True, help="Messages have keys.")
@click.option(
    "--way",
    type=click.Choice(list(RATES)),
    default="batches",
    show_default=True,
    help="How they come: many in a call, one call each, or over HTTP.",
)
@click.option("--peak", type=number, default="0", help="Messages that are due at one instant.")
@click.option(
    "--copies", type=click.Choice(["1", "3"]), default="1", help="3: the loss of one loses nothing."
)
@click.option("--core-hour", type=click.FloatRange(0), default=0.0, help="Price of a core.")
@click.option("--memory-hour", type=click.FloatRange(0), default=0.0, help="Price of a GiB.")
@click.option("--disk-month", type=click.FloatRange(0), default=0.0, help="Price of a GiB.")
@json_option("Print one JSON object; bytes are bytes.")
def plan(*, as_json: bool, **chosen: Any) -> None:
    """Say what a load takes: memory, disk, cores, partitions, and the cost of a day.

    The rates are those of docs/benchmarks.md, of which half is planned with. Your machine, disk
    and messages are others: measure yours with `dejaq bench`. Prices are yours, too; without one
    no cost is printed.
    """
    prices = [chosen[name] for name in ("core_hour", "memory_hour", "disk_month")]
    found = plan_load(
        chosen["messages"],
        chosen["per_second"],
        payload_bytes=chosen["payload"],
        has_keys=chosen["keys"],
        way=chosen["way"],
        peak=chosen["peak"],
        copies=int(chosen["copies"]),
        prices=PriceTable(*prices) if any(prices) else None,
    )
    if as_json:
        print_json(asdict(found))
        return
    rows = [
        ("brokers", str(found.brokers)),
        ("partitions", str(found.partitions)),
        ("cores", str(found.cores)),
        ("memory", f"{_shown(found.memory_bytes)} ({_shown(found.file_cache_bytes)} file cache)"),
        ("disk", _shown(found.disk_bytes)),
        ("written a day", _shown(found.journal_bytes_day)),
    ]
    if found.peak_seconds:
        rows.append(("peak done in", f"{found.peak_seconds:g} s"))
    if found.cost_day is not None:
        rows.append(("cost of a day", f"{found.cost_day:.2f}"))
    for name, text in rows:
        click.echo(f"{name:14} {text}")
    if found.cores > CORES_MEASURED:
        click.echo(
            f"More cores than the {CORES_MEASURED} of the measurement: whether one broker uses "
            "them was not measured. Send in batches, or spread the topics over several brokers."
        )
    if found.brokers > 1:
        click.echo("Cores, memory and disk are of each broker, when one of them serves everything.")


def _shown(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1024:.1f} KiB"
