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
from functools import lru_cache
from urllib.parse import parse_qsl, quote

from dejaqueue.errors import Unauthenticated

ALGORITHM = "AWS4-HMAC-SHA256"
CLOCKS_APART_MS_MAX = 15 * 60_000
"""So far may the time of a signature be from the broker's: as far as AWS lets it be."""
REMEMBERED = 1_024
"""Callers, signing keys and times that are remembered each: a program signs all day with one key,
and to derive it again and again would cost as much as the rest of a small request."""
_WHO = re.compile(
    rf"{ALGORITHM} Credential=([^\s,/]{{1,128}})/(\d{{8}})/([A-Za-z0-9-]{{1,64}})/sqs/aws4_request"
    r",\s*SignedHeaders=([a-z0-9;_-]{1,2048}),\s*Signature="
)
_HEAD_CHARACTERS_MAX = 2_500
_DIGITS = 64
_HEXADECIMAL = re.compile("[0-9a-f]{64}")
_TIME = re.compile(r"\d{8}T\d{6}Z")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_.~/-]+")
_BLANKS = re.compile(r" +")


@dataclass(slots=True)
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


@dataclass(slots=True)
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
        authorization = authorization.strip()
        head, text = authorization[:-_DIGITS], authorization[-_DIGITS:]
        who = _who(head) if len(head) <= _HEAD_CHARACTERS_MAX else None
        if who is None or _HEXADECIMAL.fullmatch(text) is None:
            raise Unauthenticated(f"authorization: {ALGORITHM} with a credential for sqs")
        return cls(*who, text)

    def check(self, request: SignedRequest, now_ms: int) -> None:
        """Raise Unauthenticated if what must be signed is not, or the time is another one."""
        if "host" not in self.signed_headers or "x-amz-date" not in self.signed_headers:
            raise Unauthenticated("a signature is of host and x-amz-date, among others")
        time = request.headers.get("x-amz-date", "")
        apart_ms = abs(now_ms - _instant_ms(time))
        if not time.startswith(self.day) or apart_ms > CLOCKS_APART_MS_MAX:
            raise Unauthenticated(
                f"the signature has expired, or is not valid yet: {apart_ms // 1_000} s from now"
            )

    def fits(self, request: SignedRequest, signing: bytes) -> bool:
        """True if the request was signed with the key that this is of (ApiKey.signing)."""
        key = _key(signing, self.day, self.region)
        scope = f"{self.day}/{self.region}/sqs/aws4_request"
        told = hashlib.sha256(self._canonical(request).encode()).hexdigest()
        text = f"{ALGORITHM}\n{request.headers['x-amz-date']}\n{scope}\n{told}"
        expected = hmac.digest(key, text.encode(), "sha256").hex()
        return hmac.compare_digest(expected, self.text)

    def _canonical(self, request: SignedRequest) -> str:
        query, path = "", request.path or "/"
        if request.query:
            pairs = parse_qsl(request.query, keep_blank_values=True)
            quoted = sorted((quote(name, "~"), quote(value, "~")) for name, value in pairs)
            query = "&".join([f"{name}={value}" for name, value in quoted])
        if _PLAIN_PATH.fullmatch(path) is None:
            path = quote(path, safe="/~")  # each service but S3 signs the path encoded once more
        headers = "".join(
            [f"{name}:{_trimmed(request.headers.get(name, ''))}\n" for name in self.signed_headers]
        )
        return "\n".join(
            (
                request.method,
                path,
                query,
                headers,
                ";".join(self.signed_headers),
                hashlib.sha256(request.body).hexdigest(),
            )
        )


@lru_cache(REMEMBERED)
def _who(head: str) -> tuple[str, str, str, tuple[str, ...]] | None:
    """Key, day, region and signed headers, of what is before a signature."""
    match = _WHO.fullmatch(head)
    if match is None:
        return None
    key_id, day, region, names = match.groups()
    return key_id, day, region, tuple(names.split(";"))


@lru_cache(REMEMBERED)
def _key(signing: bytes, day: str, region: str) -> bytes:
    """The key that requests of a day are signed with; the first one of a day takes longer."""
    key = signing
    for part in (day, region, "sqs", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


@lru_cache(REMEMBERED)
def _instant_ms(time: str) -> int:
    """UTC milliseconds of a time. Raises Unauthenticated."""
    try:
        if _TIME.fullmatch(time) is None:
            raise ValueError
        moment = datetime.strptime(time, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise Unauthenticated("x-amz-date: a time as 20300131T093000Z") from None
    return round(moment.timestamp() * 1_000)


def _trimmed(value: str) -> str:
    value = value.strip()
    return _BLANKS.sub(" ", value) if "  " in value else value
