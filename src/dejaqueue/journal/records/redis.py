"""The record store on Redis and Valkey: a stream for each log, compared and appended by a script.

Room: journal. Needs the extra `redis`. One primary only: see the guide.
Holds: the number of a record is the first part of its id in the stream, so that the server itself
keeps the last number when nothing is left; one script compares and appends, so that no other
command comes between. An object is one list of pieces; the hash of all objects names it, so that
an object changes whole or not at all.
See: interface.py for the duties; docs/guides/choosing-a-journal.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import xxhash

from dejaqueue.connections.redis import RedisConnection
from dejaqueue.errors import Fenced, Unavailable
from dejaqueue.journal.records.interface import Bytes, RecordLog, RecordStore
from dejaqueue.journal.records.objects import read_whole

APPEND = """
local last = '0-0'
if redis.call('EXISTS', KEYS[1]) == 1 then
  local facts = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #facts, 2 do
    if facts[i] == 'last-generated-id' then last = facts[i + 1] end
  end
end
if last ~= ARGV[1] then return 0 end
for i = 2, #ARGV, 2 do redis.call('XADD', KEYS[1], ARGV[i], 'r', ARGV[i + 1]) end
return 1
"""
"""Append the records (id, content, …) if the last id is still the first argument."""

PUT = """
local before = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[3] ~= '' and redis.call('PERSIST', ARGV[3]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if before then redis.call('UNLINK', ARGV[4] .. string.match(before, '^[^ ]+')) end
return 1
"""
"""Name the pieces that lie ready as the object's content, and forget those of before."""

DROP = """
for i = 2, #ARGV do
  local before = redis.call('HGET', KEYS[1], ARGV[i])
  if before then
    redis.call('HDEL', KEYS[1], ARGV[i])
    redis.call('UNLINK', ARGV[1] .. string.match(before, '^[^ ]+'))
  end
end
return 1
"""

CALL_BYTES = 8 << 20
"""Bytes of records in one call at most; more take several calls."""
PIECE_BYTES = 1 << 20
UNNAMED_SECONDS = 3600
"""How long pieces of an object stay whose writer died."""
NAMES_A_CALL = 1000


class RedisRecordStore(RecordStore):
    """All record logs and objects of a cluster in one Redis or Valkey."""

    erases = True

    def __init__(self, url: str) -> None:
        """Connect. Raises BadRequest, Refused, Unavailable: see RedisConnection."""
        self._connection = RedisConnection(url)
        self.summary = self._connection.summary
        self._prefix = self._connection.prefix

    def open(self, topic: str, partition: int) -> RecordLog:
        """Open a log; it is made by its first append."""
        return RedisRecordLog(self._connection, f"{self._prefix}:records:{topic}:{partition}")

    def drop(self, topic: str) -> None:
        """Delete all logs of a topic."""
        beginning = f"{self._prefix}:records:{topic}:"
        with self._connection.answers("drop"):
            client = self._connection.client
            keys = list(client.scan_iter(match=f"{beginning}*", count=NAMES_A_CALL))
            for first in range(0, len(keys), NAMES_A_CALL):
                client.unlink(*keys[first : first + NAMES_A_CALL])

    # --- objects -------------------------------------------------------------------------------

    @property
    def _objects(self) -> str:
        return f"{self._prefix}:objects"

    @property
    def _pieces(self) -> str:
        return f"{self._prefix}:object:"

    def put_object(self, name: str, content: bytes | memoryview) -> None:
        """Store an object: its pieces first, then its name for them."""
        content = memoryview(content).cast("B")
        mark = secrets.token_hex(12)
        pieces = f"{self._pieces}{mark}"
        facts = f"{mark} {len(content)} {xxhash.xxh3_128_hexdigest(content)}"
        with self._connection.answers("put object"):
            client = self._connection.client
            for first in range(0, len(content), PIECE_BYTES):
                client.rpush(pieces, bytes(content[first : first + PIECE_BYTES]))
                if first == 0:
                    client.expire(pieces, UNNAMED_SECONDS)
            named = pieces if len(content) else ""
            if not client.eval(PUT, 1, self._objects, name, facts, named, self._pieces):
                raise Unavailable(f"object {name}: its pieces vanished before they were named")

    def get_object(self, name: str) -> bytes | None:
        """An object's content. Raises JournalDamaged if it is not what was stored."""
        return read_whole(f"{name} in {self.summary}", lambda: self._find(name), self._content)

    def _find(self, name: str) -> bytes | None:
        """Mark, length and checksum of what the name means, as `put_object` wrote them."""
        with self._connection.answers("get object"):
            facts: bytes | None = self._connection.client.hget(self._objects, name)
        return facts

    def _content(self, facts: bytes) -> bytes | None:
        mark, count, checksum = facts.decode().split(" ")
        content = self._read_pieces(mark)
        is_whole = len(content) == int(count) and xxhash.xxh3_128_hexdigest(content) == checksum
        return content if is_whole else None

    def _read_pieces(self, mark: str) -> bytes:
        pieces: list[bytes] = []
        step = max(1, CALL_BYTES // PIECE_BYTES)
        while True:
            with self._connection.answers("get object"):
                part = self._connection.client.lrange(
                    f"{self._pieces}{mark}", len(pieces), len(pieces) + step - 1
                )
            pieces += part
            if len(part) < step:
                return b"".join(pieces)

    def object_names(self, prefix: str) -> list[str]:
        """Names of the objects that begin so, sorted."""
        names: set[str] = set()
        with self._connection.answers("object names"):
            client = self._connection.client
            for name, _ in client.hscan_iter(self._objects, match=f"{prefix}*", count=NAMES_A_CALL):
                names.add(name.decode())
        return sorted(names)

    def drop_objects(self, names: Sequence[str]) -> None:
        """Delete objects."""
        with self._connection.answers("drop objects"):
            for first in range(0, len(names), NAMES_A_CALL):
                some = names[first : first + NAMES_A_CALL]
                self._connection.client.eval(DROP, 1, self._objects, self._pieces, *some)

    def close(self) -> None:
        """Close the connections; twice is fine."""
        self._connection.close()


class RedisRecordLog(RecordLog):
    """One partition's records in a stream."""

    def __init__(self, connection: RedisConnection, key: str) -> None:
        self._connection, self._key = connection, key
        self._append = connection.client.register_script(APPEND)
        self._closed = False
        self._mean_bytes = PIECE_BYTES

    def _check(self) -> Any:
        if self._closed:
            raise Unavailable(f"{self._key}: the log is closed")
        return self._connection.client

    def last(self) -> int:
        """The first part of the stream's last id."""
        import redis

        client = self._check()
        with self._connection.answers("last"):
            try:
                facts = client.xinfo_stream(self._key)
            except redis.exceptions.ResponseError as error:
                if "no such key" in str(error):
                    return 0
                raise
        return _number(facts["last-generated-id"])

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """Append by the script, as much as goes into one call at once."""
        self._check()
        call: list[bytes | str] = []
        byte_count, place = 0, after
        for pieces in records:
            content = b"".join(pieces)
            if call and byte_count + len(content) > CALL_BYTES:
                self._call(place, call, place > after)
                place, byte_count, call = place + len(call) // 2, 0, []
            call += [f"{place + len(call) // 2 + 1}-0", content]
            byte_count += len(content)
        self._call(place, call, place > after)

    def _call(self, after: int, call: list[bytes | str], is_continued: bool) -> None:
        import redis

        with self._connection.answers("append"):
            client = self._connection.client
            arguments = [f"{after}-0" if after else "0-0", *call]
            try:
                done = client.evalsha(self._append.sha, 1, self._key, *arguments)
            except redis.exceptions.NoScriptError:  # it did not run
                done = client.eval(APPEND, 1, self._key, *arguments)
        if done:
            return
        if is_continued:
            raise Unavailable(f"{self._key}: another owner appended behind a part of this append")
        raise Fenced(f"{self._key}: the last record is not {after}")

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Read ranges of the stream, each of about 8 MB."""
        while first < end:
            client = self._check()
            count = max(1, min(end - first, CALL_BYTES // max(1, self._mean_bytes)))
            with self._connection.answers("read"):
                answers = client.xrange(self._key, f"{first}-0", f"{end - 1}-0", count=count)
            for key, fields in answers:
                first = _number(key) + 1
                yield first - 1, fields[b"r"]
            if len(answers) < count:
                return
            self._mean_bytes = sum(len(fields[b"r"]) for _, fields in answers) // len(answers) + 1

    def drop_before(self, number: int) -> None:
        """Trim the stream; its last id stays."""
        client = self._check()
        with self._connection.answers("drop before"):
            client.xtrim(self._key, minid=f"{max(number, 0)}-0", approximate=False)

    def byte_count(self) -> int:
        """What the server says the stream takes of its memory."""
        client = self._check()
        with self._connection.answers("byte count"):
            return int(client.memory_usage(self._key) or 0)

    def close(self) -> None:
        """The connections are the store's."""
        self._closed = True


def _number(key: bytes | str) -> int:
    text = key.decode() if isinstance(key, bytes) else key
    return int(text.partition("-")[0])


def open_records(url: str) -> RedisRecordStore:
    """The records behind a URL; see journal/registry.py."""
    return RedisRecordStore(url)
