"""The streams of a cluster: their names, the settings that keep records, making and checking them.

Room: journal.
Holds: the records of all topics of a slot are in one stream, each partition's with a subject of
their own; those of a log that is the broker's own are in a stream alone. A stream that is there
with other settings is refused, never changed.
See: store.py; docs/guides/choosing-a-journal.md for what each setting is for.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import xxhash

from dejaqueue.connections.nats.answers import NO_STREAM, ApiRefusal, Meaning
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.settling import settled
from dejaqueue.connections.nats.url import NatsUrl
from dejaqueue.errors import Refused, Unavailable
from dejaqueue.journal.interface import OWN_PREFIX

SLOTS = 64
"""Of topics that nobody has placed: of brokers that are alone."""
PLAIN = re.compile(r"[^A-Za-z0-9_]+")
"""What the name of a stream should not have."""
ATOMIC = "allow_atomic"
"""Setting of a stream that takes several messages at once or none of them."""
MAKE_TRIES = 5
"""A stream that was made is not seen at once by a server that is late."""
CREATE_S = 10.0
"""A new group of three chooses its leader before it answers."""


class RecordsPlace(NamedTuple):
    """Where a log's records are.

    Attributes:
        stream: its name.
        subjects: all that are in the stream.
        subject: of the records of this log.
    """

    stream: str
    subjects: str
    subject: str


def records_place(url: NatsUrl, topic: str, partition: int | str, slot: int | None) -> RecordsPlace:
    """Where the records of a partition are; slot None = in the one that its topic's name gives."""
    mark = topic_mark(topic)
    if topic.startswith(OWN_PREFIX):
        place, word = mark, f"{PLAIN.sub('', topic)}-{mark}"
    else:
        slot = xxhash.xxh3_64_intdigest(topic.encode()) % SLOTS if slot is None else slot
        place = word = f"{slot:04d}"
    beginning = f"{url.prefix}.records.{place}"
    return RecordsPlace(
        f"{records_beginning(url)}{word}", f"{beginning}.>", f"{beginning}.{mark}.{partition}"
    )


def records_beginning(url: NatsUrl) -> str:
    """How the names of all streams of records begin."""
    return f"{url.prefix}-records-"


def topic_mark(topic: str) -> str:
    """Stands for a topic in a subject, where its own letters may not."""
    return str(xxhash.xxh3_128_hexdigest(topic.encode()))


def settings_of(url: NatsUrl, name: str, subject: str, **more: Any) -> dict[str, Any]:
    """The settings of a stream that keeps what it acknowledged until it is told otherwise."""
    return {
        "name": name,
        "subjects": [subject],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": url.replicas,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "deny_delete": True,
        "deny_purge": False,
        "allow_direct": True,
        "allow_rollup_hdrs": False,
        ATOMIC: True,
        "compression": "none",
    } | more


def make_stream(connection: NatsConnection, wanted: dict[str, Any]) -> dict[str, Any]:
    """Find a stream or make it; return what the server says of it.

    Raises:
        Refused: it has other settings. Unavailable: also while there are too few servers.
    """
    name = wanted["name"]
    for _ in range(MAKE_TRIES):
        # It may have been made by another broker just now, or be undone.
        state = settled(lambda: stream_state(connection, name))
        if state is not None:
            break
        _create(connection, wanted)
    else:
        raise Unavailable(f"the stream {name} vanishes: a server could not make its copy")
    config = state.get("config", {})
    for setting, value in wanted.items():
        if setting == ATOMIC:
            continue  # a server that does not know it leaves it out, and is used without it
        # What is left out is false, 0 or empty.
        has = config.get(setting, type(value)())
        if has != value:
            raise Refused(
                f"the stream {name} has {setting} {has!r}, and the journal needs {value!r}; "
                f"change it with the tools of NATS while nothing writes"
            )
    return state


def _create(connection: NatsConnection, wanted: dict[str, Any]) -> None:
    """Have a stream; one that is there and the same is left alone. Raises as `make_stream`.

    Too few servers for its copies are no refusal: the others may only be starting.
    """
    name = wanted["name"]
    try:
        connection.api(f"STREAM.CREATE.{name}", wanted, CREATE_S)
    except ApiRefusal as error:
        if error.meaning is Meaning.NO_ROOM:
            raise Unavailable(f"cannot make the stream {name} yet: {error}") from error
        raise Refused(f"cannot make the stream {name}: {error}") from error


def stream_state(
    connection: NatsConnection, name: str, asked: object = None
) -> dict[str, Any] | None:
    """What the leader of a stream says of it, None if there is no such stream.

    Raises:
        Unavailable: no leader, or one that has not heard of most of its followers lately: it may
            have been replaced, and not know what was acknowledged since.
    """
    try:
        answer = connection.look_up(f"STREAM.INFO.{name}", asked)
    except ApiRefusal as error:
        if error.number == NO_STREAM:
            return None
        raise Unavailable(str(error)) from error
    followers = (answer.get("cluster") or {}).get("replicas") or []
    heard = 1 + sum(not one.get("offline") for one in followers)
    if 2 * heard <= 1 + len(followers):
        raise Unavailable(f"{name}: its leader hears {heard - 1} of {len(followers)} followers")
    return answer
