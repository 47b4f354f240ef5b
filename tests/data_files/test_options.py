"""`WriterProperties`: every verb that writes rows uses the requested encoding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog import ColumnProperties, WriterProperties
from txlog.base.errors import InvalidInputError, InvalidTypeError

ROWS = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "text": [f"text {n % 7}" for n in range(1000)],
        "st": [{"x": n % 5, "l": [n, n]} for n in range(1000)],
    }
)
GZIP = txlog.WriteOptions(writer_properties=WriterProperties(compression="GZIP"))


def footer(path: str) -> pq.FileMetaData:
    return pq.ParquetFile(path).metadata


def columns(path: str) -> dict[str, Any]:
    group = footer(path).row_group(0)
    return {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}


def merge(table: txlog.Table) -> None:
    merger = table.merge(
        ROWS.slice(0, 9),
        "target.id = source.id",
        options=GZIP,
    )
    merger.when_matched_update({"text": "'new'"}).execute()


def change(table: txlog.Table) -> None:
    with table.transaction() as tx:
        tx.update({"text": "'new'"}, "id < 3", options=GZIP)
        tx.append(ROWS, options=GZIP)


VERBS: dict[str, Callable[[txlog.Table], Any]] = {
    "append": lambda table: table.append(ROWS, options=GZIP),
    "overwrite": lambda table: table.overwrite(ROWS, options=GZIP),
    "overwrite where": lambda table: table.overwrite(ROWS.slice(0, 5), "id < 5", options=GZIP),
    "delete": lambda table: table.delete("id < 5", options=GZIP),
    "update": lambda table: table.update({"text": "'x'"}, "id < 5", options=GZIP),
    "upsert": lambda table: table.upsert(ROWS.slice(0, 5), "id", options=GZIP),
    "merge": merge,
    "transaction": change,
    "write": lambda table: txlog.write(table.uri, ROWS, "append", options=GZIP),
    "compact": lambda table: table.optimize.compact(options=GZIP),
    "z_order": lambda table: table.optimize.z_order("id", options=GZIP),
    "fragments": lambda table: table.commit(
        txlog.FragmentOperation.Append(txlog.write_fragments(ROWS, table, options=GZIP))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("verb", VERBS)
def test_verbs_write_as_they_are_told(tmp_path: Path, verb: str, vectors: str) -> None:
    properties = {"delta.enableDeletionVectors": vectors}
    table = txlog.write(tmp_path / "t", ROWS.slice(0, 500), properties=properties)
    table.append(ROWS.slice(500))
    before = set(table.scan().file_uris())
    VERBS[verb](table)
    new = set(table.refresh().scan().file_uris()) - before
    if verb == "delete" and vectors == "true":
        assert not new
        return
    assert {columns(path)["id"].compression for path in new} == {"GZIP"}
    assert all(path.endswith(".gzip.parquet") for path in new)


def append(table: txlog.Table, **properties: Any) -> None:
    options = txlog.WriteOptions(writer_properties=WriterProperties(**properties))
    table.append(ROWS, options=options)


def written(tmp_path: Path, **properties: Any) -> str:
    table = txlog.write(
        tmp_path / "t",
        ROWS,
        options=txlog.WriteOptions(writer_properties=WriterProperties(**properties)),
    )
    assert table.to_arrow() == ROWS.cast(table.schema)
    assert deltalake.DeltaTable(table.uri).count() == 1000
    return table.scan().file_uris()[0]


def test_sizes_of_row_groups_and_pages(tmp_path: Path) -> None:
    path = written(
        tmp_path, max_row_group_size=300, data_page_size_limit=512, write_batch_size=64,
        dictionary_page_size_limit=4096, compression="zstd", compression_level=9,
    )  # fmt: skip
    found = footer(path)
    rows = [found.row_group(at).num_rows for at in range(found.num_row_groups)]
    assert rows == [300, 300, 300, 100]
    assert columns(path)["text"].compression == "ZSTD"


def test_properties_of_columns(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        default_column_properties=ColumnProperties(dictionary_enabled=True),
        column_properties={
            "id": ColumnProperties(encoding="delta_binary_packed", bloom_filter={"ndv": 1000}),
            "text": ColumnProperties(dictionary_enabled=False, statistics_enabled=False),
            "st": ColumnProperties(dictionary_enabled=False),
            "st.x": ColumnProperties(dictionary_enabled=True),
        },
    )
    found = columns(path)
    assert "DELTA_BINARY_PACKED" in found["id"].encodings
    assert found["id"].has_dictionary_page is False
    assert found["text"].has_dictionary_page is False
    assert not found["text"].is_stats_set
    assert found["id"].is_stats_set
    assert found["st.x"].has_dictionary_page
    assert not next(v for k, v in found.items() if k.startswith("st.l")).has_dictionary_page
    told = txlog.Table(tmp_path / "t").files(statistics="flat")
    assert told["min.text"].to_pylist() == ["text 0"]  # The log has statistics all the same.


def test_bloom_filters_are_there(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with_filter = {"text": ColumnProperties(bloom_filter=True)}
    path = written(tmp_path, column_properties=with_filter)
    found = duckdb.sql(
        f"SELECT path_in_schema, bloom_filter_offset FROM parquet_metadata('{path}')"
    ).fetchall()
    assert [name for name, offset in found if offset is not None] == ["text"]


def test_names_are_those_of_the_table_where_columns_are_mapped(tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path / "t", ROWS.schema, properties={"delta.columnMapping.mode": "name"}
    )
    of_id = {"id": ColumnProperties(encoding="PLAIN")}
    table.append(
        ROWS,
        options=txlog.WriteOptions(writer_properties=WriterProperties(column_properties=of_id)),
    )
    found = list(columns(table.scan().file_uris()[0]).values())
    assert [one.has_dictionary_page for one in found[:2]] == [False, True]
    assert found[0].path_in_schema != "id"


def test_what_cannot_be_written(tmp_path: Path) -> None:
    for odd, reason in (
        ({"compression": "zip"}, "not a compression"),
        ({"max_row_group_size": 0}, "max_row_group_size is a whole number from 1"),
        ({"write_batch_size": "1"}, "write_batch_size is a whole number"),
        ({"column_properties": {"id": {}}}, "ColumnProperties were expected"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            WriterProperties(**odd)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="is unknown"):
        ColumnProperties(encoding="ZIP")
    with pytest.raises(InvalidInputError, match="without a dictionary"):
        ColumnProperties(encoding="PLAIN", dictionary_enabled=True)
    table = txlog.write(tmp_path / "t", ROWS)
    files = sorted(Path(table.uri).rglob("*.parquet"))
    for properties, reason in (
        ({"column_properties": {"none": ColumnProperties()}}, "no column none"),
        ({"compression": "gzip", "compression_level": 99}, "pyarrow refuses these properties"),
        (
            {"column_properties": {"text": ColumnProperties(encoding="DELTA_BINARY_PACKED")}},
            "pyarrow refuses these properties",
        ),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            append(table, **properties)
    with pytest.raises(InvalidTypeError, match="WriterProperties were expected"):
        txlog.WriteOptions(writer_properties={"compression": "zstd"})  # type: ignore[arg-type]
    with pytest.raises(InvalidTypeError, match="WriteOptions were expected, not WriterProperties"):
        table.append(ROWS, options=WriterProperties(compression="zstd"))  # type: ignore[arg-type]
    assert table.refresh().version == 0
    assert sorted(Path(table.uri).rglob("*.parquet")) == files
