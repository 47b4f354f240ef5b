"""Checkpoints of all forms have the same content as the commits."""

import json
import warnings
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import NEEDS_CORPUS, Case, cases
from hypothesis import given
from hypothesis import strategies as st

from txlog.actions.columns import FILE_ROWS
from txlog.actions.file import Sidecar
from txlog.actions.ndjson import decode_action
from txlog.actions.table import Protocol, Txn
from txlog.base.errors import LogCorruptError, TxlogError, TxlogWarning, UnsupportedFeatureError
from txlog.checkpoint.parquet import KEYS
from txlog.checkpoint.read import read_files
from txlog.checkpoint.table_state import read_controls
from txlog.log.names import LogFile, log_path, parse_name
from txlog.log.segment import choose_segment
from txlog.reconcile.files import reconcile_files
from txlog.snapshot.commits import file_rows, read_commits
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_log, load_snapshot
from txlog.store.base import Store
from txlog.store.open import open_store

CHECKPOINTED = [
    case
    for case in cases()
    if case.index["checkpoints"] not in ("", "-", "checkpoints")
    and not case.index["expectation"].startswith(("FAIL", "malformed"))
]


@NEEDS_CORPUS
def test_the_corpus_has_every_form() -> None:
    forms = {form for case in CHECKPOINTED for form in case.index["checkpoints"].split(",")}
    assert {"classic", "classic-v2spec", "multipart", "sidecars", "uuid-json"} <= forms
    assert "uuid-parquet" in forms


def open_case(case: Case) -> tuple[Store, Any]:
    store = open_store(case.path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TxlogWarning)  # Some hints are damaged on purpose.
            return store, load_snapshot(store)
    except UnsupportedFeatureError as error:
        pytest.skip(str(error.features))


@pytest.mark.slow
@NEEDS_CORPUS
@pytest.mark.spec("REC-7")
@pytest.mark.parametrize("case", CHECKPOINTED, ids=lambda case: case.index["path"])
def test_a_checkpoint_says_what_its_commits_say(case: Case) -> None:
    store, snapshot = open_case(case)
    assert snapshot.checkpoint or case.index["checkpoints"] == "multipart"
    for record in case.references:
        if record["is_latest"] and (found := record.get("replay")):
            assert snapshot.version == found["version"]
            assert load_files(store, snapshot).live.num_rows == found["num_files"]
    files = list_log(store)
    unusable = [file.name for file in files if file.kind != "commit"]
    try:
        segment = choose_segment(files, version=snapshot.version, unusable=unusable)
    except TxlogError:
        return  # The commits before the checkpoint are gone.
    plain = reconcile_files(file_rows(read_commits(store, segment.deltas))).live
    held = load_files(store, snapshot).live
    columns = ["path", "dv_id", "size", "partition_values", "modification_time"]
    assert keyed(held.select(columns)) == keyed(plain.select(columns))


def keyed(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist(maps_as_pydicts="strict")))


# Made by hand --------------------------------------------------------------------------------

ADD = {"path": "a", "partitionValues": [("p", "1")], "size": 1, "modificationTime": 2}
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def part(name: str) -> LogFile:
    file = parse_name(name)
    assert file is not None
    return file


def fresh() -> Store:
    return open_store(f"memory://{uuid4()}")


