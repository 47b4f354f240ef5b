"""The models of actions, compared with the rules of each field, stated plainly."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from bodies import FIELDS, INTEGERS, ODD, bodies, fields_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from tests.examples import examples
from txlog.actions.file import Add, DeletionVectorDescriptor
from txlog.actions.ndjson import ACTIONS, decode_action
from txlog.actions.table import CommitInfo, Metadata, Protocol
from txlog.base.errors import LogCorruptError

DEFAULTS: dict[str, dict[str, Any]] = {
    "remove": {"dataChange": True},
    "cdc": {"dataChange": False},
    "metaData": {
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
        "configuration": {},
    },
    "domainMetadata": {"removed": False},
    "format": {"provider": "parquet", "options": {}},
}


class RefusedError(Exception):
    """The oracle refuses a value."""


def read(kind: str, value: Any) -> Any:
    """The oracle: return the JSON of what a value of a type is read as."""
    if kind in INTEGERS:
        least, most = INTEGERS[kind]
        good = type(value) is int and least <= value <= most
    elif kind == "text":
        good = type(value) is str
    elif kind == "bool":
        good = type(value) is bool
    elif kind == "names":
        good = type(value) is list and all(type(item) is str for item in value)
    elif kind in ("texts", "strings"):
        if type(value) is not dict:
            raise RefusedError
        if kind == "texts":
            value = {name: text_of(item) for name, item in value.items()}
        good = all(item is None or type(item) is str for item in value.values())
    else:
        return read_action(kind, value)
    if not good:
        raise RefusedError
    return value


def text_of(item: Any) -> Any:
    if type(item) is bool:
        return "true" if item else "false"
    if type(item) is float or (type(item) is int and -(2**63) <= item < 2**64):
        return repr(item)
    return item


def read_action(kind: str, body: Any) -> dict[str, Any]:
    if type(body) is not dict:
        raise RefusedError
    found = dict(DEFAULTS.get(kind, {}))
    for name, _, type_, is_required in fields_of(kind):
        if body.get(name) is not None:
            found[name] = read(type_, body[name])
        elif is_required:
            raise RefusedError
    return found


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (RefusedError, LogCorruptError, ValidationError):
        return "refused"


KINDS = sorted(FIELDS.keys() & ACTIONS.keys())


def test_each_action_is_compared() -> None:
    assert {*KINDS, "commitInfo"} == {*ACTIONS}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_body_is_read_by_the_rules_of_its_fields(kind: str, data: st.DataObject) -> None:
    body = data.draw(bodies(kind, ODD)) | data.draw(st.just({}) | st.just({"unknown": 1}))
    wanted = outcome(lambda: read_action(kind, body))
    assert outcome(lambda: decode_action(kind, body, path="f").to_json()) == wanted
    in_python = {name: field for name, field, _, _ in fields_of(kind)}
    values = {in_python.get(name, name): value for name, value in body.items()}
    assert outcome(lambda: ACTIONS[kind](**values).to_json()) == wanted


@pytest.mark.parametrize("body", [None, [], "x", 3, True])
def test_a_body_is_an_object(body: Any) -> None:
    for kind in (*KINDS, "commitInfo"):
        with pytest.raises(LogCorruptError, match=rf"valid dictionary.*field='{kind}'"):
            decode_action(kind, body, path="f")


@pytest.mark.parametrize(
    ("kind", "body", "field", "reason"),
    [
        ("protocol", {"minReaderVersion": 1}, "minWriterVersion", "Field required"),
        ("protocol", {"minReaderVersion": None, "minWriterVersion": 2}, "minReaderVersion",
         "Field required"),
        ("protocol", {"minReaderVersion": "1", "minWriterVersion": 2}, "minReaderVersion",
         "a valid integer"),
        ("metaData", {"id": "x", "partitionColumns": ["a", 1]}, "partitionColumns.1",
         "a valid string"),
        ("metaData", {"id": "x", "format": {"provider": 1}}, "format.provider", "a valid string"),
        ("remove", {"path": "x", "deletionVector": {}}, "deletionVector.storageType",
         "Field required"),
        ("remove", {"path": "\ud800"}, "path", "unicode"),
        ("remove", {"path": "x", "partitionValues": {"a": "\ud800"}}, "partitionValues.a",
         "unicode"),
    ],
)  # fmt: skip
def test_an_error_names_the_field(kind: str, body: Any, field: str, reason: str) -> None:
    with pytest.raises(LogCorruptError, match=reason) as caught:
        decode_action(kind, body, path="f", line=3)
    assert (caught.value.field, caught.value.line) == (f"{kind}.{field}", 3)


PROTOCOL = Protocol(min_reader_version=3, min_writer_version=7, reader_features=["x"])


def test_actions_are_values() -> None:
    same = Protocol.model_validate(PROTOCOL.to_json())
    assert same == PROTOCOL
    assert same != PROTOCOL.model_copy(update={"min_reader_version": 1})
    assert pickle.loads(pickle.dumps(PROTOCOL)) == deepcopy(PROTOCOL) == PROTOCOL
    assert repr(
        DeletionVectorDescriptor(
            storage_type="u", path_or_inline_dv="x", size_in_bytes=1, cardinality=2
        )
    ) == (
        "DeletionVectorDescriptor(storage_type='u', path_or_inline_dv='x', offset=None, "
        "size_in_bytes=1, cardinality=2)"
    )
    with pytest.raises(ValueError, match="frozen"):
        del PROTOCOL.min_reader_version
    with pytest.raises(ValueError, match="frozen"):
        PROTOCOL.min_reader_version = 1


def test_defaults_are_not_shared() -> None:
    one, other = Metadata(id="1"), Metadata(id="2")
    assert one.configuration == other.configuration == {}
    assert one.configuration is not other.configuration


def test_fields_that_are_missing_are_told() -> None:
    with pytest.raises(ValidationError, match="minWriterVersion"):
        Protocol(min_reader_version=1)  # type: ignore[call-arg]


def test_a_field_of_a_pydantic_model_may_be_an_action() -> None:
    class Answer(BaseModel):
        protocol: Protocol
        adds: list[Add] = []

    answer = Answer.model_validate({"protocol": PROTOCOL.to_json()})
    assert answer.protocol == PROTOCOL
    written = Answer(protocol=PROTOCOL).model_dump(by_alias=True, exclude_none=True)
    assert written == {"protocol": PROTOCOL.to_json(), "adds": []}
    assert "minReaderVersion" in str(Answer.model_json_schema())
    with pytest.raises(ValidationError, match=r"protocol\.minReaderVersion"):
        Answer.model_validate({"protocol": {**PROTOCOL.to_json(), "minReaderVersion": "3"}})


def test_commit_info_takes_anything_but_no_list() -> None:
    info = CommitInfo.model_validate({"inCommitTimestamp": "7", "txnId": 3, "tags": 5, "mine": [1]})
    assert (info.in_commit_timestamp, info.txn_id, info.tags) == (None, None, 5)
    assert info.to_json() == {"mine": [1], "tags": 5}
    with pytest.raises(ValidationError):
        CommitInfo.model_validate([1])


def test_commit_info_keeps_what_it_does_not_know() -> None:
    nested: Any = None
    for _ in range(500):  # Deeper than Pydantic writes.
        nested = {"in": [nested]}
    body = {"none": None, "model_extra": 1, "to_json": 2, "deep": nested, "operation": nested}
    info = CommitInfo.model_validate({**body, "txnId": "\ud800", "\ud800": 1, "readVersion": None})
    assert info.to_json() == body
    assert list(info.to_json()) == [*body]
    assert (info.operation, info.read_version) == (nested, None)
