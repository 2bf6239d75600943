"""Kafka: one node in KRaft mode, and its own client, which is Java's.

Room: bench. Its files come from scripts/install_kafka.sh; KafkaLoad.java beside this is what sends
and reads, a JVM of its own, which is told what to do line by line.
Holds: `acks=all`, and `flush.messages=1` for the topic and for the offsets: what is acknowledged or
committed is on disk. Offsets are committed while reading, one commit on the way at a time, and the
last one is waited for.

A producer batches up to 128 KiB, some 1,000 messages, five of them on the way, which is its default
with idempotence; a consumer has its partition by name and takes up to 1,000 a poll. The JVM of the
broker has the options of Kafka's own scripts. Each round runs all cases with few messages first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from bench.load import PAYLOAD_BYTES, Load
from bench.systems.servers import (
    ROOT,
    Server,
    ServerFailed,
    end_program,
    is_listening,
    new_folder,
    run_program,
    start_program,
)
from bench.systems.system import Measured
from dejaqueue.cli.ports import free_port

JARS = Path(os.environ.get("DEJAQ_KAFKA_JARS", Path(sys.prefix) / "kafka")) / "server"
LOAD = ROOT / "bench" / "systems" / "KafkaLoad.java"
CLUSTER_ID = "ZGVqYXEta2Fma2EtYmVuYw"
WARM_ROWS, WARM_RUNS, WARM_SECONDS = 50_000, 3, 1.0
"""The compiler of a JVM needs some ten thousand calls."""
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
log.flush.interval.messages=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""
JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")


class KafkaGroups:
    """One broker, and the program that sends to it and reads from it."""

    name = "kafka"

    @staticmethod
    def version() -> str:
        """What is installed; "" = nothing."""
        found = [re.fullmatch(r"kafka_[\d.]+-([\d.]+)\.jar", path.name) for path in _jars()]
        return next((one[1] for one in found if one), "")

    @staticmethod
    def left_out() -> str:
        """Why it cannot be measured here; "" = it can."""
        if shutil.which("javac") is None:
            return "kafka: a JDK is not installed"
        if not KafkaGroups.version():
            return "kafka: scripts/install_kafka.sh was not run"
        return ""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._program: subprocess.Popen[str] | None = None
        self._topics = self._load_rows = 0

    def start(self, folder: Path, load: Load) -> None:
        """Start a broker on free ports, and the program with these payloads; warm both up."""
        self._load_rows = load.rows
        place, port, controller = new_folder(folder, self.name), free_port(), free_port()
        settings, payloads = place / "server.properties", place / "payloads"
        settings.write_text(
            SETTINGS.format(broker=port, controller=controller, data=place / "data")
        )
        payloads.write_bytes(load.block)
        run_program(
            _java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings))
        )
        command = _java(*JVM, "kafka.Kafka", str(settings))
        self._server = Server(place, command, lambda: is_listening(port))
        what = (f"127.0.0.1:{port}", str(payloads), str(PAYLOAD_BYTES))
        self._program = start_program(_java("-Xms1g", "-Xmx2g", str(LOAD), *what))
        for _ in range(WARM_RUNS):
            self.through(WARM_ROWS, WARM_SECONDS)

    def stop(self) -> None:
        """End both, remove their files."""
        if self._program is not None:
            end_program(self._program)
            self._program = None
        if self._server is not None:
            self._server.stop()
            self._server = None

    def fill(self, rows: int, seconds_max: float) -> tuple[str, Measured]:
        """Send so many of the payloads to a new topic, until the time is up: its name, and that."""
        topic = self._new_topic()
        return topic, self._ask("fill", topic, min(rows, self._load_rows), seconds_max)

    def drain(self, topic: str, groups: int, rows: int, seconds_max: float) -> Measured:
        """Have so many groups read and commit so many messages each; messages in all."""
        return self._ask("drain", topic, groups, rows, seconds_max)

    def through(self, rows: int, seconds_max: float) -> Measured:
        """Send for half of the time, read and commit beside it: what was read."""
        return self._ask("through", self._new_topic(), min(rows, self._load_rows), seconds_max)

    def _new_topic(self) -> str:
        self._topics += 1
        topic = f"topic-{self._topics}"
        self._ask("make", topic)
        return topic

    def _ask(self, *words: object) -> Measured:
        assert self._program is not None
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        print(*words, file=self._program.stdin, flush=True)
        told = self._program.stdout.readline().split()
        if len(told) != 2:
            raise ServerFailed("Kafka's client ended: what it printed is above")
        return Measured(int(told[0]), float(told[1]))


def _jars() -> list[Path]:
    return list(JARS.glob("*.jar"))


def _java(*words: str) -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", quiet, "-cp", f"{JARS}/*", *words]
