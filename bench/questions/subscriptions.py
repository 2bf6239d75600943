"""What do ten groups over one stored copy cost, and a log, and going back?

A topic without the unnamed subscription has one in order of arrival (`enqueue_1`), and ten
(`enqueue_10`, whose ratio is to the former): the rate of one producer. `deliver_10` is what ten
consumers, one for each, lease and ack together, as batches of 1,000. `log_through` sends and
consumes at once with one log. `queue_through`, which it is compared with, does so with the unnamed
subscription; so do `queue_enqueue` and `queue_deliver`, one after the other.

`start_…` is a subscription that begins with ten million messages that are scheduled (`--messages`,
if fewer): `usable` is the time from the call that makes it until a consumer of it has a message
that was sent after that, `whole` until the call is answered, as it has all of them then. `held` is
the most by which a message of another topic was late meanwhile. `memory_due` and `memory_log` are
bytes of the broker's resident memory for each of these messages and that subscription, and one in
order of arrival that is done with them.

`replay` has 50 million messages that are retained (`--messages`, if fewer) delivered again by due
time, for one consumer of batches of 8,000: from the call of `seek`, which takes `replay_seek`, to
the last ack. They came in in the order of their due times, give or take a minute.
`replay_beside_p99` is how late messages of another topic are in its first half a minute.
`replay_scattered` is a replay of fewer, of which nothing is known when they came in.

Kafka, Redis streams with groups and NATS JetStream with durable consumers do what they can: enqueue
for one and for ten, deliver, and both at once. All have their turns in one run.

`--against COMMIT` measures what a turn of seconds can tell, without peers; of a commit that was
before subscriptions, the topics without any.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

from bench import subscription_turn
from bench.load import past_load
from bench.percentiles import spread
from bench.registry import available
from bench.results import Outcome, Row
from bench.subscription_turn import MANY, SECONDS_MIN, Figures, Turn
from bench.systems.servers import SOURCE
from bench.systems.system import Plan
from dejaqueue.clock import SystemClock

QUESTION = "subscriptions"
UNIT = "messages/s"
UNITS = {
    "start_usable": "s",
    "start_whole": "s",
    "start_held": "ms",
    "memory_due": "bytes",
    "memory_log": "bytes",
    "replay_seek": "s",
    "replay_beside_p99": "ms",
}
COMPARED = {"enqueue_10": "enqueue_1", "log_through": "queue_through"}
"""What a case of DejaQ is compared with; the others with the peer's of the same name."""
PEER, LOG_PEER = "redis", "kafka"
BY_LOG_PEER = ("log_through", "enqueue_1", "deliver_10")
"""Cases that have a row of their own beside LOG_PEER."""

Report = Callable[[str], None]
ByCase = dict[tuple[str, str], list[float]]
PeerTurn = Callable[[Plan, int], Figures]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    plan = replace(plan, seconds=max(SECONDS_MIN, plan.seconds))
    found, left_out = available(tuple(name for name in plan.systems if name in ("dejaq", PEER)))
    outcome = Outcome(left_out=left_out)
    peers: dict[str, PeerTurn] = {}
    if PEER in plan.systems:  # else no peer is wanted
        peers = _peers(found, outcome)
    figures: ByCase = {}
    costs: dict[str, list[float]] = {}

    def note(name: str, said: str, by_case: Figures) -> None:
        for case, value in by_case.items():
            figures.setdefault((name, case), []).append(value)
            report(f"{said}: {name} {case}: {value:,.4g} {UNITS.get(case, UNIT)}")

    is_against = SOURCE in os.environ
    has_dejaq = "dejaq" in plan.systems
    for number in range(1, plan.rounds + 1):
        if has_dejaq:
            queue_only = not subscription_turn.has_subscriptions()
            turn = Turn(plan, number, queue_only=queue_only, short=is_against)
            note("dejaq", f"round {number}", turn.run())
            for case, cost in turn.costs.items():
                costs.setdefault(case, []).append(cost)
        for name, run in peers.items():
            note(name, f"round {number}", run(plan, number))
    if has_dejaq and not is_against:
        for number, by_case in enumerate(subscription_turn.replays(plan, report), 1):
            note("dejaq", f"round {number}", by_case)
    outcome.spreads = {f"{name}/{case}": spread(ones) for (name, case), ones in figures.items()}
    for case, ones in costs.items():
        outcome.spreads[f"dejaq/{case}"]["processor_us"] = ones
    outcome.rows = rows_of({key: spread(ones)["median"] for key, ones in figures.items()})
    return outcome


