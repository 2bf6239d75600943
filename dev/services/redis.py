"""Redis, of Debian's package or whatever is on the PATH, which keeps what it acknowledged.

Room: dev.
"""

from __future__ import annotations

from dev.services.service import Service, is_listening, program


class Redis(Service):
    """One primary, empty."""

    name = "redis"

    @classmethod
    def missing(cls) -> str | None:
        """See Service.missing."""
        return None if program("redis-server") else "the program redis-server"

    @property
    def url(self) -> str:
        """See Service.url."""
        return f"redis://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """See Service.prepare."""

    def command(self) -> list[str]:
        """See Service.command."""
        server = program("redis-server")
        assert server is not None
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            # Its title would be written over the environment, by which the reaper knows it.
            "set-proc-title": "no",
        } | self.settings
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [server, *words]

    def is_ready(self) -> bool:
        """See Service.is_ready."""
        import redis

        if not is_listening(self.port):
            return False
        with redis.Redis(port=self.port, socket_timeout=2) as client:
            try:
                return bool(client.ping())
            except redis.exceptions.RedisError:
                return False  # it is still reading what it has stored
