"""The plan of a campaign: who goes when, from the counts of its audience alone.

A cell is everybody of one zone whose local time is in one second. The plan says of each cell when
it goes, or, if there is a rate, to which wave it belongs and which slots the wave's parts have.
Spark does the same to the rows by joining them with the plan's two small tables.

Room: pipelines. numpy on the driver.
Holds: the same audience and the same options give the same plan, whenever and wherever it is made.
See: zones.py, quiet_hours.py, stagger.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.load.series import Load
from dejaqueue.pipelines.schedule.quiet_hours import QuietHours
from dejaqueue.pipelines.schedule.stagger import Rate, Stretch, allocate, per_second
from dejaqueue.pipelines.schedule.zones import DAY_MS, Int64s, Zone, load_zone

YEAR_MS = 366 * DAY_MS
SECOND_MS = 1_000


@dataclass(frozen=True, slots=True)
class Timing:
    """What decides when a message goes.

    Attributes:
        quiet: None = there are no quiet hours.
        rate: None = as many at a time as there are.
        now_ms: what should have gone before it is late.
        sends_late: True: what is late goes from now on; False: it is left out.
    """

    quiet: QuietHours | None
    rate: Rate | None
    now_ms: int
    sends_late: bool


@dataclass(frozen=True)
class Plan:
    """Who goes when.

    Attributes:
        cells: columns zone, cell (local seconds), base_ms (UTC), keeps (1 = the part of the second
            is added, 0 = it is not), wave (-1 = there is no rate). Late ones are not in it if they
            are left out.
        parts: with a rate, columns wave, bucket, first_rank, last_rank (of the rows of the bucket)
            and first_slot.
        load: messages by second.
        by_zone: (zone, messages, first instant in ms), most first.
        late_count: messages that are late.
        unknown: (zone that there is not, messages), most first.
    """

    cells: pa.Table
    parts: pa.Table
    load: Load
    by_zone: list[tuple[str, int, int]]
    late_count: int
    unknown: list[tuple[str, int]]


def make_plan(counted: pa.Table, timing: Timing) -> Plan:
    """The plan of an audience.

    Args:
        counted: columns zone, cell, bucket and count, in any order.
    """
    counted = counted.combine_chunks().sort_by(
        [("zone", "ascending"), ("cell", "ascending"), ("bucket", "ascending")]
    )
    names = counted["zone"].combine_chunks().dictionary_encode()
    zone_places = names.indices.to_numpy().astype(np.int64)
    cells = counted["cell"].to_numpy().astype(np.int64)
    counts = counted["count"].to_numpy().astype(np.int64)
    zones, unknown = _load_zones(names.dictionary.to_pylist(), cells, timing)
    known = np.array([zone is not None for zone in zones], dtype=np.bool_)[zone_places]

    # One cell may have several buckets: the cells themselves, and the cell of each count.
    starts = np.ones(len(cells), dtype=np.bool_)
    starts[1:] = (zone_places[1:] != zone_places[:-1]) | (cells[1:] != cells[:-1])
    owners = np.cumsum(starts) - 1
    cell_zones, cell_seconds = zone_places[starts], cells[starts]
    sums = np.bincount(owners, weights=counts, minlength=int(starts.sum())).astype(np.int64)
    base_ms, keeps = _bases(zones, cell_zones, cell_seconds, timing)
    late = known[starts] & (base_ms < timing.now_ms)
    if timing.sends_late:
        base_ms, keeps = _from_now_on(zones, cell_zones, base_ms, keeps, late, timing)
    goes = known[starts] & (np.True_ if timing.sends_late else ~late)

    waves = np.full(len(base_ms), -1, dtype=np.int64)
    parts, load = _NO_PARTS, Load.of(base_ms[goes] // SECOND_MS, sums[goes])
    if timing.rate is not None:
        waves, wave_zones = _waves(zones, cell_zones, base_ms, goes, timing)
        buckets = counted["bucket"].to_numpy().astype(np.int64)
        counted_waves = waves[owners]
        parts, load = _give_slots(
            counted_waves, buckets, counts, base_ms, waves, wave_zones, timing, timing.rate
        )
    table = pa.table(
        {
            "zone": names.dictionary.take(pa.array(cell_zones)),
            "cell": cell_seconds,
            "base_ms": base_ms,
            "keeps": keeps,
            "wave": waves,
        }
    ).filter(pa.array(goes))
    lost = [(name, int(counts[zone_places == place].sum())) for name, place in unknown]
    by_zone = _by_zone(names.dictionary, cell_zones, base_ms, sums, goes)
    return Plan(
        table, parts, load, by_zone, int(sums[late].sum()), sorted(lost, key=lambda one: -one[1])
    )


_NO_PARTS = pa.table(
    {
        name: pa.array([], pa.int64())
        for name in ("wave", "bucket", "first_rank", "last_rank", "first_slot")
    }
)


def _load_zones(
    names: list[str], cells: Int64s, timing: Timing
) -> tuple[list[Zone | None], list[tuple[str, int]]]:
    """The zone of each name, None for those that there are not, and (name, place) of these."""
    zones: list[Zone | None] = []
    unknown = []
    first_ms = int(cells.min()) * SECOND_MS if len(cells) else 0
    last_ms = int(cells.max()) * SECOND_MS if len(cells) else 0
    # What is late, or staggered over quiet hours, may go long after its local time.
    if timing.sends_late:
        first_ms, last_ms = min(first_ms, timing.now_ms), max(last_ms, timing.now_ms)
    if timing.quiet is not None and timing.rate is not None:
        last_ms += YEAR_MS
    for place, name in enumerate(names):
        try:
            zones.append(load_zone(name, first_ms, last_ms))
        except KeyError:
            zones.append(None)
            unknown.append((name, place))
    return zones, unknown


def _bases(
    zones: list[Zone | None], cell_zones: Int64s, cell_seconds: Int64s, timing: Timing
) -> tuple[Int64s, Int64s]:
    """UTC of each cell's beginning, after quiet hours, and whether parts of a second are kept."""
    base_ms = cell_seconds * SECOND_MS
    keeps = np.full(len(base_ms), int(timing.rate is None), dtype=np.int64)
    for place, zone in enumerate(zones):
        if zone is None:
            continue
        mine = cell_zones == place
        utc_ms = zone.to_utc_ms(base_ms[mine])
        if timing.quiet is not None:
            free_ms = timing.quiet.release_ms(zone, utc_ms)
            keeps[mine] &= free_ms == utc_ms
            utc_ms = free_ms
        base_ms[mine] = utc_ms
    return base_ms, keeps


