"""Objects on JetStream: pieces in one stream, and in another, for each name, which pieces they are.

Room: journal.
Holds: an object changes by one message, the one that names its pieces; the pieces of before are
purged after it. Whoever reads meanwhile finds them gone, and reads the name again.
See: store.py.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import xxhash

from dejaqueue.connections.nats.answers import ApiRefusal, Meaning, Reply, read_answer
from dejaqueue.connections.nats.connection import TIMEOUT_S, Body, NatsConnection
from dejaqueue.connections.nats.url import NatsUrl
from dejaqueue.errors import ResourceExhausted, Unavailable
from dejaqueue.journal.records.nats.reading import (
    SEQUENCE,
    SUM,
    checksum,
    direct,
    from_leader,
    is_whole,
)
from dejaqueue.journal.records.nats.streams import make_stream, settings_of, stream_state
from dejaqueue.journal.records.objects import read_whole

PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
"""What a subject cannot have, or what means something else in it here."""
WINDOW_BYTES = 8 << 20
ASK_AGAIN = 4
SHARED_NAMES_MAX = 2_000
"""A longer list is not made for several partitions together: most of it would be for nobody."""
SIBLINGS = re.compile(r"(topics/[^/]+)/\d+/(snapshots)/")
"""What is asked for by a hundred partitions at once when a topic changes hands."""
BYTES_A_SECOND = 4 << 20
"""So slow may a server be before no answer is an unknown outcome."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Which messages are an object's content."""

    mark: str
    count: int
    byte_count: int
    checksum: str
    first: int

    def to_bytes(self) -> bytes:
        """As it is stored."""
        return json.dumps(
            [self.mark, self.count, self.byte_count, self.checksum, self.first]
        ).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Pieces:
        """Read what `to_bytes` made."""
        return cls(*json.loads(text))

    def is_right(self, content: bytes) -> bool:
        """True if this is the content that was stored."""
        return (
            len(content) == self.byte_count and xxhash.xxh3_128_hexdigest(content) == self.checksum
        )


class _Listing:
    """The names that fit a pattern, for several who ask at once: who comes while one look is under
    way has the next one together with the others.

    Attributes:
        asking: how many want it; changed under the lock of its owner.
    """

    def __init__(self, look: Callable[[], list[str]]) -> None:
        self._look, self.asking = look, 0
        self._turn = threading.Lock()
        self._begun = self._done = 0
        self._found: list[str] = []

    def next_number(self) -> int:
        """Of the first look that begins from now on."""
        return self._begun + 1

    def names(self, prefix: str, wanted: int, look_alone: Callable[[], list[str]]) -> list[str]:
        """Those that begin so, by a look with this number or a later one. Raises Unavailable."""
        with self._turn:
            if self._done < wanted:
                if self.asking == 1 or len(self._found) > SHARED_NAMES_MAX:
                    return look_alone()
                self._begun = number = self._begun + 1
                self._found = self._look()
                self._done = number
            return [name for name in self._found if name.startswith(prefix)]


