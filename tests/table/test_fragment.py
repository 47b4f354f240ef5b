"""`TableFragment`: the methods that users of pylance know."""

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    table = txlog.write(
        tmp_path / "t",
        pa.table({"x": range(20), "y": list("ab" * 10)}),
        options=txlog.WriteOptions(max_rows_per_file=10),
    )
    table.delete("x IN (1, 15)")
    return table


def test_what_a_fragment_says(table: txlog.Table) -> None:
    first, second = table.fragments()
    assert [f.fragment_id for f in (first, second)] == [f.id for f in table.fragments()] == [0, 1]
    assert (first.physical_rows, first.num_deletions, first.num_rows) == (10, 1, 9)
    assert first.count_rows() == 9
    assert first.count_rows("y = 'a'") == 5
    assert first.count_rows(filter="y = 'b'") == 4
    assert [file.path for file in first.data_files()] == [file.path for file in first.files]
    vector = second.deletion_file()
    assert vector is not None
    assert (vector.num_deleted_rows, vector.file_type) == (1, "bitmap")
    assert first.schema == table.schema
    assert first.is_durable
    assert first.partition_values == {}
    assert first.metadata.row_id_meta is None
    assert repr(first) == "txlog.TableFragment(id=0, physical_rows=10, num_deletions=1, files=1)"
    found = table.fragments().of_id(1)
    assert found is not None
    assert found.id == 1
    assert table.fragments().of_id(7) is None


def test_reading_a_fragment(table: txlog.Table) -> None:
    fragment = pickle.loads(pickle.dumps(table.fragments()[1]))
    live = [x for x in range(10, 20) if x != 15]
    assert fragment.to_table()["x"].to_pylist() == live
    assert fragment.to_table(["x"], "x > 16")["x"].to_pylist() == [17, 18, 19]
    assert fragment.scanner(["y"], filter="x = 16").to_arrow().to_pylist() == [{"y": "a"}]
    assert sum(batch.num_rows for batch in fragment.to_batches()) == 9
    assert fragment.head(3)["x"].to_pylist() == [10, 11, 12]
    assert fragment.head(100, ["_rowaddr"])["_rowaddr"].to_pylist() == [
        (1 << 32) + at for at in range(10) if at != 5
    ]
    assert fragment.take([8, 0, 5, 4, 8], ["x"])["x"].to_pylist() == [19, 10, 16, 14, 19]
    assert fragment.take(pa.array([5]))["x"].to_pylist() == [live[5]]
    for beyond in ([9], [1 << 32]):
        with pytest.raises(txlog.NotFoundError, match=f"has only 9 rows.*{beyond[0]}"):
            fragment.take([0, *beyond])
    assert fragment.take_offsets([9, 0, 9], ["x"])["x"].to_pylist() == [19, 10, 19]
    with pytest.raises(txlog.NotFoundError, match=r"deleted: row address 4294967301"):
        fragment.take_offsets([0, 5])
    with pytest.raises(txlog.NotFoundError, match="only 10 rows"):
        fragment.take_offsets([10])
    with pytest.raises(txlog.NotFoundError, match="no fragment has so many"):
        fragment.take_offsets([1 << 32])
    for take in (fragment.take, fragment.take_offsets):
        with pytest.raises(txlog.InvalidInputError, match="below 0"):
            take([-1])


@pytest.mark.parametrize(
    ("offsets", "error", "reason"),
    [
        ([10], txlog.NotFoundError, "only 10 rows"),
        ([2, 2], txlog.InvalidInputError, "distinct"),
        ([-1], txlog.InvalidInputError, "below 0"),
        ([0.5], txlog.InvalidInputError, "whole numbers"),
    ],
)
def test_bad_offsets(
    table: txlog.Table, offsets: list[int], error: type[Exception], reason: str
) -> None:
    before = sorted(Path(table.uri).iterdir())
    with pytest.raises(error, match=reason):
        table.fragments()[0].delete_rows(offsets)
    assert sorted(Path(table.uri).iterdir()) == before


def test_rows_that_are_already_deleted_can_be_deleted_again(table: txlog.Table) -> None:
    first = table.fragments()[0]  # Its row 1 is deleted.
    assert first.delete_rows([1]) == first.metadata
    assert first.delete_rows(range(10)) is None
    updated = first.delete_rows([0, 1])
    assert updated is not None
    table.commit(txlog.FragmentOperation.Delete([updated]))
    assert table.to_arrow(where="x < 4")["x"].to_pylist() == [2, 3]


def test_take_reads_only_the_row_groups_needed(tmp_path: Path, row_groups_read: list[int]) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": range(1000)}))
    (file,) = table.files()["path"].to_pylist()
    pq.write_table(pa.table({"x": range(1000)}), tmp_path / "t" / file, row_group_size=10)
    assert table.fragments()[0].take([995, 17])["x"].to_pylist() == [995, 17]
    assert row_groups_read == [1, 99]


