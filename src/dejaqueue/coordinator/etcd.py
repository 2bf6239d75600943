"""Facts in etcd: transactions on mod_revision, a lease for each ttl, one stream of changes.

Room: coordinator.
Holds: revisions are etcd's own, which grow over all keys; a fact's lease ends by itself, so
nothing is left behind by a put whose answer was lost. The stream of changes is resumed where it
ended, or every bell rings.
Limits: a ttl is rounded up to whole seconds, and a server with its usual timing makes it at least
two; the fact vanishes up to a second later than that.
See: interface.py; connections/etcd.py; docs/guides/coordinators.md.
"""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx

from dejaqueue.connections.etcd import NOT_FOUND, OUT_OF_RANGE, EtcdGateway, parse_url
from dejaqueue.coordinator.bells import Bells, check_fact, check_key, check_prefix
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact, Watch
from dejaqueue.errors import DejaQError, Unavailable

PAGE_FACTS = 200
AGAIN_S = 0.2

_log = logging.getLogger(__name__)


def open_url(url: str) -> EtcdCoordinator:
    """The coordinator of an `etcd://` URL. Raises BadRequest, Refused, Unavailable."""
    gateway = EtcdGateway(parse_url(url))
    try:
        gateway.open()
        coordinator = EtcdCoordinator(gateway)
        coordinator.list("")  # a user without rights is found out now
    except DejaQError:
        gateway.close()
        raise
    return coordinator


