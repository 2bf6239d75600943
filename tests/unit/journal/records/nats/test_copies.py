"""Covers: a reader is placed on one server, reads all of its copy, and is removed afterwards.

Not covered: real servers and rotten disks (tests/cluster/test_rot.py).
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from dejaqueue.connections.nats.answers import ApiRefusal, Reply
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.nats import copies
from dejaqueue.journal.records.nats.copies import PLACES_MAX, find_damage, read_copy
from dejaqueue.journal.records.nats.reading import SEQUENCE
from tests.unit.journal.records.nats.played import STREAM, Played, ends, record


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "ANSWER_S", 0.001)


def placed(server: str, name: str = "reader") -> dict[str, Any]:
    return {"name": name, "cluster": {"leader": server}}


def read(number: int, left: int, content: bytes = b"content", **more: Any) -> Reply:
    """A record as a reader gives it: where it is, is in the subject of its answer."""
    one = record(number, content, **more)
    return Reply(one.subject, one.content, one.headers, f"$JS.ACK.s.c.1.{number}.{number}.0.{left}")


def played(*windows: list[Reply]) -> Played:
    found = Played()
    found.api_answers["CONSUMER.CREATE"] = placed("b")
    found.windows = list(windows)
    return found


def numbers(found: Played, first: int = 1) -> list[int]:
    return [number for number, _ in read_copy(cast(NatsConnection, found), STREAM, "b", first)]


def test_a_copy_is_read_window_by_window_to_its_end() -> None:
    found = played([read(1, 3), read(2, 2)], [read(3, 1), read(4, 0)])
    assert numbers(found) == [1, 2, 3, 4]
    asked = [body for name, body in found.asked if ".MSG.NEXT." in name]
    assert len(asked) == 2
    assert all(body["batch"] == copies.WINDOW_RECORDS for body in asked)


def test_reading_begins_where_it_is_said() -> None:
    found = played([read(7, 0)])
    assert numbers(found, first=7) == [7]
    [made] = [body for name, body in found.asked if name.startswith("CONSUMER.CREATE")]
    assert made["config"]["opt_start_seq"] == 7
    assert made["config"]["ack_policy"] == "none", "what is read must not be taken away"


def test_newer_servers_name_domain_and_account_before_the_stream() -> None:
    one = record(9)
    reply = Reply(one.subject, one.content, one.headers, "$JS.ACK.domain.account.s.c.1.9.9.0.0.x")
    assert numbers(played([reply])) == [9]


def test_a_reader_is_made_again_until_it_is_on_that_server() -> None:
    found = played([read(1, 0)])
    found.api_answers["CONSUMER.CREATE"] = [placed("a", "one"), placed("c", "two"), placed("b")]
    assert numbers(found) == [1]
    removed = [name for name, _ in found.asked if name.startswith("CONSUMER.DELETE")]
    assert [name.rpartition(".")[2] for name in removed] == ["one", "two", "reader"]


def test_a_server_that_no_reader_gets_onto_cannot_be_asked() -> None:
    found = played()
    found.api_answers["CONSUMER.CREATE"] = placed("a")
    with pytest.raises(Unavailable, match="no reader gets onto server b"):
        numbers(found)
    assert found.calls("CONSUMER.CREATE") == found.calls("CONSUMER.DELETE") == PLACES_MAX


def test_a_refusal_to_make_a_reader_says_nothing_of_the_copy() -> None:
    found = played()
    found.api_answers["CONSUMER.CREATE"] = ApiRefusal("no room", 503, 10023)
    with pytest.raises(Unavailable, match="no room"):
        numbers(found)


def test_a_server_that_falls_silent_is_not_taken_for_the_end() -> None:
    found = played([read(1, 5)])
    with pytest.raises(Unavailable, match="no answer"):
        numbers(found)
    assert sum(".MSG.NEXT." in name for name, _ in found.asked) == 1 + copies.SILENT_MAX


def test_a_window_without_records_is_asked_for_again() -> None:
    found = played([ends(408)], [read(1, 0)])
    assert numbers(found) == [1]


@pytest.mark.parametrize("failure", [None, ApiRefusal("gone", 404, 10014), Unavailable("away")])
def test_a_reader_is_removed_however_reading_ended(failure: Exception | None) -> None:
    found = played([read(1, 1)], [read(2, 0)])
    if failure is not None:
        found.api_answers["CONSUMER.DELETE"] = failure
    some = read_copy(cast(NatsConnection, found), STREAM, "b", 1)
    assert next(some)[0] == 1
    some.close()
    assert (found.calls("CONSUMER.DELETE"), found.ended_listening) == (1, 1)


# --- damage


def damage(found: Played, first: int = 1, end: int = 5, others: tuple[str, ...] = ()) -> int | None:
    return find_damage(cast(NatsConnection, found), STREAM, "b", first, end, others)


def beside(*windows: list[Reply]) -> Played:
    """A reader on b gives the first window, one on c the others."""
    found = played(*windows)
    found.api_answers["CONSUMER.CREATE"] = [placed("b"), placed("c")]
    return found


def test_a_whole_copy_has_no_damage() -> None:
    window = [read(number, 4 - number) for number in (1, 2, 3, 4)]
    assert damage(played(window)) is None
    assert damage(beside(window, window), others=("c",)) is None


@pytest.mark.parametrize("gone", [1, 2, 4])
def test_the_first_record_that_another_server_has_and_this_one_lacks_is_told(gone: int) -> None:
    there = [number for number in (1, 2, 3, 4, 5) if number != gone]
    own = [read(number, 5 - number) for number in there]
    theirs = [read(number, 5 - number) for number in (1, 2, 3, 4, 5)]
    found = beside(own, theirs, [read(gone, 5 - gone)])
    assert damage(found, others=("c",)) == gone
    made = [body for name, body in found.asked if name.startswith("CONSUMER.CREATE")]
    assert [one["config"].get("headers_only", False) for one in made] == [False, True, True]


def test_a_record_that_was_dropped_meanwhile_is_not_missing() -> None:
    found = beside([read(1, 1), read(4, 0)], [read(1, 2), read(2, 1), read(4, 0)], [read(4, 0)])
    assert damage(found, others=("c",)) is None


def test_the_first_record_that_is_altered_is_told() -> None:
    found = played([read(1, 3), read(2, 2, b"x", stored=b"y"), read(3, 1), read(4, 0)])
    assert damage(found) == 2


def test_a_gap_that_all_have_is_no_damage() -> None:
    """What is not needed any more is dropped, of each partition for itself."""
    window = [read(1, 1), read(4, 0)]
    assert damage(played(window)) is None
    assert damage(beside(window, window), others=("c",)) is None


def test_what_is_behind_the_range_is_not_looked_at() -> None:
    found = played([read(1, 3), read(2, 2), read(3, 1, b"x", stored=b"y")])
    assert damage(found, end=3) is None


def test_a_copy_that_ends_too_early_lacks_the_next_record() -> None:
    found = beside([read(1, 1), read(2, 0)], [read(n, 3 - n) for n in (1, 2, 3)], [read(3, 0)])
    assert damage(found, others=("c",)) == 3


def test_a_reader_of_one_subject_is_given_no_others() -> None:
    found = played([read(3, 0)])
    connection = cast(NatsConnection, found)
    [(sequence, reply)] = read_copy(connection, STREAM, "b", 1, "one.records.7.x.0")
    assert (sequence, reply.headers[SEQUENCE]) == (3, "3")
    [made] = [body for name, body in found.asked if name.startswith("CONSUMER.CREATE")]
    assert made["config"]["filter_subject"] == "one.records.7.x.0"
