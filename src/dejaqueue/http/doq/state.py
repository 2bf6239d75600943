"""What DOQ's routes share, one for each application; and the shape of their answers.

Room: http.
"""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Request

from dejaqueue.http.direct import JsonAnswer
from dejaqueue.http.doq.ids import Ids
from dejaqueue.http.doq.messages import Messages
from dejaqueue.http.doq.rates import Rates
from dejaqueue.http.doq.rows import Row
from dejaqueue.http.service import Service


class Doq:
    """What the routes share.

    Attributes:
        messages: of all queues.
        ids: for producers.
        rates: of the calls.
    """

    def __init__(self, service: Service) -> None:
        clock = service.broker.clock
        self.ids = Ids(clock)
        self.messages = Messages(service.broker, self.ids)
        self.rates = Rates(clock)


def doq_of(request: Request) -> Doq:
    """Of the application that a request came to."""
    doq: Doq = request.app.state.doq
    return doq


def message_answer(status: str, row: Row) -> JsonAnswer:
    """A message."""
    values: dict[str, Any] = {
        "status": status,
        "id": row.id,
        "group": row.group,
        "priority": row.priority,
        "content": row.content,
    }
    return JsonAnswer(orjson.dumps(values | metadata_part(row.metadata)))


def metadata_part(metadata: dict[str, str] | None) -> dict[str, Any]:
    """DOQ leaves it out where there is none."""
    return {"metadata": metadata} if metadata else {}
