"""Which URL opens which journal store. A backend is imported when its URL is used, not before.

Room: journal.
See: interface.py, JournalStore; records/ for servers that keep numbered records.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dejaqueue.connections.urls import check_login, warn_if_plain
from dejaqueue.errors import BadRequest
from dejaqueue.journal.encryption.master_keys import load_master_keys
from dejaqueue.journal.interface import JournalStore, store_path
from dejaqueue.journal.records.interface import RecordStore
from dejaqueue.setting_groups import EncryptionSettings
from dejaqueue.settings import BrokerSettings

_RECORD_STORES: Final = {
    "sqlite": "dejaqueue.journal.records.sql",
    "postgresql": "dejaqueue.journal.records.sql",
    "postgres": "dejaqueue.journal.records.sql",
    "cockroachdb": "dejaqueue.journal.records.sql",
    "mysql": "dejaqueue.journal.records.sql",
    "mariadb": "dejaqueue.journal.records.sql",
    "redis": "dejaqueue.journal.records.redis",
    "rediss": "dejaqueue.journal.records.redis",
    "nats": "dejaqueue.journal.records.nats.store",
    "cassandra": "dejaqueue.journal.records.cassandra",
    "s3": "dejaqueue.journal.records.bucket.store",
    "gs": "dejaqueue.journal.records.bucket.store",
    "az": "dejaqueue.journal.records.bucket.store",
    "bucket": "dejaqueue.journal.records.bucket.store",
}
"""By scheme: the module whose `open_records(url)` gives the RecordStore."""

URL_WORDS: Final = (
    "a path, segment:///path, memory:, sqlite:///path, postgresql://, cockroachdb://, mysql://, "
    "redis://, nats://, cassandra://, s3://bucket/prefix, gs://, az:// or bucket:///path"
)


def open_store(url: str, **settings: Any) -> JournalStore:
    """Open the store of a plain path, `segment:///path`, `memory:`, or of a server's URL;
    `shared:///path` is what the processes of one broker are given (cli/processes.py).

    Args:
        settings: `segment_bytes`, `reserve_bytes`: see SegmentStore; `mirror`, `mirror_bytes_max`,
            `patience_seconds`: see RecordJournalStore, which has no use for `reserve_bytes`; None =
            the default.

    Raises:
        BadRequest: no backend has this URL, or what it needs is not installed. Locked: another
            process has the directory. Refused: the server's settings lose what it acknowledged.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    scheme, colon, _ = url.partition(":")
    if colon and scheme in _RECORD_STORES:
        return _on_records(url, given)
    scheme, colon, _ = url.partition("://")
    if colon and scheme not in ("segment", "shared"):
        raise BadRequest("journal", URL_WORDS, f"{scheme}://")
    for name in ("mirror", "mirror_bytes_max"):
        given.pop(name, None)
    path = store_path(url)
    if scheme == "shared" and path is not None:
        from dejaqueue.journal.processes import ProcessStore

        return ProcessStore(path, **given)
    given.pop("patience_seconds", None)
    if path is None:
        from dejaqueue.journal.memory import MemoryStore

        return MemoryStore(**given)
    from dejaqueue.journal.segments.store import SegmentStore

    return SegmentStore(path, **given)


def is_on_server(url: str) -> bool:
    """Whether the journals of a URL are records on a server, or in a database."""
    return url.partition(":")[0] in _RECORD_STORES


def store_of(settings: BrokerSettings) -> JournalStore:
    """Open the store that a broker's settings name. Raises as `open_store`."""
    journal = settings.journal
    return open_store(
        journal.url,
        segment_bytes=journal.segment_bytes,
        reserve_bytes=journal.reserve_bytes,
        mirror=journal.mirror or None,
        mirror_bytes_max=journal.mirror_bytes_max or None,
        patience_seconds=journal.patience_ms / 1_000,
    )


def encrypt(store: JournalStore, settings: EncryptionSettings) -> None:
    """Have a store encrypt what is written from now on, if there is a master key.

    Raises:
        BadRequest: the master key's setting names nothing, or what it needs is not installed.
        EncryptionKeyMissing: a key is not there, or is another one. JournalDamaged, Unavailable.
    """
    if settings.master_key:
        store.encrypt(load_master_keys(settings.master_key), settings.clear_bytes_max)


def open_records(url: str) -> RecordStore:
    """Open the records behind a server's URL. Raises BadRequest, Refused, Unavailable."""
    check_login("journal", url)
    warn_if_plain("journal", url)
    module = importlib.import_module(_RECORD_STORES[url.partition(":")[0]])
    opener: Callable[[str], RecordStore] = module.open_records
    return opener(url)


def _on_records(url: str, given: dict[str, Any]) -> JournalStore:
    from dejaqueue.journal.records.store import RecordJournalStore

    given.pop("reserve_bytes", None)
    mirror = given.pop("mirror", "")
    records = open_records(url)
    try:
        return RecordJournalStore(records, mirror=Path(mirror) if mirror else None, **given)
    except BaseException:
        records.close()
        raise
