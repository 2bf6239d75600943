"""Cases of a log of records on a server that a test plays: the same for each such server.

A file of tests has a fixture `log`, and a class of these. On real servers: tests/conformance.
"""

from __future__ import annotations

import pytest

from dejaqueue.errors import Fenced, Unavailable
from dejaqueue.journal.records.interface import RecordLog


def contents(log: RecordLog) -> list[tuple[int, bytes]]:
    """All that is in a log: (number, content)."""
    return list(log.read(1, 1_000))


class LogCases:
    """What a log does, whichever server is beneath."""

    @pytest.mark.parametrize("after", [0, 1, 3])
    def test_an_append_elsewhere_than_behind_the_last_record_is_fenced(
        self, log: RecordLog, after: int
    ) -> None:
        log.append(0, [[b"a"], [b"b"]])
        with pytest.raises(Fenced, match=rf"the last record is not {after}"):
            log.append(after, [[b"x"]])
        assert (log.last(), contents(log)) == (2, [(1, b"a"), (2, b"b")])

    def test_numbers_stay_when_records_are_dropped__also_all_of_them(self, log: RecordLog) -> None:
        log.append(0, [[b"a"], [b"b"], [b"c"]])
        log.drop_before(3)
        assert (log.last(), contents(log)) == (3, [(3, b"c")])
        log.drop_before(99)
        assert (log.last(), contents(log)) == (3, [])
        log.append(3, [[b"d"]])
        assert contents(log) == [(4, b"d")]

    def test_a_closed_log_does_nothing_more(self, log: RecordLog) -> None:
        log.close()
        for call in (log.last, lambda: log.append(0, [[b"x"]]), lambda: list(log.read(1, 2))):
            with pytest.raises(Unavailable, match="the log is closed"):
                call()
