"""How many messages a second do DOQ's gRPC streams carry, one message a turn?

10 enqueue streams and 10 dequeue streams of one fair queue, with 100 groups and ten priorities in
each, from a program of its own (bench/doq_load.py). Each stream sends its next request when it has
the answer to the last one. The journal is on disk: a message is durable before it is answered.

- `streams_enqueue`: the 10 that send, alone.
- `streams_dequeue`: the 10 that take, with `ack`, what was sent before.
- `streams_both`: all 20 at once; messages sent and taken.

A DOQ whose gRPC address is in the environment as DOQ_ADDRESS is measured in turn, and is what
ratios are of; Go's module proxy does not give DOQ itself.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable

import grpc

from bench.percentiles import spread
from bench.results import Outcome, Row
from bench.systems.servers import Server, new_folder, start_helper
from bench.systems.system import Plan
from dejaqueue.http.doq.door.protocol import SERVICE, load_calls

QUESTION = "doq"
STREAMS = 10
CASES = ("enqueue", "dequeue", "both")
UNIT = "messages/s"
PEER = "doq"
LISTENING = re.compile(r"DOQ's gRPC at ([\w.]+:\d+)")
LEFT_OUT = "doq: no address of one in DOQ_ADDRESS, and Go's module proxy does not give it"

Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    place = new_folder(plan.folder, "dejaq")
    log = place / "server.log"
    command = [sys.executable, "-m", "dejaqueue", "serve", "--data", "queue", "--port", "0"]
    command += ["--set", "doq.enabled=true"]
    server = Server(
        place, command, lambda: LISTENING.search(log.read_text(errors="replace")) is not None
    )
    loader = start_helper("bench.doq_load", STREAMS)
    rates: dict[str, dict[str, list[float]]] = {}
    try:
        found = LISTENING.search(server.log_text())
        assert found is not None
        addresses = {"dejaq": found[1]}
        if peer := os.environ.get("DOQ_ADDRESS"):
            addresses[PEER] = peer
        for number in range(plan.rounds + 1):  # the first one warms up
            for system, address in addresses.items():
                queue = f"bench-{number}"
                _make(address, queue)
                sent = 1 << 40
                for case in CASES:
                    values = {"address": address, "case": case, "queue": queue}
                    values |= {"seconds": plan.seconds, "rows": sent}
                    assert loader.stdin is not None
                    assert loader.stdout is not None
                    print(json.dumps(values), file=loader.stdin, flush=True)
                    answer = json.loads(loader.stdout.readline())
                    rate = answer["messages"] / answer["seconds"]
                    sent = int(answer["messages"]) if case == "enqueue" else 1 << 40
                    if number:
                        rates.setdefault(system, {}).setdefault(case, []).append(rate)
                        report(f"round {number}: {system} {case}: {rate:,.0f} {UNIT}")
    finally:
        assert loader.stdin is not None
        loader.stdin.close()
        loader.wait(30)
        server.stop()
    return outcome_of(rates)


def _make(address: str, queue: str) -> None:
    call = load_calls()["CreateQueue"]
    with grpc.insecure_channel(address) as channel:
        asked = call.request(name=queue, type="fair", settings={"strategy": "ROUND_ROBIN"})
        path = f"/{SERVICE}/CreateQueue"
        channel.unary_unary(path)(asked.SerializeToString(), timeout=30)


def outcome_of(rates: dict[str, dict[str, list[float]]]) -> Outcome:
    """Rows of what was measured: medians, and ratios to DOQ's where it was there."""
    outcome = Outcome()
    if PEER not in rates:
        outcome.left_out.append(LEFT_OUT)
    medians = {
        system: {case: spread(found)["median"] for case, found in cases.items()}
        for system, cases in rates.items()
    }
    for system, cases in medians.items():
        for case, value in cases.items():
            name = f"streams_{case}"
            outcome.spreads[f"{system}/{name}"] = spread(rates[system][case])
            row = Row(QUESTION, system, name, round(value, 1), UNIT)
            if system != PEER and PEER in medians:
                ratio = round(value / medians[PEER][case], 3)
                row = Row(QUESTION, system, name, round(value, 1), UNIT, ratio, PEER)
            outcome.rows.append(row)
    return outcome
