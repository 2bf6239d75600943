"""Covers: a route that is a call has its rule, about the topic in the path.

Not covered: that each is served, and to whom (tests/integration/test_authorisation.py).
"""

from __future__ import annotations

from dataclasses import replace

from dejaqueue.access.calls import ACTIONS, TICKETS
from dejaqueue.access.routes import REPEATED, ROUTES, RULES


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


def test_what_may_be_requested_twice_takes_nothing__and_its_call_may_be_made_twice() -> None:
    names = {name for name, route in ROUTES.items() if (route.method, route.path) in REPEATED}
    assert {"peek", "describe_topic", "cron_put", "commit_transaction", "dead_letters"} <= names
    assert names.isdisjoint({"events", "doq_dequeue", "send", "lease", "ack", "seek", "redrive"})
    calls = (ACTIONS | TICKETS).keys() & names
    assert [name for name in calls if not (ACTIONS | TICKETS)[name].repeats] == []
