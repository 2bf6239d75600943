"""Signed URLs for payloads that are streamed past the broker, and the end of such an upload.

Room: http. Calls of the broker, with their answers as they are.
See: routes/payloads.py, through the broker; broker/payloads/signed_parts.py.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from dejaqueue.access.calls import ACTIONS, bytes_past
from dejaqueue.http import payload_shapes as shapes
from dejaqueue.http.bodies import json_object
from dejaqueue.http.direct import json_answer
from dejaqueue.http.openapi import TopicName, answers, body, route
from dejaqueue.http.service import account_of, principal_of, service_of

router = APIRouter(prefix="/v1/topics/{topic}/payload", tags=["messages"])
Body = Annotated[dict[str, Any], Depends(json_object)]
_URL = "https://bucket.s3.amazonaws.com/payloads/00000?X-Amz-Signature=4ac1…"
_URLS = {"part_bytes": 1_048_576, "urls": [_URL], "headers": {}, "until_ms": 1_896_082_200_000}


@route(
    router,
    "sign_upload",
    openapi_extra=body(shapes.NewUpload, {"bytes": 4_000_000}),
    responses=answers(
        shapes.SignedUpload, {"upload": "/4sdbqRekMP30htYBg==", **_URLS}, "Where to.", 404, 409
    ),
)
def sign_upload(request: Request, topic: TopicName, values: Body) -> Response:
    """PUT each part at its URL, in any order; all but the last have `part_bytes`. Then end it."""
    return json_answer(_act(request, topic, "sign_upload", values))


@route(
    router,
    "end_payload",
    openapi_extra=body(
        shapes.UploadEnd, {"upload": "/4sdbqRekMP30htYBg==", "bytes": 4_000_000, "digests": "bm90…"}
    ),
    responses=answers(
        shapes.EndedUpload, {"voucher": "/4sdbqRekMP30htYBQ=="}, "It is whole.", 404, 409
    ),
)
def end_payload(request: Request, topic: TopicName, values: Body) -> Response:
    """The voucher is to be sent as `payload_base64` of a message within six hours."""
    return json_answer(_act(request, topic, "end_payload", values))


@route(
    router,
    "sign_payload",
    openapi_extra=body(shapes.VoucherShown, {"voucher": "/4sdbqRekMP30htYBQ=="}),
    responses=answers(
        shapes.SignedPayload,
        {"bytes": 4_000_000, "digests": "bm90…", **_URLS},
        "Where from. Compare each part with its SHA-256.",
        404,
        409,
    ),
)
def sign_payload(request: Request, topic: TopicName, values: Body) -> Response:
    """GET each part at its URL, and compare it with its SHA-256: nobody else has."""
    return json_answer(_act(request, topic, "sign_payload", values))


def _act(request: Request, topic: str, name: str, values: dict[str, Any]) -> dict[str, Any]:
    called = values | {"topic": topic}
    ACTIONS[name].rule.require(principal_of(request), called)
    if byte_count := bytes_past(name, called):
        account_of(request).take_sent(0, byte_count, wait=False)
    return service_of(request).broker.call(name, called)
