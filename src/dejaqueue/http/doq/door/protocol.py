"""The messages of DOQ's gRPC API, made from doq.proto when the door opens.

Room: http. Pure but for reading the file beside it.
Holds: doq.proto is all that says what goes over the wire: no second copy of it, generated or
written, can differ. What it may hold is what `descriptor_of` understands: a line for each thing.
See: tests/unit/http/doq/door/test_protocol.py, which compares with what protoc makes of the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from dejaqueue.errors import BadRequest

PROTO = Path(__file__).with_name("doq.proto")
SERVICE = "queue.DOQ"
_NAME = r"[A-Za-z_]\w*"
_RPC = re.compile(rf"rpc ({_NAME})\((stream )?({_NAME})\) returns \((stream )?({_NAME})\);")
_FIELD = re.compile(rf"(repeated )?({_NAME}|map<string, string>) ({_NAME}) = (\d+);")
_VALUE = re.compile(rf"({_NAME}) = (\d+);")
_OPENING = re.compile(rf"(message|enum|service) ({_NAME}) {{")
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "double": _Field.TYPE_DOUBLE,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}
_MAP = "map<string, string>"


def descriptor_of(text: str) -> Any:
    """A .proto file as a FileDescriptorProto. Raises ValueError for what is not known."""
    file = descriptor_pb2.FileDescriptorProto(name=PROTO.name, syntax="proto3")
    inside: list[Any] = []
    for number, written in enumerate(text.splitlines(), 1):
        line = written.partition("//")[0].strip()
        if not line or line == 'syntax = "proto3";':
            continue
        if line == "}":
            inside.pop()
        elif opening := _OPENING.fullmatch(line):
            kind, name = opening.groups()
            inside.append(_begin(inside[-1] if inside else file, kind, name))
        elif line.startswith("package "):
            file.package = line.removeprefix("package ").rstrip(";")
        elif line.startswith("option go_package = "):
            file.options.go_package = line.split('"')[1]
        elif not inside or not _add(inside[-1], file.package, line):
            raise ValueError(f"{PROTO.name}, line {number}: {written}")
    return file


def _begin(parent: Any, kind: str, name: str) -> Any:
    if kind == "service":
        return parent.service.add(name=name)
    is_file = isinstance(parent, descriptor_pb2.FileDescriptorProto)
    if kind == "message":
        return (parent.message_type if is_file else parent.nested_type).add(name=name)
    return parent.enum_type.add(name=name)


def _add(parent: Any, package: str, line: str) -> bool:
    """Add what a line says to a message, an enum or a service; False = it says nothing known."""
    if isinstance(parent, descriptor_pb2.ServiceDescriptorProto):
        rpc = _RPC.fullmatch(line)
        if rpc is not None:
            method = parent.method.add(name=rpc[1])
            method.input_type, method.output_type = f".{package}.{rpc[3]}", f".{package}.{rpc[5]}"
            if rpc[2]:
                method.client_streaming = True
            if rpc[4]:
                method.server_streaming = True
        return rpc is not None
    if isinstance(parent, descriptor_pb2.EnumDescriptorProto):
        value = _VALUE.fullmatch(line)
        if value is not None:
            parent.value.add(name=value[1], number=int(value[2]))
        return value is not None
    field = _FIELD.fullmatch(line)
    if field is not None:
        _add_field(parent, package, *field.groups())
    return field is not None


def _add_field(parent: Any, package: str, repeated: str | None, kind: str, *rest: str) -> None:
    name, number = rest
    label = _Field.LABEL_REPEATED if repeated or kind == _MAP else _Field.LABEL_OPTIONAL
    field = parent.field.add(name=name, number=int(number), label=label)
    first, *others = name.split("_")
    field.json_name = first + "".join(part.title() for part in others)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind == _MAP:
        entry = parent.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add_field(entry, package, None, "string", "key", "1")
        _add_field(entry, package, None, "string", "value", "2")
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{parent.name}.{entry.name}"
    elif any(enum.name == kind for enum in parent.enum_type):
        field.type = _Field.TYPE_ENUM
        field.type_name = f".{package}.{parent.name}.{kind}"
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"


@dataclass(frozen=True, slots=True)
class WireCall:
    """What a call takes and gives.

    Attributes:
        request, response: classes of protobuf's messages.
        is_stream: many of each, either way; else one.
    """

    name: str
    request: Any
    response: Any
    is_stream: bool

    def parsed(self, content: bytes) -> Any:
        """A request. Raises BadRequest."""
        try:
            return self.request.FromString(content)
        except DecodeError:
            name = self.request.DESCRIPTOR.name
            raise BadRequest("request", f"a {name}, its texts in UTF-8", content[:64]) from None


def load_calls() -> dict[str, WireCall]:
    """The calls of the service, by name."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_of(PROTO.read_text(encoding="utf-8")))
    found = {}
    for method in pool.FindServiceByName(SERVICE).methods:
        request = message_factory.GetMessageClass(method.input_type)
        response = message_factory.GetMessageClass(method.output_type)
        found[method.name] = WireCall(method.name, request, response, method.client_streaming)
    return found
