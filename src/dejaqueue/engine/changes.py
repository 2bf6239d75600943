"""Changes: what a command did to which messages, for who keeps their history.

Room: engine; pure, memory only. Noted only while somebody wants them; no part of the state: a
replay notes the same ones, an engine that notes nothing has the same hash.
Holds: of one message a command notes one change at most, but for what its time brought about (a
lease or a life that ended); what is noted is never changed.
See: apply.py and decisions.py, which note; broker/history/ for where they go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dejaqueue.engine.commands import Int64s, UInt16s, Words
from dejaqueue.model import ChangeKind

if TYPE_CHECKING:
    from dejaqueue.engine.state import PartitionState


class Change(NamedTuple):
    """The same thing happened to these messages.

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


class Changes:
    """What a command has done so far.

    Attributes:
        noted: in the order of what happened.
    """

    __slots__ = ("noted",)

    def __init__(self) -> None:
        self.noted: list[Change] = []

    def note(
        self,
        state: PartitionState,
        kind: ChangeKind,
        places: Int64s,
        reason: str = "",
        *,
        has_due: bool = True,
        named: tuple[Int64s, UInt16s] | None = None,
    ) -> None:
        """Note a change of these rows, as the table has them now.

        Args:
            named: their sequences and attempts, where somebody has them by hand.
        """
        if not places.size:
            return
        table = state.table
        sequences, attempts = named or (places + table.base, table.attempts[places])
        self.noted.append(
            Change(
                kind,
                sequences,
                table.dues_ms[places] if has_due else None,
                attempts,
                state.priorities(places),
                state.groups_of(places) if "groups" in table.uses else None,
                reason,
            )
        )

    def take(self) -> tuple[Change, ...]:
        """What was noted; the next command begins anew."""
        if not self.noted:
            return ()
        taken, self.noted = tuple(self.noted), []
        return taken
