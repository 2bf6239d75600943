"""Names of transactions: what they say, whose a transaction is, and names of branches and epochs.

Room: broker. Pure values.
Holds: a name is its owner's: another principal's answer to it is the one to a name that never was.
See: transactions.py; docs/wire.md; docs/guides/spark.md; docs/adr/0008; "Senders" in
docs/reference/semantics.md.

A transaction is staged by one client, or in branches: by many, each under a name of its own, so
that whoever failed, or did what another one did already, can be left out of the commit.

    orders/0/1790000000000-3600000-<family>                  a transaction
    orders/0/1790000000000-3600000-<family>~17.93.5f0c2a1b   a branch: its task 17, done once of
                                                             several times
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import TypeAlias

from dejaqueue import limits
from dejaqueue.access.senders import Sender
from dejaqueue.errors import BadRequest

_NAME = re.compile(
    r"([A-Za-z0-9._-]{1,255})/(\d{1,5})/(\d{1,15})-(\d{1,9})-([0-9a-f]{32})(?:~([0-9A-Za-z.]{1,84}))?"
)
_PARTICIPANT = re.compile(r"([A-Za-z0-9._-]{1,255})/(\d{1,5})")
_FAMILY_BYTES = 8
_BRANCH = re.compile(r"[0-9A-Za-z]{1,20}(\.[0-9A-Za-z]{1,20}){0,3}")
_QUERY_BYTES_MAX = 256

Participant: TypeAlias = tuple[str, int]
"""The name of a topic and the number of a partition of it, which takes part."""


@dataclass(frozen=True, slots=True)
class TransactionName:
    """What the name of a transaction says.

    Attributes:
        topic, partition: its home, where the decision is kept.
        began_ms, until_ms: its time.
        family: which branches belong together.
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
        match = _NAME.fullmatch(text) if isinstance(text, str) else None
        is_whose = match is not None and (sender is None or match[5].endswith(sender.mark))
        if match is None or not is_whose or int(match[4]) > limits.BRANCHED_MS_MAX:
            raise BadRequest("transaction", "a name that begin_transaction gave this caller", text)
        began_ms = int(match[3])
        assert isinstance(text, str)
        until_ms = began_ms + int(match[4])
        branch = check_branch(match[6]) if match[6] else ""
        return cls(text, match[1], int(match[2]), began_ms, until_ms, match[5], branch)


def check_participants(participants: object) -> list[Participant]:
    """Topics and partitions that a transaction touched. Raises BadRequest."""
    most = limits.TRANSACTION_PARTICIPANTS_MAX
    if not isinstance(participants, list) or len(participants) > most:
        raise BadRequest("participants", f"a list of at most {most} topic/partition", participants)
    named = []
    for text in participants:
        match = _PARTICIPANT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise BadRequest("participants", "topic/partition", text)
        named.append((match[1], int(match[2])))
    return list(dict.fromkeys(named))


def family_of(sender: Sender, *words: object) -> str:
    """32 hexadecimal digits that stand for these words, or, without, were never used before. The
    second half of them says whose the transaction is (`Sender.mark`)."""
    if not words:
        return uuid.uuid4().hex[: 2 * _FAMILY_BYTES] + sender.mark
    text = "\x1f".join(str(word) for word in words)
    return hashlib.blake2b(text.encode(), digest_size=_FAMILY_BYTES).hexdigest() + sender.mark


def check_branches(branches: object) -> tuple[str, ...]:
    """Names of branches. Raises BadRequest."""
    most = limits.TRANSACTION_BRANCHES_MAX
    if not isinstance(branches, list) or len(branches) > most:
        raise BadRequest("branches", f"a list of at most {most} branches", branches)
    for branch in branches:
        check_branch(branch)
    return tuple(dict.fromkeys(branches))


def check_branch(branch: object) -> str:
    """The name of a branch: words of letters and digits, with dots between them."""
    if not isinstance(branch, str) or not _BRANCH.fullmatch(branch):
        raise BadRequest("branch", "1 to 4 words of letters and digits, with dots between", branch)
    return branch


def check_epoch(query: object, epoch: object) -> tuple[str, int]:
    """A sink and one of its epochs. Raises BadRequest."""
    if not isinstance(query, str) or not 1 <= len(query.encode()) <= _QUERY_BYTES_MAX:
        raise BadRequest("query", f"a text of 1 to {_QUERY_BYTES_MAX} bytes", query)
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < 1 << 62:
        raise BadRequest("epoch", "a whole number from 0", epoch)
    return query, epoch
