"""What each command does to a message in each state: the table that the docs are drawn from.

Room: engine; pure.
Holds: (state, command) pairs that are not in TRANSITIONS answer with the status of REFUSALS.
See: apply.py, which does it in columns and looks statuses up here; docs/reference/lifecycle.md;
    tests/unit/engine/test_transitions.py, which holds tables and code together.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dejaqueue.engine.arrays import UInt8s
from dejaqueue.model import MessageState, RowStatus

DONE, SCHEDULED, LEASED = MessageState.DONE, MessageState.SCHEDULED, MessageState.LEASED
DEAD, STAGED, STAGED_ACK = MessageState.DEAD, MessageState.STAGED, MessageState.STAGED_ACK

TRANSITIONS: Final[dict[tuple[MessageState, str], MessageState]] = {
    (DONE, "enqueue"): SCHEDULED,
    (SCHEDULED, "lease"): LEASED,
    (SCHEDULED, "move"): SCHEDULED,
    (SCHEDULED, "cancel"): DONE,
    (LEASED, "ack"): DONE,
    (LEASED, "nack"): SCHEDULED,
    (LEASED, "extend"): LEASED,
    (LEASED, "lease end"): SCHEDULED,
    (SCHEDULED, "life end"): DEAD,
    (LEASED, "nack as dead"): DEAD,
    (DEAD, "bury"): DONE,
    (DONE, "stage"): STAGED,
    (STAGED, "commit"): SCHEDULED,
    (STAGED, "abort"): DONE,
    (LEASED, "stage ack"): STAGED_ACK,
    (STAGED_ACK, "commit"): DONE,
    (STAGED_ACK, "abort"): SCHEDULED,
    (SCHEDULED, "relocate"): SCHEDULED,
    (LEASED, "relocate"): LEASED,
    (DEAD, "relocate"): DEAD,
    (STAGED, "relocate"): STAGED,
    (STAGED_ACK, "relocate"): STAGED_ACK,
}
"""State and command -> the state after it. Ack, nack and extend need the attempt that is leased;
with another one they are refused as if the message were not leased (rule 4). A message whose
attempts are used up is dead after a nack and a lease end."""

_NOT_HELD = (DONE, SCHEDULED, DEAD, STAGED, STAGED_ACK)

REFUSALS: Final[dict[tuple[MessageState, str], RowStatus]] = {
    (LEASED, "move"): RowStatus.LEASED,
    (LEASED, "cancel"): RowStatus.LEASED,
    **{
        (state, command): RowStatus.NOT_FOUND
        for state in (DONE, DEAD, STAGED, STAGED_ACK)
        for command in ("move", "cancel")
    },
    **{
        (state, command): RowStatus.LEASE_LOST
        for state in _NOT_HELD
        for command in ("ack", "nack", "nack as dead", "stage ack", "extend")
    },
}
"""State and command -> why it changes nothing."""


def statuses_by_state(command: str) -> UInt8s:
    """The status of a row by the state that it is in: what REFUSALS says of a command as an array.

    Returns:
        uint8 array of RowStatus, one for each MessageState; OK where the command does something.

    Raises:
        KeyError: neither table says what the command does in some state.
    """
    statuses: UInt8s = np.zeros(len(MessageState), dtype=np.uint8)
    for state in MessageState:
        is_refused = (state, command) not in TRANSITIONS
        statuses[state] = REFUSALS[state, command] if is_refused else RowStatus.OK
    statuses.flags.writeable = False
    return statuses
