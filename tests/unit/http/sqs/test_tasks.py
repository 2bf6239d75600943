"""What is kept of a move task."""

from __future__ import annotations

import json

from dejaqueue.access.senders import ANYBODY
from dejaqueue.http.sqs.tasks import RUNNING, Task


def test_what_is_kept_of_a_task_is_json() -> None:
    task = Task("handle", "letters", "", 7, 1_000, 50, ANYBODY)
    task.moved = 3
    kept = json.loads(json.dumps(task.shown()))
    assert kept["Status"] == RUNNING
    assert (kept["TaskHandle"], kept["Destination"]) == ("handle", "")
    assert kept["ApproximateNumberOfMessagesMoved"] == 3
    assert kept["ApproximateNumberOfMessagesToMove"] == 50
    assert kept["MaxNumberOfMessagesPerSecond"] == 7
