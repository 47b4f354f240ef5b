"""Deletes: what stays in a file, in its vectors, and in the log."""

from typing import Any

import pyarrow as pa
import pytest

import txlog


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_keep_their_order_within_a_file(tmp_path: Any, vectors: str) -> None:
    properties = {"delta.enableDeletionVectors": vectors}
    table = txlog.Table.create(tmp_path, pa.schema([("x", pa.int64())]), properties=properties)
    table.append(pa.table({"x": list(range(1000))}))
    table.delete("x % 3 = 0")
    table.delete("x % 5 = 0")
    expected = [x for x in range(1000) if x % 3 and x % 5]
    assert table.to_arrow()["x"].to_pylist() == expected
    deleted = 1000 - len(expected) if vectors == "true" else 0
    assert table.files()["num_deleted"].to_pylist() == [deleted]


def test_a_delete_keeps_the_file_and_its_fragment(tmp_path: Any) -> None:
    table = txlog.write(tmp_path, pa.table({"x": list(range(10))}))
    before = table.files().to_pylist()[0]
    outcome = table.delete("x = 3")
    after = table.files().to_pylist()[0]
    for name in ("path", "fragment_id", "size_bytes", "num_records"):
        assert after[name] == before[name]
    assert (after["num_deleted"], after["deletion_vector"][0]) == (1, "i")
    assert outcome.metrics["numDeletionVectorsAdded"] == 1
    assert '"tightBounds":false' in after["stats"]
    table.delete("x < 9")
    assert table.files()["num_deleted"].to_pylist() == [9]
    table.delete("x = 9")  # The last row goes, and the file with it.
    assert table.files().num_rows == 0


def test_many_vectors_of_one_commit_share_a_file(tmp_path: Any) -> None:
    data = pa.table({"x": list(range(60_000))})
    table = txlog.write(tmp_path, data, options=txlog.WriteOptions(max_rows_per_file=20_000))
    table.delete("x % 2 = 0 or x % 7 = 3")
    kinds = {vector[0] for vector in table.files()["deletion_vector"].to_pylist()}
    assert kinds == {"u"}
    assert len(list(tmp_path.glob("*.bin"))) == 1
    assert table.count() == sum(1 for x in range(60_000) if x % 2 and x % 7 != 3)
    assert table.count() == table.to_arrow().num_rows


def test_a_delete_by_partition_reads_no_file(tmp_path: Any) -> None:
    data = pa.table({"x": [1, 2, 3], "p": ["a", "a", "b"]})
    table = txlog.write(tmp_path, data, partition_by="p")
    for path in tmp_path.rglob("*.parquet"):
        path.write_bytes(b"")
    assert table.delete("p = 'a'").metrics["numDeletedRows"] == 2
    assert table.count() == 1
