"""Streamed payloads over HTTP where there is no store, and what is no request for one.

Not covered: bytes both ways, ranges (tests/integration/test_streamed_payloads.py).
"""

from __future__ import annotations

from tests.unit.http.conftest import Api


def test_without_a_store_nothing_is_taken(api: Api) -> None:
    found, values = api.ask("PUT", "/v1/topics/t/payload")
    assert (found, "payloads.url" in values["detail"]) == (409, True)
    found, values = api.ask("PUT", "/v1/topics/t/payload?other=1")
    assert found == 400


def test_what_is_no_voucher_reads_nothing(api: Api) -> None:
    for text in ("", "AAAA", "no base64!"):
        found, values = api.ask("GET", "/v1/topics/t/payload", params={"voucher": text})
        assert (found, "voucher" in values["detail"]) == (400, True)
