"""Covers: how many pods the model of an autoscaler asks for, and when they work."""

from __future__ import annotations

from bench.autoscaler import DOWN_SECONDS, LOOK_SECONDS, Autoscaler, Pods


def looks(scaler: Autoscaler, figures: list[float], first: int = 0) -> list[int]:
    return [
        scaler.look(first + LOOK_SECONDS * number, figure) for number, figure in enumerate(figures)
    ]


def test_a_look_doubles_or_adds_four__up_to_the_most() -> None:
    assert looks(Autoscaler(100, 30), [10_000] * 5) == [5, 10, 20, 30, 30]


def test_without_bounds_it_is_there_at_once() -> None:
    assert looks(Autoscaler(100, 30, is_bounded=False), [2_900]) == [29]


def test_a_tenth_more_or_less_changes_nothing() -> None:
    scaler = Autoscaler(100, 30, is_bounded=False)
    assert looks(scaler, [1_000, 1_090, 910, 1_110]) == [10, 10, 10, 12]


def test_fewer_come_when_no_look_of_five_minutes_wanted_more() -> None:
    scaler = Autoscaler(100, 30, is_bounded=False)
    count = DOWN_SECONDS // LOOK_SECONDS
    asked = looks(scaler, [1_000, *[0.0] * count])
    assert asked == [10] * count + [1]


def test_there_is_always_one() -> None:
    assert looks(Autoscaler(100, 30), [0.0, 0.0]) == [1, 1]


def test_pods_work_after_their_start__and_the_youngest_end_first() -> None:
    pods = Pods(start_seconds=30)
    assert pods.working(0) == 1
    pods.scale(0, 5)
    assert (pods.working(29), pods.working(30)) == (1, 5)
    pods.scale(40, 8)
    pods.scale(45, 4)
    assert pods.working(45) == 4
    pods.pass_second()
    assert pods.pod_seconds == 4
