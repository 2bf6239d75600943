"""The description of streamed payloads names what the calls take."""

from __future__ import annotations

from pydantic import BaseModel

from dejaqueue.access.calls import ACTIONS
from dejaqueue.http.payload_shapes import NewUpload, UploadEnd, VoucherShown


def test_each_field_is_described() -> None:
    shapes: dict[str, type[BaseModel]] = {
        "sign_upload": NewUpload,
        "end_payload": UploadEnd,
        "sign_payload": VoucherShown,
    }
    for name, shape in shapes.items():
        assert ("topic", *shape.model_fields) == ACTIONS[name].fields
