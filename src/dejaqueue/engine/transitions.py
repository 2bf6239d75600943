"""What each command does to a message in each state: the table that the docs are drawn from.

Room: engine; pure.
Holds: (state, command) pairs that are not here answer with the status of `REFUSALS`.
See: apply.py, which does it in columns; tests/unit/engine/test_transitions.py, which holds the two
    together; docs/reference/lifecycle.md.
"""

from __future__ import annotations

from typing import Final

from dejaqueue.model import MessageState, RowStatus

DONE, SCHEDULED, LEASED = MessageState.DONE, MessageState.SCHEDULED, MessageState.LEASED

TRANSITIONS: Final[dict[tuple[MessageState, str], MessageState]] = {
    (DONE, "enqueue"): SCHEDULED,
    (SCHEDULED, "lease"): LEASED,
    (SCHEDULED, "move"): SCHEDULED,
    (SCHEDULED, "cancel"): DONE,
    (LEASED, "ack"): DONE,
    (LEASED, "nack"): SCHEDULED,
    (LEASED, "extend"): LEASED,
    (LEASED, "lease end"): SCHEDULED,
    (SCHEDULED, "relocate"): SCHEDULED,
    (LEASED, "relocate"): LEASED,
}
"""State and command -> the state after it. Ack, nack and extend need the attempt that is leased;
with another one they are refused as if the message were not leased (rule 4)."""

REFUSALS: Final[dict[tuple[MessageState, str], RowStatus]] = {
    (DONE, "move"): RowStatus.NOT_FOUND,
    (LEASED, "move"): RowStatus.LEASED,
    (DONE, "cancel"): RowStatus.NOT_FOUND,
    (LEASED, "cancel"): RowStatus.LEASED,
    (DONE, "ack"): RowStatus.LEASE_LOST,
    (SCHEDULED, "ack"): RowStatus.LEASE_LOST,
    (DONE, "nack"): RowStatus.LEASE_LOST,
    (SCHEDULED, "nack"): RowStatus.LEASE_LOST,
    (DONE, "extend"): RowStatus.LEASE_LOST,
    (SCHEDULED, "extend"): RowStatus.LEASE_LOST,
}
"""State and command -> why it changes nothing."""
