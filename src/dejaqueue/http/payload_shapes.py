"""Shapes of what is answered about payloads that are streamed.

Room: http. As shapes.py: for the API's description; what a value may be is checked by the broker.
See: routes/payloads.py.
"""

from __future__ import annotations

from pydantic import Field

from dejaqueue import limits
from dejaqueue.http.shapes import Shape


class UploadedPayload(Shape):
    """A payload that was streamed, and that no message has yet."""

    payload_base64: str = Field(
        description="A voucher: sent as a message's `payload_base64` it is the payload."
    )
    payload_bytes: int = Field(description="Bytes of the payload.")


class NewUpload(Shape):
    """A payload that is to be uploaded past the broker."""

    bytes: int | None = Field(
        default=None, ge=1, le=limits.STREAMED_BYTES_MAX, description="Of a new payload."
    )
    upload: str | None = Field(default=None, description="Instead of that: one that has begun.")
    first: int = Field(default=0, ge=0, description="Of that one, the first part,")
    end: int | None = Field(default=None, description="and the one behind the last.")


class SignedParts(Shape):
    """Where parts are, or go."""

    part_bytes: int = Field(description="Bytes of each part but the last.")
    urls: list[str] = Field(description="Of each part, in order.")
    headers: dict[str, str] = Field(
        description="That each request to these URLs has to have, by name; Azure wants one to PUT."
    )
    until_ms: int = Field(description="They can be used until then, UTC milliseconds.")


class SignedUpload(SignedParts):
    """An upload that has begun."""

    upload: str = Field(description="To end it with.")


class UploadEnd(Shape):
    """What was uploaded."""

    upload: str
    bytes: int = Field(description="Of the payload.")
    digests: str = Field(description="SHA-256 of each part, 32 bytes each, joined, in base64.")


class EndedUpload(Shape):
    """A payload that was uploaded."""

    voucher: str = Field(description="Sent as a message's `payload_base64` it is the payload.")


class VoucherShown(Shape):
    """Which payload."""

    voucher: str = Field(description="What its message has as `payload_base64`.")
    first: int = Field(default=0, ge=0, description="Its first part that is wanted,")
    end: int | None = Field(default=None, description="and the one behind the last. None = all.")


class SignedPayload(SignedParts):
    """A payload that is read past the broker."""

    bytes: int = Field(description="Of the payload.")
    digests: str = Field(description="SHA-256 of each part, 32 bytes each, joined, in base64.")
