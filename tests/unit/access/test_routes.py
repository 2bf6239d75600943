"""Covers: a route that is a call has its rule, about the topic in the path.

Not covered: that each is served, and to whom (tests/integration/test_authorisation.py).
"""

from __future__ import annotations

from dataclasses import replace

from dejaqueue.access.calls import ACTIONS
from dejaqueue.access.routes import ROUTES, RULES


def test_no_two_routes_have_one_name_or_one_address() -> None:
    assert len(ROUTES) == len(RULES)


def test_a_route_that_is_a_call_has_its_rule() -> None:
    """But for those whose name means more over HTTP: of all brokers, or of a path alone."""
    others = {"stats", "cron_next"}
    for name in (ROUTES.keys() & ACTIONS.keys()) - others:
        rule = ACTIONS[name].rule
        assert replace(ROUTES[name].rule, field=rule.field) == rule
        if "{topic}" in ROUTES[name].path:
            assert ROUTES[name].rule.field == "topic"


def test_a_sentence_of_a_route_ends_as_one() -> None:
    assert [r.name for r in ROUTES.values() if not r.sentence.endswith(".")] == []
