"""MariaDB, of Debian's package or whatever is on the PATH.

Room: dev.
"""

from __future__ import annotations

from pathlib import Path

from dev.services.service import Service, program, server_user

_FOLDERS = ("/usr/sbin", "/usr/libexec")


class Mariadb(Service):
    """One server with an empty database `dejaq` of the user `dejaq`, no password."""

    name = "mariadb"

    @classmethod
    def missing(cls) -> str | None:
        """See Service.missing."""
        there = program("mariadbd", *_FOLDERS) and program("mariadb-install-db", *_FOLDERS)
        return None if there else "the programs mariadbd and mariadb-install-db (mariadb-server)"

    @property
    def user(self) -> str | None:
        """MariaDB does not like to run as root."""
        return server_user("mysql")

    @property
    def url(self) -> str:
        """See Service.url."""
        return f"mysql://dejaq@127.0.0.1:{self.port}/dejaq"

    def prepare(self) -> None:
        """See Service.prepare."""
        self.own(self.folder)
        start = self.folder / "start.sql"
        start.write_text(
            "CREATE DATABASE IF NOT EXISTS dejaq;\n"
            "CREATE USER IF NOT EXISTS dejaq@'127.0.0.1';\n"
            "GRANT ALL ON *.* TO dejaq@'127.0.0.1';\n"
        )
        start.chmod(0o644)
        install = program("mariadb-install-db", *_FOLDERS)
        assert install is not None
        content, own = self.folder / "content", self._temporary()
        own.mkdir(exist_ok=True)
        self.own(own)
        words = f"--no-defaults --datadir={content} --skip-test-db --innodb-flush-method=nosync"
        words += f" --tmpdir={own}"
        self.run([install, *words.split(), "--auth-root-authentication-method=normal"])

    def _temporary(self) -> Path:
        """Of its own: a server that starts removes what it finds of others' in a common one."""
        return self.folder / "tmp"

    def command(self) -> list[str]:
        """See Service.command."""
        server = program("mariadbd", *_FOLDERS)
        assert server is not None
        settings = {
            "datadir": str(self.folder / "content"),
            "tmpdir": str(self._temporary()),
            "bind-address": "127.0.0.1",
            "port": str(self.port),
            "socket": str(self.folder / "socket"),
            "pid-file": str(self.folder / "pid"),
            "init-file": str(self.folder / "start.sql"),
            "skip-name-resolve": "1",
        } | self.settings
        return [server, "--no-defaults"] + [f"--{name}={value}" for name, value in settings.items()]

    def is_ready(self) -> bool:
        """See Service.is_ready."""
        import pymysql

        try:
            pymysql.connect(
                host="127.0.0.1", port=self.port, user="dejaq", database="dejaq", connect_timeout=2
            ).close()
        except (pymysql.MySQLError, OSError):
            return False
        return True
