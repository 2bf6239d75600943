"""Covers: the moving picture of the demo shows what the demo prints now, and needs nobody else.

Not covered: its figures, which are of the run that was drawn (`make picture` draws another one).
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from dejaqueue.cli.demo.verdict import Verdict

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/pictures/demo.svg"
SVG = "{http://www.w3.org/2000/svg}"
BYTES_MAX = 150_000


def frames() -> list[list[str]]:
    """The lines of each screen that is drawn."""
    root = ElementTree.parse(PICTURE).getroot()
    return [
        ["".join(line.itertext()).rstrip() for line in group.iter(f"{SVG}text")]
        for group in root.iter(f"{SVG}g")
    ]


def test_the_last_screen_is_the_report_that_the_demo_prints_now() -> None:
    names = [field.replace("p999", "p99.9") for field in Verdict.__dataclass_fields__]
    report = [line.split(" ")[0] for line in frames()[-1]]
    assert report[-len(names) - 1 :] == [*names, "report"]


def test_the_demo_that_was_drawn_was_good() -> None:
    figures = dict(line.split(" ") for line in frames()[-1] if re.fullmatch(r"[\w.]+ \S+", line))
    for name in ("lost", "early", "duplicate", "resurrected", "wrong_due", "wrong_payload"):
        assert figures[name] == "0"
    assert int(figures["delivered"]) > 0


def test_the_picture_moves__and_stands_still_for_who_wants_that() -> None:
    shown = frames()
    assert len({tuple(screen) for screen in shown}) > 10
    text = PICTURE.read_text(encoding="utf-8")
    assert "prefers-reduced-motion" in text
    assert text.count('class="last"') == 1


def test_the_picture_is_small_and_asks_nobody_for_anything() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert len(text) <= BYTES_MAX
    assert "<script" not in text
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in text


@pytest.fixture(scope="module")
def script() -> ModuleType:
    place = importlib.util.spec_from_file_location("draw_demo", ROOT / "scripts/draw_demo.py")
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def lines_of(screen: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(character for character, _ in line) for line in screen]


def test_bars_that_are_drawn_again_stand_once(script: ModuleType) -> None:
    terminal = script.Terminal()
    terminal.write("broker\r\n\x1b[?25lsent \x1b[38;5;197m━━\x1b[0m 2\r\ndone 1")
    terminal.write("\r\x1b[2K\x1b[1A\x1b[2Ksent \x1b[38;5;197m━━━\x1b[0m 3\r\ndone 2\x1b[")
    assert lines_of(terminal.lines) == ["broker", "sent ━━━ 3", "done 2"]
    terminal.write("?25h\r\n")
    assert terminal.lines[1][5] == ("━", script.ACCENT)
    assert lines_of(terminal.lines)[-1] == ""


def test_a_sequence_that_is_not_known_is_no_text(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="nobody taught"):
        script.Terminal().write("\x1b[5S")


def test_screens_are_even_in_time__and_the_last_has_everything(script: ModuleType) -> None:
    written = [(0.0, b"a"), (1.0, b"b"), (9.0, b"c"), (10.0, b"d")]
    assert [lines_of(one) for one in script.screens(written, 2)] == [["ab"], ["abcd"]]


def test_a_drawn_picture_is_well_formed(script: ModuleType) -> None:
    screens = [[[("<", script.INK)]], [[("&", script.ACCENT)]]]
    root = ElementTree.fromstring(script.drawn(screens, "dejaq demo", 60.0))
    assert ["".join(line.itertext()) for line in root.iter(f"{SVG}text")][1:] == ["<", "&"]
