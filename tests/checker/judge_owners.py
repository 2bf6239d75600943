"""What happened to messages of others: whoever is limited to its own reached none of them.

What such a call did though it was refused is found by what becomes of the message (judge.py).
"""

from __future__ import annotations

from tests.checker.fault import Fault
from tests.checker.history import History, Outcome


def judge_owners(history: History) -> list[Fault]:
    """Moves and cancels that were accepted, of messages that another one sent."""
    sends = {send.id: send for send in history.sends if send.id >= 0}
    faults = []
    for what, operations in (("moved", history.moves), ("cancelled", history.cancels)):
        for one in operations:
            send = sends.get(one.id)
            if one.owner is None or one.outcome is not Outcome.OK or send is None:
                continue
            if send.sender != one.owner:
                whose = send.sender or "nobody"
                text = f"message {one.id} of {whose} was {what} by {one.owner}, limited to its own"
                faults.append(Fault(9, text, one.id))
    return faults
