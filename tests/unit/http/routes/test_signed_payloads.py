"""Signed URLs over HTTP where there is no store, and what is no request for them.

Not covered: object stores (tests/integration/test_streamed_payloads.py).
"""

from __future__ import annotations

from tests.unit.http.conftest import Api


def test_without_a_store_nothing_is_signed(api: Api) -> None:
    topic = "/v1/topics/t/payload"
    assert "no payload store" in api.post(f"{topic}/uploads", {"bytes": 5}, status=409)["detail"]
    assert "bytes" in api.post(f"{topic}/uploads", {}, status=400)["detail"]
    assert "voucher" in api.post(f"{topic}/urls", {"voucher": "AAAA"}, status=400)["detail"]
    assert "upload" in api.post(f"{topic}/end", {"bytes": 5}, status=400)["detail"]
