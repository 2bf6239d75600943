"""What Spark says becomes one of our errors: the one it was, or one sentence."""

from __future__ import annotations

import pytest

from dejaqueue.errors import BadRequest, DejaQError, TopicUnknown
from dejaqueue.pipelines.frame.failures import as_ours, is_sparks


class AnalysisException(Exception):
    __module__ = "pyspark.errors.exceptions.captured"


class Py4JJavaError(Exception):
    __module__ = "py4j.protocol"


def test_an_error_of_ours_comes_out_as_what_it_was() -> None:
    text = (
        "An exception was thrown from the Python worker.\nTraceback …\n"
        "dejaqueue.errors.TopicUnknown: topic: the name of an existing topic, got: 'x'\n at java…"
    )
    found = as_ours(Py4JJavaError(text))
    assert isinstance(found, TopicUnknown)
    assert str(found) == "topic: the name of an existing topic, got: 'x'"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(AnalysisException("a\nb"), BadRequest), (Py4JJavaError("a\nb"), DejaQError)],
)
def test_another_error_is_its_first_line(error: Exception, kind: type[DejaQError]) -> None:
    found = as_ours(error)
    assert type(found) is kind
    assert str(found) == "Spark: a"
    assert is_sparks(error)


def test_what_names_no_error_of_ours_is_sparks() -> None:
    assert str(as_ours(Py4JJavaError("dejaqueue.errors.Nonsense: x"))).startswith("Spark: ")
    assert str(as_ours(Py4JJavaError(""))) == "Spark: nothing was said"
    assert not is_sparks(ValueError("x"))
