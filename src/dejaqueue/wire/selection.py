"""The fields that select messages, by their names on the wire.

Room: wire. Names only: the command reads them for its help, which must not wait for Arrow.
See: docs/wire.md, "Filters".
"""

from __future__ import annotations

SELECTION_FIELDS = (
    "due_from",
    "due_to",
    "state",
    "group",
    "tags_any",
    "tags_all",
    "tags_none",
    "priority_from",
    "priority_to",
)
"""Fields that select messages, in every call that takes a filter (docs/wire.md, "Filters")."""
SEEK_FIELDS = tuple(name for name in SELECTION_FIELDS if name != "state")
"""Those of a seek, which is about what is done and what waits."""
