"""The views: each address once, and only POST changes."""

from __future__ import annotations

from dejaqueue.console.views import VIEWS


def test_each_address_is_there_once() -> None:
    places = [(method, path) for method, path, _ in VIEWS]
    assert len(places) == len(set(places)) > 20


def test_what_shows_is_a_get__and_what_changes_is_a_post() -> None:
    for method, path, view in VIEWS:
        shows = view.__name__.startswith("show_") or view.__name__ in ("overview", "future_counts")
        assert (method == "GET") == shows, path
