"""How late are one topic's messages while another topic of the same worker has much to do at once?

The one has 1,000 messages a second and a consumer in a program of its own. The other, with a single
worker for both: 500,000 messages are cancelled by key, cancelled by filter, moved by filter;
200,000 are due in one millisecond; ten times as many are due in one millisecond on a fair topic of
1,000 groups, and on a priority topic. `X_p99` and `X_max` are of what was due from when that began
until it was over (for deliveries: until the last was received), `X_seconds` is how long it took,
and `X_first` when the first of them was received. `idle` is the same with nothing beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.load import HOUR_MS, PAYLOAD_BYTES, Load, even_load
from bench.percentiles import percentile, spread
from bench.results import Outcome, Row
from bench.systems.dejaq import FILL_ROWS, DejaqSystem
from bench.systems.servers import start_helper
from bench.systems.system import Plan, Stopwatch

QUESTION = "beside"
STEADY_PER_SECOND = 1_000
BEFORE_MS, AHEAD_MS = 1_000, 2_500
WAIT_SECONDS_MAX = 120.0
IDLE_SECONDS = 3.0
GROUPS = 1_000
PREFETCH_ROWS = 100_000
ROUNDS_MAX = 3
CASES = ("idle", "cancel_keys", "cancel_where", "move_where", "hot", "fair", "priority")

Report = Callable[[str], None]


class Beside(NamedTuple):
    """What was done, and when; `first_ms`: when its first message came, -1 = none did."""

    began_ms: int
    ended_ms: int
    first_ms: int = -1


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    found: dict[str, list[float]] = {}
    outcome = Outcome()
    for number in range(1, min(plan.rounds, ROUNDS_MAX) + 1):
        system = DejaqSystem(settings=("dispatch.workers=1",))
        system.start(plan.folder)
        try:
            prepares = _cases(system, plan.rows // 2, number)
            for case in CASES:
                figures = _beside(system, plan, number, prepares[case])
                shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
                report(f"round {number}: {case}: {shown}")
                for name, value in figures.items():
                    found.setdefault(f"{case}_{name}", []).append(value)
        finally:
            system.stop()
    for name, values in found.items():
        outcome.spreads[f"dejaq/{name}"] = spread(values)
        unit = "ms" if name.endswith(("_p99", "_max")) else "s"
        median = round(outcome.spreads[f"dejaq/{name}"]["median"], 4)
        outcome.rows.append(Row(QUESTION, "dejaq", name, median, unit))
    return outcome


def _cases(
    system: DejaqSystem, rows: int, seed: int
) -> dict[str, Callable[[], tuple[float, Callable[[int], Beside]]]]:
    """By name: what prepares a case, and answers how many seconds it may take and what does it,
    called with the instant at which it is to begin."""
    client, clock = system.client, system.clock

    def keyed() -> tuple[str, list[str]]:
        topic = system.new_topic()
        keys = [f"key-{seed}-{number}" for number in range(rows)]
        dues_ms = np.full(rows, clock.now_ms() + HOUR_MS, dtype=np.int64)
        load = Load(bytes(rows * PAYLOAD_BYTES), dues_ms)
        system.fill(topic, load, WAIT_SECONDS_MAX, FILL_ROWS, key=pa.array(keys))
        return topic, keys

    def timed(call: Callable[[], object]) -> Callable[[int], Beside]:
        def run(instant_ms: int) -> Beside:
            _wait_until(clock, instant_ms)
            began_ms = clock.now_ms()
            call()
            return Beside(began_ms, clock.now_ms())

        return run

    def idle() -> tuple[float, Callable[[int], Beside]]:
        return IDLE_SECONDS, timed(lambda: time.sleep(IDLE_SECONDS))

    def cancel_keys() -> tuple[float, Callable[[int], Beside]]:
        topic, keys = keyed()
        return rows / 100_000, timed(lambda: client.cancel(topic, keys=keys).raise_for_status())

    def cancel_where() -> tuple[float, Callable[[int], Beside]]:
        topic, _ = keyed()
        return rows / 150_000, timed(lambda: client.cancel_where(topic))

    def move_where() -> tuple[float, Callable[[int], Beside]]:
        topic, _ = keyed()
        return rows / 100_000, timed(lambda: client.move_where(topic, by=60))

    def due_at_once(count: int, **settings: Any) -> tuple[float, Callable[[int], Beside]]:
        columns: dict[str, pa.Array] = {}
        if settings:
            columns["group"] = pa.array(np.arange(count) % GROUPS).cast(pa.utf8())
            columns["priority"] = pa.array(np.arange(count) % 10).cast(pa.uint16())
        seconds, instant_ms = 0.0, 0
        # Again with more time, on a machine that is slow or busy: all is to wait at the instant.
        while clock.now_ms() > instant_ms - AHEAD_MS:
            seconds = 2 * seconds or count / 100_000 + 1
            if seconds > WAIT_SECONDS_MAX:
                raise AssertionError("the machine is too slow: scheduling took until the instant")
            topic = system.new_topic(**settings)
            instant_ms = clock.now_ms() + int(1000 * seconds) + AHEAD_MS
            load = Load(bytes(count * PAYLOAD_BYTES), np.full(count, instant_ms, dtype=np.int64))
            system.fill(topic, load, WAIT_SECONDS_MAX, FILL_ROWS, **columns)

        def run(_instant_ms: int) -> Beside:
            return _drain(system, topic, count, instant_ms)

        return (instant_ms - clock.now_ms()) / 1000 - AHEAD_MS / 1000 + seconds, run

    return {
        "idle": idle,
        "cancel_keys": cancel_keys,
        "cancel_where": cancel_where,
        "move_where": move_where,
        "hot": lambda: due_at_once(2 * rows // 5),
        "fair": lambda: due_at_once(4 * rows, kind="fair"),
        "priority": lambda: due_at_once(4 * rows, kind="priority"),
    }


def _beside(
    system: DejaqSystem,
    plan: Plan,
    seed: int,
    prepare: Callable[[], tuple[float, Callable[[int], Beside]]],
) -> dict[str, float]:
    """Figures of one case."""
    clock, steady = system.clock, system.new_topic()
    seconds, run = prepare()
    start_ms = clock.now_ms() + AHEAD_MS - BEFORE_MS
    rows = int((seconds + 1) * STEADY_PER_SECOND) + BEFORE_MS * STEADY_PER_SECOND // 1_000
    path = plan.folder / f"beside-{seed}.npy"
    system.fill(steady, even_load(rows, start_ms, STEADY_PER_SECOND, seed), WAIT_SECONDS_MAX)
    with start_helper("bench.receiver", system.url, steady, rows, path) as receiver:
        try:
            done = run(start_ms + BEFORE_MS)
            status = receiver.wait(WAIT_SECONDS_MAX)
        except BaseException:
            receiver.kill()
            raise
    if status != 0:
        raise AssertionError("the other topic's consumer failed")
    late: npt.NDArray[np.int64] = np.load(path)
    path.unlink()
    during = (late[0] >= done.began_ms) & (late[0] <= done.ended_ms)
    if not during.any():
        raise AssertionError("nothing of the other topic was due meanwhile")
    lateness_ms = late[1][during] / 1000
    if int(late[1].min()) < 0:
        raise AssertionError("a message came early")
    figures = {
        "p99": percentile(lateness_ms, 99),
        "max": percentile(lateness_ms, 100),
        "seconds": (done.ended_ms - done.began_ms) / 1000,
    }
    if done.first_ms >= 0:
        figures["first"] = (done.first_ms - done.began_ms) / 1000
    return figures


def _drain(system: DejaqSystem, topic: str, rows: int, instant_ms: int) -> Beside:
    """Consume and ack all that is due at the instant."""
    clock, received, first_ms = system.clock, 0, -1
    watch = Stopwatch(WAIT_SECONDS_MAX)
    for batch in system.client.consume_batches(
        topic,
        batch_rows=FILL_ROWS,
        prefetch=PREFETCH_ROWS,
        idle_ms=int(1000 * WAIT_SECONDS_MAX),
    ):
        first_ms = clock.now_ms() if first_ms < 0 else first_ms
        received += len(batch)
        is_last = received >= rows or watch.is_over()
        batch.ack(wait=is_last)
        if is_last:
            break
    if received != rows:
        raise AssertionError(f"received {received} of {rows}")
    return Beside(instant_ms, clock.now_ms(), first_ms)


def _wait_until(clock: Any, instant_ms: int) -> None:
    left_ms = instant_ms - clock.now_ms()
    if left_ms > 0:
        time.sleep(left_ms / 1000)
