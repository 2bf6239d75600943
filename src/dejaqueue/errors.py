"""The errors of DejaQ, one tree, by whose move it is.

    DejaQError
    ├── BadRequest           fix the call: names the field, the limit and the value
    │   └── TopicUnknown     there is no such topic
    ├── Refused              the state says no; the same call will get the same answer
    │   ├── TopicExists      a topic of that name exists with other settings
    │   ├── JournalDamaged   stored bytes are not what was written; names file and offset
    │   ├── DuplicateKey     a live message has this key; carries its id (rule 11)
    │   └── NotActive        another broker is the active one: this is its standby, or was replaced
    ├── NotAllowed           who calls may not do this
    │   ├── Unauthenticated  an API key is needed, or this one is not known
    │   └── Forbidden        the API key has no such role for this topic
    ├── TryLater             nothing is wrong with the call; carries retry_after_ms
    │   ├── ResourceExhausted  backlog, memory or disk is full (rule 14)
    │   └── Unavailable      the broker is starting, stopping or out of reach
    │       └── Elsewhere    another broker of the cluster serves the topic; carries where
    ├── Fenced               another owner wrote: drop the partition and reload
    ├── Locked               another process has the data directory
    └── InternalError        our bug: please report it with its story

Room: vocabulary; imports nothing of the project.
Holds: every error has a stable `number`, a `retry` flag, an HTTP status and a Flight status.
See: rule 15; docs/reference/errors.md is generated from this file.

What happens to one row of a batch is a row status (`model.RowStatus`), never an exception.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, ClassVar


class DejaQError(Exception):
    """Root of all errors that DejaQ raises.

    Attributes:
        number: stable across versions; scripts may rely on it.
        retry: True if the same call may succeed later without a change.
        http_status: status of the HTTP API.
        flight_status: name of the Flight (gRPC) status.
        exit_code: exit status of the `dejaq` command.
        outside: the text for whoever called, where that of the error is for the log: files here are
            none of theirs. "" = one text is for all.
    """

    number: ClassVar[int] = 1
    retry: ClassVar[bool] = False
    http_status: ClassVar[int] = 500
    flight_status: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[int] = 1
    outside: str = ""

    def fields(self) -> dict[str, Any]:
        """What travels with the text, as JSON values."""
        return {}

    def told(self) -> str:
        """The text for whoever called."""
        return self.outside or str(self)


class BadRequest(DejaQError):
    """The call is wrong; the text names the field, the limit and the value.

    >>> raise BadRequest("payload", "at most 1048576 bytes", 2097152)
    Traceback (most recent call last):
    ...
    dejaqueue.errors.BadRequest: payload: at most 1048576 bytes, got: 2097152
    """

    number = 10
    http_status = 400
    flight_status = "INVALID_ARGUMENT"
    exit_code = 2

    def __init__(self, field: str, limit: str, value: object = None) -> None:
        try:
            shown = repr(value) if not isinstance(value, int | float) else str(value)
        except (RecursionError, ValueError):  # nested a thousand deep, or of 5,000 digits
            value = shown = f"a {type(value).__name__} too deep or too long to be shown"
        super().__init__(f"{field}: {limit}, got: {shown[:200]}")
        self.field, self.limit, self.value = field, limit, value

    def fields(self) -> dict[str, Any]:
        """The field, the limit and the value, shortened."""
        value = self.value if isinstance(self.value, int | float | str) else repr(self.value)
        return {"field": self.field, "limit": self.limit, "value": str(value)[:200]}


class TopicUnknown(BadRequest):
    """There is no topic of this name."""

    number = 11
    http_status = 404
    flight_status = "NOT_FOUND"

    def __init__(self, name: str, near: str = "") -> None:
        meant = f" (did you mean {near}?)" if near else ""
        super().__init__("topic", f"the name of an existing topic{meant}", name)
        self.name = name


class Refused(DejaQError):
    """The state says no."""

    number = 20
    http_status = 409
    flight_status = "FAILED_PRECONDITION"
    exit_code = 3


class TopicExists(Refused):
    """A topic of this name exists, with other settings."""

    number = 21
    flight_status = "ALREADY_EXISTS"


class JournalDamaged(Refused):
    """Stored bytes are not what was written; names the file and the offset, in the broker's log."""

    number = 22
    exit_code = 5

    def found_at(self, place: str) -> None:
        """Say to whoever called what is damaged, in place of the file.

        Args:
            place: topic, partition, and entry if that is known.
        """
        self.outside = f"{place}: is not what was written; the broker's log names the file"