def rows_of(medians: dict[tuple[str, str], float]) -> list[Row]:
    """Rows of medians by system and case."""
    rows = []
    for (name, case), value in medians.items():
        other = ratio = None
        unit = UNITS.get(case, UNIT)
        if name == "dejaq":
            compared = ("dejaq", COMPARED[case]) if case in COMPARED else (PEER, case)
            if medians.get(compared):
                ratio = round(value / medians[compared], 3)
                other = f"dejaq's {compared[1]}" if case in COMPARED else PEER
        rows.append(Row(QUESTION, name, case, round(value, 3), unit, ratio, other))
        log_peer = medians.get((LOG_PEER, case))
        if name == "dejaq" and case in BY_LOG_PEER and log_peer:
            ratio = round(value / log_peer, 3)
            beside = f"{case}_by_{LOG_PEER}"
            rows.append(Row(QUESTION, name, beside, round(value, 3), unit, ratio, LOG_PEER))
    return rows


# --- the peers ----------------------------------------------------------------------------------


def _peers(found: list[type], outcome: Outcome) -> dict[str, PeerTurn]:
    """The turn of each that is installed; what is not is named in the outcome."""
    # Here, as this question is also asked with the packages of commits that lack what peers need.
    from bench.systems.kafka import KafkaGroups

    peers: dict[str, PeerTurn] = {}
    reasons = {LOG_PEER: KafkaGroups.left_out(), "jetstream": _why_no_jetstream()}
    if not reasons[LOG_PEER]:
        peers[LOG_PEER] = _kafka_turn
        outcome.versions[LOG_PEER] = KafkaGroups.version()
    if any(kind.__name__ == "RedisSystem" for kind in found):
        peers[PEER] = _redis_turn
    if not reasons["jetstream"]:
        peers["jetstream"] = _jetstream_turn
    outcome.left_out += [reason for reason in reasons.values() if reason]
    return peers


def _kafka_turn(plan: Plan, seed: int) -> Figures:
    from bench.systems.kafka import KafkaGroups

    system = KafkaGroups()
    try:
        system.start(plan.folder, past_load(plan.rows, SystemClock().now_ms(), seed))
        topic, filled = system.fill(plan.rows, plan.seconds)
        figures = {"enqueue_1": filled.per_second}
        # Groups are nothing to a producer here: it is the same once more.
        topic, filled = system.fill(plan.rows, plan.seconds)
        figures[f"enqueue_{MANY}"] = filled.per_second
        delivered = system.drain(topic, MANY, filled.rows, plan.seconds)
        figures[f"deliver_{MANY}"] = delivered.per_second
        figures["log_through"] = system.through(plan.rows, plan.seconds).per_second
        return figures
    finally:
        system.stop()


def _redis_turn(plan: Plan, seed: int) -> Figures:
    # Here, so that a machine without redis-py measures the rest.
    from bench.systems.redis_streams import RedisStreams

    system = RedisStreams()
    system.start(plan.folder)
    try:
        figures: Figures = {}
        load = past_load(plan.rows, SystemClock().now_ms(), seed)
        for count in (1, MANY):
            system.make(count)
            filled = system.fill(load, plan.seconds)
            figures[f"enqueue_{count}"] = filled.per_second
            if count == MANY:
                delivered = system.drain(filled.rows, plan.seconds)
                figures[f"deliver_{count}"] = delivered.per_second
        figures["log_through"] = system.through(load, plan.seconds).per_second
        return figures
    finally:
        system.stop()


def _why_no_jetstream() -> str:
    """Why it is left out; "" = it is not."""
    if find_spec("nats") is None:
        return "jetstream: the Python package nats is not installed"
    from bench.systems.jetstream import JetStreamGroups

    return JetStreamGroups.left_out()


def _jetstream_turn(plan: Plan, seed: int) -> Figures:
    from bench.systems.jetstream import JetStreamGroups

    system = JetStreamGroups()
    system.start(plan.folder)
    try:
        figures: Figures = {}
        load = past_load(plan.rows, SystemClock().now_ms(), seed)
        for count in (1, MANY):
            sent, delivered = system.run(count, load, plan.seconds)
            figures[f"enqueue_{count}"] = sent.per_second
            if count == MANY:
                figures[f"deliver_{count}"] = delivered.per_second
        figures["log_through"] = system.through(load, plan.seconds).per_second
        return figures
    finally:
        system.stop()
