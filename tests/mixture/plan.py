"""What a seed says: the settings of a broker, its topics, who uses them, and what goes wrong."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KINDS = ("timeline", "priority", "fair")
ACCIDENTS = (
    *("kill-process", "kill-process", "pause-process", "kill-all", "stop-all"),
    *("topic-again", "master-key", "backup", "erase", "grow", "pause-topic"),
    *("join-or-leave", "join-or-leave"),
)
"""What happens is drawn from these: what is named twice, twice as often."""
FOREIGN = ("sqs", "sqs-fifo", "http", "transactions", "subscriptions", "go", "java")
ALONE, PROCESSES, BROKERS, JETSTREAM = "alone", "processes", "brokers", "jetstream"
PLACES = (ALONE, ALONE, PROCESSES, PROCESSES, PROCESSES, BROKERS, BROKERS, JETSTREAM)
"""Where it runs is drawn from these: a broker, several processes of one, brokers of a cluster on
PostgreSQL and etcd, brokers with JetStream beside each."""


@dataclass
class Plan:
    """One mixture.

    Attributes:
        place: one of PLACES.
        settings: of each broker, as BrokerProcess takes them.
        topics: their settings, by name.
        foreign: loads of other clients than batches of ours; those of foreign.py.
    """

    seed: int
    random: random.Random
    place: str = ALONE
    settings: dict[str, Any] = field(default_factory=dict)
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)

    @classmethod
    def drawn(cls, seed: int, place: Path) -> Plan:
        """The mixture of a seed, whose files are here."""
        plan = cls(seed, random.Random(seed))
        plan.place = plan.random.choice(PLACES)
        plan._draw_settings(place)
        for kind in KINDS:
            plan.topics[kind] = plan.topic_settings(kind)
        foreign = [one for one in FOREIGN if "sqs" not in one or "sqs__enabled" in plan.settings]
        plan.foreign = plan.random.sample(foreign, 2)
        return plan

    def _draw_settings(self, place: Path) -> None:
        draw, settings = self.random, self.settings
        # Small, so that segments roll, snapshots are taken and rows are copied all the time.
        settings["journal__segment_bytes"] = draw.choice([1 << 16, 1 << 18, 1 << 20])
        settings["journal__snapshot_entries"] = draw.choice([60, 150, 2_000])
        if self.place == PROCESSES:
            settings["server__processes"] = draw.choice([2, 3, 5, 8])
        if self.is_cluster:
            settings["history__directory"] = str(place / "history")
        if self._is(0.6):
            new_master_key(place, draw)
            settings["encryption__master_key"] = f"file:{place / 'master.key'}"
        if self._is(0.7):
            settings["backup__url"] = str(place / "archive")
            settings["backup__interval_ms"] = draw.choice([3_000, 15_000])
            settings["backup__archive_interval_ms"] = draw.choice([100, 500])
        if self._is(0.7):
            settings["payloads__url"] = str(place / "payloads")
            settings["payloads__inline_bytes_max"] = 1_024
            settings["payloads__keep_ms"] = draw.choice([0, 0, 60_000])
        if self._is(0.5):
            settings["journal__erase_ms_max"] = draw.choice([2_000, 10_000])
        if self._is(0.5):
            settings["sqs__enabled"] = "1"
        if self._is(0.3):
            settings["dispatch__workers"] = draw.choice([1, 4])
        if self._is(0.3):
            # So slow that a second or two of the load is a spike, where a topic sends one ahead.
            settings["dispatch__partition_rows_per_s"] = draw.choice([20, 200])

    @property
    def is_cluster(self) -> bool:
        """True if its brokers come and go by themselves."""
        return self.place in (BROKERS, JETSTREAM)

    def _is(self, chance: float) -> bool:
        return self.random.random() < chance

    def topic_settings(self, kind: str, *, is_plain: bool = False) -> dict[str, Any]:
        """Settings of a topic.

        Args:
            is_plain: in one shard, for a load that says how many partitions there are.
        """
        draw = self.random
        found: dict[str, Any] = {"kind": kind, "partitions": draw.choice([1, 2, 3, 5])}
        if self.place != ALONE and not is_plain and self._is(0.5):
            found["spread"] = draw.choice([2, 3])
            found["partitions"] = found["spread"] * draw.choice([1, 2])
        if self._is(0.4):
            found["history"] = True
        if self._is(0.4) and "payloads__url" in self.settings:
            found["cold_after_ms"] = draw.choice([1_000, 4_000])
        if self._is(0.3):
            found["retention_ms"] = 5_000
        if self._is(0.3):
            found["lease_ahead_ms"] = draw.choice([0, 25, 500])
        if self._is(0.3):
            found["spike_ahead_ms"] = draw.choice([1_000, 5_000])
        return found


def new_master_key(place: Path, draw: random.Random) -> None:
    """Have a new key wrap, in front of those that there were."""
    path = place / "master.key"
    before = path.read_text() if path.exists() else ""
    path.touch(mode=0o600)
    path.write_text(base64.b64encode(draw.randbytes(32)).decode() + "\n" + before)
