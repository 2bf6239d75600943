"""What a command did: what comes out of the engine.

Room: engine; pure. Values; made by apply.py and decisions.py.
Holds: what is here was copied out of the state: later commands do not change it.
See: commands.py for what goes in; broker/history/ for where changes go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dejaqueue.engine.arrays import Int64s, UInt8s, UInt16s, Words
from dejaqueue.model import ChangeKind

_NONE = np.zeros(0, dtype=np.int64)
_NONE.flags.writeable = False


class Change(NamedTuple):
    """The same thing happened to these messages; what a history is made of.

    Of one message a command notes one change at most, but for what its time brought about (a lease
    or a life that ended). Changes are no part of the state: an engine that notes none has the same
    hash, and a replay notes the same ones.

    Attributes:
        sequences: which messages, shape (n,).
        dues_ms: when each is due from now on, or was when it went; None = it has no due time.
        attempts: deliveries of each so far; None = none yet.
        priorities: None = the default for all.
        groups: None = "" for all.
        reason: why, where somebody or something gave one.
    """

    kind: ChangeKind
    sequences: Int64s
    dues_ms: Int64s | None
    attempts: UInt16s | None
    priorities: UInt16s | None
    groups: Words | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Leased:
    """The rows of one dispatch, in order (rule 7).

    Attributes:
        lease_id: names the lease in Ack, Nack, Extend.
        lease_end_ms: the lease ends here unless extended.
        sequences: which messages.
        attempts: the attempt that this delivery is, from 1.
        dues_ms: when each became due: its due time, or when it came back.
        locators: where the stored rows are (position << 20 | row).
        priorities: 0 is most urgent; None = the default for all.
        groups: where groups were changed since they were stored: those of now; else None.
    """

    lease_id: int
    lease_end_ms: int
    sequences: Int64s
    attempts: UInt16s
    dues_ms: Int64s
    locators: Int64s
    priorities: UInt16s | None = None
    groups: Words | None = None


@dataclass(slots=True)
class Effects:
    """What a command did, for its reply and for the shell.

    Attributes:
        statuses: RowStatus per row of the command (for a whole lease: per row of the lease, in its
            order; one LEASE_LOST if none of its rows is held any more, or it never was); None =
            every row OK. Enqueue: always None, refused rows never reach the engine.
        first_sequence: Enqueue: sequence of row 0; the others follow.
        freed_locators: where rows lie that nobody needs any more.
        leased: what a Lease handed out; None if nothing was due.
        is_void: nothing changed at all, so the command must not be journalled. Lease only.
        changes: what happened to which messages, if the engine is to note it.
    """

    statuses: UInt8s | None = None
    first_sequence: int = -1
    freed_locators: Int64s = field(default_factory=lambda: _NONE)
    leased: Leased | None = None
    is_void: bool = False
    changes: tuple[Change, ...] = ()
