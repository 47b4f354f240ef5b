"""Actions are read as Pydantic reads them."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from txlog.actions.base import Action
from txlog.actions.file import Add, DeletionVectorDescriptor
from txlog.actions.model import model_of
from txlog.actions.ndjson import ACTIONS
from txlog.actions.table import CommitInfo, Metadata, Protocol

TEXTS = st.dictionaries(st.text(max_size=2), st.none() | st.text(max_size=2), max_size=2)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), 1.0, "\ud800", "é", b"x"]),
    st.text(max_size=2),
    st.lists(st.text(max_size=1) | st.integers(), max_size=2),
    TEXTS,
    st.dictionaries(st.text(max_size=1), st.booleans() | st.floats(allow_nan=False) | st.binary()),
)
PLAIN = {
    "str": st.text(max_size=3),
    "bool": st.booleans(),
    "Long": st.integers(-(2**63), 2**63 - 1),
    "Integer": st.integers(-(2**31), 2**31 - 1),
    "Size": st.integers(0, 2**63 - 1),
    "ShortSize": st.integers(0, 2**31 - 1),
    "Texts": TEXTS,
    "dict[str, str | None]": TEXTS,
    "list[str]": st.lists(st.text(max_size=2), max_size=2),
}


def bodies(kind: type[Action]) -> st.SearchStrategy[Any]:
    """Bodies with plain values mostly, and odd ones now and then."""
    fields = {}
    for field in kind.fields:
        annotation = kind.__annotations__[field.name].removesuffix(" | None")
        inner = annotation.removeprefix("Annotated[").partition(", OR_")[0]
        plain = PLAIN.get(inner, VALUES)
        if inner == "DeletionVectorDescriptor":
            plain = bodies(DeletionVectorDescriptor)
        name = st.sampled_from([field.alias] * 5 + [field.name])
        fields[field.name] = st.tuples(
            name,
            st.one_of(plain, plain, plain, plain, VALUES),
            st.sampled_from([True] * 9 + [False]),
        )
    return st.fixed_dictionaries(fields).map(
        lambda drawn: {name: value for name, value, there in drawn.values() if there}
    )


def as_values(value: Any) -> Any:
    if isinstance(value, Action | BaseModel):
        return {name: as_values(inner) for name, inner in vars(value).items()}
    return value


def outcome(read: Any, body: Any) -> Any:
    try:
        return as_values(read(body))
    except ValidationError as error:
        return [(found["loc"], found["type"], found["msg"]) for found in error.errors()]


KINDS = [kind for name, kind in sorted(ACTIONS.items()) if kind is not CommitInfo]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_bodies_are_read_as_pydantic_reads_them(kind: type[Action], data: st.DataObject) -> None:
    body = data.draw(bodies(kind))
    wanted = outcome(model_of(kind).model_validate, body)
    assert outcome(kind.model_validate, body) == wanted
    assert outcome(lambda values: kind(**values), body) == wanted
    plain = kind.plain_values(body)
    assert plain is None or as_values(kind.of_values(plain)) == wanted


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


def test_defaults_are_not_shared() -> None:
    one, other = Metadata(id="1"), Metadata(id="2")
    assert one.configuration == other.configuration == {}
    assert one.configuration is not other.configuration


def test_fields_that_are_missing_are_told_as_by_pydantic() -> None:
    with pytest.raises(ValidationError, match="minWriterVersion"):
        Protocol(min_reader_version=1)  # type: ignore[call-arg]


def test_commit_info_takes_anything_but_no_list() -> None:
    info = CommitInfo.model_validate({"inCommitTimestamp": "7", "txnId": 3, "tags": 5, "mine": [1]})
    assert (info.in_commit_timestamp, info.txn_id, info.tags) == (None, None, 5)
    assert info.to_json() == {"mine": [1], "tags": 5}
    with pytest.raises(ValidationError):
        CommitInfo.model_validate([1])


def test_a_field_of_a_pydantic_model_may_be_an_action() -> None:
    class Answer(BaseModel):
        protocol: Protocol
        adds: list[Add] = []

    answer = Answer.model_validate({"protocol": PROTOCOL.to_json()})
    assert answer.protocol == PROTOCOL
    assert Answer(protocol=PROTOCOL).model_dump() == {"protocol": PROTOCOL.to_json(), "adds": []}
    assert "minReaderVersion" in str(Answer.model_json_schema())
    with pytest.raises(ValidationError, match=r"protocol\.minReaderVersion"):
        Answer.model_validate({"protocol": {**PROTOCOL.to_json(), "minReaderVersion": "3"}})
