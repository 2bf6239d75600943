"""When an entry fires: pure functions of the entry and of time.

Room: broker. No clock: `now` is an argument.
Holds: the same entry, firing and `now` give the same plan, jitter included; firings of many entries
with one expression and zone are searched for once.
See: rule 17; docs/guides/cron.md says the same for users.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

import xxhash

from dejaqueue import limits
from dejaqueue.broker.cron.expressions import parse
from dejaqueue.broker.cron.zones import zone_of
from dejaqueue.schema.cron import CronEntry, Misfire, Overlap

NEVER = -1
FIRINGS_MAX = 1_000
"""Missed firings of one entry that are made up for in one step."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about an entry now.

    Attributes:
        firings: what it fires for, UTC milliseconds; may name one twice (a gap of the clock).
        next_ms: what it fires for next, NEVER = nothing.
        wake_ms: when that is to be seen to.
    """

    firings: tuple[int, ...]
    next_ms: int
    wake_ms: int


def plan(entry: CronEntry, next_ms: int, now_ms: int, *, is_live: bool) -> Plan:
    """What of the entry's firings from `next_ms` on becomes a message now.

    Args:
        next_ms: the first firing that was not seen to yet.
        is_live: the entry's last message is not done.
    """
    newest_ms = last_firing(entry, now_ms)
    if newest_ms < next_ms:
        newest_ms = next_ms  # ahead of its time
    done_ms = newest_ms
    if entry.misfire is Misfire.ALL:
        firings = _all_firings(entry, next_ms, newest_ms)
        done_ms = firings[-1]
    elif entry.misfire is Misfire.ONCE or now_ms - due_ms(entry, newest_ms) <= limits.CRON_GRACE_MS:
        firings = [newest_ms]
    else:
        firings = []
    if entry.overlap is Overlap.SKIP:
        firings = [] if is_live else firings[:1]
    following_ms = next_firing(entry, done_ms)
    return Plan(tuple(firings), following_ms, wake_ms(entry, following_ms))


def _all_firings(entry: CronEntry, first_ms: int, last_ms: int) -> list[int]:
    """The firings from the first to the last, as many as one step takes."""
    firings: list[int] = []
    firing_ms = first_ms
    while NEVER < firing_ms <= last_ms and len(firings) < FIRINGS_MAX:
        firings += [firing_ms] * _times_at(entry, firing_ms)
        firing_ms = next_firing(entry, firing_ms)
    return firings


def due_ms(entry: CronEntry, firing_ms: int) -> int:
    """When the message of a firing is due: its time, and its jitter."""
    if not entry.jitter_ms:
        return firing_ms
    dice = xxhash.xxh3_64_intdigest(f"{entry.name} {firing_ms}".encode())
    return firing_ms + dice % (entry.jitter_ms + 1)


def wake_ms(entry: CronEntry, firing_ms: int) -> int:
    """When a firing is to be seen to: a little ahead; but whether the message before is done is
    told at the time itself."""
    if firing_ms == NEVER:
        return NEVER
    ahead_ms = limits.CRON_AHEAD_MS if entry.overlap is Overlap.ALLOW else 0
    return max(0, due_ms(entry, firing_ms) - ahead_ms)


def next_firing(entry: CronEntry, after_ms: int) -> int:
    """The first firing after an instant, NEVER if there is none. Raises BadRequest."""
    after_ms = max(after_ms, entry.start_ms - 1)
    if entry.every_ms:
        since_ms = max(0, after_ms - entry.start_ms + entry.every_ms)
        firing_ms = entry.start_ms + since_ms // entry.every_ms * entry.every_ms
    else:
        firing_ms = _next_instant(entry.cron, entry.zone, _makes_up(entry), after_ms)
    if firing_ms > limits.INSTANT_MS_MAX or (entry.end_ms and firing_ms >= entry.end_ms):
        return NEVER
    return firing_ms


def last_firing(entry: CronEntry, until_ms: int) -> int:
    """The last firing up to an instant, NEVER if there is none."""
    if entry.end_ms:
        until_ms = min(until_ms, entry.end_ms - 1)
    if until_ms < entry.start_ms:
        return NEVER
    if entry.every_ms:
        return until_ms - (until_ms - entry.start_ms) % entry.every_ms
    firing_ms = _last_instant(entry.cron, entry.zone, _makes_up(entry), until_ms)
    return firing_ms if firing_ms >= entry.start_ms else NEVER


def _makes_up(entry: CronEntry) -> bool:
    """True if a local time that is left out counts: it was missed."""
    return entry.misfire is not Misfire.SKIP


@lru_cache(maxsize=16_384)
def _next_instant(cron: str, zone_name: str, makes_up: bool, after_ms: int) -> int:
    expression, zone = parse(cron), zone_of(zone_name)
    try:
        local = expression.next_after(zone.latest_local(after_ms))
        while local is not None:
            instant_ms, left_out = zone.instant(local)
            if instant_ms > after_ms and (makes_up or not left_out):
                return instant_ms
            local = expression.next_after(local)
    except (OverflowError, ValueError):  # beyond the calendar
        pass
    return NEVER


@lru_cache(maxsize=16_384)
def _last_instant(cron: str, zone_name: str, makes_up: bool, until_ms: int) -> int:
    expression, zone = parse(cron), zone_of(zone_name)
    local = expression.last_until(zone.latest_local(until_ms))
    while local is not None:
        instant_ms, left_out = zone.instant(local)
        if instant_ms <= until_ms and (makes_up or not left_out):
            return instant_ms
        local = expression.last_until(local - timedelta(seconds=1))
    return NEVER


def _times_at(entry: CronEntry, firing_ms: int) -> int:
    """How many local times of the expression stand at an instant: more than one where clocks jump
    over some."""
    if entry.every_ms:
        return 1
    return _local_times(entry.cron, entry.zone, firing_ms)


@lru_cache(maxsize=16_384)
def _local_times(cron: str, zone_name: str, instant_ms: int) -> int:
    expression, zone = parse(cron), zone_of(zone_name)
    if zone.offset(instant_ms) <= zone.offset(instant_ms - 1_000):
        return 1
    end = zone.latest_local(instant_ms)
    local: datetime | None = zone.latest_local(instant_ms - 1_000)
    count = 0
    while local is not None and (local := expression.next_after(local)) is not None:
        if local > end:
            break
        count += 1
    return max(1, count)
