"""An etcd of a simulated cluster: what its JSON gateway answers to the calls that DejaQ makes.

Written from the description of etcd's API. tests/conformance/test_simulated_etcd.py compares it
with a real one, answer by answer.
"""

from __future__ import annotations

import base64
import bisect
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from dejaqueue.connections.etcd import NOT_FOUND, OUT_OF_RANGE

Told = Callable[[dict[str, Any]], None]


def _bytes(text: object) -> bytes:
    return base64.b64decode(str(text or ""))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


@dataclass(frozen=True)
class _Row:
    value: bytes
    created: int
    changed: int
    version: int
    lease: str


@dataclass
class EtcdServer:
    """Keys with revisions, transactions on them, leases, and streams of changes.

    Args:
        now_ms: its clock.

    Attributes:
        revision: of the last change.
    """

    now_ms: Callable[[], int]
    revision: int = 1
    rows: dict[bytes, _Row] = field(default_factory=dict)
    leases: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Seconds, and when each ends."""
    changes: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """What happened to which key, oldest first."""
    _count: int = 1000

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a call; with `code` where etcd refuses it."""
        self.expire()
        if path == "/version":
            return {"etcdserver": "3.5.0", "etcdcluster": "3.5.0"}
        if path == "/v3/kv/range":
            return self._range(body)
        if path == "/v3/kv/txn":
            return self._transact(body)
        if path == "/v3/lease/grant":
            self._count += 1
            lease, seconds = str(self._count), max(2, int(body["TTL"]))
            self.leases[lease] = (seconds, self.now_ms() + seconds * 1_000)
            return {"header": self._header(), "ID": lease, "TTL": str(seconds)}
        assert path == "/v3/lease/keepalive", path
        return self._keep(str(body["ID"]))

    def expire(self) -> None:
        """Delete the keys of leases that are over."""
        now_ms = self.now_ms()
        for lease in [one for one, (_, until_ms) in self.leases.items() if until_ms <= now_ms]:
            del self.leases[lease]
            keys = sorted(key for key, row in self.rows.items() if row.lease == lease)
            if keys:
                self.revision += 1
            for key in keys:
                self._drop(key)

    def since(self, revision: int, first: bytes, end: bytes) -> list[tuple[int, dict[str, Any]]]:
        """Changes of keys of a range, from this revision on."""
        place = bisect.bisect_left(self.changes, revision, key=lambda change: change[0])
        found = self.changes[place:]
        return [one for one in found if first <= _bytes(one[1]["kv"]["key"]) < end]

    def copy(self) -> EtcdServer:
        """All that is kept now."""
        return replace(self, rows=dict(self.rows), leases=dict(self.leases), changes=[])

    def _header(self) -> dict[str, str]:
        return {"revision": str(self.revision)}

    def _range(self, body: dict[str, Any]) -> dict[str, Any]:
        first, end = _bytes(body["key"]), _bytes(body.get("range_end"))
        at, limit = int(body.get("revision", 0)), int(body.get("limit", 0))
        if at > self.revision:
            text = "etcdserver: mvcc: required revision is a future revision"
            return {"code": OUT_OF_RANGE, "message": text}
        if 0 < at < self.revision:  # nothing of the past is kept
            text = "etcdserver: mvcc: required revision has been compacted"
            return {"code": OUT_OF_RANGE, "message": text}
        keys = sorted(k for k in self.rows if (first <= k < end if end else k == first))
        page = keys[:limit] if limit else keys
        answer: dict[str, Any] = {"header": self._header()}
        if page:
            answer["kvs"] = [self._told(key) for key in page]
        if len(page) < len(keys):
            answer["more"] = True
        if keys:
            answer["count"] = str(len(keys))
        return answer

    def _told(self, key: bytes) -> dict[str, Any]:
        row = self.rows[key]
        told = {
            "key": _text(key),
            "create_revision": str(row.created),
            "mod_revision": str(row.changed),
            "version": str(row.version),
            "value": _text(row.value),
        }
        if row.lease:
            told["lease"] = row.lease
        return {name: value for name, value in told.items() if value}

    def _transact(self, body: dict[str, Any]) -> dict[str, Any]:
        for one in body.get("compare", ()):
            assert (one["target"], one["result"]) == ("MOD", "EQUAL"), one
            row = self.rows.get(_bytes(one["key"]))
            if int(one["mod_revision"]) != (row.changed if row else 0):
                return {"header": self._header()}
        [change] = body["success"]
        if "request_put" in change:
            put = change["request_put"]
            lease = str(put.get("lease", ""))
            if lease and lease not in self.leases:
                text = "etcdserver: requested lease not found"
                return {"code": NOT_FOUND, "message": text}
            self.revision += 1
            self._put(_bytes(put["key"]), _bytes(put.get("value")), lease)
            told = {"response_put": {"header": self._header()}}
        else:
            key = _bytes(change["request_delete_range"]["key"])
            deleted: dict[str, Any] = {}
            if key in self.rows:
                self.revision += 1
                self._drop(key)
                deleted = {"deleted": "1"}
            told = {"response_delete_range": {"header": self._header()} | deleted}
        return {"header": self._header(), "succeeded": True, "responses": [told]}

    def _put(self, key: bytes, value: bytes, lease: str) -> None:
        before = self.rows.get(key)
        created, version = (before.created, before.version) if before else (self.revision, 0)
        self.rows[key] = _Row(value, created, self.revision, version + 1, lease)
        self.changes.append((self.revision, {"kv": self._told(key)}))

    def _drop(self, key: bytes) -> None:
        del self.rows[key]
        gone = {"key": _text(key), "mod_revision": str(self.revision)}
        self.changes.append((self.revision, {"type": "DELETE", "kv": gone}))

    def _keep(self, lease: str) -> dict[str, Any]:
        if lease not in self.leases:
            return {"header": self._header(), "ID": lease}
        seconds, _ = self.leases[lease]
        self.leases[lease] = (seconds, self.now_ms() + seconds * 1_000)
        return {"header": self._header(), "ID": lease, "TTL": str(seconds)}


def line(result: dict[str, Any]) -> bytes:
    """A message of a stream."""
    return json.dumps({"result": result}).encode() + b"\n"
