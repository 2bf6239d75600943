"""Loading an application: from MODULE:NAME to the Tasks that it is.

Room: tasks.worker.
Holds: the current directory is looked in first, as `python -m` does; what is wrong is said with the
name that was given.
See: cli/worker.py.
"""

from __future__ import annotations

import importlib
import os
import sys

from dejaqueue.errors import BadRequest
from dejaqueue.tasks.app import Tasks

FORM = "MODULE:NAME of a dejaqueue.tasks.Tasks, as mails:app"


def load(place: str) -> Tasks:
    """Import the module of an application. Raises BadRequest if there is none; or its errors."""
    module, colon, name = place.partition(":")
    if not (module and colon and name):
        raise BadRequest("application", FORM, place)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # of something that the module imports
        raise BadRequest("application", FORM, place) from None
    app = getattr(found, name, None)
    if not isinstance(app, Tasks):
        raise BadRequest("application", FORM, place)
    return app
