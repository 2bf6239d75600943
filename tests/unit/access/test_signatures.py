"""Signatures that botocore makes are verified, and whatever differs is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from dejaqueue.access.api_keys import ApiKey, grants_of, new_key
from dejaqueue.access.signatures import CLOCKS_APART_MS_MAX, Signature, SignedRequest
from dejaqueue.clock import SystemClock
from dejaqueue.errors import Unauthenticated

KEY, TEXT = new_key("shop", grants_of(["admin:*"]), 0, None, signs=True)
BODY = b'{"QueueName":"q"}'


def signed(path: str = "/sqs", query: str = "") -> SignedRequest:
    headers = {"X-Amz-Target": "AmazonSQS.ListQueues", "X-More": "a   b "}
    url = f"http://broker:7465{path}" + (f"?{query}" if query else "")
    asked = AWSRequest("POST", url, data=BODY, headers=headers)
    SigV4Auth(Credentials(KEY.id, TEXT), "sqs", "eu-west-1").add_auth(asked)
    names = {name.lower(): value for name, value in asked.headers.items()}
    return SignedRequest("POST", path, query, names | {"host": "broker:7465"}, BODY)


def fits(request: SignedRequest, key: ApiKey = KEY) -> bool:
    assert key.signing is not None
    return Signature.of(request.headers["authorization"]).fits(request, key.signing)


@pytest.mark.parametrize("path", ["/", "/sqs", "/sqs/000000000000/q.fifo", "/a%20b/c~d"])
@pytest.mark.parametrize("query", ["", "b=2&a=1%20x&a=0&c="])
def test_what_botocore_signs_fits(path: str, query: str) -> None:
    assert fits(signed(path, query))


def test_what_differs_does_not_fit() -> None:
    request = signed()
    other, _ = new_key("other", grants_of(["admin:*"]), 0, None, signs=True)
    assert not fits(request, other)
    spoilt = [
        replace(request, method="GET"),
        replace(request, path="/sqs/"),
        replace(request, query="a=1"),
        replace(request, body=BODY + b" "),
        replace(request, headers={**request.headers, "host": "other:7465"}),
        replace(request, headers={**request.headers, "x-amz-target": "AmazonSQS.DeleteQueue"}),
    ]
    assert not any(map(fits, spoilt))


def test_a_signature_has_a_time__and_is_of_host_and_time() -> None:
    request, now_ms = signed(), SystemClock().utc_ms()
    signature = Signature.of(request.headers["authorization"])
    assert (signature.key_id, signature.region) == (KEY.id, "eu-west-1")
    signature.check(request, now_ms)
    for apart_ms in (-CLOCKS_APART_MS_MAX - 2_000, CLOCKS_APART_MS_MAX + 2_000):
        with pytest.raises(Unauthenticated, match="expired, or is not valid yet"):
            signature.check(request, now_ms + apart_ms)
    with pytest.raises(Unauthenticated, match="of host and x-amz-date"):
        replace(signature, signed_headers=["x-amz-date"]).check(request, now_ms)
    with pytest.raises(Unauthenticated, match="expired"):
        replace(signature, day="20010101").check(request, now_ms)
    for time in ("", "now", "20301331T093000Z"):
        with pytest.raises(Unauthenticated, match="x-amz-date: a time"):
            headers = {**request.headers, "x-amz-date": time}
            signature.check(replace(request, headers=headers), now_ms)


@pytest.mark.parametrize("found", ["/s3/", "/sqs/aws4_request, Signature=", "Bearer x", ""])
def test_what_is_no_signature_for_sqs_is_refused(found: str) -> None:
    right = signed().headers["authorization"]
    text = right.replace("/sqs/", found) if found.startswith("/") else found
    with pytest.raises(Unauthenticated, match="with a credential for sqs"):
        Signature.of(text)
