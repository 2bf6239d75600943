"""What JetStream answers, and what each of its refusals means: one table by its numbers.

Room: connections. No sockets.
Holds: AGAIN is said only of what was not done, so the same may be asked again at once; where it may
have been done, the outcome is UNKNOWN. What the table lacks goes by its code: 503 is UNKNOWN.
See: connection.py, which asks again; nats-server's list of errors has all numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from dejaqueue.errors import Unavailable

ERROR_BYTES_MAX: Final = 4_096
"""A longer answer of the API is no refusal."""


class Meaning(Enum):
    """What a refusal says of what was asked."""

    AGAIN = "it was not done, as nobody was there who could; in a moment somebody may be"
    UNKNOWN = "it may have been done"
    NO_ROOM = "it was not done, as there is no room"
    ABSENT = "there is no such stream or message"
    FINAL = "it was not done, and will not be"


NO_PEERS: Final = 10005
NO_LEADER: Final = 10008
NO_MESSAGE: Final = 10037
NAME_IN_USE: Final = 10058
NO_STREAM: Final = 10059
WRONG_LAST: Final = 10071
WRONG_LAST_PROPOSED: Final = 10164

MEANINGS: Final = {
    10002: Meaning.NO_ROOM,  # limits of the account
    10004: Meaning.AGAIN,  # not all servers have answered the one that was asked
    NO_PEERS: Meaning.AGAIN,  # too few servers for the copies: the others may only be starting
    10007: Meaning.AGAIN,  # not assigned to this server, so far as it knows
    NO_LEADER: Meaning.AGAIN,  # of all servers, or of the stream
    10009: Meaning.AGAIN,  # the one that was asked leads no more
    10023: Meaning.NO_ROOM,
    10028: Meaning.NO_ROOM,
    NO_MESSAGE: Meaning.ABSENT,
    10039: Meaning.AGAIN,  # JetStream has stopped there, as it does when a disk fails
    10047: Meaning.NO_ROOM,
    NO_STREAM: Meaning.ABSENT,
    10076: Meaning.AGAIN,  # as 10039
    10077: Meaning.UNKNOWN,  # storing has failed at one server, and others may have it
    10118: Meaning.AGAIN,  # the stream is offline
    10163: Meaning.AGAIN,  # the leader does not know yet what the last of the subject is
    10167: Meaning.AGAIN,  # too many requests
    10194: Meaning.AGAIN,  # as 10118, with a reason
    10202: Meaning.AGAIN,  # another server is just being taken out or in
    10210: Meaning.AGAIN,  # too many batches are under way
}
"""By the number of the error, as of nats-server 2.15."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A message that came.

    Attributes:
        status: of the server's own replies, such as 404; 0 = a message with content.
        answer_to: where an answer to it would go, "" = nowhere.
    """

    subject: str
    content: bytes
    headers: dict[str, str] = field(default_factory=dict)
    answer_to: str = ""

    @property
    def status(self) -> int:
        """The status line's number, 0 if there is none."""
        return int(self.headers.get("Status", 0))


class ApiRefusal(Exception):
    """JetStream's API answered with an error. Never leaves the rooms of journals, coordinators.

    Attributes:
        code: as in HTTP. number: JetStream's own number of the error.
    """

    def __init__(self, text: str, code: int, number: int) -> None:
        super().__init__(f"{text} ({number})")
        self.code, self.number = code, number

    @property
    def meaning(self) -> Meaning:
        """By the table.

        >>> ApiRefusal("JetStream system temporarily unavailable", 503, 10008).meaning.name
        'AGAIN'
        """
        unlisted = Meaning.UNKNOWN if self.code == 503 else Meaning.FINAL
        return MEANINGS.get(self.number, unlisted)


def is_not_now(reply: Reply | None) -> bool:
    """True if an answer of the API, or to a message for a stream, says AGAIN: also that nobody
    listens there, as before a leader is chosen."""
    if reply is None:
        return False
    if reply.status:
        return reply.status == 503
    refusal = _refusal("", reply)
    return refusal is not None and refusal.meaning is Meaning.AGAIN


def read_answer(what: str, reply: Reply) -> dict[str, Any]:
    """The JSON of an answer of JetStream.

    Args:
        what: was asked of whom, for the text of an error.

    Raises:
        ApiRefusal: it is refused for now or for ever. Unavailable: AGAIN and UNKNOWN.
    """
    if reply.status == 503:
        raise Unavailable(f"{what}: nobody there to answer")
    refusal = _refusal(what, reply)
    if refusal is None:
        return _read(what, reply)
    if refusal.meaning in {Meaning.AGAIN, Meaning.UNKNOWN}:
        raise Unavailable(str(refusal)) from refusal
    raise refusal


def _refusal(what: str, reply: Reply) -> ApiRefusal | None:
    """The error that an answer is; None = it is none."""
    if len(reply.content) > ERROR_BYTES_MAX or b'"err_code"' not in reply.content:
        return None  # not read twice: a page of subjects is long
    error = _read(what, reply).get("error")
    if not error:
        return None
    text = f"{what}: {error.get('description', '')}"
    return ApiRefusal(text, int(error.get("code", 0)), int(error.get("err_code", 0)))


def _read(what: str, reply: Reply) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(reply.content)
    except ValueError as error:
        raise Unavailable(f"{what}: the answer is not JSON (status {reply.status})") from error
    return answer
