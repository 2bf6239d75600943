"""doq.proto is read as protoc reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from dejaqueue.errors import BadRequest
from dejaqueue.http.doq.door.protocol import PROTO, descriptor_of, load_calls


def test_it_is_what_protoc_makes_of_the_file(tmp_path: Path) -> None:
    found = tmp_path / "set"
    arguments = [f"-I{PROTO.parent}", f"--descriptor_set_out={found}", PROTO.name]
    assert protoc.main(["protoc", *arguments]) == 0
    [expected] = descriptor_pb2.FileDescriptorSet.FromString(found.read_bytes()).file
    assert descriptor_of(PROTO.read_text(encoding="utf-8")) == expected


@pytest.mark.parametrize(
    "text",
    ["message A {\nbytes a = 1\n}", "message A {\noneof a {\n}\n}", "import 'a';", "string a = 1;"],
)
def test_what_it_does_not_know_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        descriptor_of(text)


def test_there_are_sixteen_calls_of_which_two_are_streams() -> None:
    calls = load_calls()
    assert len(calls) == 16
    streams = {name for name, call in calls.items() if call.is_stream}
    assert streams == {"EnqueueStream", "DequeueStream"}


def test_what_is_no_request_says_what_is_expected() -> None:
    with pytest.raises(BadRequest, match="an EnqueueRequest|a EnqueueRequest"):
        load_calls()["Enqueue"].parsed(b"\xff\xff")
