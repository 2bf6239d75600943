"""What do many consumers, many partitions and many topics cost, beside one of each?

- `consumers_1`, `consumers_64`: what is due in one topic is leased and acked, 1,000 at a time, by
  one consumer and by 64 that share a client, each on a thread of its own. `share_least` is what the
  one that got least of it has of an even share.
- `in_1`, `in_64`, `out_1`, `out_64`: batches of 1,000 without keys into a topic of one and of 64
  partitions, and out again by one consumer.
- `singles_1`, `singles_10000`: threads that share a client send one message a call, all to one
  topic, and each to a random one of 10,000, or of as many as are made in MAKE_SECONDS.
- `first_10000`: before that, the first message of each of them, for which its journal is made.
- `few_in_1`, `few_in_5000`, `few_out_1`, `few_out_5000`: 20,000 messages through a topic of one and
  of 5,000 partitions; `few_first_1`, `few_first_5000`: before that, the first 20,000 into it, for
  which its partitions are made.

Beside the rate the processor time of a message, of broker and client together, is measured: its
rows end in `_us`. A ratio is the median of the rounds' ratios to the case that ends in `_1`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from bench.load import BATCH_ROWS, far_load, past_load
from bench.percentiles import spread
from bench.registry import available
from bench.results import Outcome, Row
from bench.systems.dejaq import PREFETCH_ROWS, SILENCE_MS
from bench.systems.system import Measured, Plan, Stopwatch, with_cost

QUESTION = "many"
RATE, COST, SHARE = "messages/s", "µs a message", "of 1"
CONSUMERS = 64
PARTITIONS, PARTITIONS_MANY = 64, 5_000
FEW_ROWS = 20_000
TOPICS, QUICK_TOPICS = 10_000, 50
MAKE_SECONDS = 10.0
"""A broker whose topics take longer than that to be made has fewer of them."""
FIRST_SECONDS_MAX = 60.0
ROUNDS_MAX = 3
SECONDS_MAX = 5.0

Report = Callable[[str], None]
Found = dict[str, list[tuple[float, float]]]
"""By case: rate and processor time of each round."""


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    systems, left_out = available(("dejaq",))
    found: Found = {}
    shares: list[float] = []
    for number in range(1, min(plan.rounds, ROUNDS_MAX) + 1):
        system: Any = systems[0]()
        system.start(plan.folder)
        try:
            system.warm(plan)
            _Turn(system, plan, number, found, shares, report).run()
        finally:
            system.stop()
    outcome = Outcome(rows=rows_of(found), left_out=left_out)
    outcome.rows.append(Row(QUESTION, "dejaq", "share_least", round(median(shares), 3), SHARE))
    outcome.spreads = {
        f"dejaq/{case}": spread([rate for rate, _ in pairs])
        | {"processor_us": [cost for _, cost in pairs]}
        for case, pairs in found.items()
    }
    return outcome


def rows_of(found: Found, question: str = QUESTION) -> list[Row]:
    """A row for each case's rate, and one for its processor time.

    >>> [(row.case, row.ratio) for row in rows_of({"in_1": [(8.0, 1.0)], "in_64": [(4.0, 3.0)]})]
    [('in_1', None), ('in_1_us', None), ('in_64', 0.5), ('in_64_us', 3.0)]
    >>> [(row.case, row.ratio) for row in rows_of({"first_9": [(8.0, 1.0)]})]
    [('first_9', None), ('first_9_us', None)]
    """
    rows = []
    for case, pairs in found.items():
        base = case.rpartition("_")[0] + "_1"
        base = base if base in found else case
        for at, suffix, unit in ((0, "", RATE), (1, "_us", COST)):
            rounds = zip(pairs, found[base], strict=True)
            # Processor time is counted in steps of 10 ms: of a short case there may be none.
            ratios = [many[at] / one[at] for many, one in rounds if one[at]]
            ratio = round(median(ratios), 3) if ratios and case != base else None
            value = round(median(pair[at] for pair in pairs), 3)
            compared = None if ratio is None else base + suffix
            rows.append(Row(question, "dejaq", case + suffix, value, unit, ratio, compared))
    return rows


class _Turn:
    """All cases once, on one broker; one and many of a kind follow each other, in turns."""

    def __init__(
        self,
        system: Any,
        plan: Plan,
        seed: int,
        found: Found,
        shares: list[float],
        report: Report,
    ) -> None:
        self._system, self._plan, self._seed = system, plan, seed
        self._seconds = min(plan.seconds, SECONDS_MAX)
        self._found, self._shares, self._report = found, shares, report

    def run(self) -> None:
        """Measure."""
        for count in self._in_turn(1, CONSUMERS):
            self._consumers(count)
        for count in self._in_turn(1, PARTITIONS):
            topic = self._system.new_topic(partitions=count)
            self._through(topic, count, self._plan.rows, ("in", "out"))
        for count in self._in_turn(1, TOPICS):
            self._singles(count)
        # Last, the many after the one: an older broker may have no memory left for so many.
        for count in (1, PARTITIONS_MANY):
            topic, rows = self._system.new_topic(partitions=count), min(self._plan.rows, FEW_ROWS)
            first = self._note(f"few_first_{count}", partial(self._fill, topic, rows))
            self._system.drain(topic, first.rows, self._seconds)
            self._through(topic, count, rows, ("few_in", "few_out"))

    def _in_turn(self, one: int, many: int) -> tuple[int, int]:
        """So that neither always has the warmer machine."""
        return (one, many) if self._seed % 2 else (many, one)

    def _note(self, case: str, run: Callable[[], Measured]) -> Measured:
        measured, processor_us = with_cost(self._system, run)
        self._found.setdefault(case, []).append((measured.per_second, processor_us))
        self._report(
            f"round {self._seed}: {case}: {measured.per_second:,.0f} {RATE}, "
            f"{processor_us:.2f} {COST}"
        )
        return measured

    # --- consumers ----------------------------------------------------------------------------

    def _consumers(self, count: int) -> None:
        topic = self._system.new_topic()
        load = past_load(self._plan.rows, self._system.clock.now_ms(), self._seed)
        filled = self._system.fill(topic, load, self._seconds)
        # Paused until all of them are there, so that their coming is not measured.
        self._system.client.pause_topic(topic)
        consumers = [
            self._system.client.consume_batches(
                topic, batch_rows=BATCH_ROWS, prefetch=PREFETCH_ROWS, idle_ms=SILENCE_MS
            )
            for _ in range(count)
        ]
        for consumer in consumers:
            consumer.open()
        taken = [0] * count
        drain = partial(self._drain, topic, filled.rows, consumers, taken)
        self._note(f"consumers_{count}", drain)
        if count > 1:
            self._shares.append(min(taken) * count / max(1, sum(taken)))

    def _drain(self, topic: str, rows: int, consumers: list[Any], taken: list[int]) -> Measured:
        """Each consumer on a thread of its own; `taken` says what each of them has acked."""
        watch = Stopwatch(self._seconds)
        self._system.client.resume_topic(topic)
        done = threading.Event()
        mutex = threading.Lock()
        acked = 0

        def consume(index: int) -> None:
            nonlocal acked
            for batch in consumers[index]:
                taken[index] += len(batch)
                batch.ack(wait=False)
                with mutex:
                    acked += len(batch)
                    is_last = acked >= rows or watch.is_over()
                if is_last and not done.is_set():
                    done.set()
                if done.is_set():
                    break

        threads = [threading.Thread(target=consume, args=(at,)) for at in range(len(taken))]
        for thread in threads:
            thread.start()
        done.wait(self._seconds + SILENCE_MS / 1_000)
        closers = [threading.Thread(target=one.close) for one in consumers]
        for closer in closers:
            closer.start()  # acks that are on their way are waited for
        for thread in [*closers, *threads]:
            thread.join()
        seconds = watch.seconds()
        if acked >= rows:
            self._system.check_left(topic)
        return Measured(acked, seconds)

    # --- partitions ---------------------------------------------------------------------------

    def _fill(self, topic: str, rows: int) -> Measured:
        load = past_load(rows, self._system.clock.now_ms(), self._seed)
        filled: Measured = self._system.fill(topic, load, self._seconds)
        return filled

    def _through(self, topic: str, partitions: int, rows: int, cases: tuple[str, str]) -> None:
        filled = self._note(f"{cases[0]}_{partitions}", partial(self._fill, topic, rows))
        drain = partial(self._system.drain, topic, filled.rows, self._seconds)
        self._note(f"{cases[1]}_{partitions}", drain)

    # --- topics -------------------------------------------------------------------------------

    def _singles(self, count: int) -> None:
        wanted = min(count, QUICK_TOPICS) if self._plan.quick else count
        watch = Stopwatch(MAKE_SECONDS)
        topics = [self._system.new_topic()]
        while len(topics) < wanted and not watch.is_over():
            topics.append(self._system.new_topic())
        if count > 1:
            self._report(f"round {self._seed}: {len(topics)} topics in {watch.seconds():.1f} s")
            in_order = list(range(len(topics)))
            first = partial(self._send_singles, topics, in_order, FIRST_SECONDS_MAX)
            self._note(f"first_{count}", first)
        random = np.random.default_rng(self._seed)
        places = random.integers(0, len(topics), self._plan.rows).tolist()
        self._note(f"singles_{count}", partial(self._send_singles, topics, places, self._seconds))

    def _send_singles(self, topics: list[str], places: list[int], seconds: float) -> Measured:
        """Threads that share a client, each message to the topic at its place of `places`."""
        client, threads = self._system.client, self._plan.senders
        load = far_load(self._plan.rows, self._system.clock.now_ms(), self._seed)
        payload, dues_ms = load.payloads()[0], load.dues_ms.tolist()
        sent = [0] * threads
        watch = Stopwatch(seconds)

        def send(index: int) -> None:
            for row in range(index, len(places), threads):
                client.send(topics[places[row]], payload, due=dues_ms[row])
                sent[index] += 1
                if watch.is_over():
                    return

        running = [threading.Thread(target=send, args=(index,)) for index in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return Measured(sum(sent), watch.seconds())
