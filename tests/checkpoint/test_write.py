"""txlog and other engines read from a checkpoint what was written into it."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import deltalake
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

import txlog
from txlog.actions.action import Action
from txlog.actions.columns import FILE_ROWS, decode_rows
from txlog.actions.table import DomainMetadata, Metadata, Protocol, Txn
from txlog.checkpoint.hint import Hint, read_hint
from txlog.checkpoint.read import read_files
from txlog.checkpoint.table_state import read_controls
from txlog.checkpoint.write import (
    checkpoint_rows,
    checkpoint_schema,
    encode_checkpoint,
    row_group_states,
)
from txlog.checkpoint.write import write_checkpoint as write
from txlog.log.names import LogFile, log_path, parse_name
from txlog.reconcile.files import Controls, FileState
from txlog.store.base import Store
from txlog.store.open import open_store

PROTOCOL = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=["a"], writer_features=["a", "b"]
)
METADATA = Metadata(
    id="i",
    name="ß",
    schema_string="{}",
    partition_columns=["p"],
    created_time=5,
    configuration={"x": "1", "y": ""},
)

longs = st.integers(-(2**63), 2**63 - 1)
sizes = st.integers(0, 2**63 - 1)
texts = st.text(max_size=5)
maps = st.dictionaries(texts, st.none() | texts, max_size=2)
vectors = st.fixed_dictionaries(
    {
        "storageType": st.sampled_from("uip"),
        "pathOrInlineDv": texts,
        "sizeInBytes": st.integers(0, 2**31 - 1),
        "cardinality": sizes,
    },
    optional={"offset": st.integers(0, 2**31 - 1)},
)
shared = {
    "deletionVector": vectors,
    "baseRowId": longs,
    "defaultRowCommitVersion": longs,
}
adds = st.fixed_dictionaries(
    {
        "path": texts,
        "partitionValues": maps,
        "size": sizes,
        "modificationTime": longs,
        "dataChange": st.booleans(),
    },
    optional={**shared, "stats": texts, "tags": maps, "clusteringProvider": texts},
)
removes = st.fixed_dictionaries(
    {"path": texts, "deletionTimestamp": st.integers(0, 10**13)},
    optional={
        **shared,
        "extendedFileMetadata": st.booleans(),
        "partitionValues": maps,
        "size": sizes,
    },
)


def rows(kind: str, bodies: list[dict[str, Any]], version: int = 3) -> pa.Table:
    return decode_rows([(version, [{kind: body} for body in bodies], "f")])


@dataclass(frozen=True)
class TableState:
    """What a checkpoint is written of."""

    version: int
    controls: Controls
    files: FileState


def state(
    live: pa.Table | None = None,
    tombstones: pa.Table | None = None,
    txns: tuple[Txn, ...] = (),
    domains: tuple[DomainMetadata, ...] = (),
) -> TableState:
    controls = Controls(
        PROTOCOL, METADATA, {t.app_id: t for t in txns}, {d.domain: d for d in domains}
    )
    none = FILE_ROWS.empty_table()
    files = FileState(none if live is None else live, none if tombstones is None else tombstones)
    return TableState(3, controls, files)


def written(found: TableState, **retention: Any) -> tuple[Store, tuple[LogFile, ...], Hint]:
    options = {"now_ms": 0, "file_retention_ms": 0, **retention}
    store = open_store(f"memory://{uuid4()}")
    rows = checkpoint_rows(found.controls, [found.files], **options)
    encoded = encode_checkpoint(found.version, rows)
    write(store, encoded)
    hint = encoded.hint
    part = parse_name(f"{found.version:020d}.checkpoint.parquet")
    assert part is not None
    return store, (part,), hint


def clean(store: Store) -> None:
    store.delete([info.name for info in store.list_tree("")])


def expected(table: pa.Table, version: int) -> list[dict[str, Any]]:
    """A file action as a checkpoint holds it: of its version, with nothing changed in the data."""
    found = table.to_pylist(maps_as_pydicts="strict")
    return [{**row, "version": version, "data_change": False} for row in found]


def by_path(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(maps_as_pydicts="strict"), key=lambda row: row["path"].encode())


@given(
    st.lists(adds, max_size=4, unique_by=lambda body: body["path"]),
    st.lists(removes, max_size=3, unique_by=lambda body: body["path"]),
)
def test_files_come_back(live: list[dict[str, Any]], gone: list[dict[str, Any]]) -> None:
    found = state(rows("add", live), rows("remove", gone))
    store, parts, hint = written(found)
    table = read_files(store, parts)
    clean(store)
    assert table.schema == FILE_ROWS
    assert table.num_rows == len(live) + len(gone)
    assert (hint.size, hint.num_of_add_files) == (2 + len(live) + len(gone), len(live))
    for name, is_add in (("add", True), ("remove", False)):
        held = table.filter(pa.compute.equal(table["is_add"], is_add))
        source = found.files.live if name == "add" else found.files.tombstones
        want = sorted(expected(source, 3), key=lambda row: row["path"].encode())
        assert by_path(held) == want


def test_controls_come_back() -> None:
    txns = (Txn(app_id="a", version=5), Txn(app_id="b", version=-1, last_updated=7))
    domains = (DomainMetadata(domain="d", configuration="{}", removed=False),)
    store, parts, _ = written(state(txns=txns, domains=domains))
    found = read_controls(store, parts)
    assert set(map(repr, found)) == set(map(repr, (PROTOCOL, METADATA, *txns, *domains)))


def test_a_legacy_protocol_has_no_lists() -> None:
    found = state()
    old = Protocol(min_reader_version=1, min_writer_version=2)
    controls = Controls(old, Metadata(id="1", schema_string="{}"))
    store, parts, _ = written(TableState(3, controls, found.files))
    held: tuple[Action, ...] = read_controls(store, parts)
    assert old in held
    assert Metadata(id="1", schema_string="{}") in held


def test_expired_tombstones_are_left_out() -> None:
    bodies = [
        {"path": "old", "deletionTimestamp": 99},
        {"path": "edge", "deletionTimestamp": 100},
        {"path": "young", "deletionTimestamp": 101},
        {"path": "undated"},  # It may have been removed only now.
        {"path": "zero", "deletionTimestamp": 0},
    ]
    found = state(tombstones=rows("remove", bodies))
    store, parts, _ = written(found, now_ms=1100, file_retention_ms=1000)
    kept = ["edge", "undated", "young", "zero"]
    assert sorted(read_files(store, parts)["path"].to_pylist()) == kept


def test_expired_transactions_and_removed_domains_are_left_out() -> None:
    txns = (
        Txn(app_id="old", version=1, last_updated=99),
        Txn(app_id="edge", version=1, last_updated=100),
        Txn(app_id="undated", version=1),
    )
    domains = (DomainMetadata(domain="gone", configuration="", removed=True),)
    found = state(txns=txns, domains=domains)
    store, parts, _ = written(found, now_ms=1100, txn_retention_ms=1000)
    held = [action for action in read_controls(store, parts) if isinstance(action, Txn)]
    assert {txn.app_id for txn in held} == {"edge", "undated"}
    store, parts, _ = written(found, now_ms=10**15)
    assert len(read_controls(store, parts)) == 5


def parsed(**values: Any) -> dict[str, Any]:
    return {"numRecords": 2, "minValues": values, "nullCount": dict.fromkeys(values, 0)}


def stats_of(values: dict[str, Any], types: dict[str, pa.DataType]) -> dict[str, Any]:
    """Return the JSON that a row of struct statistics becomes in a checkpoint of ours."""
    kind = pa.struct(
        [
            ("numRecords", pa.int64()),
            ("minValues", pa.struct(list(types.items()))),
            ("nullCount", pa.struct([(name, pa.int64()) for name in types])),
            ("tightBounds", pa.bool_()),
        ]
    )
    body = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1}
    table = rows("add", [{**body, "dataChange": True}])
    table = table.append_column("stats_parsed", pa.array([parsed(**values)], kind))
    store, parts, _ = written(state(table))
    (text,) = read_files(store, parts)["stats"].to_pylist()
    found = orjson.loads(text)
    assert "tightBounds" not in found, "what is null is left out"
    assert found["numRecords"] == 2
    return dict(found["minValues"])


def test_statistics_that_are_only_a_struct_become_text() -> None:
    found = stats_of(
        {
            "i": 3,
            "s": "ß",
            "m": Decimal("12345678901234567.89"),
            "d": date(2020, 1, 31),
            "t": datetime(2020, 1, 31, 1, 2, 3, 456789, UTC),
            "n": datetime(2020, 1, 31, 1, 2, 3, 456789),
            "x": {"y": 1.5},
            "none": None,
        },
        {
            "i": pa.int32(),
            "s": pa.string(),
            "m": pa.decimal128(20, 2),
            "d": pa.date32(),
            "t": pa.timestamp("us", "UTC"),
            "n": pa.timestamp("us"),
            "x": pa.struct([("y", pa.float64())]),
            "none": pa.int64(),
        },
    )
    assert found.pop("t") in ("2020-01-31T01:02:03.456789Z", "2020-01-31T01:02:03.456789+00:00")
    assert found == {
        "i": 3,
        "s": "ß",
        "m": 12345678901234567.89,
        "d": "2020-01-31",
        "n": "2020-01-31T01:02:03.456789",
        "x": {"y": 1.5},
    }


def test_statistics_of_years_that_python_has_not() -> None:
    types = {"t": pa.timestamp("us", "UTC"), "n": pa.timestamp("ns"), "d": pa.date32()}
    micros = 253_402_300_800_000_000
    found = stats_of(
        {
            "t": pa.scalar(micros).cast(types["t"]),
            "n": pa.scalar(-1).cast(types["n"]),
            "d": pa.scalar(2_932_897, pa.int32()).cast(types["d"]),
        },
        types,
    )
    assert found["t"].startswith("10000-01-01T00:00:00")
    assert found["n"].startswith("1969-12-31T23:59:59.999999")
    assert found["d"] == "10000-01-01"


def test_text_wins_over_a_struct() -> None:
    body = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1}
    table = rows("add", [{**body, "dataChange": True, "stats": "{}"}])
    kind = pa.struct([("numRecords", pa.int64())])
    table = table.append_column("stats_parsed", pa.array([{"numRecords": 1}], kind))
    store, parts, _ = written(state(table))
    assert read_files(store, parts)["stats"].to_pylist() == ["{}"]


def test_the_hint_never_goes_back() -> None:
    store = open_store(f"memory://{uuid4()}")

    def write_version(version: int) -> None:
        rows = checkpoint_rows(state().controls, [state().files], now_ms=0, file_retention_ms=0)
        write(store, encode_checkpoint(version, rows))

    for version, hinted in ((5, 5), (3, 5), (5, 5), (7, 7)):
        write_version(version)
        hint = read_hint(store)
        assert hint is not None
        assert hint.version == hinted
    store.replace(log_path("_last_checkpoint"), b"{")
    write_version(4)
    assert read_hint(store) is not None


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"p": ["a b" if n % 2 else None for n in range(start, stop)],
                     "x": pa.array(range(start, stop), pa.int64())})  # fmt: skip


def test_deltalake_reads_our_checkpoint(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", numbers(0, 9), partition_by="p")
    for start in (10, 20, 30):
        table.append(numbers(start, start + 5), txn=("app", start))
    table.delete("x < 2 OR x = 12")
    before = deltalake.DeltaTable(str(tmp_path / "t"))
    at = table.maintenance.checkpoint()
    log = tmp_path / "t" / "_delta_log"
    names = set(pq.read_schema(log / f"{at:020d}.checkpoint.parquet").names)
    assert {"add", "remove", "metaData", "protocol", "txn", "domainMetadata"} <= names
    for version in range(at + 1):  # Nothing but the checkpoint is left.
        (log / f"{version:020d}.json").unlink()
    after = deltalake.DeltaTable(str(tmp_path / "t"))
    assert after.version() == at
    assert sorted(after.file_uris()) == sorted(before.file_uris())
    assert after.protocol().reader_features == ["deletionVectors"]
    assert after.metadata().partition_columns == ["p"]
    again = txlog.Table(tmp_path / "t")
    assert again.to_arrow().sort_by("x") == table.to_arrow().sort_by("x")
    assert again.transaction_version("app") == 30


def test_a_property_without_a_value_comes_back(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    metadata = {
        "id": "x",
        "format": {"provider": "parquet", "options": {"o": None}},
        "schemaString": '{"type":"struct","fields":[]}',
        "partitionColumns": [],
        "configuration": {"k": None},
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    lines = [{"protocol": protocol}, {"metaData": metadata}]
    (log / f"{0:020}.json").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    txlog.Table(tmp_path).maintenance.checkpoint()
    (log / f"{0:020}.json").unlink()
    assert txlog.Table(tmp_path).properties == {"k": None}


@given(
    st.lists(st.integers(0, 60), unique=True, max_size=40),
    st.sets(st.integers(0, 60)),
    st.integers(1, 9),
    st.integers(1, 7),
)
def test_what_is_in_order_stays_so_however_it_is_written(
    numbers: list[int], new: set[int], group: int, batch: int
) -> None:
    """The files of newer commits go where their paths belong."""
    base = sorted(number for number in numbers if number not in new)

    def live(some: list[int]) -> FileState:
        body = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
        adds = [{"path": f"{number:03}"} | body for number in some]
        return FileState(rows("add", adds), FILE_ROWS.empty_table())

    batches = [live(base[start : start + batch]) for start in range(0, len(base), batch)]
    with patch("txlog.checkpoint.write._ROW_GROUP", group):
        found = list(row_group_states([live(list(new)), *batches]))
    paths = [path for state in found for path in sorted(state.live["path"].to_pylist())]
    assert paths == [f"{number:03}" for number in sorted({*base, *new})]
    assert all(state.live.num_rows <= group for state in found[:-1])


@given(st.permutations(range(12)), st.lists(st.integers(0, 12), max_size=4), st.integers(1, 5))
def test_rows_of_any_batches_are_written_by_path(
    numbers: list[int], cuts: list[int], group: int
) -> None:
    ends = sorted({0, *cuts, len(numbers)})
    body = {"partitionValues": {"p": "1"}, "size": 1, "modificationTime": 1, "dataChange": True}
    adds = [{"path": f"{number:02}", "stats": f"{{{number}}}"} | body for number in numbers]
    batches = [rows("add", adds[start:end]) for start, end in pairwise(ends)]
    state = FileState(pa.concat_tables(batches), FILE_ROWS.empty_table())
    controls = Controls(PROTOCOL, METADATA)
    with patch("txlog.checkpoint.write._ROW_GROUP", group):
        _, *found, _ = checkpoint_rows(controls, [state], now_ms=0, file_retention_ms=0)
    assert [table.num_rows for table in found[:-1]] == [group] * (len(found) - 1)
    written = [add for table in found for add in table["add"].to_pylist()]
    assert [add["path"] for add in written] == [f"{at:02}" for at in range(12)]
    assert [add["stats"] for add in written] == [f"{{{at}}}" for at in range(12)]


TEXTS = "map<string, string>"
VECTOR = (
    "struct<storageType: string, pathOrInlineDv: string, offset: int32, sizeInBytes: int32, "
    "cardinality: int64>"
)
COLUMNS = {
    "txn": "appId: string, version: int64, lastUpdated: int64",
    "add": f"path: string, partitionValues: {TEXTS}, size: int64, modificationTime: int64, "
    f"dataChange: bool, stats: string, tags: {TEXTS}, deletionVector: {VECTOR}, "
    "baseRowId: int64, defaultRowCommitVersion: int64, clusteringProvider: string",
    "remove": "path: string, deletionTimestamp: int64, dataChange: bool, "
    f"extendedFileMetadata: bool, partitionValues: {TEXTS}, size: int64, "
    f"deletionVector: {VECTOR}, baseRowId: int64, defaultRowCommitVersion: int64",
    "metaData": "id: string, name: string, description: string, "
    f"format: struct<provider: string, options: {TEXTS}>, schemaString: string, "
    f"partitionColumns: list<element: string>, createdTime: int64, configuration: {TEXTS}",
    "protocol": "minReaderVersion: int32, minWriterVersion: int32, "
    "readerFeatures: list<element: string>, writerFeatures: list<element: string>",
    "domainMetadata": "domain: string, configuration: string, removed: bool",
}


def test_the_columns_of_a_checkpoint_are_those_of_the_protocol() -> None:
    found = {field.name: str(field.type) for field in checkpoint_schema()}
    assert found == {name: f"struct<{fields}>" for name, fields in COLUMNS.items()}
    assert [*found] == [*COLUMNS]
