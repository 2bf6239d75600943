"""Facts in ZooKeeper: a node each, and a session of its own for each fact that has a ttl.

Room: coordinator. Needs the extra `zookeeper`.
Holds: a change is one transaction with a change of the node `changes`, whose version it compares:
so changes come one after the other, and the revision of a fact is ZooKeeper's number of that
transaction (zxid), also across deletion. Before a read a node is written, which takes most of the
servers: a server that is behind, or cut off, does not answer from memory.
Limits: a ttl is at least the servers' `minSessionTimeout`, and one over `maxSessionTimeout` is
refused; the fact vanishes up to a second and two ticks later.
See: interface.py; connections/zookeeper.py; docs/guides/coordinators.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dejaqueue.connections.zookeeper import (
    PACKET_BYTES_SPARE,
    ZooKeeperAddress,
    ZooKeeperSession,
    parse_url,
)
from dejaqueue.coordinator.bells import Bells, check_fact, check_key, check_prefix
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact, Watch
from dejaqueue.errors import BadRequest, DejaQError

SESSION_MS = 6_000
HEARD_LATE_MS = 1_000
"""A server tells the leading one of its sessions twice in a tick, which has two seconds by default.
What it had not told when it was cut off is forgotten: a session lasts longer than its fact by this,
so that the fact never vanishes early."""
AGAIN_S = 0.2

_log = logging.getLogger(__name__)


def open_url(url: str) -> ZooKeeperCoordinator:
    """The coordinator of a `zookeeper://` URL. Raises BadRequest, Refused, Unavailable."""
    return ZooKeeperCoordinator(parse_url(url))


class ZooKeeperCoordinator(Coordinator):
    """Facts below one node, the namespace."""

    def __init__(self, address: ZooKeeperAddress) -> None:
        from kazoo.exceptions import NoNodeError

        self._absent: tuple[type[Exception], ...] = (NoNodeError,)
        self._address = address
        root = f"/{address.namespace}"
        self._facts, self._count, self._mark = f"{root}/facts", f"{root}/changes", f"{root}/mark"
        self._bells = Bells()
        self._changes = _Changes(self._bells, self._arm)
        self._leases = _Leases()
        self._session = ZooKeeperSession(address, SESSION_MS, self._changes.look)
        self._session.open()
        try:
            for path in (self._facts, self._count, self._mark):
                self._make(path)
            self.list("")  # a user without rights is found out now
        except BaseException:
            self._session.end()
            raise
        self.summary = self._session.version()

    def get(self, key: str) -> Fact | None:
        """A fact, None if it is not there. Raises Unavailable."""
        path = self._path(check_key(key))
        _, found = self._session.ask(
            self._marks, lambda client: client.get_async(path), expects=self._absent
        )
        return None if isinstance(found, Exception) else Fact(key, found[0], found[1].mzxid)

    def list(self, prefix: str) -> list[Fact]:
        """The facts whose keys begin so, sorted by key. Raises Unavailable."""
        check_prefix(prefix)
        _, names = self._session.ask(
            self._marks, lambda client: client.get_children_async(self._facts)
        )
        keys = sorted(key for key in map(_key, names) if key.startswith(prefix))
        found = self._session.ask(
            *(_reading(self._path(key)) for key in keys), expects=self._absent
        )
        return [
            Fact(key, one[0], one[1].mzxid)
            for key, one in zip(keys, found, strict=True)
            if not isinstance(one, Exception)  # it vanished meanwhile
        ]

    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        """Store a fact; return its new revision. Raises Conflict, Unavailable."""
        check_fact(key, value, revision, ttl_ms)
        most = self._address.packet_bytes_max - PACKET_BYTES_SPARE
        if len(value) > most:
            limit = f"at most {most} bytes with the jute_maxbuffer that the URL says"
            raise BadRequest("value", limit, len(value))
        if ttl_ms is None:
            stored = self._store(self._session, key, bytes(value), revision, vanishes=False)
            self._leases.drop(key)
            return stored
        self._compared(key, revision)  # before a session is made for nothing
        session = ZooKeeperSession(self._address, ttl_ms + HEARD_LATE_MS)
        session.open()
        try:
            session.ask(self._marks)
            if session.timeout_ms < ttl_ms + HEARD_LATE_MS:
                limit = f"at most {session.timeout_ms - HEARD_LATE_MS} by maxSessionTimeout here"
                raise BadRequest("ttl_ms", limit, ttl_ms)
            stored = self._store(session, key, bytes(value), revision, vanishes=True)
        except (Conflict, BadRequest):
            session.end()
            raise
        except BaseException:
            session.abandon()  # the fact may be there, and is to live for its ttl
            raise
        self._leases.take(key, _Lease(session, stored, ttl_ms / 1_000))
        return stored

    def renew(self, key: str) -> bool:
        """Keep a fact that this coordinator put with a ttl; False if it is there no more."""
        lease = self._leases.find(check_key(key))
        if lease is None:
            return False
        path = self._path(key)
        try:
            _, stat = lease.session.ask(self._marks, lambda client: client.exists_async(path))
        except DejaQError:
            if not lease.session.is_lost:
                raise
            stat = None
        if stat is None or stat.mzxid != lease.revision:
            self._leases.drop(key, lease)
            return False
        return self._leases.renew(key, lease)

    def delete(self, key: str, revision: int | None = None) -> bool:
        """Delete a fact; False if it was not there. Raises Conflict, Unavailable."""
        path = self._path(check_key(key))
        while True:
            version, stat = self._compared(key, revision)
            if stat is None:
                return False

            def fill(transaction: Any, version: int = version) -> None:
                transaction.set_data(self._count, key.encode(), version)
                transaction.delete(path)

            if self._session.change(fill) is not None:
                self._leases.drop(key)
                return True

    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """Ring the bell, on a thread of this coordinator, after changes below the prefix."""
        watch = self._bells.add(prefix, bell)
        self._changes.start()
        return watch

    def close(self) -> None:
        """Stop watching; facts with a ttl are left to vanish."""
        self._bells.close()
        self._changes.stop()
        self._leases.close()
        self._session.end()

    def _store(
        self,
        session: ZooKeeperSession,
        key: str,
        value: bytes,
        revision: int | None,
        *,
        vanishes: bool,
    ) -> int:
        """Compare and store in one step. Raises Conflict."""
        path = self._path(key)
        while True:
            version, stat = self._compared(key, revision)

            def fill(transaction: Any, version: int = version, stat: Any = stat) -> None:
                transaction.set_data(self._count, key.encode(), version)
                if stat is not None and not vanishes and not stat.ephemeralOwner:
                    transaction.set_data(path, value)
                    return
                if stat is not None:
                    transaction.delete(path)
                transaction.create(path, value, ephemeral=vanishes)

            counted = session.change(fill)
            if counted is not None:
                return int(counted.mzxid)

    def _compared(self, key: str, revision: int | None) -> tuple[int, Any]:
        """The version of `changes`, and then the fact's state. Raises Conflict."""
        path = self._path(key)
        _, (_, counted), stat = self._session.ask(
            self._marks,
            lambda client: client.get_async(self._count),
            lambda client: client.exists_async(path),
        )
        has = 0 if stat is None else stat.mzxid
        if revision is not None and revision != has:
            raise Conflict(f"{key} has revision {has}, expected {revision}")
        return counted.version, stat

    def _marks(self, client: Any) -> Any:
        return client.set_async(self._mark, b"")

    def _arm(self) -> None:
        """Be told of the next change, and of a fact that vanishes."""
        look = self._changes.look_at
        self._session.ask(
            lambda client: client.get_async(self._count, watch=look),
            lambda client: client.get_children_async(self._facts, watch=look),
        )

    def _make(self, path: str) -> None:
        """Make a node and those above it, where they are not there."""
        from kazoo.exceptions import NodeExistsError

        names = path.strip("/").split("/")
        for count in range(1, len(names) + 1):
            one = "/" + "/".join(names[:count])
            if self._session.ask(_looking(one)) == [None]:
                self._session.ask(_making(one), expects=(NodeExistsError,))

    def _path(self, key: str) -> str:
        # A fact's name is one part of a path, and a dot alone is none; `:` and `=` are in no key.
        return f"{self._facts}/={key.replace('/', ':')}"


