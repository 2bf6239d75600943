"""DOQ's Python client, as protoc makes it of our doq.proto: what users have."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

from grpc_tools import protoc

from dejaqueue.http.doq.door.protocol import PROTO


@cache
def generated() -> tuple[ModuleType, ModuleType]:
    """The modules of the messages and of the stub."""
    folder = mkdtemp(prefix="doq-client-")
    arguments = [f"-I{PROTO.parent}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    assert protoc.main(["protoc", *arguments, PROTO.name]) == 0
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("doq_pb2"), importlib.import_module("doq_pb2_grpc")
    finally:
        sys.path.remove(folder)
        for path in Path(folder).iterdir():
            if path.is_file():
                path.unlink()


def stub_of(channel: Any) -> Any:
    """The client on a channel."""
    return generated()[1].DOQStub(channel)


def request(name: str, /, **fields: Any) -> Any:
    """A request by the name of its call."""
    return getattr(generated()[0], f"{name}Request")(**fields)