def _pack(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _end(prefix: bytes) -> bytes:
    """The first key behind all that begin so. Keys are ASCII: the last byte can be counted up."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


class EtcdCoordinator(Coordinator):
    """Facts in one etcd cluster, below a namespace."""

    def __init__(self, gateway: EtcdGateway) -> None:
        self._gateway = gateway
        self._namespace = gateway.address.namespace.encode()
        self.summary = gateway.summary
        self._bells = Bells()
        self._changes = _Changes(gateway, self._namespace, self._bells)
        # Key -> (revision, lease) of the facts that this one put with a ttl.
        self._own: dict[str, tuple[int, str]] = {}

    def get(self, key: str) -> Fact | None:
        """A fact, None if it is not there. Raises Unavailable."""
        answer = self._range({"key": self._key(check_key(key))})
        return self._fact(answer["kvs"][0]) if answer.get("kvs") else None

    def list(self, prefix: str) -> list[Fact]:
        """The facts whose keys begin so, sorted by key, as of one moment. Raises Unavailable."""
        first = self._namespace + check_prefix(prefix).encode()
        end, facts, at = _pack(_end(first)), list[Fact](), "0"
        while True:
            page = self._range(
                {"key": _pack(first), "range_end": end, "limit": PAGE_FACTS, "revision": at}
            )
            if page.get("code"):  # what the list began with was compacted away meanwhile
                return self.list(prefix)
            rows = page.get("kvs", [])
            facts.extend(self._fact(row) for row in rows)
            if not page.get("more"):
                return facts
            at = page["header"]["revision"] if at == "0" else at
            first = base64.b64decode(rows[-1]["key"]) + b"\0"

    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        """Store a fact; return its new revision. Raises Conflict, Unavailable."""
        check_fact(key, value, revision, ttl_ms)
        change: dict[str, Any] = {"key": self._key(key), "value": _pack(value)}
        lease = ""
        if ttl_ms is not None:
            seconds = -(-ttl_ms // 1_000)
            # A lease that nobody heard of ends by itself: it may well be asked for twice.
            granted = self._gateway.call("/v3/lease/grant", {"TTL": str(seconds)}, reads=True)
            lease = change["lease"] = str(granted["ID"])
        answer = self._change(key, revision, {"request_put": change})
        stored = int(answer["header"]["revision"])
        if lease:
            self._own[key] = (stored, lease)
        return stored

    def renew(self, key: str) -> bool:
        """Keep a fact that this coordinator put with a ttl; False if it is there no more."""
        revision, lease = self._own.get(check_key(key), (0, ""))
        if not lease:
            return False
        kept = self._gateway.call(
            "/v3/lease/keepalive", {"ID": lease}, reads=True, expects=(NOT_FOUND,)
        )
        if int(kept.get("TTL", 0)) <= 0:
            return False
        # The lease lives; but somebody may have deleted the fact, or put another in its place.
        fact = self.get(key)
        return fact is not None and fact.revision == revision

    def delete(self, key: str, revision: int | None = None) -> bool:
        """Delete a fact; False if it was not there. Raises Conflict, Unavailable."""
        change = {"request_delete_range": {"key": self._key(check_key(key))}}
        answer = self._change(key, revision, change)
        deleted = answer["responses"][0]["response_delete_range"].get("deleted", 0)
        return int(deleted) > 0

    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """Ring the bell, on the thread that reads the changes, after changes below the prefix."""
        return self.watch_keys(prefix, lambda _: bell())

    def watch_keys(self, prefix: str, bell: Callable[[str | None], None]) -> Watch:
        """As `watch`, and the bell is given the key of the fact that changed; None = any."""
        watch = self._bells.add_keyed(prefix, bell)
        self._changes.start()
        return watch

    def close(self) -> None:
        """Stop watching; facts with a ttl are left to vanish."""
        self._bells.close()
        self._changes.stop()
        self._gateway.close()

    def _key(self, key: str) -> str:
        return _pack(self._namespace + key.encode())

    def _fact(self, row: dict[str, Any]) -> Fact:
        key = base64.b64decode(row["key"])[len(self._namespace) :].decode()
        return Fact(key, base64.b64decode(row.get("value", "")), int(row["mod_revision"]))

    def _range(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._gateway.call("/v3/kv/range", body, reads=True, expects=(OUT_OF_RANGE,))

    def _change(self, key: str, revision: int | None, change: dict[str, Any]) -> dict[str, Any]:
        """Compare and change in one step. Raises Conflict."""
        compare = []
        if revision is not None:
            compare = [
                {"key": self._key(key), "target": "MOD", "result": "EQUAL",
                 "mod_revision": str(revision)}
            ]  # fmt: skip
        answer = self._gateway.call("/v3/kv/txn", {"compare": compare, "success": [change]})
        if not answer.get("succeeded"):
            raise Conflict(f"{key} has not the revision {revision}")
        return answer


class _Changes:
    """The thread that reads the stream of changes and rings."""

    def __init__(self, gateway: EtcdGateway, namespace: bytes, bells: Bells) -> None:
        self._gateway = gateway
        self._bells = bells
        self._range = {"key": _pack(namespace), "range_end": _pack(_end(namespace))}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._response: httpx.Response | None = None
        # The first revision that has not been heard of; None = ring everything once connected.
        self._next: int | None = None

    def start(self) -> None:
        """Start the thread if it is not running."""
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="dejaq-etcd-changes", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        with self._lock:
            thread, response = self._thread, self._response
        if response is not None:
            _interrupt(response)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._follow()
            except httpx.ReadTimeout:
                continue  # silence: open the stream anew where it was
            except (httpx.HTTPError, httpx.StreamError, DejaQError, ValueError) as error:
                _log.debug("the stream of changes ended: %r", error)
            except Exception:  # noqa: BLE001 - a thread that ends would miss every change to come
                _log.exception("the stream of changes ended")
            self._next = None
            self._gateway.leave_current()
            self._stopped.wait(AGAIN_S)

    def _follow(self) -> None:
        """Read changes until the stream ends."""
        create: dict[str, Any] = dict(self._range)
        if self._next is not None:
            create["start_revision"] = str(self._next)
        with self._gateway.stream("/v3/watch", {"create_request": create}) as response:
            with self._lock:
                self._response = response
            try:
                if self._stopped.is_set():
                    return
                for line in response.iter_lines():
                    if line:
                        self._take(json.loads(line))
            finally:
                with self._lock:
                    self._response = None
        raise Unavailable("the stream ended")

    def _take(self, message: dict[str, Any]) -> None:
        result = message.get("result")
        if not isinstance(result, dict) or result.get("canceled"):
            raise Unavailable(f"etcd ended the stream: {str(message)[:200]}")
        now = int(result.get("header", {}).get("revision", 0))
        if result.get("created"):
            if self._next is not None and now < self._next - 1:
                raise Unavailable("etcd has forgotten what was heard of")
            if self._next is None:
                self._next = now + 1
                self._bells.ring()
            return
        for change in result.get("events", []):
            row = change["kv"]
            self._next = max(self._next or 0, int(row["mod_revision"]) + 1)
            key = base64.b64decode(row["key"])[self._prefix_length :]
            self._bells.ring(key.decode())

    @property
    def _prefix_length(self) -> int:
        return len(base64.b64decode(self._range["key"]))


def _interrupt(response: httpx.Response) -> None:
    """End the wait of the thread that reads this."""
    stream = response.extensions.get("network_stream")
    found = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(found, socket.socket):
        try:
            found.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended by itself
