"""Logs: JSON lines with their fields, text for people, levels, repeated warnings.

Covered: format, fields, exceptions, the audit log, other libraries, what is left out.
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue import logs
from dejaqueue.settings import LogSettings

log = logging.getLogger("dejaqueue.broker")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    logs.tear_down()  # a test of a command in this process may have left warnings captured
    yield
    logs.tear_down()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def begin(stream: io.StringIO | None = None, **settings: Any) -> io.StringIO:
    target = stream or io.StringIO()
    logs.set_up(LogSettings(**settings), target)
    return target


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_one_json_object_with_its_fields() -> None:
    stream = begin()
    log.info("topic %s\nhas %d", "a", 2, extra={"topic": "a", "partition": 3, "secret": "x"})
    (line,) = lines(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "dejaqueue.broker",
        "message": "topic a\nhas 2",
        "topic": "a",
        "partition": 3,
    }


def test_time_is_utc_to_the_millisecond() -> None:
    record = logging.LogRecord("a", logging.INFO, "f", 1, "m", None, None)
    record.created = 1_700_000_000.0625
    line = json.loads(logs.JsonFormatter().format(record))
    assert line["time"] == "2023-11-14T22:13:20.062Z"


def test_an_exception_is_within_the_line() -> None:
    stream = begin()
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert "ValueError: broken" in line["exception"]


def test_the_audit_log_gives_its_fields() -> None:
    stream = begin()
    facts = {"principal": "root", "peer": "10.0.0.1:5", "action": "create_topic", "outcome": "done"}
    audit = logging.getLogger("dejaqueue.audit")
    audit.info('principal="root"', extra={"audit": facts})
    (line,) = lines(stream)
    assert {name: line[name] for name in facts} == facts
    assert line["logger"] == "dejaqueue.audit"


def test_text_is_for_people() -> None:
    stream = begin(Terminal())
    log.warning("first\nsecond", extra={"topic": "a"})
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue()[13:] == "warning broker: first\\nsecond\n"


@pytest.mark.parametrize(
    ("stream", "chosen", "is_json"),
    [
        (io.StringIO, "auto", True),
        (Terminal, "auto", False),
        (Terminal, "json", True),
        (io.StringIO, "text", False),
    ],
)
def test_auto_is_text_on_a_terminal_and_json_elsewhere(
    stream: type[io.StringIO], chosen: str, is_json: bool
) -> None:
    target = begin(stream(), format=chosen)
    log.info("hello")
    assert target.getvalue().startswith("{") == is_json


def test_levels_of_single_loggers_win_and_others_are_heard_from_warning_on() -> None:
    stream = begin(level="warning", levels={"dejaqueue.broker": "debug", "uvicorn.error": "info"})
    log.debug("1")
    logging.getLogger("dejaqueue.http").info("not")
    logging.getLogger("uvicorn.error").info("2")
    logging.getLogger("uvicorn.access").info("not")
    logging.getLogger("somebody").warning("3")
    assert [line["message"] for line in lines(stream)] == ["1", "2", "3"]


def test_setting_up_again_takes_the_new_settings_alone() -> None:
    first = begin(levels={"dejaqueue.broker": "error"})
    second = begin(level="debug")
    log.debug("x")
    assert (first.getvalue(), len(lines(second))) == ("", 1)


def test_warnings_of_python_are_lines_too() -> None:
    stream = begin()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        logs.set_up(LogSettings(), stream)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logs.tear_down()
    assert "DeprecationWarning: old" in lines(stream)[0]["message"]


def test_the_same_warning_again_and_again_is_counted() -> None:
    repeats = logs.Repeats()

    def passes(second: float, topic: str = "a", level: int = logging.WARNING) -> int | None:
        record = logging.LogRecord("dejaqueue.x", level, "f", 1, "m", None, None)
        record.created, record.topic = second, topic
        return getattr(record, "left_out", 0) if repeats.filter(record) else None

    assert [passes(second) for second in range(7)] == [0, 0, 0, 0, 0, None, None]
    assert passes(7, topic="b") == 0
    assert passes(7, level=logging.INFO) == 0
    assert passes(10) == 2
    assert passes(11) == 0


def test_tracebacks_are_counted_as_warnings_are() -> None:
    stream = begin()
    for _ in range(3 * logs.REPEATS_MAX):
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("a request that breaks something")
    assert len(lines(stream)) == logs.REPEATS_MAX
