"""Bounds come from settings. What keeps them: test_protocol.py, test_lane.py."""

from __future__ import annotations

from dejaqueue.http.bounds import Bounds
from dejaqueue.settings import ServerSettings


def test_they_are_what_an_operator_has_set() -> None:
    settings = ServerSettings(http_connections_max=7, http_body_ms_max=2_000, http_head_ms_max=500)
    bounds = Bounds.of(settings)
    assert (bounds.connections_max, bounds.body_seconds, bounds.head_seconds) == (7, 2.0, 0.5)
    assert bounds.stuck_seconds == bounds.body_seconds


def test_without_settings_they_are_the_defaults_of_the_settings() -> None:
    assert Bounds.of(ServerSettings()) == Bounds()
