"""How late is a million messages at nine o'clock, by what their consumers are scaled by?

A simulation: time is a number, so it says the same on every machine. The broker is DejaQ's own, on
a virtual clock, and is asked as a scaler asks it (`GET /v1/topics/TOPIC/due?within=…`); the
autoscaler and the pods are a model (bench/autoscaler.py). A consumer does 100 messages a second,
and takes 30 s from the decision to start it until it works; there are up to 200. The target is
6,000 messages for each: what it does in a minute. All is exact to a second.

`at_once`: all are due at nine o'clock sharp; `spread`: evenly in the ten minutes after it. Scaled
by `backlog`: what is ready; `due_60s`, `due_5m`: what is ready or falls due within that time;
`due_60s_unbounded`: likewise, where a look may ask for any number of consumers at once;
`all_there`: 200 from the beginning, the least that is possible. Lateness is from due until a
consumer is done; `…_consumers` is what they cost, in minutes of one consumer, from 15 minutes
before nine until all is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.autoscaler import LOOK_SECONDS, Autoscaler, Pods
from bench.percentiles import percentile, spread
from bench.results import Outcome, Row
from bench.systems.system import Plan
from dejaqueue import Client
from dejaqueue.broker.broker import Broker
from dejaqueue.local import LocalTransport
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock

QUESTION = "scaling"
NINE_MS = 2_000_000_000_000
AHEAD_SECONDS = 900
START_SECONDS = 30
CONSUMERS_MAX = 200
TARGET_SECONDS = 60
DRAIN_SECONDS_MAX = 3_600
TOPIC = "mail"
BATCH_ROWS = 50_000
SPREADS = {"at_once": 0, "spread": 600}
"""Over how many seconds messages are due."""

Report = Callable[[str], None]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scaler:
    """What is asked of the broker, and what follows from it.

    Attributes:
        within_ms: 0 = what is ready; None = nothing is asked, and all consumers are there.
        is_bounded: the autoscaler's own bounds of one look hold.
    """

    within_ms: int | None
    is_bounded: bool = True


SCALERS = {
    "backlog": Scaler(0),
    "due_60s": Scaler(60_000),
    "due_5m": Scaler(300_000),
    "due_60s_unbounded": Scaler(60_000, is_bounded=False),
    "all_there": Scaler(None),
}


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of it.

    Attributes:
        late_seconds: of each message, in the order of their due times.
        consumer_minutes: what the consumers cost.
    """

    late_seconds: Floats
    consumer_minutes: float


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question. One round: the next one would say the same."""
    messages = 20_000 if plan.quick else plan.rows
    outcome = Outcome()
    for when, seconds in SPREADS.items():
        for name, scaler in SCALERS.items():
            figures = simulate(scaler, messages, seconds)
            values = {
                "p50": (percentile(figures.late_seconds, 50), "s"),
                "p99": (percentile(figures.late_seconds, 99), "s"),
                "consumers": (figures.consumer_minutes, "minutes"),
            }
            for part, (value, unit) in values.items():
                case = f"{when}_{name}_{part}"
                outcome.rows.append(Row(QUESTION, "dejaq", case, round(value, 2), unit))
                outcome.spreads[f"dejaq/{case}"] = spread([round(value, 2)])
            report(
                f"{when} {name}: " + ", ".join(f"{n} {v:.4g} {u}" for n, (v, u) in values.items())
            )
    return outcome


def simulate(scaler: Scaler, messages: int, seconds: int) -> Figures:
    """A broker with that many messages, due evenly from nine o'clock on, and its consumers.

    Consumers are as fast as 200 of them need to be for a million messages in fifty seconds: with
    fewer messages each does less, and all else is the same.
    """
    clock = VirtualClock(start_ms=NINE_MS - AHEAD_SECONDS * 1_000)
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), clock)
    broker.start()
    with Client(transport=LocalTransport(broker, owns_broker=True), clock=clock) as client:
        client.create_topic(TOPIC, partitions=1)
        dues_ms = NINE_MS + np.arange(messages, dtype=np.int64) * (seconds * 1_000) // messages
        for first in range(0, messages, BATCH_ROWS):
            part = dues_ms[first : first + BATCH_ROWS]
            table = pa.table({"payload": pa.repeat(pa.scalar(b"x"), len(part)), "due": part})
            client.send_batch(TOPIC, table).raise_for_status()
        return _Morning(broker, clock, scaler, dues_ms).run()


class _Morning:
    """From before nine o'clock until every message is done, second by second."""

    def __init__(
        self, broker: Broker, clock: VirtualClock, scaler: Scaler, dues_ms: npt.NDArray[np.int64]
    ) -> None:
        self._broker, self._clock, self._scaler = broker, clock, scaler
        self._dues_ms = dues_ms
        self._per_second = len(dues_ms) / 50 / CONSUMERS_MAX
        target = self._per_second * TARGET_SECONDS
        self._autoscaler = Autoscaler(target, CONSUMERS_MAX, is_bounded=scaler.is_bounded)
        self._pods = Pods(START_SECONDS)
        self._late_seconds = np.zeros(len(dues_ms))
        self._done = 0
        self._share = 0.0

    def run(self) -> Figures:
        """Let it pass."""
        if self._scaler.within_ms is None:
            self._pods.scale(-AHEAD_SECONDS - START_SECONDS, CONSUMERS_MAX)
        second = -AHEAD_SECONDS
        while self._done < len(self._dues_ms):
            if second > DRAIN_SECONDS_MAX:
                raise AssertionError(f"{self._done} of {len(self._dues_ms)} are done")
            if second % LOOK_SECONDS == 0 and self._scaler.within_ms is not None:
                self._pods.scale(second, self._autoscaler.look(second, self._asked()))
            if second >= 0:
                self._work(second)
            self._pods.pass_second()
            self._clock.advance(ms=1_000)
            second += 1
        return Figures(self._late_seconds, self._pods.pod_seconds / 60)

    def _asked(self) -> int:
        """What the scaler sees."""
        body = {"topic": TOPIC, "within_ms": self._scaler.within_ms}
        return int(self._broker.call("due", body)["due"])

    def _work(self, second: int) -> None:
        """What the consumers do in this second: they take what is due at its beginning."""
        capacity = self._pods.working(second) * self._per_second
        # What a second has no whole message for is done in the next one.
        self._share = min(self._share, 1.0) + capacity
        rows = int(self._share)
        if rows == 0:
            return
        body = {"topic": TOPIC, "partition": 0, "rows": rows, "lease_ms": 60_000}
        claim = self._broker.call("claim", body)
        self._share -= rows
        count = claim["rows"]
        if not count:
            return
        self._broker.call("ack_claims", {"topic": TOPIC, "claims": {"0": [claim["claim"]]}})
        part = slice(self._done, self._done + count)
        done_at = second + (1 + np.arange(count)) / capacity
        self._late_seconds[part] = done_at - (self._dues_ms[part] - NINE_MS) / 1_000
        self._done += count
