"""Where several archivers store what the partitions of one topic append: what is the same for those
of processes and of brokers with a server, namely backups, and what would be restored.

Not here: the archivers, and who has which partition (test_strand_archiver.py,
test_record_archiver.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.backup_id import new_id
from dejaqueue.backup.manifest import Manifest
from dejaqueue.broker.backup.archive_tail import partition_number
from dejaqueue.broker.backup.lineage import Lineage
from dejaqueue.broker.backup.strand_tail import StrandTail
from dejaqueue.clock import SteadyClock
from tests.patience import until

CHAIN = "00000000000000aa"


class Archiving(Protocol):
    """Whoever archives, with its store."""

    clock: SteadyClock
    store: Any
    archiver: Any


class StrandPlace:
    """An archive of a topic's partitions, beside the directory or server that has them.

    Attributes:
        number: the topic's.
        partitions: how many it has.
    """

    number: int
    partitions: int

    def __init__(self, root: Path) -> None:
        self.root = root
        self.archive = Archive.open(str(root / "backups"), make=True)

    def backed_up_behind(self, by: Archiving, chain: str, logs: dict[str, int]) -> Manifest:
        """A backup of nothing, behind which is what is behind these positions."""
        lineage = Lineage(by.store)
        url = self.archive.bucket.url
        backup = new_id(by.clock.utc_ms(), lineage.store, lineage.latest(url))
        lineage.begin(url, backup)
        manifest = Manifest(
            backup,
            lineage.store,
            "",
            1,
            1,
            "1",
            self.archive.put(b"x"),
            chain=chain,
            logs={"own": 0, **logs},
            in_strands=True,
        )
        self.archive.put_manifest(manifest)
        lineage.done(url, backup)
        by.archiver.begins(chain)
        return manifest

    def found(self, manifest: Manifest) -> dict[int, list[int]]:
        """What would be restored: of each partition the positions; -1 is the catalogue."""
        with StrandTail(manifest) as tail:
            tail.read_strands(self.archive.bucket, until_ms=None, last=None, damaged=None)
            numbers = {one: partition_number(self.number, one) for one in range(self.partitions)}
            found = {one: [at for at, _, _ in tail.entries(n)] for one, n in numbers.items()}
            return {-1: [at for at, _, _ in tail.entries(0)], **found}

    def restores(self, manifest: Manifest, wanted: dict[int, list[int]]) -> None:
        """Return when this would be restored, and each of it once."""
        until(lambda: self.found(manifest) == wanted, f"{wanted} is archived")
