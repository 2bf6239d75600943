"""Covers: options that a task cannot have, and how long it waits between attempts.

Not covered: what they do (test_execution.py, test_task.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.tasks.options import TaskOptions


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retries": -1}, "retries: a whole number from 0 to 1000"),
        ({"timeout": 0}, "timeout: a number of seconds above 0"),
        ({"timeout_hard": -1.0}, "timeout_hard: a number"),
        ({"priority": 1, "group": "g"}, "group: either priority or group"),
        ({"result": 0}, "result: a length of time up to a year"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        TaskOptions("t", **options).check()


def test_backoff_doubles_up_to_an_hour__or_is_a_function() -> None:
    assert [TaskOptions("t", backoff=4).delay_s(n) for n in (1, 2, 3, 40)] == [4, 8, 16, 3_600]
    assert TaskOptions("t", backoff=lambda n: 100.0 * n).delay_s(3) == 300
