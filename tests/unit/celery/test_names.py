"""Queues and topics, tasks and keys, times and priorities, from Celery's words to DejaQ's."""

from __future__ import annotations

import pytest

from dejaqueue.celery.names import (
    RETRIES_MAX,
    due_ms_of,
    key_of,
    keys_of,
    priority_of,
    topic_of,
    ttl_of,
)
from dejaqueue.topic_names import check_topic_name


@pytest.mark.parametrize("queue", ["celery", "a.b-c_d", "w@host.celery.pidbox", "ü/ß", "q" * 400])
def test_every_queue_has_a_topic(queue: str) -> None:
    assert check_topic_name(topic_of(queue))


def test_two_queues_never_share_a_topic() -> None:
    queues = ["a@b", "a_40_b", "a_5f_40_b", "a b", "a_b", "q" * 300, "q" * 301]
    assert len({topic_of(queue) for queue in queues}) == len(queues)


def test_a_task_is_named_by_its_id__and_its_retries_apart() -> None:
    first = {"task": "add", "id": "t"}
    keys = [key_of(first | {"retries": n}) for n in range(RETRIES_MAX)]
    assert keys == keys_of("t")
    assert len(set(keys)) == RETRIES_MAX
    assert key_of(first | {"retries": RETRIES_MAX}) == "t"


@pytest.mark.parametrize(
    "headers", [{}, {"id": "t"}, {"task": "a"}, {"task": "a", "id": "x" * 300}]
)
def test_what_is_no_task_has_no_key(headers: dict[str, str]) -> None:
    assert key_of(headers) is None


def test_an_eta_is_a_due_time__never_earlier() -> None:
    assert due_ms_of({"eta": "1970-01-01T01:00:00.000001+01:00"}) == 1
    assert due_ms_of({"eta": "1960-01-01T00:00:00+00:00"}) == 0


@pytest.mark.parametrize("eta", [None, "tomorrow", "2030-01-01T00:00:00", 7])
def test_an_eta_of_no_known_instant_is_for_the_worker(eta: object) -> None:
    assert due_ms_of({"eta": eta}) is None


def test_the_highest_priority_is_the_first() -> None:
    urgent, less = priority_of({"priority": 9}), priority_of({"priority": 1})
    assert urgent is not None
    assert less is not None
    assert urgent < less < 32_768
    assert priority_of({"priority": 1_000}) == 0
    assert priority_of({}) is None


def test_a_message_lives_as_long_as_the_shorter_life_says() -> None:
    assert ttl_of({"expiration": "2000"}, 1_000) == 1
    assert ttl_of({"expiration": "2000"}, None) == 2
    assert ttl_of({}, 3_000) == 3
    assert ttl_of({}, None) is None
