"""State hashes of golden journals and of simulations: equal wherever they are computed.

`python -m tests.replay.hashes` prints them as JSON; test_replay.py runs it under other
interpreters, CPU features and hash seeds. `--make` writes the golden journal of the present format.
"""

from __future__ import annotations

import json
import logging
import sys
import zipfile
from pathlib import Path
from typing import Any

from dejaqueue.broker.shard.entries import to_command
from dejaqueue.catalogue.log import JOURNAL as CATALOGUE
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.snapshot import restore
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.memory import MemoryFileSystem
from tests.corruption.images import Store, rich_image
from tests.corruption.rot import FileImage
from tests.crash.disk_copies import bytes_of
from tests.simulation.run import simulate

GOLDEN = Path(__file__).with_name("golden")
SEEDS = (3, 11)


def read_image(path: Path) -> MemoryFileSystem:
    """The disk that a golden file holds."""
    disk = MemoryFileSystem()
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            at = Path(name.replace("disk/", "disk:/", 1))
            disk.make_directory(at.parent)
            file = disk.open(at, create=True)
            file.allocate(len(content))
            file.write([content], 0)
    return disk


def write_image(disk: MemoryFileSystem, path: Path) -> None:
    """Keep a disk."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for at in FileImage(disk).contents():
            name = zipfile.ZipInfo(str(at).replace("disk:/", "disk/", 1))
            name.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(name, bytes(bytes_of(disk, at)))


def state_hashes(disk: MemoryFileSystem) -> dict[str, list[str]]:
    """Of every partition: replayed from its snapshot, and from its first entry if that is there."""
    store = Store(disk)
    found = {}
    topics = Path("disk:/topics")
    for topic in disk.names(topics):
        if topic == CATALOGUE:
            continue
        [made] = disk.names(topics / topic)
        names = disk.names(topics / topic / made)
        for number in [int(name) for name in names if name.isdigit()]:
            journal: Any = store.open(topic, number)
            snapshot = journal.latest_snapshot()
            engine, after = Engine(number), 0
            if snapshot is not None:
                engine, after = (
                    restore(snapshot.meta, journal.read_snapshot_file),
                    snapshot.position,
                )
            hashes = [_replayed(journal, engine, after)]
            if journal._part.runs.position_of(1):
                hashes.append(_replayed(journal, Engine(number), 0))
            found[f"{topic}/{number}"] = hashes
            journal.close()
    return found


def _replayed(journal: Any, engine: Engine, after: int) -> str:
    for position, _epoch, entry in journal.scan(after):
        engine.apply(to_command(entry, position))
    engine.check()
    return f"{engine.state_hash():016x}"


def all_hashes() -> dict[str, Any]:
    """Of every golden journal, and fingerprints of some simulations."""
    logger = logging.getLogger("dejaqueue")
    before = logger.level
    logger.setLevel(logging.CRITICAL)  # what breaks in a simulation is meant to
    try:
        found: dict[str, Any] = {
            path.name: state_hashes(read_image(path)) for path in sorted(GOLDEN.glob("*.zip"))
        }
        return found | {f"seed {seed}": simulate(seed).fingerprint for seed in SEEDS}
    finally:
        logger.setLevel(before)


def main() -> None:
    """Print all, or write the golden journal of the present format and what it gives."""
    if "--make" in sys.argv:
        path = GOLDEN / f"format-{entry_format.VERSION}.zip"
        write_image(rich_image(), path)
        hashes = state_hashes(read_image(path))
        path.with_suffix(".json").write_text(json.dumps(hashes, indent=1) + "\n")
    else:
        print(json.dumps(all_hashes(), sort_keys=True))


if __name__ == "__main__":
    main()
