"""A broker one of whose messages is damaged on its disk, and how a byte there is made another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.rules.broker_fixture import TOPIC, BrokerFixture

COUNT, BAD = 20, 7
HOUR_MS = 3_600_000
FILLERS = 20
"""Messages that fill a segment, and then some: what is behind it is not read at a start."""


def payload(number: int) -> bytes:
    return f"message {number:02d} of twenty".encode()


def spoiled(content: bytes) -> bytes:
    """With another last bit."""
    return content[:-1] + bytes([content[-1] ^ 1])


def damage(folder: Path, content: bytes) -> int:
    """Flip a bit of it wherever it is stored; in how many places that is."""
    count = 0
    for path in (one for one in folder.rglob("*") if one.is_file()):
        stored, at = path.read_bytes(), -1
        with path.open("r+b") as file:  # whoever has it mapped sees it
            while (at := stored.find(content, at + 1)) >= 0:
                file.seek(at)
                file.write(spoiled(content))
                count += 1
    return count


def stored_floor(broker: BrokerFixture) -> int:
    """Up to where the journal is read no more when it is opened."""
    journal: Any = broker.broker.runtime(TOPIC).partitions[0].core.journal
    return int(journal.log.room._stored_floor)


def damaged(root: Path, **columns: list[int]) -> BrokerFixture:
    """One message of many is damaged, in a segment that nothing reads when the broker starts."""
    made = BrokerFixture(root, snapshot_entries=5, max_attempts=3)
    due_ms = made.now_ms + HOUR_MS
    for number in range(COUNT):
        made.write("enqueue", {"payload": [payload(number)], "due": [due_ms]} | columns)
    while stored_floor(made) < COUNT + FILLERS:
        made.send([bytes(100_000)], dues_ms=[due_ms + HOUR_MS])
        made.settle_down()
        made.wait_for_snapshots()
    made.stop()
    assert damage(root, payload(BAD)) == 1
    made.broker = made._start()
    return made
