"""Which backups were taken of a store of journals: a document of the store, by archive.

    {"store": "9f…", "archives": {"file:///backup": {"last": id, "next": id}}}

It tells an older copy of the journals, put in place of the newer ones, from those: the archive then
has backups that these journals know nothing of.

Room: broker. Reads and writes one document.
Holds: an id is noted before the backup of that id can be there, so whatever breaks off, a backup of
these journals is known to them.
See: backups.py; journal/interface.py, DOCUMENTS.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final

from dejaqueue.backup.manifest import Manifest
from dejaqueue.errors import JournalDamaged, Refused
from dejaqueue.journal.interface import JournalStore

DOCUMENT: Final = "backup"


class Lineage:
    """The backups of a store.

    Attributes:
        store: what tells the store from all others; drawn when the first backup is taken.

    Raises:
        JournalDamaged: the document is not what was stored. Unavailable.
    """

    def __init__(self, journals: JournalStore) -> None:
        self._journals = journals
        text = journals.load_document(DOCUMENT)
        try:
            values: dict[str, Any] = {} if text is None else json.loads(text)
            self._archives: dict[str, dict[str, str]] = values.get("archives", {})
            self.store = str(values.get("store") or os.urandom(8).hex())
        except (ValueError, AttributeError) as wrong:
            raise JournalDamaged(f"document {DOCUMENT}: {wrong!r}") from wrong

    def check(self, url: str, newest: Manifest | None) -> None:
        """Refuse to go on from a backup that these journals do not know.

        Args:
            newest: the newest backup of this store in the archive.

        Raises:
            Refused: they are an older copy of the journals that it is of.
        """
        if newest is None:
            return
        if newest.id > self.latest(url):
            raise Refused(
                f"these journals are older than backup {newest.id} at {url}, which was taken of "
                "them later: an old copy was put in place; restore that backup, or begin anew with "
                "a full one"
            )

    def urls(self) -> list[str]:
        """Where backups were taken to, in order."""
        return sorted(self._archives)

    def begin(self, url: str, backup: str) -> None:
        """Note that a backup may come to be there. Raises ResourceExhausted, Unavailable."""
        known = self._archives.setdefault(url, {})
        known["next"] = backup
        self._save()

    def done(self, url: str, backup: str) -> None:
        """Note that it is there."""
        self._archives[url] = {"last": backup}
        self._save()

    def latest(self, url: str) -> str:
        """The last backup that may be there, "" = none."""
        known = self._archives.get(url, {})
        return max(known.get("last", ""), known.get("next", ""))

    def last(self, url: str) -> str:
        """The last backup that is known to be there, "" = none."""
        return self._archives.get(url, {}).get("last", "")

    def _save(self) -> None:
        values = {"store": self.store, "archives": self._archives}
        self._journals.store_document(DOCUMENT, json.dumps(values))
