"""A result backend of Celery: a result is a message with the key of its task, due when it is over.

Room: celery. The class that Celery finds by the entry point `celery.result_backends`.
Holds: nobody consumes a result before its life ends; what is over is taken away by `cleanup`, which
Celery's beat calls once a day.
See: docs/guides/from-celery.md for what it is good for, and when `rpc://` or Redis is better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from celery.backends.base import KeyValueStoreBackend

from dejaqueue.celery import choice
from dejaqueue.celery.link import Link
from dejaqueue.celery.transport import ROUTES_TOPIC, without_key
from dejaqueue.errors import TopicUnknown
from dejaqueue.limits import KEY_BYTES_MAX

RESULTS_TOPIC = "celery.results"
LIFE_MS_MAX = 10 * 365 * 86_400_000
"""The life of a result that is to be kept for ever."""
SETTINGS = {"on_duplicate": "replace", "lease_ahead_ms": 0}


class Backend(KeyValueStoreBackend):  # type: ignore[misc]
    """The results of an app, in one topic."""

    supports_autoexpire = False
    persistent = True
    supports_native_join = True  # a group's results are asked for together, not one by one

    def __init__(
        self, app: Any, url: str | None = None, expires: Any = None, **options: Any
    ) -> None:
        super().__init__(app=app, **options)
        self._address, api_key = without_key(url or app.conf.broker_url)
        given = app.conf.result_backend_transport_options or {}
        self._options = {n: given[n] for n in ("api_key", "name", "tls") if n in given}
        if api_key is not None:
            self._options["api_key"] = api_key
        self._topic = given.get("results_topic", RESULTS_TOPIC)
        self._apart = given.get("apart")
        self.url = self._address
        self.expires = self.prepare_expires(expires, type=float)

    def as_uri(self, include_password: bool = True) -> str:
        """Where it is, without the key."""
        return self._address

    @property
    def _link(self) -> Link:
        return choice.shared(
            self._address, self._options, apart=self._apart, routes_topic=ROUTES_TOPIC
        ).link

    def _named(self, key: str | bytes) -> str:
        return (key.decode() if isinstance(key, bytes) else key)[:KEY_BYTES_MAX]

    def get(self, key: str | bytes) -> bytes | None:
        """What was set."""
        try:
            return self._link.get(self._topic, self._named(key))
        except TopicUnknown:
            return None

    def mget(self, keys: list[str | bytes]) -> list[bytes | None]:
        """What was set, for each key; asked for at once."""
        try:
            return self._link.get_many(self._topic, [self._named(key) for key in keys])
        except TopicUnknown:
            return [None] * len(keys)

    def iter_native(
        self, result: Any, on_interval: Callable[[], object] | None = None, **options: Any
    ) -> Iterator[tuple[str, Any]]:
        """The results of a group as they come.

        Raises:
            Exception: what a task before the group has raised: the group will never run. Celery
                would wait for it until the timeout, as with Redis.
        """

        def look() -> None:
            raise_error_before(result)
            if on_interval is not None:
                on_interval()

        raise_error_before(result)
        yield from super().iter_native(result, on_interval=look, **options)

    def set(self, key: str | bytes, value: str | bytes) -> None:
        """Set a value, for as long as `result_expires` says."""
        life_ms = int(self.expires * 1_000) if self.expires else LIFE_MS_MAX
        payload = value.encode() if isinstance(value, str) else value
        put = self._topic, self._named(key), payload, None, life_ms
        try:
            self._link.put(*put)
        except TopicUnknown:
            self._link.declare(self._topic, SETTINGS)
            self._link.put(*put)

    def delete(self, key: str | bytes) -> None:
        """Forget a value."""
        try:
            self._link.cancel(self._topic, [self._named(key)])
        except TopicUnknown:
            return

    def cleanup(self) -> None:
        """Take away what is over."""
        over = [key for key, _, is_over, _ in self._link.rows(self._topic) if is_over]
        if over:
            self._link.cancel(self._topic, over)


def raise_error_before(result: Any) -> None:
    """Raise what a task that comes before a group, or before one of it, has failed with."""
    looked_at: set[str] = set()
    for one in (result, *result.results):
        node = getattr(one, "parent", None)
        while node is not None and node.id not in looked_at:
            looked_at.add(node.id)
            node.maybe_throw()
            node = node.parent