def _from_now_on(
    zones: list[Zone | None],
    cell_zones: Int64s,
    base_ms: Int64s,
    keeps: Int64s,
    late: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    timing: Timing,
) -> tuple[Int64s, Int64s]:
    """Late cells go now, or when it is not quiet any more."""
    base_ms = np.where(late, timing.now_ms, base_ms)
    keeps = np.where(late, 0, keeps)
    if timing.quiet is not None:
        for place, zone in enumerate(zones):
            mine = late & (cell_zones == place)
            if zone is not None and mine.any():
                base_ms[mine] = timing.quiet.release_ms(zone, base_ms[mine])
    return base_ms, keeps


def _waves(
    zones: list[Zone | None],
    cell_zones: Int64s,
    base_ms: Int64s,
    goes: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    timing: Timing,
) -> tuple[Int64s, list[Zone]]:
    """The wave of each cell, in the order of their instants, and a zone of each wave.

    Cells of one instant are one wave, so that their zones are mixed evenly; but not if quiet hours
    come at different times for them.
    """
    rules: dict[tuple[bytes, bytes] | None, int] = {}
    kinds = np.zeros(len(zones), dtype=np.int64)
    for place, zone in enumerate(zones):
        if zone is not None:
            rule = zone.rules if timing.quiet is not None else None
            kinds[place] = rules.setdefault(rule, len(rules))
    waves = np.full(len(base_ms), -1, dtype=np.int64)
    pairs = np.stack([base_ms[goes], kinds[cell_zones[goes]]], axis=1)
    _, firsts, places = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    waves[goes] = places.reshape(-1)
    chosen = [zones[place] for place in cell_zones[goes][firsts].tolist()]
    return waves, [zone for zone in chosen if zone is not None]


