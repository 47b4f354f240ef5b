"""The messages of `data_management.proto`, made from the file itself when they are first used.

Code that `protoc` generates works only with some versions of protobuf. The file is small and
regular, so its descriptor is made here; a test compares it with `protoc`'s.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTO = Path(__file__).with_name("data_management.proto")
_COMMENT = re.compile(r"//[^\n]*")
_BLOCK = re.compile(r"(message|enum|service)\s+(\w+)\s*\{([^{}]*)\}")
_PACKAGE = re.compile(r"package\s+(\w+);")
_FIELD = re.compile(r"(repeated\s+)?(map<string, string>|\w+)\s+(\w+)\s*=\s*(\d+);")
_VALUE = re.compile(r"(\w+)\s*=\s*(\d+);")
_METHOD = re.compile(r"rpc\s+(\w+)\((\w+)\)\s+returns\s+\((stream\s+)?(\w+)\);")
_PLAIN = {"string": "TYPE_STRING", "int32": "TYPE_INT32"}
_FieldProto = descriptor_pb2.FieldDescriptorProto


def file_descriptor(text: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a proto3 file that uses only the features of ours. Pure."""
    text = _COMMENT.sub("", text)
    found = _PACKAGE.search(text)
    assert found is not None
    package = found[1]
    blocks = _BLOCK.findall(text)
    enums = {name for kind, name, _ in blocks if kind == "enum"}
    made = descriptor_pb2.FileDescriptorProto(name=PROTO.name, package=package, syntax="proto3")
    for kind, name, body in blocks:
        if kind == "enum":
            _add_enum(made.enum_type.add(name=name), body)
        elif kind == "message":
            _add_message(made.message_type.add(name=name), body, package, enums)
        else:
            service = made.service.add(name=name)
            for method, taken, stream, given in _METHOD.findall(body):
                service.method.add(
                    name=method,
                    input_type=f".{package}.{taken}",
                    output_type=f".{package}.{given}",
                    server_streaming=True if stream else None,
                )
    return made


def _add_enum(enum: descriptor_pb2.EnumDescriptorProto, body: str) -> None:
    if "allow_alias = true" in body:
        enum.options.allow_alias = True
    for value, number in _VALUE.findall(body):
        enum.value.add(name=value, number=int(number))


def _add_message(
    message: descriptor_pb2.DescriptorProto, body: str, package: str, enums: set[str]
) -> None:
    for repeated, kind, name, number in _FIELD.findall(body):
        field = message.field.add(
            name=name, number=int(number), json_name=_camel(name), label=_FieldProto.LABEL_OPTIONAL
        )
        if repeated or kind.startswith("map<"):
            field.label = _FieldProto.LABEL_REPEATED
        if kind.startswith("map<"):
            entry = f"{_camel(name, first=True)}Entry"
            field.type = _FieldProto.TYPE_MESSAGE
            field.type_name = f".{package}.{message.name}.{entry}"
            nested = message.nested_type.add(name=entry)
            nested.options.map_entry = True
            for place, key in enumerate(("key", "value"), 1):
                nested.field.add(
                    name=key,
                    number=place,
                    json_name=key,
                    label=_FieldProto.LABEL_OPTIONAL,
                    type=_FieldProto.TYPE_STRING,
                )
        elif kind in _PLAIN:
            field.type = _FieldProto.Type.Value(_PLAIN[kind])
        else:
            field.type = _FieldProto.TYPE_ENUM if kind in enums else _FieldProto.TYPE_MESSAGE
            field.type_name = f".{package}.{kind}"


def _camel(name: str, *, first: bool = False) -> str:
    head, *rest = name.split("_")
    return (head.capitalize() if first else head) + "".join(one.capitalize() for one in rest)


@cache
def pool() -> descriptor_pool.DescriptorPool:
    """Return the pool with the file, for reflection."""
    made = descriptor_pool.Default()
    try:
        made.FindFileByName(PROTO.name)
    except KeyError:
        made.Add(file_descriptor(PROTO.read_text("utf-8")))
    return made


@cache
def messages() -> Any:
    """Return the classes of messages by name, and the descriptor `service`."""
    file = pool().FindFileByName(PROTO.name)
    classes = {
        name: message_factory.GetMessageClass(kind)
        for name, kind in file.message_types_by_name.items()
    }
    return SimpleNamespace(**classes, service=file.services_by_name["DataManagementService"])
