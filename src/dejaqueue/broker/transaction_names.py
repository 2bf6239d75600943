"""Names of transactions: what they say, and whose a transaction is.

Room: broker. Pure values.
Holds: a name is its owner's: another principal's answer to it is the one to a name that never was.
See: transactions.py, branches.py; docs/reference/semantics.md, "Senders".
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass

from dejaqueue import limits
from dejaqueue.access.senders import Sender
from dejaqueue.broker.branches import check_branch
from dejaqueue.errors import BadRequest

_NAME = re.compile(
    r"([A-Za-z0-9._-]{1,255})/(\d{1,5})/(\d{1,15})-(\d{1,9})-([0-9a-f]{32})(?:~([0-9A-Za-z.]{1,84}))?"
)
_PLACE = re.compile(r"([A-Za-z0-9._-]{1,255})/(\d{1,5})")
_FAMILY_BYTES = 8


@dataclass(frozen=True, slots=True)
class TransactionName:
    """What the name of a transaction says.

    Attributes:
        topic, partition: its home, where the decision is kept.
        began_ms, until_ms: its time.
        family: which branches belong together (branches.py).
        branch: which of them it is; "" = none.
    """

    text: str
    topic: str
    partition: int
    began_ms: int
    until_ms: int
    family: str
    branch: str

    @classmethod
    def parse(cls, text: object, sender: Sender | None = None) -> TransactionName:
        """Read a name.

        Args:
            sender: whose it must be; None = anybody's.

        Raises:
            BadRequest: it is none. Another sender's gets the same answer.
        """
        found = _NAME.fullmatch(text) if isinstance(text, str) else None
        is_whose = found is not None and (sender is None or found[5].endswith(sender.mark))
        if found is None or not is_whose or int(found[4]) > limits.BRANCHED_MS_MAX:
            raise BadRequest("transaction", "a name that begin_transaction gave this caller", text)
        began_ms = int(found[3])
        assert isinstance(text, str)
        until_ms = began_ms + int(found[4])
        branch = check_branch(found[6]) if found[6] else ""
        return cls(text, found[1], int(found[2]), began_ms, until_ms, found[5], branch)


def check_participants(participants: object) -> list[tuple[str, int]]:
    """Topics and partitions that a transaction touched. Raises BadRequest."""
    most = limits.TRANSACTION_PARTICIPANTS_MAX
    if not isinstance(participants, list) or len(participants) > most:
        raise BadRequest("participants", f"a list of at most {most} topic/partition", participants)
    places = []
    for text in participants:
        found = _PLACE.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise BadRequest("participants", "topic/partition", text)
        places.append((found[1], int(found[2])))
    return list(dict.fromkeys(places))


def family_of(sender: Sender, *words: object) -> str:
    """32 hexadecimal digits that stand for these words, or, without, were never used before. The
    second half of them says whose the transaction is (`Sender.mark`)."""
    if not words:
        return uuid.uuid4().hex[: 2 * _FAMILY_BYTES] + sender.mark
    text = "\x1f".join(str(word) for word in words)
    return hashlib.blake2b(text.encode(), digest_size=_FAMILY_BYTES).hexdigest() + sender.mark
