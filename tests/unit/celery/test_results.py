"""The result backend: set, get, replaced, forgotten, over."""

from __future__ import annotations

import pytest
from celery import Celery, states
from celery.result import GroupResult

from dejaqueue.celery.results import Backend
from dejaqueue.clock import SystemClock
from tests.patience import until

CLOCK = SystemClock()


@pytest.fixture
def app(url: str) -> Celery:
    made = Celery("results", broker=url, backend=url, set_as_current=False)
    made.conf.result_backend_transport_options = {"results_topic": f"results-{CLOCK.now_us()}"}
    return made


def test_celery_finds_it_by_the_url(app: Celery, url: str) -> None:
    assert type(app.backend) is Backend
    assert app.backend.as_uri() == url


def test_a_result_is_kept__and_the_last_one_counts(app: Celery) -> None:
    assert app.AsyncResult("t").state == states.PENDING
    app.backend.store_result("t", 3, states.STARTED)
    app.backend.store_result("t", {"x": [1]}, states.SUCCESS)
    assert app.AsyncResult("t").get(timeout=1) == {"x": [1]}
    assert [meta["result"] for _, meta in app.backend.get_many(["t"])] == [{"x": [1]}]


def test_an_error_is_kept_with_its_traceback(app: Celery) -> None:
    app.backend.mark_as_failure("t", ValueError("no address"), traceback="where")
    result = app.AsyncResult("t")
    assert result.traceback == "where"
    with pytest.raises(ValueError, match="no address"):
        result.get(timeout=1)


def test_results_of_a_group_are_one_call(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    link, many = app.backend._link, app.backend._link.get_many

    def get_many(topic: str, keys: list[str]) -> list[bytes | None]:
        asked.append(len(keys))
        return list(many(topic, keys))

    monkeypatch.setattr(link, "get_many", get_many)
    assert app.backend.mget(["none", "at all"]) == [None, None]  # the topic is not there yet
    for number in range(40):
        app.backend.store_result(f"t{number}", number, states.SUCCESS)
    monkeypatch.setattr(link, "get", None)
    group = GroupResult("g", [app.AsyncResult(f"t{number}") for number in range(40)])
    assert group.get(timeout=5) == list(range(40))
    assert asked == [2, 40]


def test_a_group_after_a_task_that_failed_raises_its_error(app: Celery) -> None:
    app.backend.mark_as_failure("first", ValueError("no address"))
    first = app.AsyncResult("first")
    group = GroupResult("g", [app.AsyncResult("never")], parent=first)
    with pytest.raises(ValueError, match="no address"):
        group.get(timeout=60)
    waits = GroupResult("w", [app.AsyncResult("never")], parent=app.AsyncResult("second"))
    asked: list[int] = []

    def fails() -> None:
        asked.append(1)
        app.backend.mark_as_failure("second", ValueError("while we wait"))

    with pytest.raises(ValueError, match="while we wait"):
        waits.get(timeout=60, on_interval=fails)
    assert asked == [1]


def test_a_result_can_be_forgotten(app: Celery) -> None:
    app.AsyncResult("t").forget()
    app.backend.store_result("t", 3, states.SUCCESS)
    app.AsyncResult("t").forget()
    assert app.AsyncResult("t").state == states.PENDING


def test_cleanup_takes_away_what_is_over_and_nothing_else(app: Celery, url: str) -> None:
    short = Backend(app, url, expires=0.05)
    short.store_result("over", 1, states.SUCCESS)
    app.backend.store_result("stays", 2, states.SUCCESS)

    def is_over() -> bool:
        short.cleanup()
        return short.get(short.get_key_for_task("over")) is None

    until(is_over, "the result to be over")
    assert app.AsyncResult("stays").get(timeout=1) == 2
