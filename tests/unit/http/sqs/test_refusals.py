"""Errors have the names, codes and statuses that SQS's clients know."""

from __future__ import annotations

import json

import pytest

from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Forbidden,
    InternalError,
    Refused,
    ResourceExhausted,
    TopicUnknown,
    Unauthenticated,
    Unavailable,
)
from dejaqueue.http.sqs.refusals import SqsRefusal, code_of, entry_refusal, refusal


@pytest.mark.parametrize(
    ("error", "name", "status", "code"),
    [
        (TopicUnknown("q"), "QueueDoesNotExist", 400, "AWS.SimpleQueueService.NonExistentQueue"),
        (BadRequest("a", "b", 1), "InvalidParameterValue", 400, "InvalidParameterValue"),
        (Refused("no"), "InvalidParameterValue", 400, "InvalidParameterValue"),
        (Forbidden("no"), "AccessDeniedException", 403, "AccessDeniedException"),
        (Unauthenticated("no"), "InvalidClientTokenId", 403, "InvalidClientTokenId"),
        (ResourceExhausted("full", 1_500), "ServiceUnavailable", 503, "ServiceUnavailable"),
        (Unavailable("soon"), "ServiceUnavailable", 503, "ServiceUnavailable"),
        (SqsRefusal("QueueNameExists", "x"), "QueueNameExists", 400, "QueueAlreadyExists"),
    ],
)
def test_each_error_has_its_name(error: DejaQError, name: str, status: int, code: str) -> None:
    answer = refusal(error)
    body = json.loads(bytes(answer.body))
    assert (answer.status_code, body["__type"]) == (status, f"com.amazonaws.sqs#{name}")
    assert body["message"] == str(error)
    found, _, fault = answer.headers["x-amzn-query-error"].partition(";")
    assert found == code
    assert fault == ("Receiver" if status == 503 else "Sender")
    assert answer.headers.get("retry-after") == ("2" if "full" in str(error) else None) or (
        status == 503
    )


def test_a_bug_is_told_without_its_story() -> None:
    told = InternalError("a secret of ours").told()
    assert "secret" not in told
    assert code_of("EmptyBatchRequest") == "AWS.SimpleQueueService.EmptyBatchRequest"


def test_an_entry_says_whose_fault_it_was() -> None:
    entry = entry_refusal("e", ResourceExhausted("full", 50))
    assert entry == {
        "Id": "e",
        "SenderFault": False,
        "Code": "ServiceUnavailable",
        "Message": "full",
    }
