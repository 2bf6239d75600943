"""What Spark says when something fails, as one of our errors with one sentence.

Room: pipelines. pyspark is not imported: its errors are known by their names.
Holds: an error of ours that was raised in Spark's workers comes out as what it was.
See: errors.py; `--debug` shows everything that Spark said.
"""

from __future__ import annotations

import re

from dejaqueue.errors import BadRequest, DejaQError, all_errors, from_fields

_OURS = re.compile(r"dejaqueue\.errors\.(?P<name>\w+): (?P<text>[^\n]*)")
_USERS_FAULT = {"AnalysisException", "ParseException", "IllegalArgumentException"}
TEXT_MAX = 500


def is_sparks(error: BaseException) -> bool:
    """True for an error that Spark, or the bridge to it, raised."""
    return type(error).__module__.partition(".")[0] in {"pyspark", "py4j"}


def as_ours(error: BaseException) -> DejaQError:
    """The error in our words."""
    text = str(error)
    numbers = {kind.__name__: kind.number for kind in all_errors()}
    for found in reversed(list(_OURS.finditer(text))):
        if found["name"] in numbers:
            said = {"number": numbers[found["name"]], "text": found["text"].strip()}
            return from_fields(said)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "nothing was said")
    number = BadRequest.number if type(error).__name__ in _USERS_FAULT else DejaQError.number
    return from_fields({"number": number, "text": f"Spark: {first[:TEXT_MAX]}"})
