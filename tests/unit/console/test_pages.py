"""Pages: every template can be filled, and escapes what it is filled with."""

from __future__ import annotations

from dejaqueue.console.pages import HEADERS, environment, page, redirect
from dejaqueue.console.session import Session


def test_every_template_is_one() -> None:
    names = environment().list_templates()
    assert "base.html" in names
    for name in names:
        assert environment().get_template(name)


def test_what_a_template_is_filled_with_is_text() -> None:
    session = Session(None, "w", None, "", False, "/console")
    answer = page("problem", session, 0, {"status": 400, "detail": "<script>"}, 400)
    assert b"&lt;script&gt;" in bytes(answer.body)
    assert answer.status_code == 400
    assert redirect("/console").headers["x-frame-options"] == HEADERS["X-Frame-Options"]
