"""Covers: names and settings of streams; one with other settings is refused, never changed.

Not covered: servers (tests/unit/journal/records/nats/test_store.py, tests/conformance).
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from dejaqueue.connections.nats.answers import NO_STREAM, ApiRefusal
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.url import read_url
from dejaqueue.errors import Refused, Unavailable
from dejaqueue.journal.records.nats.streams import (
    ATOMIC,
    MAKE_TRIES,
    SLOTS,
    make_stream,
    records_beginning,
    records_place,
    settings_of,
    stream_state,
)
from tests.unit.journal.records.nats.played import STREAM, Played

URL = read_url("nats://127.0.0.1:1?prefix=one&replicas=3")
GONE = ApiRefusal("stream not found", 404, NO_STREAM)


def state(connection: Played) -> dict[str, Any] | None:
    return stream_state(cast(NatsConnection, connection), STREAM)


def made(connection: Played, wanted: dict[str, Any]) -> dict[str, Any]:
    return make_stream(cast(NatsConnection, connection), wanted)


@pytest.fixture
def wanted() -> dict[str, Any]:
    return settings_of(URL, STREAM, "one.records.>")


def holding(*infos: Any) -> Played:
    """Servers that answer so, in turn, when they are asked for the stream."""
    connection = Played()
    connection.api_answers["STREAM.INFO"] = list(infos)
    return connection


# --- names


def test_logs_of_a_slot_share_a_stream__and_each_has_a_subject_of_its_own() -> None:
    topics = ["a.b", "a_b", "A.b", "x" * 200, "a.b-0"]
    places = [records_place(URL, topic, number, 7) for topic in topics for number in (0, 1)]
    assert {place.stream for place in places} == {"one-records-0007"}
    assert {place.subjects for place in places} == {"one.records.0007.>"}
    assert len({place.subject for place in places}) == len(places)


def test_a_topic_that_nobody_placed_is_where_its_name_says() -> None:
    names = {records_place(URL, f"topic-{number}", 0, None).stream for number in range(500)}
    assert len(names) == SLOTS
    first, second = (records_place(URL, "topic", partition, None) for partition in (0, 1))
    assert first.stream == second.stream


def test_the_brokers_own_logs_are_alone_in_their_streams() -> None:
    """Several append to them by turns: they should hold nobody."""
    own = records_place(URL, "=catalogue", 0, None)
    other = records_place(URL, "=cata.logue", 0, None)
    assert own.stream.startswith("one-records-catalogue-")
    assert len({own.stream, other.stream}) == len({own.subjects, other.subjects}) == 2


def test_a_topics_own_letters_are_in_no_name_and_no_subject() -> None:
    """A dot or a star in a subject would make it another one, or several."""
    for topic in ("a.*", "a.>", "é", "=a.*", "=é"):
        place = records_place(URL, topic, 7, None)
        assert place.stream.startswith(records_beginning(URL))
        assert not set(place.stream) & set(".*> /\\")
        assert place.subject.count(".") == 4
        assert place.subject.endswith(".7")
        assert place.subject.startswith(place.subjects.removesuffix(">"))
        assert not set(place.subject) & set("*> ")
        assert (place.stream + place.subject).isascii()


# --- settings


def test_what_was_acknowledged_is_kept_until_it_is_told_otherwise(wanted: dict[str, Any]) -> None:
    assert (wanted["storage"], wanted["retention"], wanted["discard"]) == ("file", "limits", "new")
    assert (wanted["max_msgs"], wanted["max_bytes"], wanted["max_age"]) == (-1, -1, 0)
    assert wanted["num_replicas"] == 3
    assert wanted["deny_delete"]
    assert settings_of(URL, "n", "s", max_msgs_per_subject=1)["max_msgs_per_subject"] == 1


def test_a_stream_that_is_there_with_these_settings_is_not_made(wanted: dict[str, Any]) -> None:
    connection = holding({"config": wanted})
    assert made(connection, wanted) == {"config": wanted}
    assert connection.calls("STREAM.CREATE") == 0


def test_a_stream_that_is_not_there_is_made(wanted: dict[str, Any]) -> None:
    connection = holding(GONE, {"config": wanted})
    assert made(connection, wanted) == {"config": wanted}
    assert ("STREAM.CREATE." + STREAM, wanted) in connection.asked


@pytest.mark.parametrize(
    ("setting", "value"),
    [("max_age", 10**12), ("discard", "old"), ("num_replicas", 1), ("storage", "memory")],
)
def test_a_stream_with_other_settings_is_refused_by_the_name_of_the_setting(
    wanted: dict[str, Any], setting: str, value: object
) -> None:
    connection = holding({"config": wanted | {setting: value}})
    with pytest.raises(Refused, match=rf"has {setting} {value!r}, and the journal needs"):
        made(connection, wanted)
    assert connection.calls("STREAM.CREATE") == connection.calls("STREAM.UPDATE") == 0


def test_what_a_server_leaves_out_is_false_or_nothing(wanted: dict[str, Any]) -> None:
    config = {name: value for name, value in wanted.items() if value}
    assert made(holding({"config": config}), wanted) == {"config": config}
    del config["deny_delete"]
    with pytest.raises(Refused, match="has deny_delete False"):
        made(holding({"config": config}), wanted)


def test_a_server_that_takes_one_message_at_a_time_is_used_as_it_is(
    wanted: dict[str, Any],
) -> None:
    config = {name: value for name, value in wanted.items() if name != ATOMIC}
    assert made(holding({"config": config}), wanted) == {"config": config}


def test_room_on_a_disk_is_waited_for__another_refusal_is_final(wanted: dict[str, Any]) -> None:
    connection = holding(GONE)
    connection.api_answers["STREAM.CREATE"] = ApiRefusal("no storage", 500, 10047)
    with pytest.raises(Unavailable, match=rf"cannot make the stream {STREAM} yet"):
        made(connection, wanted)
    connection.api_answers["STREAM.CREATE"] = ApiRefusal("no account", 400, 10065)
    with pytest.raises(Refused, match=rf"cannot make the stream {STREAM}: no account"):
        made(connection, wanted)


def test_a_stream_that_vanishes_again_and_again_is_not_there(wanted: dict[str, Any]) -> None:
    connection = holding(GONE)
    with pytest.raises(Unavailable, match="vanishes"):
        made(connection, wanted)
    assert connection.calls("STREAM.CREATE") == MAKE_TRIES


# --- its leader


def led(*offline: bool) -> dict[str, Any]:
    return {"cluster": {"replicas": [{"offline": one} for one in offline]}}


@pytest.mark.parametrize("found", [{}, led(), led(False, False), led(True, False)])
def test_a_leader_that_most_of_its_followers_hear_is_believed(found: dict[str, Any]) -> None:
    assert state(holding(found)) == found


@pytest.mark.parametrize("found", [led(True), led(True, True), led(True, True, False, True)])
def test_a_leader_that_lost_its_followers_is_not_believed(found: dict[str, Any]) -> None:
    """It may have been replaced, and not know what was acknowledged since."""
    with pytest.raises(Unavailable, match=r"its leader hears \d of \d followers"):
        state(holding(found))


def test_no_stream_is_an_answer__no_leader_is_none() -> None:
    assert state(holding(GONE)) is None
    with pytest.raises(Unavailable, match="no leader"):
        state(holding(ApiRefusal("no leader", 503, 10008)))
