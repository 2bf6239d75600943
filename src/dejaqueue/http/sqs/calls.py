"""The table of SQS's operations: what each is called, what its body holds, what does it.

Room: http.
Holds: an operation that is not in the table is refused, and so are fields that are not in its row;
operations that administer are in the audit log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from dejaqueue.http.sqs import catalogue, messages, moves
from dejaqueue.http.sqs.refusals import SqsRefusal
from dejaqueue.http.sqs.state import Operation


@dataclass(frozen=True, slots=True)
class Call:
    """One row of the table.

    Attributes:
        required, optional: names of fields.
        audited: it administers.
    """

    function: Callable[[Operation], Awaitable[dict[str, Any]]]
    required: frozenset[str]
    optional: frozenset[str]
    audited: bool

    def check(self, values: dict[str, Any]) -> None:
        """Raise SqsRefusal for a field that is missing, or unknown."""
        for name in sorted(self.required):
            if values.get(name) is None:
                raise SqsRefusal("MissingParameter", f"{name}: is needed")
        for name in values:
            if name not in self.required and name not in self.optional:
                known = ", ".join(sorted(self.required | self.optional))
                raise SqsRefusal("InvalidParameterValue", f"{name[:100]}: one of {known}")


def _call(
    function: Callable[[Operation], Awaitable[dict[str, Any]]],
    required: str,
    optional: str = "",
    *,
    audited: bool = False,
) -> Call:
    return Call(function, frozenset(required.split()), frozenset(optional.split()), audited)


_MESSAGE = (
    "DelaySeconds MessageAttributes MessageSystemAttributes MessageDeduplicationId MessageGroupId"
)
CALLS = {
    "CreateQueue": _call(catalogue.create, "QueueName", "Attributes tags", audited=True),
    "GetQueueUrl": _call(catalogue.url, "QueueName", "QueueOwnerAWSAccountId"),
    "ListQueues": _call(catalogue.list_all, "", "QueueNamePrefix NextToken MaxResults"),
    "ListDeadLetterSourceQueues": _call(catalogue.list_sources, "QueueUrl", "NextToken MaxResults"),
    "DeleteQueue": _call(catalogue.delete, "QueueUrl", audited=True),
    "PurgeQueue": _call(catalogue.purge, "QueueUrl", audited=True),
    "GetQueueAttributes": _call(catalogue.attributes, "QueueUrl", "AttributeNames"),
    "SetQueueAttributes": _call(catalogue.set_attributes, "QueueUrl Attributes", audited=True),
    "TagQueue": _call(catalogue.tag, "QueueUrl Tags", audited=True),
    "UntagQueue": _call(catalogue.untag, "QueueUrl TagKeys", audited=True),
    "ListQueueTags": _call(catalogue.list_tags, "QueueUrl"),
    "AddPermission": _call(
        catalogue.add_permission, "QueueUrl Label AWSAccountIds Actions", audited=True
    ),
    "RemovePermission": _call(catalogue.remove_permission, "QueueUrl Label", audited=True),
    "SendMessage": _call(messages.send, "QueueUrl MessageBody", _MESSAGE),
    "SendMessageBatch": _call(messages.send_batch, "QueueUrl Entries"),
    "ReceiveMessage": _call(
        messages.receive,
        "QueueUrl",
        "AttributeNames MessageSystemAttributeNames MessageAttributeNames MaxNumberOfMessages "
        "VisibilityTimeout WaitTimeSeconds ReceiveRequestAttemptId",
    ),
    "DeleteMessage": _call(messages.delete, "QueueUrl ReceiptHandle"),
    "DeleteMessageBatch": _call(messages.delete_batch, "QueueUrl Entries"),
    "ChangeMessageVisibility": _call(
        messages.change_lease, "QueueUrl ReceiptHandle VisibilityTimeout"
    ),
    "ChangeMessageVisibilityBatch": _call(messages.change_leases, "QueueUrl Entries"),
    "StartMessageMoveTask": _call(
        moves.start, "SourceArn", "DestinationArn MaxNumberOfMessagesPerSecond", audited=True
    ),
    "ListMessageMoveTasks": _call(moves.list_tasks, "SourceArn", "MaxResults"),
    "CancelMessageMoveTask": _call(moves.cancel, "TaskHandle", audited=True),
}
"""By the operation's name."""
