"""The page: well formed, self-contained, for light and dark; words from outside are escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np

from dejaqueue.report import Chart, Mark, Page, Tile, figure, section, table


class Checker(HTMLParser):
    """Complains about tags that are not closed in order."""

    EMPTY = frozenset({"meta", "line", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_page(text: str) -> None:
    """Well formed, for light and dark, and nothing is fetched."""
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert {"h1", "style", "html"} <= checker.seen
    assert not re.search(r"https?://|<script|<link|<img|@import|url\(|src=", text)
    assert "prefers-color-scheme: dark" in text
    assert text.count("<svg") == len(re.findall(r'role="img" aria-label="[^"]', text))


def chart(*marks: Mark) -> Chart:
    return Chart("<A & B>", marks, [(0.0, "0")], "x", "y")


def test_a_page_is_whole() -> None:
    mark = Mark("line", "blue", "<one>", np.array([1.0, 2.0]))
    page = Page(
        title="<t>",
        headline="<h>",
        summary="<s>",
        tiles=[Tile("<lost>", "<0>", "bad")],
        sections=[
            section("<title>", "<note>", figure(chart(mark), [("<name>", "<value>")])),
            table("<table>", [("<row>", "<cell>", "<more>")], ("<a>", "<b>", "<c>")),
        ],
    )
    text = page.html()
    check_page(text)
    for word in ("t", "h", "s", "lost", "0", "title", "note", "name", "value", "row", "cell", "c"):
        assert f"&lt;{word}&gt;" in text
    assert '<th scope="col">&lt;a&gt;</th>' in text
    assert '<h1 class="good">' in text
    assert '<h1 class="bad">' in Page("t", "h", "s", good=False).html()


def test_a_chart_of_one_series_needs_no_legend() -> None:
    one, two = (Mark("line", style, style, np.array([1.0])) for style in ("blue", "red"))
    assert "legend" not in figure(chart(one))
    assert "legend" in figure(chart(one, two))
    assert "<details>" not in figure(chart(one))
