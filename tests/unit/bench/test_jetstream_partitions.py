"""Covers: partitions are made on three real brokers with JetStream beside each, and measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.jetstream_partitions import partition_figures
from bench.systems.system import Plan

pytest.importorskip("nats")


@pytest.mark.slow
def test_partitions_share_the_streams_of_their_slots(tmp_path: Path) -> None:
    plan = Plan(2_000, 1.0, 1, 1, tmp_path, ("dejaq",), 0, quick=True)
    found = partition_figures(plan)
    assert found.keys() == {f"jetstream_{what}" for what in ("made", "memory", "files", "idle")}
    assert all(value > 0 for name, value in found.items() if name != "jetstream_idle")
    # A hundred partitions in ten slots at most: a stream of each would have files of its own.
    assert found["jetstream_files"] < 100
