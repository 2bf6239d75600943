"""ZooKeeper from Maven: its library with what that needs, started as the server.

Room: dev. `scripts/install_zookeeper.sh` gets it, where Maven and its repository can be reached.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from dev.services.service import Service, program


def jars() -> Path:
    """Where the installer puts them."""
    given = os.environ.get("DEJAQ_ZOOKEEPER_JARS")
    return Path(given) if given else Path.home() / ".cache" / "dejaq" / "zookeeper"


class ZooKeeper(Service):
    """One server by itself, which syncs before it answers, empty."""

    name = "zookeeper"

    @classmethod
    def missing(cls) -> str | None:
        """See Service.missing."""
        if not program("java"):
            return "Java"
        if not list(jars().glob("zookeeper-[0-9]*.jar")):
            return "ZooKeeper (scripts/install_zookeeper.sh)"
        return None

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        self.java_settings: dict[str, str] = {}

    @property
    def url(self) -> str:
        """See Service.url."""
        return f"zookeeper://{self.host}:{self.port}"

    def prepare(self) -> None:
        """See Service.prepare."""
        lines = {
            "dataDir": f"{self.folder}/content",
            "clientPortAddress": self.host,
            "clientPort": str(self.port),
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
        } | self.settings
        text = "".join(f"{name}={value}\n" for name, value in lines.items() if value)
        (self.folder / "zoo.cfg").write_text(text)

    def command(self) -> list[str]:
        """See Service.command."""
        java = program("java")
        assert java is not None
        settings = {"zookeeper.jmx.log4j.disable": "true"} | self.java_settings
        return [
            java,
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *(f"-D{name}={value}" for name, value in settings.items()),
            "-cp",
            f"{jars()}/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self.folder / "zoo.cfg"),
        ]

    def is_ready(self) -> bool:
        """See Service.is_ready."""
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as asking:
                if "secureClientPort" in self.settings:
                    return True
                asking.sendall(b"srvr")
                return b"Mode:" in asking.recv(4_096)
        except OSError:
            return False