def _give_slots(
    counted_waves: Int64s,
    buckets: Int64s,
    counts: Int64s,
    base_ms: Int64s,
    waves: Int64s,
    wave_zones: list[Zone],
    timing: Timing,
    rate: Rate,
) -> tuple[pa.Table, Load]:
    """Which slots the buckets of each wave have, and the load that this makes."""
    there = counted_waves >= 0
    pairs = np.stack([counted_waves[there], buckets[there]], axis=1)
    unique, places = np.unique(pairs, axis=0, return_inverse=True)
    sums = np.bincount(places.reshape(-1), weights=counts[there], minlength=len(unique))
    bucket_counts = sums.astype(np.int64)
    wave_counts = np.bincount(unique[:, 0], weights=bucket_counts, minlength=len(wave_zones))
    instants_ms = np.zeros(len(wave_zones), dtype=np.int64)
    instants_ms[waves[waves >= 0]] = base_ms[waves >= 0]

    def in_order() -> Iterator[tuple[int, int, Iterator[tuple[int, int]] | None]]:
        each = zip(instants_ms.tolist(), wave_counts.astype(int).tolist(), wave_zones, strict=True)
        for instant_ms, count, zone in each:
            windows = None
            if timing.quiet is not None:
                windows = timing.quiet.windows(zone, instant_ms, instant_ms + YEAR_MS)
            yield instant_ms, count, windows

    stretches = allocate(in_order(), rate)
    return _split(stretches, unique, bucket_counts), Load(*per_second(stretches, rate))


def _split(stretches: list[Stretch], unique: Int64s, bucket_counts: Int64s) -> pa.Table:
    """The stretches of waves, cut where their buckets end.

    Args:
        unique: (wave, bucket), in order, shape (n, 2).
        bucket_counts: rows of each.
    """
    # All messages in the order of (wave, rank) are one line, on which both have their bounds.
    ends = np.cumsum(bucket_counts)
    starts = ends - bucket_counts
    lengths = np.array([stretch.count for stretch in stretches], dtype=np.int64)
    slots = np.array([stretch.first_slot for stretch in stretches], dtype=np.int64)
    stretch_starts = np.cumsum(lengths) - lengths
    cuts = np.unique(np.concatenate([starts, stretch_starts]))
    owners = np.searchsorted(starts, cuts, side="right") - 1
    runs = np.searchsorted(stretch_starts, cuts, side="right") - 1
    lasts = np.append(cuts[1:], ends[-1:] if len(ends) else cuts[:0])
    return pa.table(
        {
            "wave": unique[owners, 0],
            "bucket": unique[owners, 1],
            "first_rank": cuts - starts[owners],
            "last_rank": lasts - starts[owners],
            "first_slot": slots[runs] + cuts - stretch_starts[runs],
        }
    )


def _by_zone(
    names: pa.Array,
    cell_zones: Int64s,
    base_ms: Int64s,
    sums: Int64s,
    goes: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
) -> list[tuple[str, int, int]]:
    totals = np.bincount(cell_zones[goes], weights=sums[goes], minlength=len(names))
    firsts = np.full(len(names), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(firsts, cell_zones[goes], base_ms[goes])
    rows = zip(names.to_pylist(), totals.astype(int).tolist(), firsts.tolist(), strict=True)
    return sorted((row for row in rows if row[1]), key=lambda row: (-row[1], row[0]))


def check_cells(count: int, most: int) -> None:
    """Raise BadRequest if there are more cells than a driver can plan."""
    if count > most:
        wanted = f"at most {most:,} different seconds in all zones together: round it to minutes"
        raise BadRequest("--send-at", wanted, count)
