"""What do 100 million scheduled messages cost, and do they slow anything down?

Messages due over the coming year are scheduled until there are `--messages`. At one million and
at the end, three windows of a million are measured each: enqueue in batches of 1,000, and lease +
ack of a million that are due, with all the others scheduled behind them. Memory is that of the
broker's process against what it had when empty; `…_anonymous` is its own, `…_file` is pages of
mapped files, which the kernel may drop. At the end the broker is stopped (it writes a snapshot)
and started: `restart` lasts until it listens again, and then it must still count every message.
`memory_per_message_keys` is of a tenth as many in a broker of their own, each with a key of 16
bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from bench.load import DAY_MS, HOUR_MS, Load, past_load
from bench.machine import memory_bytes
from bench.percentiles import spread
from bench.registry import available
from bench.results import Outcome, Row
from bench.systems.system import Plan

QUESTION = "scale"
SMALL_ROWS = 1_000_000
WINDOWS = 3
FILL_BATCH_ROWS = 8_000
YEAR_MS = 365 * DAY_MS
FOR_EVER_SECONDS = 86_400.0

Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    systems, left_out = available(("dejaq",))
    system: Any = systems[0]()
    system.start(plan.folder)
    try:
        outcome = _measure(system, plan, report, left_out)
    finally:
        system.stop()
    system.start(plan.folder)
    try:
        _measure_keys(system, plan, report, outcome)
    finally:
        system.stop()
    return outcome


def _measure_keys(system: Any, plan: Plan, report: Report, outcome: Outcome) -> None:
    filler = _Filler(system, system.new_topic(), SMALL_ROWS, report, with_keys=True)
    empty = memory_bytes(system.pid())
    filler.fill_to(plan.messages // 10)
    full = memory_bytes(system.pid())
    each = (full["rss"] - empty["rss"]) / filler.rows
    report(f"{filler.rows:,} with keys: {each:.1f} bytes resident each")
    _adder(outcome)("memory_per_message_keys", [each], "bytes")


def _measure(system: Any, plan: Plan, report: Report, left_out: list[str]) -> Outcome:
    window_rows = min(SMALL_ROWS, plan.messages // (4 * WINDOWS))
    filler = _Filler(system, system.new_topic(), window_rows, report)
    empty = memory_bytes(system.pid())
    filler.fill_to(min(SMALL_ROWS, plan.messages // 4))
    small_in, small_out = filler.windows()
    filler.fill_to(plan.messages - WINDOWS * window_rows)
    large_in, large_out = filler.windows()
    full = memory_bytes(system.pid())
    stop_start = time.perf_counter()
    restart = system.restart()
    stopping = time.perf_counter() - stop_start - restart
    load_start = time.perf_counter()
    counted = filler.count_live()  # a partition is read when it is first used
    restart += time.perf_counter() - load_start
    if counted != filler.rows:
        raise AssertionError(f"{counted} messages after the restart instead of {filler.rows}")
    again = memory_bytes(system.pid())

    name = _short(filler.rows)
    small = _short(min(SMALL_ROWS, plan.messages // 4))
    outcome = Outcome(left_out=left_out)
    add = _adder(outcome)
    add("messages", [filler.rows], "messages")
    for kind, label in (("rss", ""), ("anonymous", "_anonymous"), ("file", "_file")):
        each = (full[kind] - empty[kind]) / filler.rows
        add(f"memory_per_message{label}", [each], "bytes")
    add("memory_per_message_after_restart", [(again["rss"] - empty["rss"]) / filler.rows], "bytes")
    add(f"enqueue_at_{small}", small_in, "messages/s")
    add("enqueue", large_in, "messages/s", small_in, f"dejaq at {small}")
    add(f"lease_ack_at_{small}", small_out, "messages/s")
    add("lease_ack", large_out, "messages/s", small_out, f"dejaq at {small}")
    add("fill", [filler.fill_rate()], "messages/s")
    add("stop", [stopping], "s")
    add("restart", [restart], "s")
    report(f"{name} messages, restart {restart:.2f} s")
    return outcome


class _Filler:
    """Schedules messages and keeps count of them."""

    def __init__(
        self,
        system: Any,
        topic: str,
        window_rows: int,
        report: Report,
        *,
        with_keys: bool = False,
    ) -> None:
        self.rows = 0
        self._with_keys = with_keys
        self._system, self._topic, self._report = system, topic, report
        self._window_rows = window_rows
        self._random = np.random.default_rng(1)
        # The same million payloads again and again: the broker does not look into them.
        self._payloads = past_load(SMALL_ROWS, DAY_MS * 2, seed=1).block
        self._fill_rows, self._fill_seconds = 0, 0.0

    def fill_to(self, rows: int) -> None:
        """Schedule, in large batches, until there are so many."""
        while self.rows < rows:
            count = min(SMALL_ROWS, rows - self.rows)
            load = self._load(count)
            measured = self._system.fill(
                self._topic,
                load,
                FOR_EVER_SECONDS,
                batch_rows=FILL_BATCH_ROWS,
                **self._columns(count),
            )
            self.rows += count
            self._fill_rows += count
            self._fill_seconds += measured.seconds
            if self.rows % (10 * SMALL_ROWS) < count:
                resident = memory_bytes(self._system.pid())["rss"]
                self._report(
                    f"{self.rows:,} scheduled, the last at {measured.per_second:,.0f} a second,"
                    f" {resident / self.rows:.1f} bytes resident each"
                )

    def _columns(self, count: int) -> dict[str, pa.Array]:
        if not self._with_keys:
            return {}
        numbers = range(self.rows, self.rows + count)
        return {"key": pa.array([f"order-{number:010}" for number in numbers])}

    def windows(self) -> tuple[list[float], list[float]]:
        """Rates of enqueue, and of lease + ack, over a few windows each."""
        rates_in, rates_out = [], []
        for window in range(WINDOWS):
            load = self._load(self._window_rows)
            measured = self._system.fill(self._topic, load, FOR_EVER_SECONDS)
            self.rows += measured.rows
            rates_in.append(measured.per_second)
            now_ms = self._system.clock.now_ms()
            due = past_load(self._window_rows, now_ms, seed=window)
            self._system.fill(self._topic, due, FOR_EVER_SECONDS)
            drained = self._system.drain(self._topic, due.rows, FOR_EVER_SECONDS, left=self.rows)
            rates_out.append(drained.per_second)
            self._report(
                f"window {window + 1} at {self.rows:,}: in {rates_in[-1]:,.0f},"
                f" out {rates_out[-1]:,.0f} messages/s"
            )
        return rates_in, rates_out

    def fill_rate(self) -> float:
        """Messages a second of all large batches."""
        return self._fill_rows / self._fill_seconds

    def count_live(self) -> int:
        """How many messages the broker counts in the topic."""
        return int(self._system.count_live(self._topic))

    def _load(self, rows: int) -> Load:
        from_ms = self._system.clock.now_ms() + HOUR_MS
        dues_ms = self._random.integers(from_ms, from_ms + YEAR_MS, rows)
        return Load(self._payloads[: rows * 100], dues_ms)


def _adder(outcome: Outcome) -> Callable[..., None]:
    def add(
        case: str,
        values: list[float],
        unit: str,
        base: list[float] | None = None,
        base_name: str | None = None,
    ) -> None:
        found = spread(values)
        ratio = None if base is None else round(found["median"] / spread(base)["median"], 3)
        outcome.spreads[f"dejaq/{case}"] = found
        outcome.rows.append(
            Row(QUESTION, "dejaq", case, round(found["median"], 3), unit, ratio, base_name)
        )

    return add


def _short(rows: int) -> str:
    """A count as people say it: 100M, 200K."""
    return f"{rows / 1e6:g}M" if rows >= 1_000_000 else f"{rows / 1e3:g}K"