def _key(name: str) -> str:
    return name[1:].replace(":", "/")


def _reading(path: str) -> Callable[[Any], Any]:
    return lambda client: client.get_async(path)


def _looking(path: str) -> Callable[[Any], Any]:
    return lambda client: client.exists_async(path)


def _making(path: str) -> Callable[[Any], Any]:
    return lambda client: client.create_async(path, b"")


@dataclass
class _Lease:
    """A session that holds one fact.

    Attributes:
        until_s: of elapsed time; a fact that was not renewed by then is let go.
    """

    session: ZooKeeperSession
    revision: int
    ttl_s: float
    until_s: float = 0.0


class _Leases:
    """The sessions of the facts with a ttl, and a thread that ends those which nobody renews.

    kazoo keeps a session alive as long as its process lives. A fact is to vanish as soon as nobody
    renews it, also where a thread of a living process hangs.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._leases: dict[str, _Lease] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def find(self, key: str) -> _Lease | None:
        with self._changed:
            return self._leases.get(key)

    def take(self, key: str, lease: _Lease) -> None:
        """Hold a fact from now on; a session that held one of this key has none any more."""
        with self._changed:
            lease.until_s = time.monotonic() + lease.ttl_s
            former = self._leases.get(key)
            self._leases[key] = lease
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="dejaq-leases", daemon=True)
                self._thread.start()
            self._changed.notify()
        if former is not None:
            former.session.end()

    def renew(self, key: str, lease: _Lease) -> bool:
        """False if it was too late."""
        with self._changed:
            if self._leases.get(key) is not lease:
                return False
            lease.until_s = time.monotonic() + lease.ttl_s
            return True

    def drop(self, key: str, lease: _Lease | None = None) -> None:
        """End the session of a fact that is gone; `lease` = only if it is this one."""
        with self._changed:
            held = self._leases.get(key)
            if held is None or lease not in (None, held):
                return
            del self._leases[key]
        held.session.end()

    def close(self) -> None:
        """Leave all to expire."""
        with self._changed:
            self._is_closed = True
            left, self._leases = self._leases, {}
            self._changed.notify()
        for lease in left.values():
            lease.session.abandon()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                now_s = time.monotonic()
                over = [key for key, one in self._leases.items() if one.until_s <= now_s]
                ended = [self._leases.pop(key) for key in over]
                if not ended:
                    ends = [one.until_s for one in self._leases.values()]
                    self._changed.wait(min(ends) - now_s if ends else None)
            for lease in ended:
                lease.session.end()


class _Changes:
    """A thread that is told of the next change, rings, and asks to be told again.

    What is told says that something changed, and not what: so every bell rings.
    """

    def __init__(self, bells: Bells, arm: Callable[[], None]) -> None:
        self._bells, self._arm = bells, arm
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._told = threading.Event()
        self._is_stopped = False

    def look(self) -> None:
        """Something may have changed."""
        self._told.set()

    def look_at(self, _: object) -> None:
        """The same, as kazoo calls it."""
        self._told.set()

    def start(self) -> None:
        """Start the thread if it is not running."""
        with self._lock:
            if self._thread is None and not self._is_stopped:
                self._thread = threading.Thread(
                    target=self._run, name="dejaq-zookeeper-changes", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        with self._lock:
            self._is_stopped = True
            thread = self._thread
        self._told.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        pause = threading.Event()
        while not self._is_stopped:
            self._told.clear()
            try:
                self._arm()
            except DejaQError as error:
                _log.debug("asking for changes failed: %r", error)
                pause.wait(AGAIN_S)
                continue
            except Exception:  # noqa: BLE001 - a thread that ends would miss every change to come
                _log.exception("asking for changes failed")
                pause.wait(AGAIN_S)
                continue
            self._bells.ring()
            if not self._is_stopped:
                self._told.wait()
