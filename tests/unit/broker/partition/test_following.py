"""Covers: entries of the active site are applied behind each other, once, and none is passed over.

Not covered: the partition whose step it is (tests/unit/broker/standby/test_standby.py).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from dejaqueue.broker.partition.following import follow
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import Entry
from tests.backups import client_of, started


def test_entries_are_applied_once__and_a_hole_is_named(tmp_path: Path) -> None:
    source, target = started(tmp_path / "source"), started(tmp_path / "target")
    for broker in (source, target):
        client_of(broker).create_topic("a")
    # Before the other one sends: time never runs backwards from one entry to the next.
    here = target.runtime("a").look(0, lambda core: core.position).result()
    for number in range(3):
        client_of(source).send("a", b"%d" % number, delay=3_600)

    def stored(core: PartitionCore) -> list[tuple[int, Entry]]:
        return [(position, entry) for position, _, entry in core.journal.scan(0)]

    found = source.runtime("a").look(0, stored).result()
    assert found[here - 1][0] == here  # both have begun in the same way
    hole = [*found[:here], *found[here + 1 :]]
    with pytest.raises(JournalDamaged, match=f"entry {here + 1} is not in the archive"):
        target.runtime("a").change(0, lambda core: follow(core, hole)).result()
    for part in (found[: here + 1], found, found):
        target.runtime("a").change(0, partial(follow, found=part)).result()
    hashes = [one.runtime("a").look(0, lambda c: c.views.state_hash()) for one in (source, target)]
    assert hashes[0].result() == hashes[1].result()
    assert len(client_of(target).peek("a")) == 3
    for broker in (source, target):
        broker.stop()
