"""Covers: changes of the catalogue as bytes, and the defaults that are left out of them."""

from __future__ import annotations

import json

import pytest
import xxhash

from dejaqueue.catalogue.changes import (
    FORMAT,
    AlteredTopic,
    Change,
    ClosedTopic,
    DeletedTopic,
    DeletingTopic,
    FoundedCluster,
    MadeTopic,
    UsedTopic,
    from_bytes,
    settings_of,
    to_bytes,
    topic_from,
)
from dejaqueue.errors import JournalDamaged
from dejaqueue.model import Topic, TopicKind

RICH = Topic("é", kind=TopicKind.FAIR, weights={"a": 2}, backoff_factor=1.5, paused=True)


@pytest.mark.parametrize(
    "change",
    [
        MadeTopic(Topic("a")),
        MadeTopic(RICH),
        MadeTopic(RICH, start=7),
        FoundedCluster("0123456789abcdef", 64),
        ClosedTopic("a", 5, "a=0-2"),
        AlteredTopic(Topic("a", partitions=3)),
        UsedTopic("a"),
        DeletingTopic("a"),
        ClosedTopic("a", 1 << 46),
        DeletedTopic("a"),
    ],
    ids=lambda change: type(change).__name__,
)
def test_a_change_is_read_as_it_was_written(change: Change) -> None:
    assert from_bytes(to_bytes(change)) == change


def test_a_topic_with_nothing_but_a_name_takes_few_bytes() -> None:
    assert to_bytes(MadeTopic(Topic("a"))) == b'{"made":{"name":"a"}}'
    read = topic_from(settings_of(RICH))
    assert (read, type(read.kind)) == (RICH, TopicKind)


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[]", b"\xff", b'{"closed":"a"}', b'{"lost":"a"}'),
        *(b'{"made":{}}', b'{"made":{"name":"a","colour":1}}'),
        *(b'{"made":{"name":"a","kind":"none"}}', b'{"used":"a","made":{}}'),
    ],
)
def test_what_is_no_change_is_damage(text: bytes) -> None:
    with pytest.raises(JournalDamaged):
        from_bytes(text)


def test_the_defaults_are_those_of_the_format() -> None:
    """Who changes a default of a topic changes what stored entries mean: raise FORMAT with it."""
    text = json.dumps(Topic("").to_dict(), sort_keys=True)
    assert (FORMAT, xxhash.xxh3_64_hexdigest(text.encode())) == (1, "56922c6f21ac3949")
