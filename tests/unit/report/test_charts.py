"""Charts: marks where their values say, text that cannot break the markup."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from dejaqueue.report.charts import (
    BOTTOM,
    HEIGHT,
    TOP,
    Chart,
    Mark,
    draw,
    legend,
    nice_ticks,
    time_ticks,
)


def chart(*marks: Mark, **changed: object) -> ElementTree.Element:
    settings = {"title": "T", "x_labels": [(0.0, "0"), (1.0, "1")], "x_name": "x", "y_name": "y"}
    return ElementTree.fromstring(draw(Chart(marks=marks, **(settings | changed))))  # type: ignore[arg-type]


def bars(*values: float) -> Mark:
    return Mark("bars", "blue", "messages", np.array(values))


def test_bar_is_as_high_as_its_value_and_says_it() -> None:
    found = chart(bars(0.0, 5.0, 10.0), y_max=10.0).findall(".//rect")
    room = HEIGHT - TOP - BOTTOM
    assert [float(bar.attrib["height"]) for bar in found] == [room / 2, room]
    assert [bar[0].text for bar in found] == ["messages: 5", "messages: 10"]


def test_line_is_broken_where_there_is_nothing() -> None:
    values = np.array([np.nan, 1.0, 2.0, np.nan, 3.0])
    (path,) = chart(Mark("line", "amber", "s", values)).findall(".//path")
    assert [len(part.split("L")) for part in path.attrib["d"].split("M")[1:]] == [2, 1]


def test_area_is_closed_on_the_floor() -> None:
    (path,) = chart(Mark("area", "blue", "d", np.array([1.0, 2.0]))).findall(".//path")
    assert path.attrib["d"].endswith("Z")
    assert path.attrib["d"].count(f" {HEIGHT - BOTTOM}") == 2


def test_logarithmic_axis_has_a_tick_for_each_power_of_ten() -> None:
    mark = Mark("line", "p99", "p99", np.array([0.5, 50.0]))
    drawing = chart(mark, is_log=True, y_min=0.1, y_max=100.0)
    texts = [text.text for text in drawing.findall(".//text")]
    assert texts[:4] == ["0.1", "1", "10", "100"]


def test_text_is_escaped() -> None:
    drawing = chart(
        Mark("line", "x", "<b>", np.array([1.0])),
        title='a "title" & more',
        lines_at=[(0.5, "<killed>")],
    )
    assert drawing.attrib["aria-label"] == 'a "title" & more'
    assert "<killed>" in [text.text for text in drawing.findall(".//text")]
    assert "&lt;b&gt;" in legend([Mark("line", "x", "<b>", np.array([1.0]))])


def test_empty_and_flat_series_can_be_drawn() -> None:
    for values in ([np.nan, np.nan], [0.0, 0.0]):
        drawing = draw(
            Chart("T", [Mark("line", "x", "x", np.array(values))], [(0.0, "0")], "x", "y")
        )
        assert not re.search(r"nan|inf", drawing)


@pytest.mark.parametrize("top", [0.3, 1.0, 9.0, 870.0, 336_776.0])
def test_ticks_are_few_and_round(top: float) -> None:
    ticks = nice_ticks(top)
    assert ticks[0] == 0.0
    assert 3 <= len(ticks) <= 6
    assert ticks[-1] <= top
    step = ticks[1]
    assert f"{step:.0e}"[0] in "125"


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    "length_ms", [1, 5_000, 59_000, 90 * 60_000, HOUR_MS * 30, HOUR_MS * 9_000]
)
def test_ticks_of_time_are_few_and_in_order(length_ms: int) -> None:
    ticks = time_ticks(1_800_000_000_000, 1_800_000_000_000 + length_ms)
    places = [place for place, _ in ticks]
    assert places == sorted(places)
    assert all(0 <= place <= 1 for place in places)
    assert len(ticks) <= 9


def test_midnight_says_which_day_begins() -> None:
    texts = [text for _, text in time_ticks(20 * HOUR_MS, 30 * HOUR_MS)]
    assert texts == ["20:00", "22:00", "02 Jan", "02:00", "04:00", "06:00"]
