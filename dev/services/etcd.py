"""etcd, of Debian's package or whatever is on the PATH.

Room: dev.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request

from dejaqueue.cli.ports import free_port
from dev.services.service import Service, is_listening, program


class Etcd(Service):
    """One member by itself, empty."""

    name = "etcd"

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        self.peer_port = free_port()
        self.scheme = "https" if "cert-file" in settings else "http"

    @classmethod
    def missing(cls) -> str | None:
        """See Service.missing."""
        return None if program("etcd") else "the program etcd (Debian: etcd-server)"

    @property
    def url(self) -> str:
        """See Service.url."""
        return f"etcd://{self.host}:{self.port}"

    def prepare(self) -> None:
        """See Service.prepare."""

    def command(self) -> list[str]:
        """See Service.command."""
        etcd = program("etcd")
        assert etcd is not None
        client, peer = (
            f"{self.scheme}://{self.host}:{self.port}",
            f"http://127.0.0.1:{self.peer_port}",
        )
        settings = {
            "name": "one",
            "data-dir": "content",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"one={peer}",
            "logger": "zap",
        } | self.settings
        return [etcd] + [f"--{name}={value}" for name, value in settings.items()]

    def is_ready(self) -> bool:
        """See Service.is_ready."""
        if self.scheme == "https":
            return is_listening(self.port)
        try:
            with urllib.request.urlopen(
                f"http://{self.host}:{self.port}/health", timeout=2
            ) as answer:
                return bool(json.load(answer).get("health") in {"true", True})
        except (OSError, urllib.error.URLError, ValueError):
            return False
