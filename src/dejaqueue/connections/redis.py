"""Connections to Redis and Valkey: one primary that keeps what it acknowledged, or none at all.

Room: connections. Needs the extra `redis`.
Holds: a command is sent once; the library's own retries are off, because the answer to a command
that was sent twice says nothing about the first. A server that acknowledges before it is durable
is refused with the setting to change; where it does not tell its settings, that is said loudly.
See: docs/guides/choosing-a-journal.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from dejaqueue.errors import BadRequest, Refused, ResourceExhausted, Unavailable

log = logging.getLogger("dejaqueue.connections")

TIMEOUT_S = 5.0
"""No answer for so long: the outcome is unknown."""
WANTED = {
    "appendonly": ("yes",),
    "appendfsync": ("always",),
    "maxmemory-policy": ("noeviction",),
}
"""Settings without which acknowledged is not durable."""
NO_ROOM = ("OOM", "MISCONF")
"""Beginnings of answers that say: nothing was written, there is no room or the disk fails."""
LATER = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "BUSY")
"""Beginnings of answers that say: nothing was done, and it may be otherwise later."""


class RedisConnection:
    """A pool of connections to one primary; any thread may use it.

    Attributes:
        client: the library's client; use it within `answers`.
        prefix: begins every key, so that several clusters can share a server.
        summary: the server's name and version.
    """

    def __init__(self, url: str) -> None:
        """Connect and check the server.

        Args:
            url: `redis://[user:password@]host[:port][/database][?prefix=dejaq]`, `rediss://` with
                TLS, and then PEM files as `ca`, `certificate` and `key`.

        Raises:
            BadRequest: the url. Refused: its settings lose what was acknowledged. Unavailable.
        """
        address, self.prefix = split_url(url)
        self.client = _open(address)
        self.summary = ""
        try:
            self.check()
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Refuse a server that may lose what it acknowledged. Raises Refused, Unavailable."""
        with self.answers("INFO"):
            facts: dict[str, Any] = self.client.info()
        name = facts.get("server_name", "redis")
        self.summary = f"{name} {facts.get('valkey_version', facts.get('redis_version', '?'))}"
        if facts.get("role") != "master":
            raise Refused(f"{self.summary}: the server is a replica; name the primary")
        if facts.get("redis_mode") == "cluster" or facts.get("cluster_enabled") == 1:
            raise Refused(f"{self.summary}: the server is in cluster mode; name a single primary")
        settings = self._settings()
        for setting, right in WANTED.items():
            if setting in settings and settings[setting] not in right:
                raise Refused(
                    f"{self.summary}: {setting} is {settings[setting]}, so that it may lose what "
                    f"it acknowledged; set it to {right[0]} (CONFIG SET and CONFIG REWRITE)"
                )

    def _settings(self) -> dict[str, str]:
        import redis

        settings: dict[str, str] = {}
        try:
            with self.answers("CONFIG GET"):
                for setting in WANTED:
                    told = self.client.config_get(setting)
                    settings |= {_text(name): _text(value) for name, value in told.items()}
        except (redis.exceptions.ResponseError, Refused):
            log.warning(
                "%s does not tell its settings: make sure that it has %s, or what is acknowledged "
                "may be lost",
                self.summary,
                ", ".join(f"{setting} {right[0]}" for setting, right in WANTED.items()),
            )
        return settings

    @contextmanager
    def answers(self, what: str) -> Iterator[None]:
        """Name the library's errors in ours.

        Raises:
            Unavailable: no answer, the outcome is unknown; or it answered that it is not ready.
            ResourceExhausted: it answered that there is no room. Refused: it answered no.
        """
        import redis

        try:
            yield
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError) as error:
            raise Unavailable(f"{self.summary or 'redis'}: {what}: no answer: {error}") from error
        except redis.exceptions.NoScriptError:
            raise
        except redis.exceptions.ResponseError as error:
            text = f"{self.summary or 'redis'}: {what}: {error}"
            if isinstance(error, redis.exceptions.OutOfMemoryError) or _begins(error, NO_ROOM):
                raise ResourceExhausted(text) from error
            if isinstance(error, redis.exceptions.ReadOnlyError) or _begins(error, LATER):
                raise Unavailable(text) from error
            raise Refused(text) from error

    def close(self) -> None:
        """Close all connections; twice is fine."""
        self.client.close()


FILES = {"ca": "ssl_ca_certs", "certificate": "ssl_certfile", "key": "ssl_keyfile"}
"""Parameters of a URL -> what the library calls them."""


def split_url(url: str) -> tuple[str, str]:
    """The url without what is ours, and the prefix of all keys. Raises BadRequest."""
    parts = urlsplit(url)
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname:
        raise BadRequest("url", "redis://host:port", _without_secret(url))
    query = parse_qs(parts.query)
    prefix = query.pop("prefix", ["dejaq"])[0]
    files = {}
    if parts.scheme == "rediss":
        files = {FILES[name]: query.pop(name)[0] for name in FILES if name in query}
    if query:
        known = "prefix, and with rediss:// ca, certificate and key"
        raise BadRequest("url", f"of the parameters only {known}", next(iter(query)))
    if ("ssl_certfile" in files) != ("ssl_keyfile" in files):
        raise BadRequest("certificate", "certificate and key together, or neither", "one of them")
    if not prefix or not prefix.replace("-", "").replace("_", "").isalnum():
        raise BadRequest("prefix", "letters, digits, - and _", prefix)
    return urlunsplit(parts._replace(query=urlencode(files))), prefix


def _text(told: Any) -> str:
    return told.decode() if isinstance(told, bytes) else str(told)


def _begins(error: Exception, beginnings: tuple[str, ...]) -> bool:
    return str(error).startswith(beginnings)


def _without_secret(url: str) -> str:
    return url.rpartition("@")[2]


def _open(address: str) -> Any:
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise Refused("redis:// needs the extra: pip install 'dejaqueue[redis]'") from error

    try:
        return redis.Redis.from_url(
            address,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
            **({"ssl_check_hostname": True} if address.startswith("rediss:") else {}),
        )
    except ValueError as error:
        raise BadRequest("url", f"redis://host:port ({error})", _without_secret(address)) from error
