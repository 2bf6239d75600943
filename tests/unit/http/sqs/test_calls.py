"""The table has each operation of SQS, with each of its fields."""

from __future__ import annotations

import pytest
from botocore.loaders import Loader

from dejaqueue.http.sqs.calls import CALLS
from dejaqueue.http.sqs.refusals import SqsRefusal


def test_the_table_is_that_of_sqs_s_model() -> None:
    model = Loader().load_service_model("sqs", "service-2")
    shapes = model["shapes"]
    for name, operation in model["operations"].items():
        shape = shapes[operation["input"]["shape"]]
        call = CALLS[name]
        assert call.required == frozenset(shape.get("required", ())), name
        assert call.required | call.optional == frozenset(shape["members"]), name
    assert set(CALLS) == set(model["operations"])


def test_what_is_missing_or_unknown_is_refused() -> None:
    call = CALLS["SendMessage"]
    call.check({"QueueUrl": "u", "MessageBody": "b", "DelaySeconds": 5})
    with pytest.raises(SqsRefusal, match="MessageBody: is needed"):
        call.check({"QueueUrl": "u"})
    with pytest.raises(SqsRefusal, match="Colour: one of DelaySeconds,"):
        call.check({"QueueUrl": "u", "MessageBody": "b", "Colour": 5})
