"""What a dead letter says about the message it was: headers, as packed columns (rule 18).

Room: schema. Arrow compute over whole columns; no loop over rows.
Holds: `without_death(with_death(x)) == x`; a letter has each header of death once.
See: docs/guides/failures.md; broker/letters/dead_letters.py, which sends letters.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import pyarrow as pa

from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.packing import RECORD, UNIT

PREFIX = "dejaq-dead-"
"""The prefix of all headers that tell of a death; a user's own header of it is replaced."""
REASON = f"{PREFIX}reason"
"""Why it died: `lease ended`, `refused`, `expired`, or what the consumer said."""
ATTEMPTS = f"{PREFIX}attempts"
"""How often it had been delivered."""
ORIGIN = f"{PREFIX}origin"
"""The topic it died in."""
ORIGIN_ID = f"{PREFIX}origin-id"
"""Its id there."""
DIED_AT = f"{PREFIX}at"
"""When it died, UTC milliseconds."""
KEY = f"{PREFIX}key"
"""The key it had, if it had one."""

_ANY = f"(^|{RECORD}){PREFIX}[^{RECORD}]*"
_NAME_IN_KEY_MAX = 190
"""A longer name is a digest in keys of letters, which have no room for it."""


@dataclass(frozen=True, slots=True)
class Deaths:
    """How some messages died: text columns of one length.

    Attributes:
        keys: the keys they had; "" = none.
    """

    reasons: pa.StringArray
    attempts: pa.StringArray
    origin: str
    ids: pa.StringArray
    died_at: pa.StringArray
    keys: pa.StringArray


def _filled(texts: pa.StringArray) -> pa.StringArray:
    """A column with null in place of each empty text."""
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.utf8()), texts)


def with_death(headers: pa.StringArray, deaths: Deaths) -> pa.StringArray:
    """Packed headers (packing.py), and behind them those of the death."""

    def header(name: str, values: pa.StringArray) -> pa.StringArray:
        return pc.binary_join_element_wise(f"{name}{UNIT}", values, "")

    return pc.binary_join_element_wise(
        _filled(without_death(headers)),
        header(REASON, deaths.reasons),
        header(ATTEMPTS, deaths.attempts),
        header(ORIGIN, pa.array([deaths.origin] * len(headers), pa.utf8())),
        header(ORIGIN_ID, deaths.ids),
        header(DIED_AT, deaths.died_at),
        header(KEY, _filled(deaths.keys)),
        RECORD,
        null_handling="skip",
    )


def without_death(headers: pa.StringArray) -> pa.StringArray:
    """Packed headers as they were before the message died; nulls become the empty text."""
    headers = headers.fill_null("") if headers.null_count else headers
    if not pc.any(pc.match_substring(headers, PREFIX)).as_py():
        return headers
    bare = pc.replace_substring_regex(headers, _ANY, "")
    return pc.replace_substring_regex(bare, f"^{RECORD}", "")


def packed_value(headers: pa.StringArray, name: str) -> pa.StringArray:
    """One header of each row of packed headers; "" where there is none."""
    pattern = f"(?:^|{RECORD}){name}{UNIT}(?P<value>[^{RECORD}]*)"
    values_of = pc.extract_regex(headers, pattern)
    return pc.fill_null(pc.struct_field(values_of, "value"), "")


def header_value(headers: pa.MapArray | pa.ChunkedArray, name: str) -> pa.Array | pa.ChunkedArray:
    """One header of each row of a column of headers, as a message has them; null = none."""
    return pc.map_lookup(headers, pa.scalar(name), "first")


def letter_keys(origin: str, ids: pa.StringArray, died_at: pa.StringArray) -> pa.StringArray:
    """The key of each letter: what died, and when.

    Args:
        origin: the topic, or subscription of one, or a shard of that.
    """
    keys = pc.binary_join_element_wise(pa.scalar(_short(origin)), ids, ":")
    return pc.binary_join_element_wise(keys, died_at, "@")


def ids_in_keys(keys: pa.Array | pa.ChunkedArray, origin: str) -> pa.Array | pa.ChunkedArray:
    """What `letter_keys` made of the ids of a topic's messages; null = it is no such key.

    Args:
        origin: the topic. Of a name that is a digest in keys, its subscriptions and shards are
            others.
    """
    name = f"{re.escape(origin)}(?:@[^@:=]+)?(?:=[0-9]+-[0-9]+)?"
    if origin != _short(origin):
        name = _short(origin)
    found = pc.extract_regex(keys, f"^(?:{name}):(?P<id>[0-9]+)@[0-9]+$")
    return pc.struct_field(found, "id")


def _short(name: str) -> str:
    if len(name) <= _NAME_IN_KEY_MAX:
        return name
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
