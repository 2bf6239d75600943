"""The fields of a selection: their names, and that reading them costs nothing."""

from __future__ import annotations

import subprocess
import sys

from dejaqueue.access import calls
from dejaqueue.wire.selection import SELECTION_FIELDS

ARROW = "import sys, dejaqueue.wire.selection; print({'numpy', 'pyarrow'} & set(sys.modules) or 0)"


def test_each_field_stands_once() -> None:
    assert len(set(SELECTION_FIELDS)) == len(SELECTION_FIELDS)


def test_every_call_with_a_filter_takes_all_of_them() -> None:
    taking = [call for call in calls.ACTIONS.values() if "due_from" in call.fields]
    assert taking
    lacking = {call.name: set(SELECTION_FIELDS) - set(call.fields) for call in taking}
    # A seek chooses among what is done and what waits, and erasure among what was ever there:
    # they have no state to choose by.
    without = {name: fields for name, fields in lacking.items() if fields}
    assert without == {"seek": {"state"}, "erase": {"state"}}


def test_the_names_are_read_without_arrow() -> None:
    done = subprocess.run([sys.executable, "-c", ARROW], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
