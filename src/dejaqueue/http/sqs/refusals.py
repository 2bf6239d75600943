"""Errors as SQS's clients know them: their names, their older codes, their statuses.

Room: http. For the operations of this package; other routes answer by problems.py.
Holds: a client gets a name that its model has; what may be tried again is a 503, which each of
SQS's clients tries again by itself.
"""

from __future__ import annotations

import math
from http import HTTPStatus

import orjson
from starlette.responses import Response

from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Forbidden,
    NotAllowed,
    Refused,
    TopicUnknown,
    TryLater,
)

_OLDER = "AWS.SimpleQueueService."
_PREFIXED = frozenset(
    {
        "BatchEntryIdsNotDistinct",
        "BatchRequestTooLong",
        "EmptyBatchRequest",
        "InvalidBatchEntryId",
        "MessageNotInflight",
        "PurgeQueueInProgress",
        "QueueDeletedRecently",
        "TooManyEntriesInBatchRequest",
        "UnsupportedOperation",
    }
)
_CODES = {"QueueDoesNotExist": f"{_OLDER}NonExistentQueue", "QueueNameExists": "QueueAlreadyExists"}
_SERVICE = "com.amazonaws.sqs#"
MEDIA_TYPE = "application/x-amz-json-1.0"


class SqsRefusal(Refused):
    """What SQS refuses by a name of its own.

    Attributes:
        name: of the error, as SQS's model has it.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def name_of(error: DejaQError) -> str:
    """What SQS calls an error."""
    if isinstance(error, SqsRefusal):
        return error.name
    if isinstance(error, TopicUnknown):
        return "QueueDoesNotExist"
    if isinstance(error, Forbidden):
        return "AccessDeniedException"
    if isinstance(error, NotAllowed):
        return "InvalidClientTokenId"
    if isinstance(error, BadRequest):
        return "InvalidParameterValue"
    if isinstance(error, TryLater):
        return "ServiceUnavailable"
    return "InvalidParameterValue" if isinstance(error, Refused) else "InternalFailure"


def code_of(name: str) -> str:
    """The code that the older protocol of SQS had for it; programs compare with these."""
    return f"{_OLDER}{name}" if name in _PREFIXED else _CODES.get(name, name)


def _status(error: DejaQError) -> int:
    if isinstance(error, TryLater):
        return HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, NotAllowed):
        return HTTPStatus.FORBIDDEN
    return HTTPStatus.BAD_REQUEST if is_sender(error) else HTTPStatus.INTERNAL_SERVER_ERROR


def is_sender(error: DejaQError) -> bool:
    """True if it is the caller's to mend."""
    return isinstance(error, BadRequest | Refused | NotAllowed)


def refusal(error: DejaQError) -> Response:
    """The answer to an operation that ended so."""
    name = name_of(error)
    fault = "Sender" if is_sender(error) else "Receiver"
    headers = {"x-amzn-query-error": f"{code_of(name)};{fault}"}
    if isinstance(error, TryLater):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_ms / 1_000)))
    body = orjson.dumps({"__type": f"{_SERVICE}{name}", "message": error.told()})
    return Response(body, _status(error), headers, MEDIA_TYPE)


def entry_refusal(entry_id: str, error: DejaQError) -> dict[str, object]:
    """What a batch's answer says of one entry."""
    return {
        "Id": entry_id,
        "SenderFault": is_sender(error),
        "Code": code_of(name_of(error)),
        "Message": error.told(),
    }
