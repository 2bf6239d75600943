"""Which URL opens which coordinator. A backend is imported when its URL is used, not before.

Room: coordinator.
Holds: `memory:NAME` is one for the whole process: brokers that name it the same share it, until
the last of them closes it.
See: interface.py; docs/guides/coordinators.md.
"""

from __future__ import annotations

import importlib
import threading
from typing import cast

from dejaqueue.clock import Clock
from dejaqueue.connections.urls import check_login, warn_if_plain
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.errors import BadRequest
from dejaqueue.setting_secrets import masked

_BACKENDS: dict[str, tuple[str, str]] = {
    "etcd": ("etcd", "etcd"),
    "zookeeper": ("zookeeper", "zookeeper"),
    "nats": ("jetstream", "nats"),
    "redis": ("redis", "redis"),
    "rediss": ("redis", "redis"),
    "postgresql": ("sql", "postgresql"),
    "cockroachdb": ("sql", "postgresql"),
    "mysql": ("sql", "mysql"),
    "mariadb": ("sql", "mysql"),
    "sqlite": ("sql", ""),
    "inherited": ("parent_facts", ""),
    "s3": ("bucket", "backup"),
    "gs": ("bucket", "backup"),
    "az": ("bucket", "backup"),
    "bucket": ("bucket", ""),
}
"""URL scheme -> module beside this one, and the extra that brings what it needs."""

_FORMS = (
    "memory:NAME, etcd://…, zookeeper://…, nats://…, redis://…, postgresql://…, cockroachdb://…, "
    "mysql://…, sqlite:///PATH, s3://…, gs://…, az://… or bucket:///PATH"
)

_lock = threading.Lock()
_in_process: dict[str, ProcessFacts] = {}


def open_coordinator(url: str, clock: Clock | None = None) -> Coordinator:
    """Open the coordinator of a URL.

    Args:
        clock: the ttl of `memory:` runs on it, as whoever opens a name first gives it; servers use
            their own.

    Raises:
        BadRequest: no backend has this URL, or what it needs is not installed; names the extra.
        Refused: the server's settings do not keep what it acknowledged.
        Unavailable: the server does not answer.
    """
    scheme, colon, rest = url.partition(":")
    if scheme == "memory" and colon:
        return _open_in_process(rest.strip("/"), clock)
    module, extra = _BACKENDS.get(scheme, ("", ""))
    if not module or not (rest.startswith("//") or scheme == "inherited"):
        raise BadRequest("coordinator", _FORMS, masked("", url))
    check_login("coordinator", url)
    warn_if_plain("coordinator", url)
    try:
        backend = importlib.import_module(f"dejaqueue.coordinator.{module}")
    except ModuleNotFoundError as error:
        raise missing(scheme, extra, error) from None
    return cast(Coordinator, backend.open_url(url))


def missing(scheme: str, extra: str, error: ModuleNotFoundError) -> BadRequest:
    """What to say where a package is missing: which, and what brings it."""
    cure = f"needs {error.name}: pip install 'dejaqueue[{extra}]'"
    return BadRequest("coordinator", cure, f"{scheme}://…")


def _open_in_process(name: str, clock: Clock | None) -> Coordinator:
    with _lock:
        facts = _in_process.setdefault(name, ProcessFacts(clock))
        opened = facts.open()
    opened.on_last_close(lambda: _forget(name, facts))
    return opened


def _forget(name: str, facts: ProcessFacts) -> None:
    with _lock:
        if _in_process.get(name) is facts and facts.is_unused():
            del _in_process[name]
            facts.close()
