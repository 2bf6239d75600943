"""Which URL opens which journal store. A backend is imported when its URL is used, not before.

Room: journal.
See: interface.py, JournalStore.
"""

from __future__ import annotations

from typing import Any

from dejaqueue.errors import BadRequest
from dejaqueue.journal.interface import JournalStore, store_path


def open_store(url: str, **settings: Any) -> JournalStore:
    """Open the store of a plain path, `segment:///path` or `memory:`.

    Args:
        settings: `segment_bytes`, `reserve_bytes`: see SegmentStore; None = the default.

    Raises:
        BadRequest: no backend has this URL. Locked: another process has the directory.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    scheme, colon, _ = url.partition("://")
    if colon and scheme != "segment":
        raise BadRequest("journal", "a path, segment:///path or memory:", url)
    path = store_path(url)
    if path is None:
        from dejaqueue.journal.memory import MemoryStore

        return MemoryStore(**given)
    from dejaqueue.journal.segments.store import SegmentStore

    return SegmentStore(path, **given)
