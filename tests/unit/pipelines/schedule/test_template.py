"""Templates: what is a placeholder, what is a brace, and what is refused by its name."""

from __future__ import annotations

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.schedule.template import Placeholder, parse_template


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("plain", ("plain",)),
        ("{a}", (Placeholder("a"),)),
        ("Dear {first name}!", ("Dear ", Placeholder("first name"), "!")),
        ("{a|}", (Placeholder("a", ""),)),
        ("{ a |you|there}", (Placeholder("a", "you|there"),)),
        ('{{"to": "{a}"}}', ('{"to": "', Placeholder("a"), '"}')),
        ("{{{a}}}", ("{", Placeholder("a"), "}")),
    ],
)
def test_text_and_placeholders(text: str, parts: tuple[object, ...]) -> None:
    assert parse_template(text).parts == parts


@pytest.mark.parametrize("text", ["{a", "a}", "{", "{}", "{|x}", "{a{b}}", "}{"])
def test_a_brace_alone_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="--template"):
        parse_template(text)


def test_a_placeholder_that_is_no_column_is_named() -> None:
    template = parse_template("{name} lives in {city|town}")
    template.check(["name", "city"])
    with pytest.raises(BadRequest, match=r"\{city\}.*a column of the audience \(name, zone\)"):
        template.check(["name", "zone"])
    assert template.required == ["name"]
