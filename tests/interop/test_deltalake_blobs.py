"""Other engines read the structs of blob columns, and do not write such tables."""

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import txlog

VALUES = [b"x" * 30, b"small", None]


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    schema = pa.schema([pa.field("id", pa.int64()), txlog.blob("b", above=10)])
    made = txlog.Table.create(
        tmp_path / "t", schema, properties={"delta.enableDeletionVectors": "false"}
    )
    made.append(pa.table({"id": [1, 2, 3], "b": pa.array(VALUES, pa.binary())}))
    made.update({"id": "id + 10"})
    made.maintenance.checkpoint()
    return made


def bytes_of(root: Path, rows: list[dict[str, Any]]) -> list[bytes | None]:
    """Return the values as a reader finds them that knows only path, offset and size."""
    found: list[bytes | None] = []
    for row in sorted(rows, key=lambda row: row["id"]):
        struct = row["b"]
        if struct is None or struct["data"] is not None:
            found.append(struct and bytes(struct["data"]))
            continue
        with (root / struct["path"]).open("rb") as pack:
            pack.seek(struct["offset"])
            found.append(pack.read(struct["size"]))
    return found


@pytest.mark.spec("BLB-3", "BLB-4")
def test_deltalake_sees_where_the_bytes_are(table: txlog.Table) -> None:
    rows = pa.table(deltalake.DeltaTable(table.uri).to_pyarrow_table()).to_pylist()
    assert bytes_of(Path(table.uri), rows) == VALUES


@pytest.mark.spec("BLB-3")
def test_duckdb_sees_where_the_bytes_are(table: txlog.Table) -> None:
    duckdb = pytest.importorskip("duckdb")
    files = [f"{table.uri}/{path}" for path in table.files()["path"].to_pylist()]
    read = duckdb.sql(f"SELECT * FROM read_parquet({files!r})").to_arrow_table().to_pylist()
    assert bytes_of(Path(table.uri), read) == VALUES
    (large,) = txlog.sql("SELECT count(*) AS n FROM t WHERE b.size > 10", {"t": table})["n"]
    assert large.as_py() == 1


@pytest.mark.spec("BLB-2")
def test_deltalake_does_not_write_the_table(table: txlog.Table) -> None:
    version = table.version
    other = deltalake.DeltaTable(table.uri)
    for write in (
        lambda: other.delete("id = 11"),
        lambda: other.optimize.compact(),
        lambda: deltalake.write_deltalake(table.uri, table.to_arrow(), mode="append"),
    ):
        with pytest.raises(Exception, match="blobs-dev"):
            write()
    table.refresh()
    assert table.version == version
