"""Requests that are signed as AWS's clients sign them (Signature Version 4), verified.

Room: access. Pure: a request's parts in, yes or no out.
Holds: the whole body is signed, and so are the host and the time; a signature counts for fifteen
minutes before and after the time in it; signatures are compared in constant time.
See: api_keys.py, `signing_of`; docs/adr/0045-signed-requests.md; docs/guides/moving-from-sqs.md.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote

from dejaqueue.errors import Unauthenticated

ALGORITHM = "AWS4-HMAC-SHA256"
CLOCKS_APART_MS_MAX = 15 * 60_000
"""So far may the time of a signature be from the broker's: as far as AWS lets it be."""
_FIELDS = re.compile(
    rf"{ALGORITHM} Credential=([^\s,/]{{1,128}})/(\d{{8}})/([A-Za-z0-9-]{{1,64}})/sqs/aws4_request"
    r",\s*SignedHeaders=([a-z0-9;_-]{1,2048}),\s*Signature=([0-9a-f]{64})"
)
_TIME = re.compile(r"\d{8}T\d{6}Z")
_BLANKS = re.compile(r" +")


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What of a request is signed.

    Attributes:
        path: as it came, percent-encoded.
        query: as it came, without the question mark.
        headers: by name in small letters; those that came several times, joined with commas.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Signature:
    """What an authorization header says.

    Attributes:
        key_id: whose key it says it was made with: the access key.
        day, region: what the key was derived for.
        signed_headers: names of the headers that were signed.
        text: the signature, 64 hexadecimal digits.
    """

    key_id: str
    day: str
    region: str
    signed_headers: Sequence[str]
    text: str

    @classmethod
    def of(cls, authorization: str) -> Signature:
        """What a header says. Raises Unauthenticated: it is no signature for SQS."""
        match = _FIELDS.fullmatch(authorization.strip())
        if match is None:
            raise Unauthenticated(f"authorization: {ALGORITHM} with a credential for sqs")
        key_id, day, region, names, text = match.groups()
        return cls(key_id, day, region, names.split(";"), text)

    def check(self, request: SignedRequest, now_ms: int) -> None:
        """Raise Unauthenticated if what must be signed is not, or the time is another one."""
        if not {"host", "x-amz-date"} <= set(self.signed_headers):
            raise Unauthenticated("a signature is of host and x-amz-date, among others")
        time = request.headers.get("x-amz-date", "")
        try:
            if _TIME.fullmatch(time) is None:
                raise ValueError
            moment = datetime.strptime(time, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise Unauthenticated("x-amz-date: a time as 20300131T093000Z") from None
        apart_ms = abs(now_ms - round(moment.timestamp() * 1_000))
        if not time.startswith(self.day) or apart_ms > CLOCKS_APART_MS_MAX:
            raise Unauthenticated(
                f"the signature has expired, or is not valid yet: {apart_ms // 1_000} s from now"
            )

    def fits(self, request: SignedRequest, signing: bytes) -> bool:
        """True if the request was signed with the key that this is of (ApiKey.signing)."""
        key = signing
        for part in (self.day, self.region, "sqs", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        scope = f"{self.day}/{self.region}/sqs/aws4_request"
        told = hashlib.sha256(self._canonical(request).encode()).hexdigest()
        text = f"{ALGORITHM}\n{request.headers['x-amz-date']}\n{scope}\n{told}"
        expected = hmac.digest(key, text.encode(), "sha256").hex()
        return hmac.compare_digest(expected, self.text)

    def _canonical(self, request: SignedRequest) -> str:
        pairs = parse_qsl(request.query, keep_blank_values=True)
        query = "&".join(
            f"{name}={value}"
            for name, value in sorted((quote(n, "~"), quote(v, "~")) for n, v in pairs)
        )
        headers = "".join(
            f"{name}:{_BLANKS.sub(' ', request.headers.get(name, '').strip())}\n"
            for name in self.signed_headers
        )
        return "\n".join(
            (
                request.method,
                # Each service but S3 signs the path encoded once more.
                quote(request.path or "/", safe="/~"),
                query,
                headers,
                ";".join(self.signed_headers),
                hashlib.sha256(request.body).hexdigest(),
            )
        )
