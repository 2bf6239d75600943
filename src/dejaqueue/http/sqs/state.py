"""What SQS's operations share, one for each application; and what one operation gets.

Room: http. On the event loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from dejaqueue.access.quotas import Account
from dejaqueue.access.roles import Principal, Role
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import ServedTopic
from dejaqueue.errors import TopicUnknown
from dejaqueue.http.auditing import PRINCIPAL, SHARDED
from dejaqueue.http.flow import Flow, flow_of
from dejaqueue.http.service import Service
from dejaqueue.http.sqs.tasks import Task
from dejaqueue.http.sqs.topics import is_queue
from dejaqueue.model import Topic

FIRST_RECEIVES_MAX = 100_000


class Sqs:
    """What the operations share.

    Attributes:
        flow: the ways in and out; None = nobody needed them yet.
        tasks: the move tasks that run here, and the last one of each queue, by its name.
        first_receives: when messages were received first, UTC milliseconds, by queue and id; of
            those that came more than once, and of so many at most.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.flow: Flow | None = None
        self.tasks: dict[str, Task] = {}
        self.first_receives: OrderedDict[tuple[str, int], int] = OrderedDict()

    def first_receive_ms(self, queue_name: str, message_id: int, attempts: int, now_ms: int) -> int:
        """When a message was first received, as far as this broker remembers."""
        place = (queue_name, message_id)
        if attempts == 1:
            self.first_receives[place] = now_ms
            if len(self.first_receives) > FIRST_RECEIVES_MAX:
                self.first_receives.popitem(last=False)
        return self.first_receives.get(place, now_ms)


class Operation:
    """One call of an operation.

    Attributes:
        sqs: what the operations share.
        request: as it came, without its body.
        values: the body.
        region: that the caller signs for.
        principal: who calls.
        broker: the broker; or what stands for it, where the topic is in shards.
    """

    __slots__ = ("broker", "principal", "region", "request", "sqs", "values")

    def __init__(self, sqs: Sqs, request: Request, values: dict[str, Any], region: str) -> None:
        self.sqs = sqs
        self.request = request
        self.values = values
        self.region = region
        self.principal: Principal = request.scope[PRINCIPAL]
        self.broker: Broker = request.scope.get(SHARDED) or sqs.service.broker

    @property
    def flow(self) -> Flow:
        """The ways in and out."""
        if self.broker is not self.sqs.service.broker:
            return flow_of(self.request)
        flow = self.sqs.flow
        if flow is None:
            flow = self.sqs.flow = flow_of(self.request)
        return flow

    @property
    def account(self) -> Account:
        """Whose quotas it counts for."""
        address, _ = self.request.scope.get("client") or ("", 0)
        return self.sqs.service.broker.quotas.of(self.principal, address)

    @property
    def base_url(self) -> str:
        """Scheme and host under which the caller reached the broker."""
        return str(self.request.base_url).rstrip("/")

    def now_ms(self) -> int:
        """The broker's time, UTC milliseconds."""
        return self.broker.clock.utc_ms()

    def require(self, role: Role, queue_name: str) -> None:
        """Raise Forbidden unless the caller has the role for the queue."""
        self.principal.require(role, queue_name)

    def topic(self, queue_name: str) -> Topic:
        """The topic of a queue, wherever it is served. Raises TopicUnknown, Unavailable."""
        return _require_queue(self.broker.topic(queue_name))

    async def alter(self, queue_name: str, change: Callable[[Topic], dict[str, Any]]) -> None:
        """Change the topic of a queue by what it is.

        Args:
            change: see broker/topic/catalogue.py, `Changes`: what another broker has just changed
                is in the topic that it gets.

        Raises:
            TopicUnknown, Unavailable. Whatever `change` raises.
        """
        alter = self.broker.alter_topic
        await run_in_threadpool(alter, queue_name, lambda topic: change(_require_queue(topic)))

    def served(self, queue_name: str) -> ServedTopic:
        """The topic of a queue, which must be served here. Raises Elsewhere, too."""
        self.topic(queue_name)
        return self.broker.runtime(queue_name)


def _require_queue(topic: Topic) -> Topic:
    if not is_queue(topic):
        raise TopicUnknown(topic.name)
    return topic
