"""PostgreSQL, of Debian's package or whatever is on the PATH.

Room: dev.
"""

from __future__ import annotations

import signal
from typing import ClassVar

from dev.services.service import Service, program, server_user

_FOLDERS = ("/usr/lib/postgresql/*/bin",)


class Postgresql(Service):
    """One server with an empty database of the user `dejaq`, no password."""

    name = "postgresql"
    stop_signal: ClassVar[int] = signal.SIGINT  # "fast": does not wait for clients

    @classmethod
    def missing(cls) -> str | None:
        """See Service.missing."""
        there = program("postgres", *_FOLDERS) and program("initdb", *_FOLDERS)
        return None if there else "the programs postgres and initdb (Debian: postgresql)"

    @property
    def user(self) -> str | None:
        """PostgreSQL does not run as root."""
        return server_user("postgres")

    @property
    def url(self) -> str:
        """See Service.url."""
        return f"postgresql://dejaq@{self.host}:{self.port}/postgres"

    def prepare(self) -> None:
        """See Service.prepare."""
        self.own(self.folder)
        initdb = program("initdb", *_FOLDERS)
        assert initdb is not None
        words = "-D content -U dejaq -A trust -E UTF8 --locale=C --no-sync --data-checksums"
        self.run([initdb, *words.split()])

    def command(self) -> list[str]:
        """See Service.command."""
        postgres = program("postgres", *_FOLDERS)
        assert postgres is not None
        settings = {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": "",
        } | self.settings
        return [postgres, "-D", "content"] + [
            word for name, value in settings.items() for word in ("-c", f"{name}={value}")
        ]

    def is_ready(self) -> bool:
        """See Service.is_ready."""
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True
