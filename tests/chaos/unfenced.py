"""`python -m tests.chaos.unfenced serve …`: a broker without a fence, for the negative control.

Where its append is refused because another owner has written, it goes on as if it had been made;
what it once had it keeps, however long its lease has been over. Nothing of this can be switched on
in DejaQ: the program is patched here, before it starts. The chaos must find it out, or it proves
nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from dejaqueue.cli.main import main
from dejaqueue.cluster import ownership
from dejaqueue.cluster.members import Membership
from dejaqueue.errors import Fenced
from dejaqueue.journal.records.sql import SqlRecords

_append, _plan, _renew = SqlRecords.append, ownership.plan, Membership.renew
_kept: set[int] = set()
_lost: set[int] = set()


def _append_whatever_others_did(log: SqlRecords, after: int, records: Sequence[Any]) -> None:
    if id(log) in _lost:
        return
    try:
        _append(log, after, records)
    except Fenced:
        _lost.add(id(log))


def _keep_for_ever(
    node: str,
    session: str,
    view: ownership.View,
    slots: int,
    *,
    waits: bool = False,
    planned: tuple[str, ...] = (),
) -> ownership.Plan:
    found = _plan(node, session, view, slots, waits=waits, planned=planned)
    _kept.update(found.keep)
    _kept.difference_update(found.hand_over)
    lost = [slot for slot in found.drop if slot in _kept]
    drop = [slot for slot in found.drop if slot not in _kept]
    return ownership.Plan([*found.keep, *lost], found.claim, found.hand_over, drop)


def _believe(membership: Membership) -> bool:
    _renew(membership)
    membership.valid_until_us = 1 << 62
    return True


if __name__ == "__main__":
    SqlRecords.append = _append_whatever_others_did  # type: ignore[method-assign,assignment]
    Membership.is_valid = lambda membership: True  # type: ignore[method-assign,assignment]
    Membership.renew = _believe  # type: ignore[method-assign,assignment]
    ownership.plan = _keep_for_ever
    sys.argv[0] = "dejaq"
    main()
