"""What DOQ's clients send and get, as JSON.

Room: http. Names and bounds only; pydantic.
Holds: field names and defaults are DOQ's; a field nobody knows is refused (rule 15).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StrictStr

from dejaqueue import limits

UINT64_MAX = (1 << 64) - 1
PRIORITY_MAX = (1 << 63) - 1
IDS_MAX = 1_000
"""Ids in one call, as in DOQ."""
DEFAULT_GROUP = "default"


def _no_surrogates(text: str) -> str:
    """Half of a pair is no character: JSON can write it, UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("not a text in Unicode") from None
    return text


Text = Annotated[StrictStr, AfterValidator(_no_surrogates)]
Priority = Annotated[StrictInt, Field(ge=0, le=PRIORITY_MAX)]
Metadata = dict[Text, Text]


class Body(BaseModel):
    """A JSON object without unknown fields."""

    model_config = ConfigDict(extra="forbid")


class DoqSettings(Body):
    """Settings of a queue; what is left out has DOQ's default."""

    strategy: Text = ""
    max_unacked: Annotated[StrictInt, Field(ge=0, le=limits.CREDIT_MAX)] = 0
    """Unacknowledged messages of one group at most; 0 = no limit. For fair queues."""
    ack_timeout: Annotated[StrictInt, Field(ge=0, le=limits.LEASE_MS_MAX // 1_000)] = 0
    """Seconds until an unacknowledged message comes back; 0 = half an hour."""


class DoqNewQueue(Body):
    """A queue to make."""

    name: Text
    type: Literal["delayed", "fair"]
    settings: DoqSettings = DoqSettings()


class DoqChangedQueue(Body):
    """What a queue is to be like."""

    settings: DoqSettings


class DoqNewMessage(Body):
    """A message to enqueue."""

    content: Text
    priority: Priority
    id: Text = ""
    group: Text = DEFAULT_GROUP
    metadata: Metadata | None = None


class DoqReturned(Body):
    """How a message goes back to its queue."""

    priority: Priority = 0
    metadata: Metadata | None = None


class DoqNewPriority(Body):
    """The priority that a message is to have."""

    priority: Priority


class DoqNewIds(Body):
    """How many ids to give."""

    number: Annotated[StrictInt, Field(ge=1, le=IDS_MAX)]


class DoqMade(BaseModel):
    """A queue was made, or was there."""

    status: Literal["CREATED"]
    name: str
    type: str
    settings: dict[str, Any]


class DoqChanged(BaseModel):
    """A queue was changed."""

    status: Literal["UPDATED"]
    name: str
    settings: dict[str, Any]


class DoqDeleted(BaseModel):
    """A queue is gone."""

    status: Literal["DELETED"]


class DoqDescribed(BaseModel):
    """A queue and how full it is."""

    name: str
    type: str
    settings: dict[str, Any]
    enqueue_rps: float
    dequeue_rps: float
    ack_rps: float
    nack_rps: float
    ready: int
    unacked: int
    total: int


class DoqListing(BaseModel):
    """All queues."""

    queues: list[DoqDescribed]


class DoqServer(BaseModel):
    """A broker of the cluster."""

    id: str
    addr: str
    leader_addr: str
    is_leader: bool
    suffrage: str


class DoqServers(BaseModel):
    """The brokers of the cluster, or the one that is alone."""

    servers: list[DoqServer]


class DoqMessage(BaseModel):
    """A message."""

    status: Literal["ENQUEUED", "DEQUEUED", "GOT"]
    id: str
    group: str
    priority: int
    content: str
    metadata: dict[str, str] | None = None


class DoqDone(BaseModel):
    """What happened to a message."""

    status: Literal["ACKNOWLEDGED", "UNACKNOWLEDGED", "TOUCHED", "UPDATED"]
    id: str
    priority: int | None = None
    metadata: dict[str, str] | None = None


class DoqIds(BaseModel):
    """New ids."""

    ids: list[str]
