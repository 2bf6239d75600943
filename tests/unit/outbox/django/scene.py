"""Django with an outbox in a database of its own, for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connections

from dejaqueue.outbox.django import DjangoOutbox

SQLITE = "django.db.backends.sqlite3"


@contextmanager
def database(**place: Any) -> Iterator[DjangoOutbox]:
    """The outbox of this database (`ENGINE`, `NAME` and so on), its tables made.

    Django is set up once in a process; what a test changes of its settings is the place.
    """
    if not settings.configured:
        settings.configure(
            INSTALLED_APPS=["dejaqueue.outbox.django"],
            DATABASES={"default": {"ENGINE": SQLITE, "NAME": ":memory:"}},
            DEJAQ={},
        )
        django.setup()
    before = connections.settings["default"]
    put(connections.configure_settings({"default": place})["default"])
    try:
        call_command("migrate", verbosity=0)
        yield DjangoOutbox()
    finally:
        put(before)


def put(place: dict[str, Any]) -> None:
    """Have `default` be this database."""
    connections["default"].close()
    del connections["default"]
    connections.settings["default"] = place
