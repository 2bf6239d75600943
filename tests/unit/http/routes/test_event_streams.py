"""The route of event streams: parameters, the header, what is refused before a stream begins.

Not covered: the stream (../leasing/test_event_stream.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.http.conftest import Api

PATH = "/v1/topics/t/events"


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"max": "0"}, "max"),
        ({"max": "129"}, "max"),
        ({"max": "1.5"}, "max"),
        ({"max": "٣"}, "max"),
        ({"max": ["1", "2"]}, "max"),
        ({"idle_ms": "-1"}, "idle_ms"),
        ({"lease_ms": "9"}, "lease_ms"),
        ({"ack": "later"}, "ack"),
        ({"encoding": "hex"}, "encoding"),
        ({"wait_ms": "1"}, "wait_ms"),
        ({"tags_any": ["x"] * 17}, "tags_any"),
    ],
)
def test_what_is_wrong_is_named(api: Api, parameters: dict[str, Any], field: str) -> None:
    status, found = api.ask("GET", PATH, params=parameters)
    assert status == 400
    assert found["field"].startswith(field)


def test_an_id_that_no_stream_gave_is_refused(api: Api) -> None:
    for text in ("x", "1-1-1"):
        status, found = api.ask("GET", PATH, headers={"Last-Event-ID": text})
        assert (status, found["title"]) == (400, "BadRequest"), text


def test_a_topic_that_is_not_there_is_a_problem(api: Api) -> None:
    for name in ("nowhere", "t@nowhere"):
        assert api.ask("GET", f"/v1/topics/{name}/events")[0] == 404
        headers = {"Last-Event-ID": "1-1"}
        assert api.ask("GET", f"/v1/topics/{name}/events", headers=headers)[0] == 404


def test_tags_and_encoding_are_as_of_a_lease(api: Api) -> None:
    api.send("a", tags=["x"])
    api.send("b", tags=["y"])
    parameters: dict[str, Any] = {"tags_any": ["x", "z"], "encoding": "base64", "idle_ms": 1}
    answer = api.http.get(PATH, params=parameters)
    assert '"payload_base64":"YQ=="' in answer.text
    assert answer.text.count("data: ") == 1


def test_neither_head_nor_a_page_takes_anything(api: Api) -> None:
    api.send("a")
    assert api.http.head(PATH).status_code == 405
    browser = {"User-Agent": "Mozilla/5.0", "Sec-Fetch-Site": "none"}
    assert api.http.get(PATH, headers=browser).status_code == 403
    assert [message["payload"] for message in api.lease()] == ["a"]