def put(store: Store, path: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    store.write_new(path, sink.getvalue().to_pybytes())


ADD_TYPE = pa.struct(
    [
        ("path", pa.large_string()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
        ("size", pa.int32()),
        ("modificationTime", pa.int64()),
    ]
)
SIDECAR_TYPE = pa.struct(
    [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]
)


def test_columns_that_are_missing_are_null() -> None:
    store, file = fresh(), part("00000000000000000004.checkpoint.parquet")
    put(store, file.path, [{"add": ADD}], pa.schema([("add", ADD_TYPE)]))
    table = read_files(store, [file])
    assert table.schema == FILE_ROWS
    (row,) = table.to_pylist(maps_as_pydicts="strict")
    assert (row["version"], row["is_add"], row["path"], row["size"]) == (4, True, "a", 1)
    assert row["partition_values"] == {"p": "1"}
    assert row["stats"] is row["deletion_vector"] is row["dv_id"] is None
    assert read_controls(store, [file]) == ()


def test_an_action_without_its_key_is_damage() -> None:
    store, file = fresh(), part("00000000000000000004.checkpoint.parquet")
    txn = pa.struct([("app", pa.string())])  # One letter of the name is gone.
    schema = pa.schema([("add", ADD_TYPE), ("txn", pa.struct([("appId", pa.string()), *txn]))])
    put(store, file.path, [{"add": ADD}, {"txn": {"app": "x"}}], schema)
    with pytest.raises(LogCorruptError, match=r"1 rows contain an action.*4\.checkpoint\.parquet"):
        read_files(store, [file])
    store.delete([file.path])
    put(store, file.path, [{"add": ADD}, {"add": None}], pa.schema([("add", ADD_TYPE)]))
    assert read_files(store, [file]).num_rows == 1  # A row may be empty.


@pytest.mark.parametrize(
    ("reader", "writer", "features"),
    [(3, 7, []), (1, 7, []), (3, 7, ["x"]), (1, 7, ["x"]), (1, 2, None)],
)
def test_lists_of_features_that_are_empty_are_there(
    reader: int, writer: int, features: list[str] | None
) -> None:
    """Footers count no value in an empty list, nor in one that is not there."""
    body = {"minReaderVersion": reader, "minWriterVersion": writer}
    lists = {"readerFeatures": features if reader == 3 else None, "writerFeatures": features}
    listed = pa.list_(pa.string())
    kind = pa.struct([*((name, pa.int32()) for name in body), *((name, listed) for name in lists)])
    store, file = fresh(), part("00000000000000000004.checkpoint.parquet")
    rows = [*[{}] * 40_000, {"protocol": body | lists}]
    put(store, file.path, rows, pa.schema([("protocol", kind)]))
    (found,) = read_controls(store, [file])
    assert isinstance(found, Protocol)
    assert found.reader_features == lists["readerFeatures"]
    assert found.writer_features == lists["writerFeatures"]


LISTED = pa.list_(pa.string())
PAIRS = pa.map_(pa.string(), pa.string())
CONTROLS = pa.schema(
    {
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": LISTED,
                "writerFeatures": LISTED,
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": PAIRS}),
                "schemaString": pa.string(),
                "partitionColumns": LISTED,
                "configuration": PAIRS,
                "createdTime": pa.int64(),
            }
        ),
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "domainMetadata": pa.struct(
            {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}
        ),
    }
)
WORDS = st.text("aé\x00", max_size=3)
NUMBERS = st.integers(0, 3)
# Only where the versions call for a list does an empty one mean something else than none.
LISTS = st.none() | st.lists(WORDS, min_size=1, max_size=2)
PROTOCOLS = st.one_of(
    st.fixed_dictionaries(
        {"minReaderVersion": st.just(reader), "minWriterVersion": st.just(writer)},
        optional={
            "readerFeatures": LISTS if reader < 3 else LISTS | st.just([]),
            "writerFeatures": LISTS if writer < 7 else LISTS | st.just([]),
        },
    )
    for reader, writer in ((0, 0), (1, 2), (1, 7), (3, 7))
)
METADATA = st.fixed_dictionaries(
    {
        "id": WORDS,
        "format": st.fixed_dictionaries(
            {"provider": WORDS, "options": st.lists(st.tuples(WORDS, WORDS), max_size=1)}
        ),
        "schemaString": WORDS,
        "partitionColumns": st.lists(WORDS, max_size=2),
    },
    optional={
        "name": st.none() | WORDS,
        "configuration": st.lists(st.tuples(WORDS, WORDS), max_size=1),
        "createdTime": st.none() | NUMBERS,
    },
)
TXNS = st.fixed_dictionaries(
    {"appId": WORDS, "version": NUMBERS}, optional={"lastUpdated": st.none() | NUMBERS}
)
DOMAINS = st.fixed_dictionaries({"domain": WORDS, "configuration": WORDS, "removed": st.booleans()})
# Some writers leave structs of nulls, or of defaults, where there is no action.
KEYLESS = st.sampled_from(
    [
        {"protocol": {}},
        {"protocol": {"readerFeatures": [], "writerFeatures": []}},
        {"metaData": {"format": {}, "partitionColumns": [], "configuration": []}},
        {"metaData": {"name": ""}},
        {"txn": {"lastUpdated": 0}},
        {"txn": {}},
        {"txn": {"version": 0}},
        {"domainMetadata": {"removed": False}},
    ]
)
ROWS = st.lists(
    st.one_of(
        st.just({}),
        KEYLESS,
        PROTOCOLS.map(lambda body: {"protocol": body}),
        METADATA.map(lambda body: {"metaData": body}),
        TXNS.map(lambda body: {"txn": body}),
        DOMAINS.map(lambda body: {"domainMetadata": body}),
    ),
    max_size=8,
)


