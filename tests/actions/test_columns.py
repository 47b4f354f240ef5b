"""The columnar decoding of file actions, compared with the models."""

from typing import Any, cast

import orjson
import pyarrow as pa
import pytest
from bodies import ODD, bodies
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.actions.columns import FIELDS, FILE_ROWS, decode_rows
from txlog.actions.file import Add, Remove
from txlog.actions.ndjson import decode, decode_action, rows
from txlog.base.columns import gathered
from txlog.base.errors import LogCorruptError

longs = st.integers(-(2**63), 2**63 - 1)
sizes = st.integers(0, 2**63 - 1)
texts = st.text(max_size=8)
maps = st.dictionaries(texts, st.none() | texts, max_size=3)
vectors = st.fixed_dictionaries(
    {
        "storageType": st.sampled_from("uip"),
        "pathOrInlineDv": texts,
        "sizeInBytes": st.integers(0, 2**31 - 1),
        "cardinality": sizes,
    },
    optional={"offset": st.none() | st.integers(0, 2**31 - 1)},
)
optional = {
    "stats": st.none() | texts,
    "tags": st.none() | maps,
    "deletionVector": st.none() | vectors,
    "baseRowId": st.none() | longs,
    "defaultRowCommitVersion": st.none() | longs,
    "unknown": longs,
}
adds = st.fixed_dictionaries(
    {
        "path": texts,
        "partitionValues": maps,
        "size": sizes,
        "modificationTime": longs,
        "dataChange": st.booleans(),
    },
    optional={**optional, "clusteringProvider": st.none() | texts},
)
removes = st.fixed_dictionaries(
    {"path": texts},
    optional={
        **optional,
        "dataChange": st.booleans(),
        "deletionTimestamp": st.none() | longs,
        "extendedFileMetadata": st.none() | st.booleans(),
        "partitionValues": st.none() | maps,
        "size": st.none() | longs,
    },
)
lines = st.lists(
    st.one_of(
        st.builds(lambda b: {"add": b}, adds),
        st.builds(lambda b: {"remove": b}, removes),
        st.just({"txn": {"appId": "a", "version": 1}}),
    ),
    max_size=6,
)


def as_row(action: Add | Remove) -> dict[str, Any]:
    """The oracle: a model's fields, one by one."""
    body = action.to_json()
    vector = action.deletion_vector
    row = dict.fromkeys(FILE_ROWS.names)
    row |= {column: body.get(name) for name, column in FIELDS.items()}
    row |= {
        "version": 7,
        "is_add": isinstance(action, Add),
        "data_change": action.data_change,
        "partition_values": action.partition_values,
        "tags": action.tags,
        "dv_id": vector.unique_id if vector else None,
        "deletion_vector": {"offset": None, **vector.to_json()} if vector else None,
    }
    return row


@pytest.mark.slow
@given(lines)
def test_columns_agree_with_the_models(objects: list[dict[str, Any]]) -> None:
    data = b"\n".join(map(orjson.dumps, objects))
    table = decode_rows([(7, rows(data, path="f"), "f")])
    assert table.schema == FILE_ROWS
    expected = [as_row(a) for a in decode(data, path="f") if isinstance(a, Add | Remove)]
    assert table.to_pylist(maps_as_pydicts="strict") == expected


@pytest.mark.slow
@given(st.lists(adds, min_size=1, max_size=4), st.data())
def test_objects_that_are_alike_are_columns_as_others_are(
    bodies: list[dict[str, Any]], data: st.DataObject
) -> None:
    first = bodies[0]
    alike = [{name: body.get(name, value) for name, value in first.items()} for body in bodies]
    names = list(first["partitionValues"])
    for body in alike:
        body["partitionValues"] = {name: data.draw(st.none() | texts) for name in names}
    other = {"path": "other", **{n: v for n, v in first.items() if n != "path"}, "unknown": 3}
    objects: list[dict[str, Any]] = [{"add": body} for body in [*alike, other]]
    together = decode_rows([(0, objects[: len(alike)], "f")])
    among_others = decode_rows([(0, objects, "f")])
    assert together.schema == FILE_ROWS
    together.validate(full=True)
    assert together.to_pylist() == among_others.slice(0, len(alike)).to_pylist()


surrogates = st.sampled_from(["\ud800", {"\ud800": "x"}, {"x": "\ud800"}])


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.data())
def test_odd_bodies_are_read_or_refused_as_by_the_models(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(["add", "remove"]), min_size=1, max_size=3))
    objects = [{kind: data.draw(bodies(kind, ODD | surrogates))} for kind in kinds]
    found: Any
    wanted: Any
    try:
        wanted = [
            as_row(cast("Add | Remove", decode_action(kind, body, path="f", line=line)))
            for line, row in enumerate(objects, start=1)
            for kind, body in row.items()
        ]
    except LogCorruptError as error:
        wanted = str(error)
    try:
        found = decode_rows([(7, objects, "f")]).to_pylist(maps_as_pydicts="strict")
    except LogCorruptError as error:
        found = str(error)
    assert found == wanted


GOOD = {"path": "p", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}


@pytest.mark.parametrize(
    "change",
    [
        {"size": "1"},
        {"size": 1.0},
        {"size": True},
        {"size": None},
        {"path": None},
        {"partitionValues": None},
        {"partitionValues": {"a": [1]}},
        {"partitionValues": []},
        {"dataChange": "yes"},
        {"stats": {"numRecords": 1}},
        {"tags": "x"},
        {"deletionVector": {"storageType": "u"}},
        {"deletionVector": 3},
        {"baseRowId": 2**63},
    ],
)
def test_what_the_models_refuse_the_columns_refuse(change: dict[str, Any]) -> None:
    objects = [{"commitInfo": {}}, {"add": {**GOOD, **change}}]
    data = b"\n".join(map(orjson.dumps, objects))
    with pytest.raises(LogCorruptError) as by_models:
        decode(data, path="f")
    with pytest.raises(LogCorruptError) as by_columns:
        decode_rows([(0, objects, "f")])
    assert str(by_columns.value) == str(by_models.value)
    assert by_columns.value.line == 2


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([], []),
        ([0], [0]),
        ([3, 0, 4], [7]),
        ([40_000, 30_000, 1], [70_000, 1]),
        ([65_536, 65_535, 1], [65_536, 65_536]),
    ],
)
def test_batches_are_gathered(sizes: list[int], wanted: list[int]) -> None:
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    batches = [
        pa.RecordBatch.from_pydict({"n": pa.arange(end - size, end)})
        for size, end in zip(sizes, ends, strict=True)
    ]
    found = list(gathered(iter(batches)))
    assert [batch.num_rows for batch in found] == wanted
    assert [n for batch in found for n in batch["n"].to_pylist()] == list(range(sum(sizes)))


def test_wide_rows_are_not_held_for_long() -> None:
    wide = pa.RecordBatch.from_pydict({"t": ["x" * (1 << 20)] * 40})
    assert [batch.num_rows for batch in gathered(iter([wide] * 5))] == [80, 80, 40]


def test_a_large_batch_is_not_copied_for_a_small_one() -> None:
    wide = pa.RecordBatch.from_pydict({"t": ["x" * (1 << 20)] * 64})
    small = wide[:1]
    assert [batch.num_rows for batch in gathered(iter([small, wide, small]))] == [1, 64, 1]
