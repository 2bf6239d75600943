"""Covers: a record is read from any copy that has it whole, and left out only if none has it.

Not covered: servers (tests/conformance/test_records_nats.py), damage on disks (tests/cluster).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from dejaqueue.connections.nats.answers import ApiRefusal, Reply
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.nats import reading
from dejaqueue.journal.records.nats.reading import Reader, direct, from_leader, is_whole
from tests.unit.journal.records.nats.played import STREAM, Played, ends, record

Copy = dict[int, Reply]
SUBJECT = "dejaq.records.0007.topic.0"


def whole(*numbers: int) -> Copy:
    return {number: record(number, b"%d" % number) for number in numbers}


class Reads:
    """A reader of a played stream; notes what was suspected."""

    def __init__(self, *copies: Copy, apart: list[Copy] | None = None) -> None:
        self.played = Played(*copies)
        self.suspected: list[int] = []
        self.apart = apart or []
        self.last = max(self.played.leader, default=0)
        self.reader = Reader(
            cast(NatsConnection, self.played),
            STREAM,
            SUBJECT,
            lambda subject: (self.last, self.last),
            self._suspect,
            self._copies,
        )

    def _suspect(self, stream: str, sequence: int) -> None:
        assert stream == STREAM
        self.suspected.append(sequence)

    def _copies(self, stream: str, sequence: int, subject: str) -> Iterator[Reply]:
        assert subject == SUBJECT
        return iter([copy[sequence] for copy in self.apart if sequence in copy])

    def read(self, first: int, end: int) -> list[tuple[int, bytes]]:
        return list(self.reader.read(first, end))


def numbered(*numbers: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in numbers]


def test_a_whole_stretch_is_one_read_of_one_copy() -> None:
    reads = Reads(whole(1, 2, 3, 4, 5))
    assert reads.read(2, 5) == numbered(2, 3, 4)
    assert reads.read(3, 5) == numbered(3, 4)
    window = {"next_by_subj": SUBJECT, "max_bytes": reading.WINDOW_BYTES}
    assert [asked for _, asked in reads.played.asked] == [
        {"seq": 1, "batch": reading.WINDOW_RECORDS} | window,
        {"seq": 3, "batch": 2} | window,  # it is known where it is
    ]
    assert reads.suspected == []


def test_records_lie_among_those_of_other_logs() -> None:
    copy = {7: record(3, b"3", sequence=7), 20: record(4, b"4", sequence=20)}
    reads = Reads(copy)
    reads.last = 4
    assert reads.read(4, 9) == numbered(4)
    assert reads.read(1, 9) == numbered(3, 4)
    assert [reads.reader.sequence_of(number) for number in (3, 4, 5)] == [7, 20, 0]
    assert reads.reader.since(9) == 21
    assert reads.suspected == []


def test_what_was_appended_is_found_without_asking_where_it_is() -> None:
    reads = Reads({31: record(8, b"8", sequence=31)})
    reads.reader.note(7, [30, 31])
    assert reads.read(8, 9) == numbered(8)
    [(_, asked)] = reads.played.asked
    assert asked == {"seq": 31, "next_by_subj": SUBJECT}
    reads.reader.forget_before(8)
    assert reads.reader.since(7) == 1


def test_a_number_that_was_altered_is_no_whole_record() -> None:
    reply = record(3, b"3")
    assert is_whole(reply)
    reply.headers[reading.NUMBER] = "4"
    assert not is_whole(reply)


def test_records_behind_the_last_one_are_not_there() -> None:
    """Asked for what may have come meanwhile; the leader says where the end is."""
    reads = Reads(whole(1, 2))
    assert reads.read(1, 9) == numbered(1, 2)
    assert reads.suspected == []


def test_records_that_were_dropped_are_left_out_without_suspicion() -> None:
    reads = Reads(whole(4, 5))
    assert reads.read(1, 6) == numbered(4, 5)
    assert reads.suspected == []


def test_a_copy_that_lacks_a_record_is_suspected__and_another_is_asked() -> None:
    reads = Reads(whole(1, 3), whole(1, 2, 3))
    reads.played.leader = whole(1, 2, 3)
    assert reads.read(1, 4) == numbered(1, 2, 3)
    assert reads.suspected == [2]


def test_an_altered_record_is_taken_from_a_copy_that_has_it_whole() -> None:
    altered = {2: record(2, b"x", stored=b"2")}
    reads = Reads(whole(1, 3) | altered, apart=[altered, whole(2)])
    reads.played.leader = reads.played.copies[0]
    assert reads.read(1, 4) == numbered(1, 2, 3)
    assert reads.suspected == [2]


def test_a_record_that_nobody_has_whole_is_given_as_it_is() -> None:
    """Who reads checks it, and says what is damaged; a gap would look like a lost record."""
    altered = {2: record(2, b"x", stored=b"2")}
    reads = Reads(whole(1, 3) | altered)
    reads.played.leader = reads.played.copies[0]
    assert reads.read(1, 4) == [(1, b"1"), (2, b"x"), (3, b"3")]


def test_a_record_that_nobody_has_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    reads = Reads(whole(1, 3))
    assert reads.read(1, 4) == numbered(1, 3)
    assert reads.suspected == []  # nobody has it: it is not known where it would be
    assert "no server has record 2 as it was stored" in caplog.text


def test_records_that_the_leader_wrongly_says_were_dropped_are_found() -> None:
    """A leader that lost the beginning of its copy calls it dropped; the others have it."""
    reads = Reads(whole(3), whole(1, 2, 3))
    reads.played.leader = whole(3)
    assert reads.read(1, 4) == numbered(1, 2, 3)


def test_a_record_without_a_checksum_is_taken_as_it_is() -> None:
    assert is_whole(Reply("s", b"x"))
    assert is_whole(record(1, b"x"))
    assert not is_whole(record(1, b"x", stored=b"y"))


def test_the_leaders_record_has_its_headers() -> None:
    played = Played(whole(1, 2))
    reply = from_leader(cast(NatsConnection, played), STREAM, {"seq": 2})
    assert reply is not None
    assert (reply.content, reply.headers[reading.SEQUENCE]) == (b"2", "2")
    assert is_whole(reply)
    assert reply.headers[reading.SUM] == reading.checksum(b"2", 2)
    assert from_leader(cast(NatsConnection, played), STREAM, {"seq": 9}) is None


def test_a_leader_that_refuses_for_another_reason_does_not_say_that_a_record_is_gone() -> None:
    played = Played()
    played.api_answers["STREAM.MSG.GET"] = ApiRefusal("no quorum", 503, 10008)
    with pytest.raises(Unavailable, match="no quorum"):
        from_leader(cast(NatsConnection, played), STREAM, {"seq": 1})


def test_that_no_server_answers_is_no_empty_window() -> None:
    played = Played({})
    played.replies = lambda *_: iter([ends(503)])  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="no server answers for it"):
        list(direct(cast(NatsConnection, played), STREAM, {"seq": 1}, 5))


@pytest.mark.parametrize(("count", "batch"), [(2, 2), (5_000, reading.WINDOW_RECORDS)])
def test_a_window_has_a_most_of_records(count: int, batch: int) -> None:
    played = Played(whole(1, 2, 3))
    list(direct(cast(NatsConnection, played), STREAM, {"seq": 1}, count))
    asked: dict[str, Any] = played.asked[0][1]
    assert asked["batch"] == batch
