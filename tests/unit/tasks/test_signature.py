"""Covers: arguments and results go through JSON and come back as the types of the signature.

Not covered: sending them (test_task.py).
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from dejaqueue.errors import BadRequest
from dejaqueue.tasks.signature import Signature


@dataclass
class Point:
    x: int
    when: datetime


class Order(BaseModel):
    number: int
    lines: list[str] = []


POINT = Point(3, datetime(2026, 1, 2, tzinfo=UTC))


def both_ways(function: Any, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    signature = Signature("t", function)
    return signature.arguments(json.loads(json.dumps(signature.arguments_json(args, kwargs))))


def test_dataclasses_models_and_dates_come_back_as_they_were() -> None:
    def function(point: Point, order: Order, when: datetime, n: int = 5) -> None: ...

    order = Order(number=4, lines=["a"])
    args, kwargs = both_ways(function, POINT, order, when=POINT.when)
    assert (args, kwargs) == ((POINT, order, POINT.when), {})


def test_what_has_no_annotation_takes_what_json_gives() -> None:
    def function(a, b=None): ...  # type: ignore[no-untyped-def]

    assert both_ways(function, {"x": [1, None, "é"]}, b=POINT)[0][0] == {"x": [1, None, "é"]}


def test_what_a_call_leaves_out_has_its_default__where_all_is_asked_for() -> None:
    def function(a: int, b: str = "x") -> None: ...

    signature = Signature("t", function)
    assert signature.arguments({"a": 1}) == ((1,), {})
    assert signature.arguments({"a": 1}, is_whole=True) == ((1, "x"), {})


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ((1, 2), {}), ((1,), {"c": 3}), ((), {"b": 2, "a": 1}), ((1, 2, 3), {})],
)
def test_a_call_comes_back_as_python_binds_it(args: Any, kwargs: dict[str, int]) -> None:
    def usual(a: int, b: int = 5, c: int = 6) -> None: ...

    def rare(a: int, /, b: int = 5, *, c: int = 6) -> None: ...

    for function in (usual, rare):
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except TypeError as wrong:
            with pytest.raises(BadRequest, match=str(wrong)):
                both_ways(function, *args, **kwargs)
        else:
            assert both_ways(function, *args, **kwargs) == (bound.args, bound.kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((1, 2), {"a": 3}), ((1, 2, 3), {}), ((1,), {"c": 2}), ((), {"b": 1})]
)
def test_a_call_that_python_would_refuse_is_refused(args: Any, kwargs: dict[str, int]) -> None:
    def function(a: int, b: int = 5) -> None: ...

    with pytest.raises(BadRequest, match="arguments of task t"):
        Signature("t", function).arguments_json(args, kwargs)


def test_stars_take_the_rest() -> None:
    def function(a: int, *rest: Point, **named: float) -> None: ...

    assert both_ways(function, 1, POINT, POINT, x=2) == ((1, POINT, POINT), {"x": 2.0})


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((object(),), "argument a of task t: a value that JSON can say.*pickle is not used"),
        ((b"\xff",), "argument a of task t: a value that JSON can say"),
        ((), "arguments of task t: missing a required argument: 'a'"),
        ((1, "many"), "argument n of task t: Input should be a valid integer"),
    ],
)
def test_what_cannot_be_sent_is_refused_where_it_is_sent(args: Any, text: str) -> None:
    def function(a: Any, n: int = 0) -> None: ...

    with pytest.raises(BadRequest, match=text):
        Signature("t", function).arguments_json(args, {})


def test_a_type_that_only_pickle_could_carry_is_refused_at_once() -> None:
    class Opaque:
        pass

    def function(a: Opaque) -> None: ...

    function.__annotations__["a"] = Opaque
    with pytest.raises(BadRequest, match="type of a of task t.*pickle is not used"):
        Signature("t", function)


@pytest.mark.parametrize("said", [{"b": 1}, {"a": "x"}, {}])
def test_arguments_of_an_older_program_that_do_not_fit_are_refused(said: dict[str, Any]) -> None:
    def function(a: int) -> None: ...

    with pytest.raises(BadRequest, match="of task t"):
        Signature("t", function).arguments(said)


def test_a_result_has_the_type_that_the_function_names() -> None:
    def function() -> Point: ...  # type: ignore[empty-body]

    signature = Signature("t", function)
    assert signature.result(json.loads(json.dumps(signature.result_json(POINT)))) == POINT
    with pytest.raises(BadRequest, match="result of task t"):
        signature.result_json(object())