class EncryptionKeyMissing(Refused):
    """What is stored is encrypted, and the key that it needs is not there, or is another one."""

    number = 24
    exit_code = 5


class DuplicateKey(Refused):
    """A live message has this key (rule 11).

    Attributes:
        key: the key.
        id: id of the live message that has it; -1 = it is another sender's, and not to be told.
    """

    number = 23
    flight_status = "ALREADY_EXISTS"

    def __init__(self, key: str, message_id: int) -> None:
        whose = f"its id is {message_id}" if message_id >= 0 else "which another one sent"
        super().__init__(f"key: a live message has the key {key[:200]!r}, {whose}")
        self.key, self.id = key, message_id

    def fields(self) -> dict[str, Any]:
        """The key and the id of the live message."""
        return {"key": self.key, "id": self.id}


class NotActive(Refused):
    """Another broker is the active one: this is its standby, or was replaced by it."""

    number = 25
    exit_code = 8


class NotAllowed(DejaQError):
    """Who calls may not do this; nothing was done."""

    number = 50
    http_status = 403
    flight_status = "PERMISSION_DENIED"
    exit_code = 7


class Unauthenticated(NotAllowed):
    """An API key is needed, or the one that was sent is not known, was revoked or has ended."""

    number = 51
    http_status = 401
    flight_status = "UNAUTHENTICATED"


class Forbidden(NotAllowed):
    """The API key has no such role for this topic."""

    number = 52


class TryLater(DejaQError):
    """Nothing is wrong with the call; try again after `retry_after_ms`."""

    number = 30
    retry = True
    http_status = 503
    flight_status = "UNAVAILABLE"
    exit_code = 4

    def __init__(self, text: str, retry_after_ms: int = 100) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms

    def fields(self) -> dict[str, Any]:
        """How long to wait, in milliseconds."""
        return {"retry_after_ms": self.retry_after_ms}


class ResourceExhausted(TryLater):
    """Backlog, memory or disk is full: producers wait, consumers go on (rule 14)."""

    number = 31
    http_status = 429
    flight_status = "RESOURCE_EXHAUSTED"


class Unavailable(TryLater):
    """The broker is starting, stopping or out of reach.

    Attributes:
        is_final: a journal says so: it takes nothing more before its process starts anew.
        is_unheard: a client says so: nobody was reached, so nothing can have happened.
        is_silent: a client says so: whom it asked gives no sign of life, so what came of the call
            is not known.
    """

    number = 32
    is_final = False
    is_unheard = False
    is_silent = False

    @classmethod
    def by_file(cls, what: str, failure: OSError) -> Unavailable:
        """A file could not be read or written, whose name is for the log alone.

        >>> full = OSError(5, "Input/output error", "/data/topics/t")
        >>> error = Unavailable.by_file("t could not be made", full)
        >>> error.told()
        't could not be made: Input/output error'
        >>> str(error)
        "t could not be made: [Errno 5] Input/output error: '/data/topics/t'"
        """
        error = cls(f"{what}: {failure}")
        error.outside = f"{what}: {failure.strerror or type(failure).__name__}"
        return error