def test_the_fragments_of_a_table_are_a_sequence(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, pa.schema([("x", pa.int64())]))
    assert table.fragments() == []
    for start in range(5):
        table.append(pa.table({"x": [start, start + 1]}))
    fragments = table.fragments()
    values = list(fragments)
    assert [one.id for one in values] == [0, 1, 2, 3, 4] == list(range(len(fragments)))
    assert fragments == values == [*fragments]
    assert fragments != values[:4]
    assert fragments[-1] == values[4] == table.fragments().of_id(4)
    for chosen in (slice(1, 4), slice(None, None, -1), slice(4, None, -2), slice(9, 3)):
        assert fragments[chosen] == values[chosen]
        assert len(fragments[chosen]) == len(values[chosen])
    assert fragments[1:4][1:][0].to_table()["x"].to_pylist() == [2, 3]
    assert fragments[1:].of_id(0) is None
    assert values[2] in fragments
    assert pickle.loads(pickle.dumps(fragments)) == values
    assert repr(fragments) == "<5 fragments of version 5>"
    with pytest.raises(IndexError):
        fragments[5]
    with pytest.raises(TypeError):
        hash(fragments)


def test_a_fragment_is_validated(tmp_path: Path) -> None:
    """As pylance's `LanceFragment.validate`."""
    rows = pa.table({"x": range(20)})
    table = txlog.write(
        tmp_path, rows, options=txlog.WriteOptions(max_rows_per_file=10),
        properties={"delta.feature.txlog.fragments": "supported"},
    )  # fmt: skip
    table.alter.add_columns({"y": "x + 1"})
    table.delete("x = 3")
    for fragment in table.fragments():
        assert len(fragment.files) == 2
        fragment.validate()
    first, second = table.fragments()
    other = tmp_path / second.files[1].path
    pq.write_table(pq.read_table(other).slice(1), other)
    with pytest.raises(txlog.DataFileError, match=r"has 9 rows, but the primary file has 10"):
        second.validate()
    first.validate()
    plain = txlog.write(tmp_path / "plain", rows)
    (whole,) = plain.fragments()
    pq.write_table(pa.table({"x": range(30, 50)}), tmp_path / "plain" / whole.files[0].path)
    with pytest.raises(txlog.DataFileError, match="contradicts the file: the greatest x is 49"):
        whole.validate()
    (tmp_path / "plain" / whole.files[0].path).unlink()
    with pytest.raises(txlog.TxlogError, match=whole.files[0].path):
        whole.validate()


def test_columns_from_the_addresses_of_rows(tmp_path: Path) -> None:
    rows = pa.table({"x": range(6)})
    table = txlog.write(
        tmp_path, rows, options=txlog.WriteOptions(max_rows_per_file=3),
        properties={"delta.feature.txlog.fragments": "supported"},
    )  # fmt: skip

    def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.names == ["_rowid", "x"]
        return pa.record_batch({"copy": batch["_rowid"], "twice": pa.array([0] * len(batch))})

    merged = [one.merge_columns(copied, ["_rowid", "x"]) for one in table.fragments()]
    table.commit(txlog.FragmentOperation.Merge([one for one, _ in merged], merged[0][1]))
    found = table.to_arrow(["copy", "_rowid"])
    assert found["copy"].to_pylist() == found["_rowid"].to_pylist()
    assert found.num_rows == 6


@pytest.mark.spec("FRG-26")
def test_columns_without_nulls_stay_not_nullable(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("y", pa.int64(), nullable=False)])
    properties = {"delta.feature.txlog.fragments": "supported"}

    def made(name: str) -> txlog.Table:
        rows = pa.table({"x": range(6)})
        table = txlog.write(
            tmp_path / name,
            rows,
            options=txlog.WriteOptions(max_rows_per_file=3),
            properties=properties,
        )
        table.delete("x = 1")
        return table

    def merged(fragment: txlog.TableFragment, *values: int | None) -> txlog.FragmentMetadata:
        done, whole = fragment.merge_columns(pa.table([list(values)], schema))
        assert not whole.field("y").nullable
        return done

    table, some = made("t"), made("some")
    whole = pa.schema([*table.schema, *schema])
    some.commit(txlog.FragmentOperation.Merge([merged(some.fragments()[0], 0, 2)], whole))
    assert some.schema.field("y").nullable  # The other fragment has nulls.
    first, second = table.fragments()
    with pytest.raises(txlog.SchemaMismatchError, match="y"):
        merged(second, 3, None, 5)
    given = [merged(first, 0, 2), merged(second, 3, 4, 5)]
    nullable, _ = second.merge_columns(pa.table({"y": [1, None, 2]}))
    with pytest.raises(txlog.InvalidInputError, match="or allow nulls that the schema does not"):
        table.commit(txlog.FragmentOperation.Merge([given[0], nullable], whole))
    table.commit(txlog.FragmentOperation.Merge(given, whole))
    assert not table.schema.field("y").nullable
    assert table.to_arrow().to_pydict() == {"x": [0, 2, 3, 4, 5], "y": [0, 2, 3, 4, 5]}
    with pytest.raises(txlog.SchemaMismatchError, match="y"):
        table.append(pa.table({"x": [9]}))
    table.append(pa.table({"x": [9], "y": [9]}))
    table.optimize.compact()
    assert table.to_arrow()["y"].to_pylist() == [0, 2, 3, 4, 5, 9]