class NatsObjects:
    """The named objects of a cluster."""

    def __init__(self, url: NatsUrl, connection: NatsConnection, piece_bytes: int) -> None:
        """Find or make the two streams. Raises Refused, Unavailable."""
        self._connection, self._piece_bytes = connection, piece_bytes
        self._listing_lock = threading.Lock()
        self._listings: dict[str, _Listing] = {}
        self._names, self._pieces = f"{url.prefix}-objects", f"{url.prefix}-pieces"
        self._subject, self._piece_subject = f"{url.prefix}.object", f"{url.prefix}.piece"
        one_each = {"max_msgs_per_subject": 1, "discard": "old"}
        make_stream(connection, settings_of(url, self._names, f"{self._subject}.>", **one_each))
        make_stream(connection, settings_of(url, self._pieces, f"{self._piece_subject}.*"))

    def put(self, name: str, content: bytes | memoryview) -> None:
        """Store the pieces, then the name. Raises ResourceExhausted, Unavailable."""
        content = memoryview(content).cast("B")
        # What a sick leader does not name here is not purged, which costs room and nothing else.
        before = self._find_led(name)
        mark = secrets.token_hex(12)
        first = count = 0
        step = max(1, WINDOW_BYTES // self._piece_bytes) * self._piece_bytes
        for start in range(0, len(content), step):
            window = content[start : start + step]
            pieces = [
                bytes(window[place : place + self._piece_bytes])
                for place in range(0, len(window), self._piece_bytes)
            ]
            sequence = self._store(f"{self._piece_subject}.{mark}", pieces)
            first, count = first or sequence, count + len(pieces)
        checksum = xxhash.xxh3_128_hexdigest(content)
        facts = Pieces(mark, count, len(content), checksum, first)
        self._store(f"{self._subject}.{_tokens(name)}", [facts.to_bytes()])
        if before is not None:
            self._forget(before)

    def _store(self, subject: str, contents: list[bytes]) -> int:
        """Store messages; the sequence of the first."""
        timeout_s = TIMEOUT_S + sum(map(len, contents)) / BYTES_A_SECOND
        messages: list[Body] = [({SUM: checksum(one)}, one) for one in contents]
        first = 0
        for reply in self._connection.publish_all(subject, messages, timeout_s):
            if reply is None or reply.status:
                raise Unavailable(f"{subject}: an object's piece was not acknowledged")
            try:
                answer = read_answer(subject, reply)
            except ApiRefusal as error:
                is_full = error.meaning is Meaning.NO_ROOM
                kind = ResourceExhausted if is_full else Unavailable
                raise kind(str(error)) from error
            first = first or int(answer["seq"])
        return first

    def _find_led(self, name: str) -> Pieces | None:
        """As the leader has it."""
        asked = {"last_by_subj": f"{self._subject}.{_tokens(name)}"}
        pieces = from_leader(self._connection, self._names, asked)
        return None if pieces is None else Pieces.from_bytes(pieces.content)

    def _find(self, name: str) -> Pieces | None:
        pieces = self._find_led(name)
        if pieces is not None:
            return pieces
        asked = {"last_by_subj": f"{self._subject}.{_tokens(name)}"}
        for _ in range(ASK_AGAIN):  # a sick leader would say the same; any server may answer
            for reply in direct(self._connection, self._names, asked, 1):
                if is_whole(reply):
                    return Pieces.from_bytes(reply.content)
        return None

    def get(self, name: str) -> bytes | None:
        """An object's content from whichever copy has it whole.

        Raises:
            JournalDamaged: no server has it as it was stored. Unavailable.
        """
        return read_whole(f"{name} in {self._pieces}", lambda: self._find(name), self._content)

    def get_some(self, names: Sequence[str]) -> dict[str, bytes]:
        """The contents of small objects: all names are looked up in one go, then all contents.

        What takes several pieces, or is not at once as it was stored, is left out.

        Raises:
            Unavailable.
        """
        found: dict[str, Pieces] = {}
        asked = [{"last_by_subj": f"{self._subject}.{_tokens(name)}"} for name in names]
        subject = f"$JS.API.STREAM.MSG.GET.{self._names}"
        for name, reply in zip(names, self._ask_all(subject, asked), strict=True):
            message = _message(reply)
            if message is not None:
                found[name] = Pieces.from_bytes(message)
        small = {name: pieces for name, pieces in found.items() if pieces.count == 1}
        asked_pieces = [{"seq": pieces.first} for pieces in small.values()]
        replies = self._ask_all(f"$JS.API.DIRECT.GET.{self._pieces}", asked_pieces)
        return {
            name: reply.content
            for (name, pieces), reply in zip(small.items(), replies, strict=True)
            if reply is not None and not reply.status and pieces.is_right(reply.content)
        }

    def _ask_all(
        self, subject: str, asked: Sequence[Mapping[str, object]]
    ) -> Sequence[Reply | None]:
        messages: list[Body] = [({}, json.dumps(one).encode()) for one in asked]
        return self._connection.ask_all(subject, messages) if messages else []

    def _content(self, pieces: Pieces) -> bytes | None:
        for _ in range(ASK_AGAIN):  # any server may answer
            content = self._read(pieces)
            if pieces.is_right(content):
                return content
        content = self._read_slowly(pieces)
        return content if pieces.is_right(content) else None

    def _read(self, pieces: Pieces) -> bytes:
        contents: list[bytes] = []
        sequence = pieces.first
        subject = f"{self._piece_subject}.{pieces.mark}"
        while len(contents) < pieces.count:
            before = len(contents)
            asked = {"seq": sequence, "next_by_subj": subject}
            for reply in direct(self._connection, self._pieces, asked, pieces.count - before):
                if not is_whole(reply):
                    break
                contents.append(reply.content)
                sequence = int(reply.headers[SEQUENCE]) + 1
            if len(contents) == before:
                break
        return b"".join(contents)

    def _read_slowly(self, pieces: Pieces) -> bytes:
        """As the leader has it, one piece at a time."""
        contents: list[bytes] = []
        sequence = pieces.first
        subject = f"{self._piece_subject}.{pieces.mark}"
        for _ in range(pieces.count):
            asked = {"seq": sequence, "next_by_subj": subject}
            reply = from_leader(self._connection, self._pieces, asked)
            if reply is None:
                break
            contents.append(reply.content)
            sequence = int(reply.headers[SEQUENCE]) + 1
        return b"".join(contents)

    def names(self, prefix: str) -> list[str]:
        """Names that begin so, sorted."""
        folder = prefix.rpartition("/")[0]
        subjects = f"{self._subject}.{_tokens(folder)}.>" if folder else f"{self._subject}.>"

        def look() -> list[str]:
            return [name for name in self._named(subjects) if name.startswith(prefix)]

        siblings = SIBLINGS.fullmatch(prefix)
        if siblings is None:
            return look()
        topic, kind = siblings.groups()
        pattern = f"{self._subject}.{_tokens(topic)}.*.{kind}.>"
        with self._listing_lock:
            listing = self._listings.setdefault(pattern, _Listing(lambda: self._named(pattern)))
            listing.asking += 1
            wanted = listing.next_number()
        try:
            return listing.names(prefix, wanted, look)
        finally:
            with self._listing_lock:
                listing.asking -= 1
                if not listing.asking:
                    del self._listings[pattern]

    def _named(self, subjects: str) -> list[str]:
        """Names of the objects with such subjects, sorted. Raises Unavailable."""
        last_of: dict[str, int] = {}
        while True:
            asked = {"subjects_filter": subjects, "offset": len(last_of)}
            told = stream_state(self._connection, self._names, asked) or {}
            part = told.get("state", {}).get("subjects") or {}
            last_of |= part
            if not part or len(last_of) >= int(told.get("total", 0)):
                break
        cut = len(self._subject) + 1
        return sorted(_name(subject[cut:]) for subject in last_of)

    def drop(self, names: Sequence[str]) -> None:
        """Forget objects."""
        for name in names:
            before = self._find(name)
            if before is not None:
                self._purge(self._names, f"{self._subject}.{_tokens(name)}")
                self._forget(before)

    def _forget(self, pieces: Pieces) -> None:
        if pieces.count:
            self._purge(self._pieces, f"{self._piece_subject}.{pieces.mark}")

    def _purge(self, stream: str, subject: str) -> None:
        try:
            self._connection.api(f"STREAM.PURGE.{stream}", {"filter": subject})
        except ApiRefusal as error:
            raise Unavailable(str(error)) from error


def _message(reply: Reply | None) -> bytes | None:
    """What a leader answered to `STREAM.MSG.GET`; None if it has none, or did not answer."""
    if reply is None or reply.status:
        return None
    message = json.loads(reply.content).get("message")
    return None if message is None else base64.b64decode(message.get("data", ""))


def _tokens(name: str) -> str:
    """A name as tokens of a subject: `/` parts them, so that folders can be asked for."""
    return ".".join(_token(part) or "~" for part in name.split("/"))


def _token(part: str) -> str:
    return PLAIN.sub(lambda found: "".join(f"={n:02x}" for n in found[0].encode()), part).replace(
        ".", "%"
    )


def _name(tokens: str) -> str:
    parts = ("" if one == "~" else one.replace("%", ".") for one in tokens.split("."))
    return unquote("/".join(parts).replace("=", "%"))
