"""A bucket in an object store: S3 and what speaks it, Google's, Azure's; by the library obstore.

Room: connections. Knows names and bytes. Credentials are the library's: the environment, or the
machine.
Holds: an object is stored on condition that there is none of its name (`If-None-Match`).
See: bucket.py, the port; docs/guides/backup.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from dejaqueue.connections import extras
from dejaqueue.connections.bucket import Bucket, StoredObject
from dejaqueue.errors import BadRequest, Unavailable

DELETED_AT_ONCE = 500
COPIED_AT_ONCE = 16
_CLIENT_OPTIONS = (
    "allow_http",
    "allow_invalid_certificates",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "user_agent",
)
TRIES_MAX = 3
"""Of a request whose caller has not much time."""


def _options(tries_max: int | None, patience_seconds: int, answer_seconds: int) -> dict[str, Any]:
    """What the library is told of a bucket whose users do not wait for minutes."""
    options: dict[str, Any] = {}
    if tries_max is not None:
        patience = timedelta(seconds=patience_seconds)
        options["retry_config"] = {"max_retries": tries_max, "retry_timeout": patience}
    if answer_seconds:
        options["retry_config"] = {"max_retries": 0}
        answer = timedelta(seconds=answer_seconds)
        options["client_options"] = _from_environment() | {
            "timeout": answer,
            "connect_timeout": answer,
        }
    return options


def _from_environment() -> dict[str, Any]:
    """What the environment says of connections: the library does not look once it is told any."""
    return {
        option: os.environ[name]
        for option in _CLIENT_OPTIONS
        for prefix in ("AWS", "AZURE", "GOOGLE")
        if (name := f"{prefix}_{option.upper()}") in os.environ
    }


class ObjectBucket(Bucket):
    """A bucket of an object store.

    Args:
        url: `s3://bucket/prefix` or the like.
        setting: what names the URL, for errors.
        patience_seconds: so long a request is made again that failed; 0 = as long as the library
            does by itself, minutes.
        is_new_once: `put_new` is not made again by the library: whether an object is there after
            a failure is found out by the caller.
        answer_seconds: each request is made once, and so long an answer may take; 0 = as long as
            the library waits by itself, half a minute.

    Raises:
        BadRequest: the library is not installed, or refuses the URL or its settings.
    """

    signs = True

    def __init__(
        self,
        url: str,
        setting: str = "backup.url",
        patience_seconds: int = 0,
        *,
        is_new_once: bool = False,
        answer_seconds: int = 0,
    ) -> None:
        self._user = setting.partition(".")[0]
        self._library: Any = extras.load("obstore", "backup", url)
        stores: Any = extras.load("obstore.store", "backup", url)
        self.url = url.partition("?")[0]
        try:
            tries_max = TRIES_MAX if patience_seconds else None
            options = _options(tries_max, patience_seconds, answer_seconds)
            self._store = self._new_store = stores.from_url(url, **options)
            if is_new_once:
                options = _options(0, patience_seconds, answer_seconds)
                self._new_store = stores.from_url(url, **options)
        except Exception as wrong:  # the library has an error for each of its stores
            raise BadRequest(setting, f"what the store takes ({wrong})", self.url) from wrong
        self._errors: Any = extras.load("obstore.exceptions", "backup", url)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as failure:  # of the library, which has no common class that is documented
            if isinstance(failure, GeneratorExit):
                raise
            text = " ".join(str(failure).split())[:300]
            text = f"{self._user}: {what} at {self.url} failed: {text}"
            raise Unavailable(text, 1_000) from failure

    def put_new(self, name: str, content: bytes | memoryview) -> bool:
        """See Bucket.put_new."""
        with self._translated(f"storing {name}"):
            try:
                # One request: with parts there would be no condition.
                self._library.put(
                    self._new_store, name, bytes(content), mode="create", use_multipart=False
                )
            except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
                return False
            return True

    def put(self, name: str, content: bytes | memoryview) -> None:
        """See Bucket.put."""
        with self._translated(f"storing {name}"):
            self._library.put(self._store, name, content, use_multipart=False)

    def get(self, name: str) -> bytes | None:
        """See Bucket.get."""
        with self._translated(f"reading {name}"):
            try:
                return bytes(self._library.get(self._store, name).bytes())
            except (self._errors.NotFoundError, FileNotFoundError):
                return None

    def get_range(self, name: str, offset: int, byte_count: int) -> bytes | None:
        """See Bucket.get_range."""
        with self._translated(f"reading {name}"):
            try:
                return bytes(
                    self._library.get_range(self._store, name, start=offset, length=byte_count)
                )
            except (self._errors.NotFoundError, FileNotFoundError):
                return None

    def has(self, name: str) -> bool:
        """See Bucket.has."""
        with self._translated(f"looking for {name}"):
            return self._has(name)

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """See Bucket.objects."""
        with self._translated("listing"):
            found = [
                StoredObject(
                    one["path"], one["size"], round(one["last_modified"].timestamp() * 1_000)
                )
                for chunk in self._library.list(self._store, prefix.rstrip("/") or None)
                for one in chunk
            ]
        yield from sorted(found)

    def delete(self, names: Iterable[str]) -> None:
        """See Bucket.delete."""
        named = list(names)
        for start in range(0, len(named), DELETED_AT_ONCE):
            with self._translated("deleting"):
                try:
                    self._library.delete(self._store, named[start : start + DELETED_AT_ONCE])
                except (self._errors.NotFoundError, FileNotFoundError):
                    for name in named[start : start + DELETED_AT_ONCE]:
                        self._delete_one(name)

    def copy(self, names: Iterable[tuple[str, str]]) -> list[str]:
        """See Bucket.copy."""
        with (
            self._translated("copying"),
            ThreadPoolExecutor(COPIED_AT_ONCE, "dejaq-copies") as pool,
        ):
            found = list(pool.map(self._copy_one, names))
        return [name for name in found if name]

    def _copy_one(self, names: tuple[str, str]) -> str:
        """Copy an object; its name if there is none."""
        name, new = names
        try:
            self._library.copy(self._store, name, new)
        except (self._errors.NotFoundError, FileNotFoundError):
            return "" if self._has(new) else name
        return ""

    def _has(self, name: str) -> bool:
        try:
            self._library.head(self._store, name)
        except (self._errors.NotFoundError, FileNotFoundError):
            return False
        return True

    def sign(self, method: str, names: Sequence[str], length_ms: int) -> list[str] | None:
        """See Bucket.sign."""
        with self._translated("signing"):
            length = timedelta(milliseconds=length_ms)
            return list(self._library.sign(self._store, method, list(names), length))

    def signed_headers(self, method: str) -> dict[str, str]:
        """See Bucket.signed_headers."""
        # https://learn.microsoft.com/rest/api/storageservices/put-blob#request-headers-all-blob-types
        is_azure = type(self._store).__name__ == "AzureStore"
        return {"x-ms-blob-type": "BlockBlob"} if is_azure and method == "PUT" else {}

    def _delete_one(self, name: str) -> None:
        try:
            self._library.delete(self._store, name)
        except (self._errors.NotFoundError, FileNotFoundError):
            return