@given(
    ROWS,
    st.sampled_from([True, False, ["protocol.minReaderVersion", "metaData.id", "txn.appId"]]),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_controls_are_those_of_all_rows(
    rows: list[dict[str, Any]], statistics: Any, per_group: int, at_once: int
) -> None:
    """Whatever footers tell, however many actions there are of a kind, and whatever is none."""
    store, file = fresh(), part("00000000000000000004.checkpoint.parquet")
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows, CONTROLS)
    pq.write_table(table, sink, write_statistics=statistics, row_group_size=per_group)
    store.write_new(file.path, sink.getvalue().to_pybytes())
    expected = [
        decode_action(kind, body, path=file.path)
        for row in table.to_pylist(maps_as_pydicts="lossy")
        for kind, body in row.items()
        if body is not None and body[KEYS[kind]] is not None
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txlog.checkpoint.table_state._ROWS_AT_ONCE", at_once)
        found = read_controls(store, [file])
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["", "u"])
def test_a_single_number_is_what_its_type_says(bits: int, sign: str) -> None:
    kind = pa.type_for_alias(f"{sign}int{bits}")
    most = 2 ** min(bits if sign else bits - 1, 62) - 1
    fields = pa.struct([*list(SIDECAR_TYPE)[::2], ("sizeInBytes", kind)])
    store, file = fresh(), part("00000000000000000004.checkpoint.parquet")
    row = {"path": "a.parquet", "sizeInBytes": most, "modificationTime": 7}
    put(store, file.path, [{}, {"sidecar": row}], pa.schema([("sidecar", fields)]))
    assert read_controls(store, [file]) == (
        Sidecar(path="a.parquet", size_in_bytes=most, modification_time=7),
    )


def test_fields_that_nobody_knows_tell_no_action() -> None:
    extra = pa.struct({"x": pa.int32()})
    kind = pa.struct([*CONTROLS.field("txn").type, ("extra", extra), ("a.b", pa.int32())])
    store, file = fresh(), part("00000000000000000004.checkpoint.parquet")
    nothing = {"txn": {"extra": {"x": None}}}
    action = {"appId": "x", "version": 5, "extra": {"x": 1}, "a.b": 2}
    put(store, file.path, [*[nothing] * 3, {"txn": action}], pa.schema([("txn", kind)]))
    assert read_controls(store, [file]) == (Txn(app_id="x", version=5),)


