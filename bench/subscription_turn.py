"""DejaQ's turn of `subscriptions`: what each of its cases does.

Room: bench. A broker, its client, and another topic's consumer beside them.
Holds: what is compared is measured on the same broker, one right after the other; how much memory
is taken, before all else, as the allocator keeps what other cases gave back.
See: questions/subscriptions.py, which says what the cases are.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.load import BATCH_ROWS, DAY_MS, PAYLOAD_BYTES, Load, even_load, past_load
from bench.machine import memory_bytes
from bench.percentiles import percentile
from bench.systems.dejaq import PREFETCH_ROWS, DejaqSystem
from bench.systems.servers import end_program, start_helper
from bench.systems.system import WARM_ROWS, Measured, Plan, Stopwatch, with_cost
from dejaqueue import Client
from dejaqueue.errors import TopicUnknown

MANY = 10
SECONDS_MIN = 2.0
"""In less a busy machine sends nothing at all, and there is nothing to measure."""
IDLE_MS = 1_000
"""A consumer that gets nothing for so long while others send has all there is."""
SILENCE_MS = 10_000
"""One that waits for what a call brings about has, after so long, waited for nothing."""
KEPT_MS = 7 * DAY_MS
START_ROWS_MAX, REPLAY_ROWS_MAX = 10_000_000, 50_000_000
PIECE_ROWS = 1_000_000
"""Of a large load: its payloads come again and again, its due times do not."""
NEAR_MS = 60_000
LARGE_BATCH_ROWS, LARGE_PREFETCH_ROWS = 8_000, 100_000
LONG_SECONDS = 300.0
BESIDE_PER_SECOND, BESIDE_AHEAD_MS = 1_000, 1_500
BESIDE_START_SECONDS, BESIDE_REPLAY_SECONDS, BESIDE_QUICK_SECONDS = 8.0, 30.0, 1.0
LOOK_SECONDS = 0.005

Int64s = npt.NDArray[np.int64]
Figures = dict[str, float]


def has_subscriptions() -> bool:
    """False for the packages of a commit that was before them."""
    return hasattr(Client, "create_subscription")


class Turn:
    """One round on a broker of its own.

    Args:
        queue_only: measure nothing but topics without subscriptions.
        short: leave out what takes millions of messages.
    """

    def __init__(self, plan: Plan, seed: int, *, queue_only: bool, short: bool) -> None:
        self._plan, self._seed = plan, seed
        self._system = DejaqSystem()
        self._queue_only, self._short = queue_only, short
        self.costs: Figures = {}
        """Processor time of a message, µs, of the cases of which it was measured."""

    def run(self) -> Figures:
        """Figures by case."""
        system, plan = self._system, self._plan
        system.start(plan.folder)
        try:
            if self._queue_only:
                return self._queue()
            figures = Figures() if self._short else self._start()
            figures |= self._queue()
            for count in (1, MANY):
                topic = self._topic(count)
                filled = system.fill(topic, self._past(), plan.seconds)
                figures[f"enqueue_{count}"] = filled.per_second
                if count == MANY:
                    figures[f"deliver_{count}"] = self._deliver(topic, filled.rows).per_second
            figures["log_through"] = self._through(f"{self._topic(1)}@log-0").per_second
            figures["replay_scattered"] = self._replay_scattered()
            return figures
        finally:
            system.stop()

    def _queue(self) -> Figures:
        """A topic as it is without subscriptions; with what a message costs."""
        system, plan, figures = self._system, self._plan, Figures()
        topic, sent = "", 0

        def fill() -> Measured:
            nonlocal topic, sent
            topic = system.new_topic()
            filled = system.fill(topic, self._past(), plan.seconds)
            sent = filled.rows
            return filled

        cases: dict[str, Callable[[], Measured]] = {
            "queue_enqueue": fill,
            "queue_deliver": lambda: system.drain(topic, sent, plan.seconds),
            "queue_through": lambda: self._through(system.new_topic()),
        }
        self._plan = replace(plan, rows=min(plan.rows, WARM_ROWS))
        for run in cases.values():
            run()
        self._plan = plan
        for case, run in cases.items():
            measured, self.costs[case] = with_cost(system, run)
            figures[case] = measured.per_second
        return figures

    def _topic(self, count: int) -> str:
        """A topic for subscriptions alone, with so many."""
        topic = self._system.new_topic(unnamed=False)
        for number in range(count):
            self._system.client.create_subscription(topic, f"log-{number}", order="arrival")
        return topic

    def _past(self) -> Load:
        return past_load(self._plan.rows, self._system.clock.now_ms(), self._seed)

    def _deliver(self, topic: str, rows: int) -> Measured:
        """All subscriptions at once, each by a consumer on a thread of its own."""
        watch = Stopwatch(self._plan.seconds)

        def drain(number: int) -> int:
            served = f"{topic}@log-{number}"
            return self._system.drain(served, rows, self._plan.seconds).rows

        with ThreadPoolExecutor(MANY) as threads:
            return Measured(sum(threads.map(drain, range(MANY))), watch.seconds())

    def _through(self, served: str) -> Measured:
        """Sent and acked at once: what was acked, to the end of whichever is last."""
        system, plan = self._system, self._plan
        rows = plan.rows
        sent: list[int] = []
        watch = Stopwatch(plan.seconds)

        def send() -> None:
            # Half of the time: what was sent by then is acked in the rest.
            topic = served.partition("@")[0]
            sent.append(system.fill(topic, self._past(), plan.seconds / 2).rows)

        thread = threading.Thread(target=send)
        thread.start()
        acked, took = 0, 0.0
        with system.client.consume_batches(
            served, batch_rows=BATCH_ROWS, prefetch=PREFETCH_ROWS, idle_ms=IDLE_MS
        ) as consumed:
            for batch in consumed:
                acked += len(batch)
                is_last = acked >= (sent[0] if sent else rows) or watch.is_over()
                batch.ack(wait=is_last)
                took = watch.seconds()
                if is_last:
                    break
        thread.join()
        return Measured(acked, took)

    def _replay_scattered(self) -> float:
        """What was done comes back, in order of due times that say nothing of when it came in."""
        system, plan = self._system, self._plan
        topic = system.new_topic(unnamed=False, retention_ms=KEPT_MS)
        system.client.create_subscription(topic, "again")
        filled = system.fill(topic, self._past(), plan.seconds)
        served = f"{topic}@again"
        done = system.drain(served, filled.rows, plan.seconds).rows
        watch = Stopwatch(plan.seconds)
        replayed = system.client.seek(topic, "again", to="beginning").replayed
        if replayed < done:
            raise AssertionError(f"dejaq: {replayed} of {done} messages came back")
        return system.drain(served, replayed, plan.seconds).rows / watch.seconds()

    # --- a new subscription ---------------------------------------------------------------------

    def _start(self) -> Figures:
        """A subscription that begins with all that is scheduled, and one that is a log."""
        system, plan = self._system, self._plan
        topic = system.new_topic()
        rows = plan.rows if plan.quick else min(START_ROWS_MAX, plan.messages)
        random, from_ms = np.random.default_rng(self._seed), system.clock.now_ms() + DAY_MS

        def scheduled(_first: int, count: int) -> Int64s:
            return random.integers(from_ms, from_ms + DAY_MS, count)

        send_many(system, topic, rows, scheduled)
        seconds = BESIDE_QUICK_SECONDS if plan.quick else BESIDE_START_SECONDS
        with beside(system, plan, self._seed, seconds) as other:
            before = self._anonymous()
            began_ms = system.clock.now_ms()
            with ThreadPoolExecutor(1) as threads:
                watch = Stopwatch(LONG_SECONDS)
                usable = threads.submit(self._first_of, topic, watch)
                system.client.create_subscription(topic, "due", start="live")
                whole = watch.seconds()
                figures = {"start_usable": usable.result(), "start_whole": whole}
            late_ms = other.lateness_ms(began_ms, system.clock.now_ms())
        figures["start_held"] = percentile(late_ms, 100)
        between = self._anonymous()
        system.client.create_subscription(topic, "log", order="arrival", start="live")
        drained = drain_large(system, f"{topic}@log", rows)
        after = self._anonymous()
        return figures | {
            "memory_due": (between - before) / rows,
            "memory_log": (after - between) / drained,
        }

    def _first_of(self, topic: str, watch: Stopwatch) -> float:
        """Seconds until a consumer of the new subscription has what was sent after it was asked
        for."""
        client = self._system.client
        while "due" not in client.subscriptions(topic):
            time.sleep(LOOK_SECONDS)
        client.send(topic, b"first")
        while not watch.is_over():
            try:
                with client.consume(
                    topic, subscription="due", max_messages=1, idle_ms=SILENCE_MS
                ) as messages:
                    for message in messages:
                        took = watch.seconds()
                        message.ack()
                        return took
            except TopicUnknown:
                time.sleep(LOOK_SECONDS)
        raise AssertionError("dejaq: a new subscription got nothing")

    def _anonymous(self) -> int:
        return memory_bytes(self._system.pid())["anonymous"]


# --- replay -------------------------------------------------------------------------------------


def replays(plan: Plan, report: Callable[[str], None]) -> list[Figures]:
    """Figures of each round: retained messages again, by due time, from one topic that has many.

    They came in in the order of their due times, give or take a minute.
    """
    system = DejaqSystem()
    rows = plan.rows if plan.quick else min(REPLAY_ROWS_MAX, plan.messages)
    system.start(plan.folder)
    try:
        topic = system.new_topic(unnamed=False, retention_ms=KEPT_MS)
        first_ms, random = system.clock.now_ms() - DAY_MS, np.random.default_rng(1)

        def ascending(first: int, count: int) -> Int64s:
            steady: Int64s = first_ms + np.arange(first, first + count) * (DAY_MS // 2) // rows
            return steady + random.integers(0, NEAR_MS, count)

        watch = Stopwatch(LONG_SECONDS)
        send_many(system, topic, rows, ascending)
        report(f"replay: {rows:,} messages are stored, {rows / watch.seconds():,.0f} a second")
        system.client.create_subscription(topic, "again")
        return [_replay(system, plan, topic, rows, seed) for seed in range(1, plan.rounds + 1)]
    finally:
        system.stop()


def _replay(system: DejaqSystem, plan: Plan, topic: str, rows: int, seed: int) -> Figures:
    """Once, from the call of `seek` to the last ack; a consumer waits when it is called."""
    seconds = BESIDE_QUICK_SECONDS if plan.quick else BESIDE_REPLAY_SECONDS
    with beside(system, plan, seed, seconds) as other, ThreadPoolExecutor(1) as threads:
        began_ms, watch = system.clock.now_ms(), Stopwatch(LONG_SECONDS)
        drained = threads.submit(drain_large, system, f"{topic}@again", rows)
        replayed = system.client.seek(topic, "again", to="beginning").replayed
        sought = watch.seconds()
        acked = drained.result()
        took = watch.seconds()
        late_ms = other.lateness_ms(began_ms, system.clock.now_ms())
    if acked != rows or replayed != rows:
        raise AssertionError(f"dejaq: {replayed} of {rows} came back, and {acked} were acked")
    return {
        "replay": rows / took,
        "replay_seek": sought,
        "replay_beside_p99": percentile(late_ms, 99),
    }


# --- what both need -----------------------------------------------------------------------------


def send_many(
    system: DejaqSystem, topic: str, rows: int, dues_of: Callable[[int, int], Int64s]
) -> None:
    """Send so many, by pieces that have the same payloads.

    Args:
        dues_of: due times of a piece, by its first row and how many it has.
    """
    block = np.random.default_rng(0).bytes(min(rows, PIECE_ROWS) * PAYLOAD_BYTES)
    for first in range(0, rows, PIECE_ROWS):
        count = min(PIECE_ROWS, rows - first)
        load = Load(block[: count * PAYLOAD_BYTES], dues_of(first, count))
        sent = system.fill(topic, load, LONG_SECONDS).rows
        if sent != count:
            raise AssertionError(f"dejaq: {sent} of {count} were sent")


def drain_large(system: DejaqSystem, served: str, rows: int) -> int:
    """Consume and ack so many in large batches; how many there were."""
    acked = 0
    with system.client.consume_batches(
        served, batch_rows=LARGE_BATCH_ROWS, prefetch=LARGE_PREFETCH_ROWS, idle_ms=SILENCE_MS
    ) as consumed:
        for batch in consumed:
            acked += len(batch)
            batch.ack(wait=acked >= rows)
            if acked >= rows:
                break
    return acked


@dataclass(frozen=True, slots=True)
class Beside:
    """Another topic's consumer, in a program of its own.

    Attributes:
        path: where it writes how late each message came.
    """

    receiver: subprocess.Popen[str]
    path: Path

    def lateness_ms(self, from_ms: int, to_ms: int) -> npt.NDArray[np.float64]:
        """How late the messages of that time were; of none, how late any was. Waits for all."""
        if self.receiver.wait(LONG_SECONDS) != 0:
            raise AssertionError("the other topic's consumer failed")
        dues_ms, late_us = np.load(self.path)
        is_then = (dues_ms >= from_ms) & (dues_ms <= to_ms)
        found: npt.NDArray[np.float64] = late_us[is_then if is_then.any() else slice(None)] / 1_000
        return found


@contextmanager
def beside(system: DejaqSystem, plan: Plan, seed: int, seconds: float) -> Iterator[Beside]:
    """Another topic has a message each millisecond, for so long from now on."""
    topic, rows = system.new_topic(), int(BESIDE_PER_SECOND * seconds)
    path = plan.folder / f"beside-{seed}.npy"
    receiver = start_helper("bench.receiver", system.url, topic, rows, path)
    try:
        first_ms = system.clock.now_ms() + BESIDE_AHEAD_MS
        load = even_load(rows, first_ms, BESIDE_PER_SECOND, seed)
        system.fill(topic, load, LONG_SECONDS)
        time.sleep(max(0, first_ms - system.clock.now_ms()) / 1_000)
        yield Beside(receiver, path)
    finally:
        receiver.kill()  # it has ended, unless something failed
        end_program(receiver)
        path.unlink(missing_ok=True)
