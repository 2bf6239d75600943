"""Covers: how long is waited for a broker, and that one is not asked again while it is asked.

Not covered: asking (test_gathering.py).
"""

from __future__ import annotations

from dejaqueue.flight.silence import AGAIN_SECONDS, ASK_SECONDS, Silence


def test_a_broker_that_was_silent_is_waited_for_shortly__until_it_answers() -> None:
    silence = Silence()
    assert silence.begins("a") == silence.begins("a") == ASK_SECONDS
    silence.ended("a", answered=False)
    assert silence.begins("a") == AGAIN_SECONDS
    assert silence.begins("a") == 0, "it is being asked"
    assert silence.begins("b") == ASK_SECONDS
    silence.ended("a", answered=False)
    assert silence.begins("a") == AGAIN_SECONDS
    silence.ended("a", answered=True)
    assert silence.begins("a") == ASK_SECONDS
