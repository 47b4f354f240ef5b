import json

import orjson
import pytest

from txlog.actions.file import Add
from txlog.actions.ndjson import ACTIONS, _rows_slowly, decode, encode
from txlog.actions.table import CommitInfo, Metadata, Protocol
from txlog.base.errors import LogCorruptError

ADD = {
    "path": "part-1.parquet",
    "partitionValues": {"a": None, "b": "x"},
    "size": 10,
    "modificationTime": 1,
    "dataChange": True,
}
BODIES = {
    "add": ADD,
    "remove": {"path": "p", "dataChange": True, "deletionTimestamp": 5},
    "cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False},
    "metaData": {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": "{}",
        "partitionColumns": [],
        "configuration": {"a": "b"},
    },
    "protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"]},
    "txn": {"appId": "a", "version": 3},
    "commitInfo": {"operation": "WRITE", "anything": {"nested": [1, None]}},
    "domainMetadata": {"domain": "d", "configuration": "{}", "removed": False},
    "sidecar": {"path": "s", "sizeInBytes": 1, "modificationTime": 2},
    "checkpointMetadata": {"version": 4},
}


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_every_action_reads_and_writes_itself(name: str) -> None:
    line = orjson.dumps({name: BODIES[name]}) + b"\n"
    (action,) = decode(line, path="f")
    assert type(action) is ACTIONS[name]
    assert orjson.loads(encode([action])) == {name: BODIES[name]}


def test_absent_and_null_are_one_and_maps_keep_nulls() -> None:
    (with_null,) = decode(orjson.dumps({"add": {**ADD, "stats": None}}), path="f")
    (without,) = decode(orjson.dumps({"add": ADD}), path="f")
    assert with_null == without
    assert b'"a":null' in encode([with_null])
    assert b"stats" not in encode([with_null])


def test_unknown_fields_and_actions_are_ignored() -> None:
    data = b'{"add":' + orjson.dumps({**ADD, "later": 1}) + b'}\n{"newAction":{"x":1}}\n'
    assert decode(data, path="f") == [Add.model_validate(ADD)]


def test_commit_info_keeps_what_it_does_not_know() -> None:
    (info,) = decode(b'{"commitInfo":{"mine":[1],"operation":"X"}}', path="f")
    assert isinstance(info, CommitInfo)
    assert info.to_json() == {"mine": [1], "operation": "X"}


def test_models_are_frozen() -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    with pytest.raises(ValueError, match="frozen"):
        protocol.min_reader_version = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**ADD, "size": "10"}, "add.size"),
        ({**ADD, "size": 2**63}, "add.size"),
        ({**ADD, "path": 7}, "add.path"),
        ({k: v for k, v in ADD.items() if k != "path"}, "add.path"),
        ({**ADD, "partitionValues": {"a": [1]}}, "add.partitionValues.a"),
        ({**ADD, "deletionVector": {"storageType": "u"}}, "add.deletionVector.pathOrInlineDv"),
    ],
)
def test_a_wrong_field_is_named_with_its_line(body: dict[str, object], field: str) -> None:
    data = b'{"commitInfo":{}}\n' + orjson.dumps({"add": body})
    with pytest.raises(LogCorruptError) as caught:
        decode(data, path="00.json")
    assert (caught.value.path, caught.value.line, caught.value.field) == ("00.json", 2, field)


@pytest.mark.parametrize(
    "data",
    [b'{"add":', b'{"add":{}} x', b"[1]", b'{"a":1}\n{"b"', b"\xff", b'{"a":1}x{"b":2}', b"7"],
)
def test_a_torn_line_is_an_error_that_names_it(data: bytes) -> None:
    with pytest.raises(LogCorruptError) as caught:
        decode(b'{"commitInfo":{}}\n' + data, path="00.json")
    assert caught.value.line == (3 if data.startswith(b'{"a":1}\n') else 2)


def test_objects_over_several_lines_are_read() -> None:
    pretty = orjson.dumps({"add": ADD}, option=orjson.OPT_INDENT_2)
    assert decode(pretty + b"\n" + pretty, path="f") == [Add.model_validate(ADD)] * 2


class _Text(str):
    """A text that counts the characters in which lines are counted."""

    __slots__ = ("counted",)

    def count(self, part: str, start: int = 0, end: int | None = None, /) -> int:
        end = len(self) if end is None else end
        self.counted = getattr(self, "counted", 0) + end - start
        return str(self).count(part, start, end)


def test_spaced_objects_are_read_in_linear_time() -> None:
    text = _Text("".join(json.dumps({"add": {**ADD, "size": at}}) + "\n" for at in range(500)))

    class Data(bytes):
        def decode(self) -> _Text:  # type: ignore[override]
            return text

    assert len(_rows_slowly(Data(text.encode()), "f")) == 500
    assert text.counted <= len(text)


def test_a_fault_after_objects_over_several_lines_names_its_line() -> None:
    with pytest.raises(LogCorruptError) as caught:
        decode(b'{"txn":\n{"appId": "a",\n"version": 1}}\n\n{"txn": {}} {"txn"', path="f")
    assert caught.value.line == 5


def test_defaults_of_metadata() -> None:
    metadata = Metadata(id="1", schema_string="{}")
    assert metadata.to_json()["format"] == {"provider": "parquet", "options": {}}
