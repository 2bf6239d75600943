"""Cassandra from Maven: its library with what that needs, started as the server.

Room: dev. `scripts/install_cassandra.sh` gets it, where Maven and its repository can be reached.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from dejaqueue.cli.ports import free_port
from dev.services.service import Service, is_listening, program

OPEN_TO_ALL = (
    "java.base/java.io", "java.base/java.lang", "java.base/java.lang.module",
    "java.base/java.lang.reflect", "java.base/java.net", "java.base/java.nio",
    "java.base/java.util", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math", "java.base/jdk.internal.misc", "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref", "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar", "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server", "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal",
)  # fmt: skip
"""Parts of Java that Cassandra reaches into."""


def jars() -> Path:
    """Where the installer puts them."""
    given = os.environ.get("DEJAQ_CASSANDRA_JARS")
    return Path(given) if given else Path.home() / ".cache" / "dejaq" / "cassandra"


class Cassandra(Service):
    """One node that syncs its commit log before it answers, empty."""

    name = "cassandra"
    # Some 15 seconds of a processor, which may have other things to do.
    start_seconds_max: ClassVar[float] = 240.0

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        self.storage_port, self.jmx_port = free_port(), free_port()

    @classmethod
    def missing(cls) -> str | None:
        """See Service.missing."""
        if not program("java"):
            return "Java"
        if not list(jars().glob("cassandra-all-*.jar")):
            return "Cassandra (scripts/install_cassandra.sh)"
        return None

    @property
    def url(self) -> str:
        """See Service.url."""
        return f"cassandra://127.0.0.1:{self.port}/dejaq"

    def prepare(self) -> None:
        """See Service.prepare."""
        seeds = f'"127.0.0.1:{self.storage_port}"'
        lines = {
            "cluster_name": "dejaq",
            "num_tokens": "1",
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "commitlog_sync": "batch",
            "commitlog_directory": f"{self.folder}/commitlog",
            "data_file_directories": f"[{self.folder}/content]",
            "saved_caches_directory": f"{self.folder}/caches",
            "hints_directory": f"{self.folder}/hints",
            "cdc_raw_directory": f"{self.folder}/cdc",
            "listen_address": "127.0.0.1",
            "rpc_address": "127.0.0.1",
            "native_transport_port": str(self.port),
            "storage_port": str(self.storage_port),
            "start_native_transport": "true",
            "endpoint_snitch": "SimpleSnitch",
            "memtable_heap_space": "64MiB",
            "seed_provider": "[{class_name: org.apache.cassandra.locator.SimpleSeedProvider, "
            f"parameters: [{{seeds: {seeds}}}]}}]",
        } | self.settings
        text = "".join(f"{name}: {value}\n" for name, value in lines.items())
        (self.folder / "cassandra.yaml").write_text(text)
        (self.folder / "logback.xml").write_text(
            '<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender">'
            "<encoder><pattern>%level %logger{0} %msg%n</pattern></encoder></appender>"
            '<root level="WARN"><appender-ref ref="out"/></root></configuration>'
        )

    def command(self) -> list[str]:
        """See Service.command."""
        java = program("java")
        assert java is not None
        opened = [f"--add-opens={part}=ALL-UNNAMED" for part in OPEN_TO_ALL]
        exported = [f"--add-exports={part}=ALL-UNNAMED" for part in OPEN_TO_ALL]
        settings = {
            "cassandra.config": f"file://{self.folder}/cassandra.yaml",
            "cassandra.storagedir": str(self.folder),
            "cassandra-foreground": "yes",
            "cassandra.jmx.local.port": str(self.jmx_port),
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.initial_token": "0",
            "jdk.attach.allowAttachSelf": "true",
            "logback.configurationFile": f"{self.folder}/logback.xml",
        }
        return [
            java,
            *opened,
            *exported,
            "-Xms256m",
            "-Xmx768m",
            "-Xss1m",
            *(f"-D{name}={value}" for name, value in settings.items()),
            "-cp",
            f"{jars()}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def is_ready(self) -> bool:
        """See Service.is_ready."""
        return is_listening(self.port)
