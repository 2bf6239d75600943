"""What commands do to the cron entries of a partition.

Room: engine; pure. The firing of an entry is a part of Enqueue (apply.py).
Holds: as apply.py.
See: schedule.py.
"""

from __future__ import annotations

import numpy as np

from dejaqueue.engine import commands
from dejaqueue.engine.apply import begin
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.state import PartitionState
from dejaqueue.model import RowStatus


def put_entries(state: PartitionState, command: commands.PutEntries) -> Effects:
    """Cron entries are made or changed (rule 17)."""
    begin(state, command.now_ms)
    for entry in command.entries:
        state.entries.put(*entry)
    return Effects()


def drop_entries(state: PartitionState, command: commands.DropEntries) -> Effects:
    """Cron entries are gone; what they made stays."""
    begin(state, command.now_ms)
    dropped_entries = [state.entries.drop(name) for name in command.names]
    statuses = np.where(dropped_entries, np.uint8(RowStatus.OK), np.uint8(RowStatus.NOT_FOUND))
    return Effects(statuses=statuses.astype(np.uint8))
