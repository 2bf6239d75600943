"""Facts in Redis or Valkey: one Lua script per call, the server's clock for every ttl.

Room: coordinator. Needs the extra `redis`.
Holds: a script is one step of the server; what has vanished is deleted, counted and told first in
each of them. Every change has the next number of one counter: it is the fact's revision, and a
listener that sees a gap rings every bell.
Limits: as safe as one primary with `appendfsync always`; a ttl follows the server's wall clock.
See: interface.py; connections/redis.py; docs/guides/coordinators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dejaqueue.connections.redis import RedisConnection
from dejaqueue.coordinator.bells import Bells, check_fact, check_key, check_prefix
from dejaqueue.coordinator.counted import Channel, CountedChanges, Told
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact, Watch

# KEYS: values, revisions, ttls (hashes by fact), deadlines, names (sorted sets), the counter.
# ARGV[1] is the channel of changes.
_BEGIN = """
local values, revisions, ttls = KEYS[1], KEYS[2], KEYS[3]
local deadlines, names, counter = KEYS[4], KEYS[5], KEYS[6]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local function changed(key)
  local number = redis.call('INCR', counter)
  redis.call('PUBLISH', ARGV[1], number .. ' ' .. key)
  return number
end
local function drop(key)
  redis.call('HDEL', values, key)
  redis.call('HDEL', revisions, key)
  redis.call('HDEL', ttls, key)
  redis.call('ZREM', deadlines, key)
  redis.call('ZREM', names, key)
  changed(key)
end
for _, key in ipairs(redis.call('ZRANGEBYSCORE', deadlines, '-inf', now)) do
  drop(key)
end
"""
_GET = """
return {redis.call('HGET', values, ARGV[2]), redis.call('HGET', revisions, ARGV[2])}
"""
_LIST = """
local found = {}
local last = '[' .. ARGV[2] .. '\\255'
for _, key in ipairs(redis.call('ZRANGEBYLEX', names, '[' .. ARGV[2], last)) do
  found[#found + 1] = key
  found[#found + 1] = redis.call('HGET', values, key)
  found[#found + 1] = redis.call('HGET', revisions, key)
end
return found
"""
_COMPARE = """
local has = redis.call('HGET', revisions, ARGV[2]) or '0'
if ARGV[3] ~= '' and ARGV[3] ~= has then
  return -1
end
"""
_PUT = (
    _COMPARE
    + """
local number = changed(ARGV[2])
redis.call('HSET', values, ARGV[2], ARGV[4])
redis.call('HSET', revisions, ARGV[2], number)
redis.call('ZADD', names, 0, ARGV[2])
if ARGV[5] == '' then
  redis.call('HDEL', ttls, ARGV[2])
  redis.call('ZREM', deadlines, ARGV[2])
else
  redis.call('HSET', ttls, ARGV[2], ARGV[5])
  redis.call('ZADD', deadlines, now + 2 + tonumber(ARGV[5]), ARGV[2])
end
return number
"""
)
_RENEW = """
if redis.call('HGET', revisions, ARGV[2]) ~= ARGV[3] then
  return 0
end
local ttl = redis.call('HGET', ttls, ARGV[2])
if ttl then
  redis.call('ZADD', deadlines, now + 2 + tonumber(ttl), ARGV[2])
end
return 1
"""
_DELETE = (
    _COMPARE
    + """
if has == '0' then
  return 0
end
drop(ARGV[2])
return 1
"""
)
_COUNT = """
return tonumber(redis.call('GET', counter) or '0')
"""


def open_url(url: str) -> RedisCoordinator:
    """The coordinator of a `redis://` URL. Raises BadRequest, Refused, Unavailable."""
    return RedisCoordinator(RedisConnection(url))


class RedisCoordinator(Coordinator):
    """Facts on one primary, below a prefix."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self.summary = connection.summary
        self._channel = f"{connection.prefix}:facts:changed"
        self._keys = [
            f"{connection.prefix}:facts:{name}"
            for name in ("values", "revisions", "ttls", "deadlines", "names", "counter")
        ]
        self._scripts: dict[str, Any] = {
            text: connection.client.register_script(_BEGIN + text)
            for text in (_GET, _LIST, _PUT, _RENEW, _DELETE, _COUNT)
        }
        self._bells = Bells()
        self._changes = CountedChanges(self._bells, self.count, self.listen, self.poll_ms)
        self._own: dict[str, int] = {}

    def get(self, key: str) -> Fact | None:
        """A fact, None if it is not there. Raises Unavailable."""
        value, revision = self._run(_GET, check_key(key))
        return Fact(key, value, int(revision)) if revision is not None else None

    def list(self, prefix: str) -> list[Fact]:
        """The facts whose keys begin so, sorted by key. Raises Unavailable."""
        answer = self._run(_LIST, check_prefix(prefix))
        return [
            Fact(answer[at].decode(), answer[at + 1], int(answer[at + 2]))
            for at in range(0, len(answer), 3)
        ]

    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        """Store a fact; return its new revision. Raises Conflict, Unavailable."""
        check_fact(key, value, revision, ttl_ms)
        stored = int(self._run(_PUT, key, _or_empty(revision), value, _or_empty(ttl_ms)))
        if stored < 0:
            raise Conflict(f"{key} has not the revision {revision}")
        self._own[key] = stored
        return stored

    def renew(self, key: str) -> bool:
        """Keep a fact that this coordinator put with a ttl; False if it is there no more."""
        return bool(self._run(_RENEW, check_key(key), str(self._own.get(key, 0))))

    def delete(self, key: str, revision: int | None = None) -> bool:
        """Delete a fact; False if it was not there. Raises Conflict, Unavailable."""
        deleted = int(self._run(_DELETE, check_key(key), _or_empty(revision)))
        if deleted < 0:
            raise Conflict(f"{key} has not the revision {revision}")
        return deleted > 0

    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """Ring the bell, on the thread that hears the channel, after changes below the prefix."""
        return self.watch_keys(prefix, lambda _: bell())

    def watch_keys(self, prefix: str, bell: Callable[[str | None], None]) -> Watch:
        """As `watch`, and the bell is given the key of the fact that changed; None = any."""
        watch = self._bells.add_keyed(prefix, bell)
        self._changes.start()
        return watch

    def close(self) -> None:
        """Stop watching; facts with a ttl are left to vanish."""
        self._bells.close()
        self._changes.stop()
        self._connection.close()

    def count(self) -> int:
        """Drop what has vanished; the number of the last change. Raises Unavailable."""
        return int(self._run(_COUNT))

    def listen(self) -> Channel:
        """The channel of changes. Raises Unavailable."""
        return _Channel(self._connection, self._channel)

    def _run(self, script: str, *arguments: str | bytes) -> Any:
        with self._connection.answers("EVALSHA"):
            return self._scripts[script](keys=self._keys, args=[self._channel, *arguments])


def _or_empty(number: int | None) -> str:
    return "" if number is None else str(number)


class _Channel:
    """A subscription."""

    def __init__(self, connection: RedisConnection, name: str) -> None:
        self._connection = connection
        with connection.answers("SUBSCRIBE"):
            self._heard: Any = connection.client.pubsub(ignore_subscribe_messages=True)
            self._heard.subscribe(name)

    def hear(self, seconds: float) -> Told | None:
        """The next change that is told."""
        with self._connection.answers("SUBSCRIBE"):
            message = self._heard.get_message(timeout=seconds)
        if not message:
            return None
        number, _, key = message["data"].decode().partition(" ")
        return Told(int(number), key)

    def close(self) -> None:
        """End the subscription."""
        self._heard.close()
