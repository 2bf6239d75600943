"""CronEntry: what fires in a cron topic, when, and what it says.

Room: schema. For the client and the broker; whether the expression and the zone exist is for the
broker to say (broker/cron).
Holds: what `check` lets through has every value in its limits; from_dict(to_dict(x)) == x.
See: rule 17; docs/guides/cron.md.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.schema.messages import DEFAULT_PRIORITY
from dejaqueue.schema.packing import RECORD, UNIT

_Word = TypeVar("_Word", bound=StrEnum)

HEADER_ENTRY = "dejaq-cron-entry"
"""Header of a message that a cron entry made: the entry's name."""
HEADER_FIRING = "dejaq-cron-firing"
"""Header of a message that a cron entry made: the time it fired for, UTC milliseconds."""


class Misfire(StrEnum):
    """What happens to firings whose time passed while no broker ran, or that a clock change left
    out."""

    SKIP = "skip"
    """They are dropped."""
    ONCE = "once"
    """One message stands for all of them."""
    ALL = "all"
    """A message for each of them."""


class Overlap(StrEnum):
    """What happens if the message of the previous firing is not done yet."""

    ALLOW = "allow"
    """The entry fires anyway."""
    SKIP = "skip"
    """The firing is dropped."""


@dataclass(frozen=True, slots=True)
class CronEntry:
    """Something that fires again and again: by a cron expression, or at a fixed interval.

    >>> CronEntry("report", cron="0 9 * * MON-FRI", zone="Europe/Berlin").check().misfire
    <Misfire.ONCE: 'once'>
    """

    name: str
    """1 to 256 bytes; names the entry within its topic."""
    cron: str = ""
    """Expression of 5 fields, or of 6 with seconds first; or else `every_ms`."""
    every_ms: int = 0
    """Milliseconds from firing to firing, counted from `start_ms`."""
    zone: str = "UTC"
    """IANA time zone that the expression is meant in."""
    start_ms: int = 0
    """No firing before this instant; 0 = from when it is made."""
    end_ms: int = 0
    """No firing at this instant or later; 0 = for ever."""
    jitter_ms: int = 0
    """Each firing comes later by up to this, always the same for the same firing."""
    misfire: Misfire = Misfire.ONCE
    """What happens to firings that were missed: skip, once or all."""
    overlap: Overlap = Overlap.ALLOW
    """Whether it fires while its last message is not done: allow or skip."""
    payload: bytes = b""
    """Of each message."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of each message, beside those that name entry and firing."""
    tags: tuple[str, ...] = ()
    """Of each message."""
    group: str = ""
    """Of each message."""
    priority: int = DEFAULT_PRIORITY
    """Of each message."""
    paused: bool = False
    """True: it does not fire; what passes meanwhile is not missed."""
    next_ms: int = -1
    """Given by the broker: when it fires next, without jitter; -1 = never."""
    last_id: int = -1
    """Given by the broker: id of the message it made last; -1 = none yet."""

    def check(self) -> CronEntry:
        """Return self, or raise BadRequest naming the field, the limit and the value."""
        _check_text("name", self.name, 1, limits.KEY_BYTES_MAX)
        _check_text("zone", self.zone, 1, limits.KEY_BYTES_MAX)
        _check_text("group", self.group, 0, limits.GROUP_BYTES_MAX)
        _check_text("cron", self.cron, 0, limits.CRON_EXPRESSION_BYTES_MAX)
        if bool(self.cron) == bool(self.every_ms):
            raise BadRequest("entry.cron", "either cron or every_ms", self.cron or None)
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if not is_number or not low <= value <= high:
                raise BadRequest(f"entry.{name}", f"a whole number from {low} to {high}", value)
        if self.every_ms and self.every_ms < limits.CRON_EVERY_MS_MIN:
            raise BadRequest(
                "entry.every_ms", f"at least {limits.CRON_EVERY_MS_MIN}", self.every_ms
            )
        if self.end_ms and self.end_ms <= self.start_ms:
            raise BadRequest("entry.end_ms", "after start_ms", self.end_ms)
        if not isinstance(self.paused, bool):
            raise BadRequest("entry.paused", "true or false", self.paused)
        self._check_content()
        return replace(
            self,
            misfire=_choice(Misfire, "misfire", self.misfire),
            overlap=_choice(Overlap, "overlap", self.overlap),
            headers=dict(self.headers),
            tags=tuple(self.tags),
        )

    def _check_content(self) -> None:
        if not isinstance(self.payload, bytes):
            raise BadRequest("entry.payload", "bytes", self.payload)
        if len(self.payload) > limits.CRON_PAYLOAD_BYTES_MAX:
            limit = f"at most {limits.CRON_PAYLOAD_BYTES_MAX} bytes"
            raise BadRequest("entry.payload", limit, len(self.payload))
        if not isinstance(self.headers, Mapping):
            raise BadRequest("entry.headers", "names and values", self.headers)
        for name, value in self.headers.items():
            _check_text("headers", name, 1, limits.HEADERS_BYTES_MAX)
            _check_text("headers", value, 0, limits.HEADERS_BYTES_MAX)
            if name in {HEADER_ENTRY, HEADER_FIRING}:
                raise BadRequest("entry.headers", "other names than the broker's own", name)
        byte_count = sum(len(n.encode()) + len(v.encode()) for n, v in self.headers.items())
        room = limits.HEADERS_BYTES_MAX - limits.KEY_BYTES_MAX - 64
        if byte_count > room:
            raise BadRequest("entry.headers", f"at most {room} bytes", byte_count)
        if not isinstance(self.tags, tuple | list) or len(self.tags) > limits.TAGS_MAX:
            raise BadRequest("entry.tags", f"at most {limits.TAGS_MAX} tags", self.tags)
        for tag in self.tags:
            _check_text("tags", tag, 1, limits.TAG_BYTES_MAX)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values; the payload in base64."""
        values = {name: getattr(self, name) for name in FIELDS}
        return values | {
            "payload": base64.b64encode(self.payload).decode("ascii"),
            "headers": dict(self.headers),
            "tags": list(self.tags),
            "misfire": str(self.misfire),
            "overlap": str(self.overlap),
        }

    @staticmethod
    def from_dict(values: dict[str, Any]) -> CronEntry:
        """The entry of these fields, not checked but for their names and kinds (rule 15)."""
        for name in values:
            if name not in FIELDS:
                raise BadRequest(f"entry.{name}", f"one of {', '.join(FIELDS)}", values[name])
        if "name" not in values:
            raise BadRequest("entry.name", "a name", None)
        try:
            payload = base64.b64decode(values.get("payload", ""), validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise BadRequest("entry.payload", "base64", values["payload"]) from None
        words: dict[str, StrEnum] = {
            "misfire": _choice(Misfire, "misfire", values.get("misfire", Misfire.ONCE)),
            "overlap": _choice(Overlap, "overlap", values.get("overlap", Overlap.ALLOW)),
        }
        tags = values.get("tags", ())
        if isinstance(tags, list):
            tags = tuple(tags)
        return CronEntry(**{**values, **words, "payload": payload, "tags": tags})

    @staticmethod
    def from_answer(values: dict[str, Any]) -> CronEntry:
        """The entry that a broker tells of; fields that only a newer one knows are left out."""
        return CronEntry.from_dict({n: v for n, v in values.items() if n in FIELDS})


FIELDS = tuple(place.name for place in fields(CronEntry))
"""Names of all fields."""
_BOUNDS = {
    "every_ms": (0, limits.INSTANT_MS_MAX),
    "start_ms": (0, limits.INSTANT_MS_MAX),
    "end_ms": (0, limits.INSTANT_MS_MAX),
    "jitter_ms": (0, limits.CRON_JITTER_MS_MAX),
    "priority": (0, (1 << 16) - 1),
}


def _check_text(name: str, value: object, low: int, high: int) -> None:
    limit = f"a text of {low} to {high} bytes, without U+001E and U+001F"
    if not isinstance(value, str) or not low <= len(value.encode(errors="replace")) <= high:
        raise BadRequest(f"entry.{name}", limit, value)
    if UNIT in value or RECORD in value or not is_text(value):
        raise BadRequest(f"entry.{name}", limit, value)


def is_text(value: object) -> bool:
    """True if UTF-8 can encode it: JSON can name lone surrogates, which UTF-8 cannot."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _choice(kind: type[_Word], name: str, value: Any) -> _Word:
    try:
        return kind(value)
    except ValueError:
        raise BadRequest(f"entry.{name}", f"one of {', '.join(kind)}", value) from None
