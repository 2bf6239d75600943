"""How many lines of one kind a log takes: few, and none is left out uncounted."""

from __future__ import annotations

from dejaqueue.log_rate import LogRate


def test_the_next_line_says_how_many_were_left_out() -> None:
    rate = LogRate(3, 1.0)
    assert [rate.admit("a", 5.0 + number / 100) for number in range(5)] == [0, 0, 0, None, None]
    assert rate.admit("b", 5.5) == 0, "another kind has lines of its own"
    assert rate.admit("a", 6.0) == 2
    assert rate.admit("a", 6.1) == 0


def test_kinds_beyond_the_limit_have_the_lines_of_one_together() -> None:
    rate = LogRate(2, 1.0, kinds_max=10)
    written = [rate.admit(number, 0.0) is not None for number in range(1_000)]
    assert sum(written) == 10 + 2
    assert rate.admit("later", 1.5) == 0, "what is over and told makes room"


def test_what_was_left_out_is_kept_until_it_is_told() -> None:
    rate = LogRate(1, 1.0, kinds_max=2)
    assert [rate.admit("a", 0.0) for _ in range(3)] == [0, None, None]
    for number in range(10):
        rate.admit(f"other {number}", 5.0)
    assert rate.admit("a", 6.0) == 2
