"""A data directory that several processes divide, opened by a command while none of them runs.

Room: cli.
Holds: the directory is locked while it is open, as by the parent of the processes; what is written
lies where the processes look for it.
See: processes.py, which serves such a directory; restore.py, which fills one;
docs/adr/0048-processes-divide-a-directory.md.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.clock import SteadyClock
from dejaqueue.cluster.embedded import keys_beside
from dejaqueue.cluster.identity import agree
from dejaqueue.coordinator.kept_facts import KeptFacts
from dejaqueue.errors import BadRequest
from dejaqueue.journal.interface import store_path
from dejaqueue.journal.processes import ProcessStore, is_divided, prepare
from dejaqueue.journal.registry import encrypt, store_of
from dejaqueue.settings import BrokerSettings

SHARDS_MIN: Final = 16
SHARDS_EACH: Final = 4
"""Of a new directory, for each process: so that more may come."""
KEPT: Final = ("documents/", "cluster/")
"""API keys, and which cluster it is: facts that outlive the parent."""


def shards_of_new(processes: int) -> int:
    """How many shards a new directory has: as many for each process, so that also a topic whose
    shards lie behind the last one and before the first meets all of them.

    >>> [shards_of_new(count) for count in (1, 2, 3, 4, 5)]
    [16, 16, 18, 16, 20]
    """
    return processes * max(SHARDS_EACH, -(-SHARDS_MIN // processes))


def process_count(settings: BrokerSettings) -> int:
    """How many processes the settings want; at least 1."""
    text = settings.server.processes
    return len(os.sched_getaffinity(0)) if text == "auto" else int(text or 1)


def directory_of(settings: BrokerSettings) -> Path:
    """The data directory. Raises BadRequest: messages are kept elsewhere."""
    root = _local_directory(settings)
    if root is None:
        limit = "none but where messages are kept in a directory here"
        raise BadRequest("server.processes", limit, settings.journal.url)
    return root


def _local_directory(settings: BrokerSettings) -> Path | None:
    url = settings.journal.url
    path = store_path(url)
    if path is None or "://" in url.removeprefix("segment://") or url.startswith("sqlite:"):
        return None
    return path.absolute()


def is_for_several(settings: BrokerSettings) -> bool:
    """Whether the directory of the settings is, or would be made as, one for several processes."""
    root = _local_directory(settings)
    return root is not None and (bool(settings.server.processes) or is_divided(root))


class DividedDirectory:
    """All of it, as none of the processes has it.

    Attributes:
        store: its journals, whose catalogue knows of which cluster they are.

    Raises:
        Locked: a broker has it. Refused: it is for one process. BadRequest, EncryptionKeyMissing,
        JournalDamaged, Unavailable.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        root, count = directory_of(settings), process_count(settings)
        with ExitStack() as ending:
            lock, shards = prepare(root, shards_of_new(count))
            ending.callback(lock.release)
            facts = KeptFacts(root / "facts.json", KEPT)
            ending.callback(facts.close)
            coordinator = facts.open()
            journal = settings.journal.model_copy(update={"url": f"shared://{root}"})
            store = store_of(settings.model_copy(update={"journal": journal}))
            ending.callback(store.close)
            assert isinstance(store, ProcessStore)
            encrypt(store, settings.encryption)
            log = agree(coordinator, partial(CatalogueLog, store), SteadyClock(), slots=shards)[1]
            log.close()
            self.store = store
            self._keys = keys_beside(settings, coordinator)
            self._ending = ending.pop_all()

    def put_back_keys(self, text: str) -> None:
        """Have the API keys of a backup, unless there are some. Raises as SharedKeys.put_back."""
        self._keys.put_back(text)

    def close(self) -> None:
        """Let processes have it."""
        self._ending.close()


def divided_of(settings: BrokerSettings) -> DividedDirectory | None:
    """The directory of the settings, if it is one for several processes. Raises as above."""
    return DividedDirectory(settings) if is_for_several(settings) else None
