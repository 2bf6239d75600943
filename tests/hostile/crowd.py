"""One principal at its limits beside another: what the other one feels, against an idle broker.

    python -m tests.hostile.crowd --seconds 60

The crowd is a process of its own, with a key of its own: it opens and drops streams, sends large
batches without reading answers, stages transactions that it never decides, and holds connections
that say nothing. Idle and crowded stretches take turns: other load of the machine is in both.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

import dejaqueue
from dejaqueue import Client, limits
from dev.reaper import start_reaper
from tests.crash.broker_process import BrokerProcess

STREAMS = limits.FLIGHT_STREAMS_EXPECTED // 10
"""Opened at once, then dropped: what one key may have."""
CONNECTIONS = 500
STRETCH_SECONDS = 3.0
PAUSE_SECONDS = 0.01
"""Between two messages of the one who is watched."""
SCHEMA = pa.schema([pa.field("payload", pa.binary(), nullable=False)])


# --- the crowd, in its own process ----------------------------------------------------------------


class Crowd:
    """What one key does while it is told to."""

    def __init__(self, port: int, http_port: int, key: str) -> None:
        self._port, self._http_port, self._key = port, http_port, key
        headers = [(b"authorization", f"Bearer {key}".encode())]
        self._options = flight.FlightCallOptions(headers=headers)
        self.goes = threading.Event()
        self.done: dict[str, int] = {}

    def _count(self, name: str, count: int = 1) -> None:
        self.done[name] = self.done.get(name, 0) + count

    def _connect(self) -> flight.FlightClient:
        options = [("grpc.use_local_subchannel_pool", 1)]
        return flight.connect(f"grpc+tcp://127.0.0.1:{self._port}", generic_options=options)

    def _put(self, client: flight.FlightClient, **fields: object) -> tuple[object, object]:
        found: tuple[object, object] = client.do_put(_of(**fields), SCHEMA, self._options)
        return found

    def streams(self) -> None:
        """Open as many as there are, then drop all of them at once."""
        client = self._connect()
        opened = []
        for number in range(STREAMS):
            if not self.goes.is_set():
                break
            if number % 2:
                opened.append(self._put(client, topic="crowd", op="enqueue"))
            else:
                opened.append(client.do_exchange(_of(topic="crowd"), self._options))
        self._count("streams", len(opened))
        for one in opened:
            for end in one:
                if hasattr(end, "cancel"):
                    end.cancel()
        client.close()

    def batches(self) -> None:
        """Send a megabyte again and again, and read no answer."""
        client = self._connect()
        batch = pa.record_batch([pa.array([bytes(1_000)] * 1_000, pa.binary())], schema=SCHEMA)
        with contextlib.suppress(pa.ArrowException, OSError):
            writer, _ = self._put(client, topic="crowd", op="enqueue")
            for number in range(1, 200):
                if not self.goes.is_set():
                    break
                writer.write_with_metadata(batch, number.to_bytes(4, "little"))  # type: ignore[attr-defined]
                self._count("batches")
        client.close()

    def transactions(self) -> None:
        """Stage a message in one transaction after the other; decide none."""
        with contextlib.closing(Staging(self._http_port, self._key)) as staging:
            while self.goes.is_set():
                status, _ = staging.another("crowd")
                self._count("transactions" if status == 201 else f"transactions: {status}")

    def connections(self) -> None:
        """Hold connections that say nothing; another for each that is closed."""
        held: list[socket.socket] = []
        try:
            while self.goes.is_set():
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", self._http_port), 5))
                    self._count("connections")
                if len(held) >= CONNECTIONS:
                    held.pop(0).close()
                    _pause(0.01)
        finally:
            for one in held:
                one.close()

    def run(self, part: Callable[[], None]) -> None:
        """Do one of these whenever it goes."""
        while True:
            self.goes.wait()
            try:
                part()
            except (pa.ArrowException, OSError, dejaqueue.errors.DejaQError) as refused:
                self._count(f"{part.__name__}: {type(refused).__name__}")
                _pause(0.05)


class Staging:
    """Transactions with one message each, over HTTP."""

    def __init__(self, http_port: int, key: str) -> None:
        self._web = http.client.HTTPConnection("127.0.0.1", http_port, timeout=30)
        self._headers = {"Authorization": f"Bearer {key}"}

    def _ask(self, path: str, values: object) -> tuple[int, dict[str, Any]]:
        self._web.request("POST", path, json.dumps(values), self._headers)
        answer = self._web.getresponse()
        return answer.status, json.loads(answer.read())

    def another(self, topic: str) -> tuple[int, dict[str, Any]]:
        """Begin one and stage a message in it; what the second call was answered."""
        _, begun = self._ask("/v1/transactions", {"topic": topic, "timeout_ms": 600_000})
        name = urllib.parse.quote(begun["transaction"], safe="")
        return self._ask(f"/v1/topics/{topic}/messages?transaction={name}", {"payload": "x"})

    def close(self) -> None:
        """Leave them undecided."""
        self._web.close()


def _of(**fields: object) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps(fields).encode())


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def crowd_main(port: int, http_port: int) -> None:
    """Go at each `go` on standard input, pause at each `stop`, and say what was done at the end."""
    os.nice(10)  # it is not the crowd's own work that is to be measured
    crowd = Crowd(port, http_port, os.environ["CROWD_KEY"])
    for part in (crowd.streams, crowd.batches, crowd.transactions, crowd.connections):
        threading.Thread(target=crowd.run, args=(part,), daemon=True).start()
    for line in sys.stdin:
        if line.strip() == "go":
            crowd.goes.set()
        else:
            crowd.goes.clear()
    print(json.dumps(crowd.done), flush=True)
    os._exit(0)


# --- who is watched -------------------------------------------------------------------------------


@dataclass
class Felt:
    """Milliseconds: of sends, of messages on their way to a consumer, of probes."""

    sends: list[float] = field(default_factory=list)
    deliveries: list[float] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)
    probes_failed: int = 0

    def quantile(self, name: str, share: float) -> float:
        """0.99: so long or shorter were all but a hundredth."""
        values = sorted(getattr(self, name))
        return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0

    def line(self, title: str) -> str:
        """What people read."""
        parts = [
            f"{name} {len(getattr(self, name))}: "
            + " ".join(f"{self.quantile(name, share):.1f}" for share in (0.5, 0.99, 1.0))
            for name in ("sends", "deliveries", "probes")
        ]
        return (
            f"{title:>7}: {'; '.join(parts)} ms (median, p99, longest); failed {self.probes_failed}"
        )


class Watched:
    """Somebody with a key of their own, who sends and takes messages all the time."""

    def __init__(self, broker: BrokerProcess, key: str) -> None:
        self._client = Client(broker.url, api_key=key, retry_ms_max=60_000)
        self._probe = f"http://127.0.0.1:{broker.http_port}/livez"
        self._ends = threading.Event()
        self.felt = Felt()
        parts = (self._send, self._take, self._ask)
        self._threads = [threading.Thread(target=part, daemon=True) for part in parts]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        while not self._ends.is_set():
            felt, began = self.felt, time.perf_counter()
            self._client.send("watched", b"%d" % time.perf_counter_ns())
            felt.sends.append((time.perf_counter() - began) * 1_000)
            self._ends.wait(PAUSE_SECONDS)

    def _take(self) -> None:
        with self._client.consume("watched", idle_ms=3_600_000) as messages:
            for message in messages:
                took_ms = (time.perf_counter_ns() - int(message.payload)) / 1e6
                self.felt.deliveries.append(took_ms)
                message.ack()
                if self._ends.is_set():
                    return

    def _ask(self) -> None:
        while not self._ends.is_set():
            felt, began = self.felt, time.perf_counter()
            try:
                with urllib.request.urlopen(self._probe, timeout=30) as answer:
                    felt.probes_failed += answer.status != 200
            except OSError:
                felt.probes_failed += 1
            felt.probes.append((time.perf_counter() - began) * 1_000)
            self._ends.wait(5 * PAUSE_SECONDS)

    def end(self) -> None:
        """It has seen enough."""
        self._ends.set()
        for thread in self._threads:
            thread.join(60)
        self._client.close()


@dataclass
class Outcome:
    """What was felt without and with the crowd, and what the crowd did."""

    idle: Felt
    crowded: Felt
    done: dict[str, int]
    metrics: str

    def text(self) -> str:
        """For people."""
        done = ", ".join(f"{count} {name}" for name, count in sorted(self.done.items()))
        return f"{self.idle.line('idle')}\n{self.crowded.line('crowded')}\ncrowd: {done}"


def make_keys(broker: BrokerProcess) -> tuple[str, dict[str, str]]:
    """A key for everything; and topics `crowd` and `watched`, each with a key of that name."""
    with Client(broker.url) as client:
        root: str = client.create_key("root", ["admin:*"])["api_key"]
    keys = {}
    with Client(broker.url, api_key=root) as client:
        for name in ("crowd", "watched"):
            client.create_topic(name)
            grants = [f"produce:{name}", f"consume:{name}"]
            keys[name] = client.create_key(name, grants)["api_key"]
    return root, keys


def metrics(broker: BrokerProcess, key: str) -> str:
    """What /metrics says."""
    url = f"http://127.0.0.1:{broker.http_port}/metrics"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def run(directory: Path, seconds: float) -> Outcome:
    """Stretches of both kinds in turns, until each kind has had so many seconds."""
    broker = BrokerProcess(directory / "data", directory / "broker.log")
    broker.start()
    try:
        root, keys = make_keys(broker)
        return _run(broker, root, keys, seconds)
    finally:
        broker.kill()


def _run(broker: BrokerProcess, root: str, keys: dict[str, str], seconds: float) -> Outcome:
    command = [sys.executable, "-m", "tests.hostile.crowd", "--port", str(broker.port)]
    crowd = subprocess.Popen(
        [*command, "--http-port", str(broker.http_port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # Arrow writes a line for each stream that was refused
        text=True,
        env=os.environ | {"CROWD_KEY": keys["crowd"]},
    )
    assert crowd.stdin is not None
    watched = Watched(broker, keys["watched"])
    felts = {"stop": Felt(), "go": Felt()}
    try:
        _pause(2 * STRETCH_SECONDS / 3)  # what is done first is slow, and nobody's fault
        for _ in range(max(1, round(seconds / STRETCH_SECONDS))):
            for order, felt in felts.items():
                crowd.stdin.write(f"{order}\n")
                crowd.stdin.flush()
                watched.felt = felt
                _pause(STRETCH_SECONDS)
        watched.felt = Felt()
        done, _ = crowd.communicate(timeout=60)
    finally:
        crowd.kill()
        crowd.wait()
        watched.end()
    return Outcome(felts["stop"], felts["go"], json.loads(done), metrics(broker, root))


def main() -> None:
    """Measure, and say whether it is what it should be."""
    start_reaper()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--port", type=int, default=0, help="be the crowd, at this port")
    parser.add_argument("--http-port", type=int, default=0)
    options = parser.parse_args()
    if options.port:
        crowd_main(options.port, options.http_port)
        return
    with TemporaryDirectory() as directory:
        outcome = run(Path(directory), options.seconds)
    print(outcome.text())
    print(
        "\n".join(line for line in outcome.metrics.splitlines() if "quota_refusals_total" in line)
    )
    wrong = [
        f"{name}: p99 {after:.1f} ms is more than three times {before:.1f}"
        for name in ("sends", "deliveries")
        if (after := outcome.crowded.quantile(name, 0.99))
        > 3 * (before := outcome.idle.quantile(name, 0.99))
    ]
    if outcome.crowded.quantile("probes", 1.0) > 100 or outcome.crowded.probes_failed:
        wrong.append("probes: one was not answered within 100 ms")
    print("\n".join(wrong) or "as it should be")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