class Elsewhere(Unavailable):
    """Another broker of the cluster serves the topic.

    A broker passes such calls on; it is an answer only where that is not possible.

    Attributes:
        node: name of that broker.
        url: its Flight port, `dejaq://host:port`.
        http_url: its HTTP port.
        spread: how many shards the topic has, each served apart: each is to be asked. 0 = it is
            not about that, and one broker serves what was asked for.
    """

    number = 33

    def __init__(
        self,
        text: str,
        retry_after_ms: int = 50,
        node: str = "",
        url: str = "",
        http_url: str = "",
        spread: int = 0,
    ) -> None:
        super().__init__(text, retry_after_ms)
        self.node = node
        self.url = url
        self.http_url = http_url
        self.spread = spread

    def fields(self) -> dict[str, Any]:
        """Where it is."""
        return {
            "retry_after_ms": self.retry_after_ms,
            "node": self.node,
            "url": self.url,
            "http_url": self.http_url,
            "spread": self.spread,
        }


class Fenced(DejaQError):
    """Another owner has appended: this one must drop the partition and reload."""

    number = 40
    retry = True
    http_status = 503
    flight_status = "ABORTED"


class Locked(DejaQError):
    """Another process has the data directory."""

    number = 41
    exit_code = 6
    http_status = 503


class InternalError(DejaQError):
    """An invariant was breached: our bug. Please report it with its story.

    The text is for the log. Whoever called gets another one, which names the fault by an id that
    the log has: names of files, classes and values of other callers stay inside.

    Attributes:
        fault: the id; the same for equal texts.
        keep_story: what a broker has told of each that leaves it, to write it into its log.
    """

    keep_story: ClassVar[Callable[[InternalError], None]] = lambda _error: None

    number = 90

    def __init__(self, text: str, story: list[str] | None = None) -> None:
        shown = "".join(f"\n  {line}" for line in story or [])
        super().__init__(f"{text}{shown}")
        self.story = story or []
        self.fault = f"{zlib.crc32(text.encode(errors='replace')):08x}"

    def fields(self) -> dict[str, Any]:
        """The id of the fault."""
        return {"fault": self.fault}

    def told(self) -> str:
        """The text for whoever called. The log gets what it leaves out."""
        told = f"internal error: please report it with what the broker's log has of {self.fault}"
        if str(self) != told:  # else another broker has told it
            InternalError.keep_story(self)
        return told


def all_errors() -> list[type[DejaQError]]:
    """Every error class with a number of its own, by number. What a program derives from one of
    them without a number travels as that one, and is made by that program alone."""
    kinds: list[type[DejaQError]] = []
    stack: list[type[DejaQError]] = [DejaQError]
    while stack:
        kind = stack.pop()
        kinds.extend([kind] if "number" in vars(kind) else [])
        stack.extend(kind.__subclasses__())
    return sorted(kinds, key=lambda kind: kind.number)


def to_fields(error: DejaQError) -> dict[str, Any]:
    """An error as JSON values, to travel on the wire."""
    return {"number": error.number, "error": type(error).__name__, "text": error.told()} | {
        "fields": error.fields()
    }


def from_fields(values: dict[str, Any]) -> DejaQError:
    """The error that `to_fields` described, of the same class, with the text for outside.

    Raises:
        ValueError, TypeError, OverflowError: the values are not what `to_fields` makes.
    """
    by_number = {kind.number: kind for kind in all_errors()}
    kind = by_number.get(int(values.get("number", 1)), DejaQError)
    error = kind.__new__(kind)
    Exception.__init__(error, str(values.get("text", "")))
    for name, value in dict(values.get("fields", {})).items():
        if name in {"field", "limit", "value", "key", "node", "url", "http_url", "fault"}:
            setattr(error, name, str(value))
        elif name in {"retry_after_ms", "id", "spread"}:
            setattr(error, name, int(value))
    if isinstance(error, TryLater) and not hasattr(error, "retry_after_ms"):
        error.retry_after_ms = 100
    if isinstance(error, Elsewhere):
        for name in ("node", "url", "http_url"):
            error.__dict__.setdefault(name, "")
        error.__dict__.setdefault("spread", 0)
    if isinstance(error, InternalError):
        error.story = []
        error.__dict__.setdefault("fault", "unknown")
    return error
