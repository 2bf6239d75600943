"""Which SQL server a URL names.

Room: connections. Above the servers: this module alone knows which ones there are.
Holds: a server's library is imported when a URL needs it, not before: each is an extra.
See: sql.py for what a server is.
"""

from __future__ import annotations

from dejaqueue.connections.sql import SqlServer
from dejaqueue.errors import BadRequest


def server_of(url: str) -> SqlServer:
    """The server that a URL names: sqlite:///path, postgresql://, cockroachdb://, mysql://.

    Raises:
        BadRequest: no such scheme, or its library is not installed.
    """
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from dejaqueue.connections.sqlite import Sqlite

        return Sqlite(url)
    if scheme in ("postgresql", "postgres", "cockroachdb"):
        from dejaqueue.connections.postgresql import Postgresql

        return Postgresql(url)
    if scheme in ("mysql", "mariadb"):
        from dejaqueue.connections.mysql import Mysql

        return Mysql(url)
    raise BadRequest(
        "url", "one of sqlite:///path, postgresql://, cockroachdb://, mysql://", scheme
    )
