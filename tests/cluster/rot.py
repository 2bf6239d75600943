"""Rot in one copy of a replicated stream: bits are flipped in the files of a stopped server.

`python -m tests.cluster.rot --first 1 --seeds 3` (`make rot`) waits for the watch to find it; the
test of the same name looks at once.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dejaqueue.clock import SystemClock, Wake
from dejaqueue.journal.records.interface import RecordLog
from dejaqueue.journal.records.nats.store import NatsRecordStore
from dejaqueue.testing.record_conformance import patiently
from dev.reaper import start_reaper
from tests.record_servers import NatsServers

RECORD_BYTES = 1000
AT_ONCE = 500
FLIPS_A_FILE = 3


@dataclass(frozen=True)
class Outcome:
    """What became of it.

    Attributes:
        victim, named: the server whose files were damaged, and those that were named for it.
        named_ms: from its start to its being named.
        wrong: records that were lost or altered while it was sick, and after its repair.
    """

    victim: str
    named: tuple[str, ...]
    named_ms: int
    wrong: int
    is_whole: bool


def content(seed: int, number: int) -> bytes:
    """A record that differs from every other."""
    return random.Random(seed << 32 | number).randbytes(RECORD_BYTES)


def run(directory: Path, seed: int, megabytes: int, *, look_at_once: bool) -> Outcome:
    """Write, damage, start again, find out, read all, repair, read all."""
    servers, clock = NatsServers(directory, 3), SystemClock()
    try:
        store = patiently(lambda: NatsRecordStore(servers.url))
        try:
            log = patiently(lambda: store.open("rot", 0))
            count = megabytes * 1_000_000 // RECORD_BYTES // AT_ONCE * AT_ONCE
            for after in range(0, count, AT_ONCE):
                numbers = range(after + 1, after + AT_ONCE + 1)
                log.append(after, [[content(seed, number)] for number in numbers])
            chance = random.Random(seed)
            # By turns the one that leads, which others would have caught up from.
            victim = chance.choice([leader_of(servers), *servers.servers])
            servers.servers[victim].stop()
            damage(directory / victim, chance)
            began_ms = clock.now_ms()
            servers.servers[victim].start(wait=False)
            look = store.look_now if look_at_once else lambda: store.sick
            until(lambda: bool(look()), 100_000)
            named_ms = clock.now_ms() - began_ms
            named = tuple({one.server for one in store.sick})
            wrong = wrong_records(log, seed, count)
            servers.servers[victim].repair()
            wrong += wrong_records(log, seed, count)
            until(lambda: not store.look_now(), 30_000)
            flaw = servers.servers[victim].status().flaw({})
            return Outcome(victim, named, named_ms, wrong, not flaw)
        finally:
            store.close()
    finally:
        servers.stop()


def leader_of(servers: NatsServers) -> str:
    """Who leads the stream of records."""
    copies = servers.servers["a"].status().copies
    return next(one.node for one in copies if one.is_leader and "-records-" in one.stream)


def damage(directory: Path, chance: random.Random) -> None:
    """Flip some bits in each file of records."""
    files = sorted(directory.rglob("streams/*-records-*/msgs/*.blk"))
    assert files
    for file in files:
        held = bytearray(file.read_bytes())
        for _ in range(FLIPS_A_FILE if held else 0):
            held[chance.randrange(len(held))] ^= 1 << chance.randrange(8)
        file.write_bytes(held)


def wrong_records(log: RecordLog, seed: int, count: int) -> int:
    """How many records are not as they were written."""
    found = dict.fromkeys(range(1, count + 1), False)
    for number, record in patiently(lambda: list(log.read(1, count + 1))):
        found[number] = record == content(seed, number)
    return sum(not right for right in found.values())


def until(is_so: Callable[[], bool], timeout_ms: int) -> None:
    """Wait until something is so, or fail."""
    clock = SystemClock()
    until_ms = clock.now_ms() + timeout_ms
    while not is_so():
        assert clock.now_ms() < until_ms, f"not within {timeout_ms} ms"
        clock.wait_until(clock.now_us() + 200_000, Wake())


def main() -> int:
    """Run some seeds; 1 if any record was lost or altered, or the wrong server was named."""
    start_reaper()
    options = argparse.ArgumentParser()
    options.add_argument("--first", type=int, default=1)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--megabytes", type=int, default=64)
    given = options.parse_args()
    bad = 0
    for seed in range(given.first, given.first + given.seeds):
        with tempfile.TemporaryDirectory() as folder:
            one = run(Path(folder), seed, given.megabytes, look_at_once=False)
        good = one.wrong == 0 and one.named == (one.victim,) and one.named_ms <= 60_000
        bad += not (good and one.is_whole)
        print(f"seed {seed}: {'good' if good else 'BAD'} {one}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