def test_a_single_action_is_told_by_the_footer() -> None:
    """No row is gone through for it."""
    store, file = fresh(), part("00000000000000000004.checkpoint.parquet")
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    txn = {"appId": "é" * 1000, "version": 5}
    rows = [*[{}] * 5, {"txn": txn}, {"protocol": protocol}]
    put(store, file.path, rows, CONTROLS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyarrow.parquet.ParquetFile.iter_batches", None)
        found = read_controls(store, [file])
    assert set(found) == {
        Protocol(min_reader_version=1, min_writer_version=2),
        Txn(app_id=txn["appId"], version=5),
    }


def test_an_empty_vector_struct_is_no_vector() -> None:
    store, file = fresh(), part("00000000000000000004.checkpoint.parquet")
    vector = pa.struct([("storageType", pa.string()), ("pathOrInlineDv", pa.string())])
    kind = pa.struct([*ADD_TYPE, pa.field("deletionVector", vector)])
    empty = {**ADD, "deletionVector": {"storageType": None, "pathOrInlineDv": None}}
    full = {**ADD, "deletionVector": {"storageType": "u", "pathOrInlineDv": "x"}}
    put(store, file.path, [{"add": empty}, {"add": full}], pa.schema([("add", kind)]))
    table = read_files(store, [file])
    assert table["dv_id"].to_pylist() == [None, "ux"]
    assert table["deletion_vector"].is_valid().to_pylist() == [False, True]


def test_sidecars_are_read_with_a_json_checkpoint() -> None:
    store, file = fresh(), part(f"00000000000000000004.checkpoint.{UUID}.json")
    lines = [
        {"checkpointMetadata": {"version": 4}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "1", "format": {}, "schemaString": "{}"}},
        {"txn": {"appId": "x", "version": 9}},
        {"sidecar": {"path": "a%20b.parquet", "sizeInBytes": 1, "modificationTime": 0}},
    ]
    store.write_new(file.path, "\n".join(map(json.dumps, lines)).encode())
    put(store, log_path("_sidecars/a b.parquet"), [{"add": ADD}], pa.schema([("add", ADD_TYPE)]))
    found = read_controls(store, [file])
    sidecars = [action for action in found if isinstance(action, Sidecar)]
    assert [s.path for s in sidecars] == ["a%20b.parquet"]
    assert Protocol(min_reader_version=1, min_writer_version=2) in found
    assert Txn(app_id="x", version=9) in found
    assert read_files(store, [file], sidecars)["path"].to_pylist() == ["a"]
    for lines_left in (0, 1, 2):  # Torn between lines.
        store.replace(file.path, "\n".join(map(json.dumps, lines[:lines_left])).encode())
        with pytest.raises(LogCorruptError, match=rf"{UUID}\.json"):
            read_controls(store, [file])


@pytest.mark.parametrize("data", [None, b"", b"PAR1", b"x" * 100], ids=repr)
def test_a_damaged_part_is_named(data: bytes | None) -> None:
    store, file = fresh(), part("00000000000000000004.checkpoint.parquet")
    if data is not None:
        store.write_new(file.path, data)
    for read in (read_controls, read_files):
        with pytest.raises(LogCorruptError) as caught:
            read(store, [file])
        assert caught.value.path == file.path
        assert ("missing" in str(caught.value)) is (data is None)


def test_a_column_of_a_wrong_type_is_named_with_its_file() -> None:
    store, file = fresh(), part("00000000000000000004.checkpoint.parquet")
    for index, kind in enumerate([pa.string(), pa.struct([("path", pa.list_(pa.int8()))])]):
        file = part(f"{index:020d}.checkpoint.parquet")
        value = "x" if pa.types.is_string(kind) else {"path": [1]}
        put(store, file.path, [{"add": value}], pa.schema([("add", kind)]))
        with pytest.raises(LogCorruptError) as caught:
            read_files(store, [file])
        assert caught.value.path == file.path


def test_a_missing_sidecar_is_named(tmp_path: Path) -> None:
    store, file = open_store(tmp_path), part("00000000000000000004.checkpoint.parquet")
    sidecar = {"path": "gone.parquet", "sizeInBytes": 1, "modificationTime": 0}
    put(store, file.path, [{"sidecar": sidecar}], pa.schema([("sidecar", SIDECAR_TYPE)]))
    (found,) = read_controls(store, [file])
    assert isinstance(found, Sidecar)
    with pytest.raises(LogCorruptError, match="missing") as caught:
        read_files(store, [file], [found])
    assert caught.value.path == log_path("_sidecars/gone.parquet")


def test_no_parts_are_no_files() -> None:
    assert read_files(fresh(), []).num_rows == 0


def test_parts_with_other_statistics_are_one_checkpoint() -> None:
    store = fresh()
    names = [f"{4:020d}.checkpoint.{at:010d}.{2:010d}.parquet" for at in (1, 2)]
    for name, kind, value in zip(names, (pa.int64(), pa.string()), (1, "x"), strict=True):
        stats = pa.struct([("minValues", pa.struct([("a", kind)]))])
        row = {**ADD, "path": name[-20:], "stats_parsed": {"minValues": {"a": value}}}
        schema = pa.schema([("add", pa.struct([*ADD_TYPE, pa.field("stats_parsed", stats)]))])
        put(store, log_path(name), [{"add": row}], schema)
    table = read_files(store, [part(name) for name in names])
    assert table.num_rows == 2
    assert table.schema == FILE_ROWS
