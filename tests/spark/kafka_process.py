"""A real Kafka broker, one node in KRaft mode, in a process of its own.

Its files come from scripts/install_kafka.sh. It starts on free ports of the loopback interface.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from dejaqueue.cli.ports import free_port
from tests.patience import PATIENCE_SECONDS
from tests.spark.scenarios import wait_for

JARS = Path(os.environ.get("DEJAQ_KAFKA_JARS", Path(sys.prefix) / "kafka"))
"""Folders `server` and `spark` of jars."""
META = """\
version=1
node.id=1
cluster.id=ZGVqYXEta2Fma2EtdGVzdA
directory.id=ZGVqYXEta2Fma2EtbG9ncw
"""
"""What `kafka-storage format` writes, which is a JVM of its own."""
PARTITIONS = 2
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
num.partitions={partitions}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=true
num.network.threads=1
num.io.threads=2
log.cleaner.enable=false
"""


def is_installed() -> bool:
    """True if the jars are there."""
    return (JARS / "server").is_dir() and (JARS / "spark").is_dir()


def spark_jars() -> str:
    """What Spark needs to reach Kafka, for `spark.jars`."""
    return ",".join(sorted(str(path) for path in (JARS / "spark").glob("*.jar")))


class KafkaProcess:
    """A broker of Kafka."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.servers = ""

    def start(self) -> None:
        """Return when it listens."""
        folder = self._folder
        folder.mkdir(parents=True)
        broker, controller = free_port(), free_port()
        self.servers = f"127.0.0.1:{broker}"
        data = folder / "data"
        settings = SETTINGS.format(
            broker=broker, controller=controller, data=data, partitions=PARTITIONS
        )
        (folder / "server.properties").write_text(settings)
        data.mkdir()
        (data / "meta.properties").write_text(META)
        command = ["java", "-Xmx256m", "-Xms256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-cp", f"{JARS / 'server'}/*", "kafka.Kafka", str(folder / "server.properties")]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=folder, start_new_session=True
            )
        wait_for(lambda: self._listens(broker))

    def stop(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE_SECONDS)

    def _listens(self, port: int) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"Kafka ended: {(self._folder / 'log').read_text()[-4_000:]}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0
