"""`python -m tests.crash.failing_calls --points 500`: each of so many syncs fails, and each write.

A small journal works until one call fails: a sync with EIO, or a write or an allocation for which
there is no room. After a failed sync nothing more may be asked of the journal's file, and what the
sync was for is in doubt; where there was no room the append is refused and the journal goes on.
Then the machine crashes as well: the states that this may leave are judged (crash_states.py).
"""

from __future__ import annotations

import argparse
import errno
import sys
import time

import numpy as np

from dejaqueue.errors import ResourceExhausted, Unavailable
from dejaqueue.journal.interface import Journal
from dejaqueue.journal.memory import MemoryFileSystem, MemoryStore
from dejaqueue.testing.journal_conformance import make_ack
from tests.crash.crash_disk import Fault
from tests.crash.crash_states import FAULTS_SHOWN, Life, Promise, Tally
from tests.crash.disk_copies import log_of

KINDS = {
    "EIO": (("sync", "sync_directory"), errno.EIO),
    "ENOSPC": (("write", "allocate"), errno.ENOSPC),
}
STEPS_AFTER = 2
NEVER = Fault((), 0, 0)


def run_point(kind: str, number: int, tally: Tally) -> None:
    """One journal, of which one call fails."""
    operations, error = KINDS[kind]
    random = np.random.default_rng((number, error))
    life = Life(MemoryFileSystem(), Promise(), random, tally, Fault(operations, number, error))
    life.name = f"{kind} at call {number}"
    try:
        store, journal = life.open()
    except (Unavailable, ResourceExhausted):
        life.crash("open")
        return
    left = STEPS_AFTER
    while left and not tally.faults:
        left -= life.files.has_failed
        if not try_step(life, store, journal, tally):
            break
    assert life.files.has_failed
    if not tally.faults:
        again = Life(life.any_left(), life.promise, random, tally, NEVER)
        again.name = f"{life.name}, after that"
        again.live(STEPS_AFTER)


def try_step(life: Life, store: MemoryStore, journal: Journal, tally: Tally) -> bool:
    """A step that may fail; whether the journal goes on."""
    promise, tail = life.promise, journal.tail
    try:
        life.step(store, journal)
        return True
    except ResourceExhausted:
        if not life.files.has_failed:
            raise
        # Refused is refused, also after a crash.
        promise.entries = {p: one for p, one in promise.entries.items() if p <= tail}
    except Unavailable:
        if not life.files.has_failed:
            raise
    life.crash("the call that failed")
    calls = dict(life.files.calls)
    if log_of(journal)._failure is None:
        return True
    try:
        journal.append([make_ack(1)], tail, 1)
    except Unavailable:
        if dict(life.files.calls) != calls:
            tally.faults.append(f"{life.name}: the journal failed, and asked more of its files")
        return False
    tally.faults.append(f"{life.name}: the journal failed, and went on")
    return False


def main() -> int:
    """Run; 1 if anything was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=500)
    options = parser.parse_args()
    bad = 0
    for kind in KINDS:
        tally, began, number = Tally(), time.monotonic(), 0
        for number in range(1, options.points + 1):
            run_point(kind, number, tally)
            if tally.faults:
                break
        for fault in tally.faults[:FAULTS_SHOWN]:
            print(fault)
        bad += len(tally.faults)
        print(
            f"{kind} at each of {number} calls: {tally.states:,} crash states after it, "
            f"{len(tally.faults)} faults, in {time.monotonic() - began:.0f} s",
            flush=True,
        )
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
