"""The views: which function answers which address below /console.

Room: console.
Holds: what changes something is a POST; each view is one row; a page that changes by itself has a
row in LIVE_VIEWS, too.
See: console.py, which calls them.
"""

from __future__ import annotations

from dejaqueue.console import (
    access,
    audit,
    checks,
    cluster,
    cron,
    future,
    letters,
    messages,
    overview,
    sending,
    subscriptions,
    topics,
)
from dejaqueue.console.visit import LiveView, View

_TOPIC = "/topics/{topic}"

VIEWS: list[tuple[str, str, View]] = [
    ("GET", "", overview.overview),
    ("POST", "/topics", topics.create_topic),
    ("GET", _TOPIC, topics.show_topic),
    ("POST", f"{_TOPIC}/pause", topics.pause_topic),
    ("POST", f"{_TOPIC}/resume", topics.resume_topic),
    ("POST", f"{_TOPIC}/grow", topics.grow_topic),
    ("POST", f"{_TOPIC}/settings", topics.alter_topic),
    ("POST", f"{_TOPIC}/purge", topics.purge_topic),
    ("POST", f"{_TOPIC}/delete", topics.delete_topic),
    ("POST", f"{_TOPIC}/subscriptions/{{name}}", subscriptions.change_subscription),
    ("GET", f"{_TOPIC}/messages", messages.show_messages),
    ("GET", f"{_TOPIC}/messages/{{id}}", messages.show_message),
    ("POST", f"{_TOPIC}/messages/{{id}}", messages.change_message),
    ("GET", f"{_TOPIC}/send", messages.show_form),
    ("POST", f"{_TOPIC}/send", messages.send_message),
    ("GET", f"{_TOPIC}/rows", sending.show_rows),
    ("POST", f"{_TOPIC}/rows", sending.send_rows),
    ("GET", f"{_TOPIC}/letters", letters.show_letters),
    ("POST", f"{_TOPIC}/letters", letters.change_letters),
    ("GET", f"{_TOPIC}/cron", cron.show_entries),
    ("POST", f"{_TOPIC}/cron", cron.put_entry),
    ("POST", f"{_TOPIC}/cron/{{name}}", cron.change_entry),
    ("POST", f"{_TOPIC}/firings", cron.try_entry),
    ("GET", "/future", future.show_future),
    ("GET", "/future/counts", future.future_counts),
    ("GET", "/future/selection", future.show_selection),
    ("POST", "/future/change", future.change_selection),
    ("GET", "/works/{number}", future.show_work),
    ("GET", "/checks", checks.show_checks),
    ("GET", "/cluster", cluster.show_cluster),
    ("POST", "/cluster", cluster.change_node),
    ("GET", "/audit", audit.show_audit),
    ("GET", "/access", access.show_access),
    ("POST", "/access", access.create_key),
    ("POST", "/access/revoke", access.revoke_key),
]
"""Method, path below /console, and the view."""
LIVE_VIEWS: list[tuple[str, LiveView]] = [
    ("", overview.look),
    (_TOPIC, topics.look),
]
"""Path below /console/live, and below /console; what the page there shows."""
