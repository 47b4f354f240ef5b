"""Calls with the names of deltalake and pylance, compared with their results."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog import col
from txlog.base.errors import InvalidInputError, InvalidTypeError

ROWS = pa.table(
    {
        "n": pa.array([1, 2, 3, 4, None, 6], pa.int64()),
        "p": ["a", "a", "b", "b", None, "7"],
        "q": pa.array([date(2024, 1, 1), None] * 3, pa.date32()),
        "st": [{"x": k, "y.z": str(k)} for k in range(6)],
        "ok": [True, False, None] * 2,
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    table = txlog.write(
        tmp_path_factory.mktemp("t"), ROWS, partition_by=["p", "q"],
        properties={"delta.enableDeletionVectors": "false"},
    )  # fmt: skip
    table.append(ROWS.slice(0, 3))
    return table


NAMES = {"n": [1, 2, 4, "3", None], "p": ["a", "b", "c"], "q": [date(2024, 1, 1), "2024-01-01"]}


@st.composite
def one_filter(draw: st.DrawFn) -> tuple[str, str, Any]:
    name = draw(st.sampled_from(list(NAMES)))
    value = st.sampled_from([value for value in NAMES[name] if value is not None])
    operator = draw(st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]))
    kind = draw(st.sampled_from([list, tuple, set]))
    if operator.endswith("in"):
        return name, operator, kind(draw(st.lists(value, min_size=1, max_size=3)))
    return name, operator, draw(value)


@settings(max_examples=examples(60))
@given(st.lists(st.lists(one_filter(), min_size=1, max_size=2), min_size=1, max_size=3))
def test_filters_mean_what_pyarrow_takes_them_for(
    table: txlog.Table, filters: list[list[tuple[str, str, Any]]]
) -> None:
    kinds = {"n": int, "p": str, "q": lambda text: date.fromisoformat(str(text))}

    def typed(one: tuple[str, str, Any]) -> tuple[str, str, Any]:
        name, operator, value = one
        make = kinds[name]
        return name, operator, [*map(make, value)] if operator.endswith("in") else make(value)

    meant = pq.filters_to_expression([[typed(one) for one in group] for group in filters])
    whole = [pa.compute.field(name).is_valid() for name in NAMES]
    no_nulls = whole[0] & whole[1] & whole[2]  # Of these pyarrow's `not in` is true, SQL's is not.
    order = [("n", "ascending"), ("p", "ascending")]
    got = table.to_arrow(["n", "p", "q"], filters).filter(no_nulls).sort_by(order)
    assert got == table.to_arrow(["n", "p", "q"]).filter(meant & no_nulls).sort_by(order)
    if len(filters) == 1:
        assert table.count(filters[0]) == table.count(filters)


def test_what_is_no_filter(table: txlog.Table) -> None:
    assert table.count([]) == table.count()
    odd: Any
    for odd, reason in (
        ([("n", "=>", 1)], "'=>' is not one of"),
        ([("n", "in", 1)], "in needs a list"),
        ([("n", "=")], "is not a filter"),
        ([[]], "list of filters is empty"),
        ([("n", "=", 1), [("n", "=", 2)]], "is not a filter"),
        ([("none", "=", 1)], "no column none"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            table.count(odd)
    with pytest.raises(InvalidTypeError):
        table.count({"n": 1})  # type: ignore[arg-type]


def test_text_is_compared_with_numbers_as_a_number(tmp_path: Path) -> None:
    rows = pa.table({"p": ["1", "02", "30", None], "n": [1, 2, 3, 4]})
    table = txlog.write(tmp_path / "t", rows, partition_by=["p"])
    assert sorted(table.to_arrow(where="p >= 2")["n"].to_pylist()) == [2, 3]
    assert table.to_arrow(where="p IN (1, 2.0)").num_rows == 2
    assert table.to_arrow(where=col("p") == 2)["n"].to_pylist() == [2]
    assert table.scan(where="p = 2").explain().pruned_by_partition == 3
    assert table.scan(where="length(p) = 2 AND n > 0").explain().files_to_read == 2
    table.append(pa.table({"p": ["x"], "n": [5]}))
    with pytest.raises(InvalidInputError, match="cannot be computed"):
        table.count("p = 2")
    with pytest.raises(InvalidInputError, match="cannot be compared"):
        table.count("p IN (1, 'x')")


# Columns of files that do not depend on the table, if statistics are typed.
KNOWN = ["path", "size_bytes", "num_records", "num_deleted", "modification_time", "fragment_id",
         "deletion_vector", "fields", "kind", "layer"]  # fmt: skip


def test_files_are_listed_by_predicate(table: txlog.Table) -> None:
    for where in ("p = 'a'", "n > 4", "n > 99", "p IS NULL OR n = 1"):
        found = table.files(["path", "stats"], where=where)
        uris = [str(Path(table.uri, path)) for path in found["path"].to_pylist()]
        assert sorted(uris) == sorted(table.scan(where=where).file_uris())
        assert found["stats"].null_count == 0
    assert table.files(where="n > 99").schema == table.files().schema
    with pytest.raises(InvalidInputError):
        table.files(where="zz = 1")


def test_typed_statistics_are_those_of_deltalake(table: txlog.Table) -> None:
    theirs = deltalake.DeltaTable(table.uri)
    for flatten in (False, True):
        ours = table.files(statistics="flat" if flatten else "struct").sort_by("path")
        told = pa.table(theirs.get_add_actions(flatten)).sort_by("path")
        names = set(ours.column_names) & set(told.column_names)
        assert {"path", "size_bytes", "modification_time", "num_records"} <= names
        for name in sorted(names - {"partition", "min", "max", "null_count"}):
            assert ours[name].to_pylist() == told[name].to_pylist(), name
        if flatten:
            assert {"partition.p", "partition.q", "min.n", "max.n", "null_count.n"} <= names
            assert {"min.st.x", "null_count.st.y.z"} <= names
        else:
            assert ours["partition"].to_pylist() == told["partition"].to_pylist()
    assert ours["partition.q"].type == pa.date32()
    assert ours.column_names[: len(KNOWN)] == KNOWN
    some = table.files(["min.n", "path", "partition.p"], where="n > 4", statistics="flat")
    assert some.column_names == ["min.n", "path", "partition.p"]
    assert some["min.n"].to_pylist() == [6]
    with pytest.raises(InvalidInputError, match=r"no such column.*Choose from path.*max\.n"):
        table.files(["stats"], statistics="flat")
    with pytest.raises(InvalidInputError, match="'text' is not json, struct or flat"):
        table.files(statistics="text")  # type: ignore[arg-type]
    few = txlog.write(
        "memory://few-statistics", ROWS, properties={"delta.dataSkippingStatsColumns": "n,st.x"}
    ).files(statistics="flat")
    assert [name for name in few.column_names if "min" in name] == ["min.n", "min.st.x"]
    empty = txlog.Table.create("memory://no-adds", ROWS.schema).files(statistics="flat")
    assert empty.num_rows == 0
    assert "min.n" in empty.column_names


def test_partitions_are_those_of_deltalake(table: txlog.Table, tmp_path: Path) -> None:
    def known(found: Any) -> list[tuple[Any, ...]]:
        found = found.to_pylist() if isinstance(found, pa.Table) else found
        return sorted((str(one["p"]), str(one["q"])) for one in found)

    theirs = deltalake.DeltaTable(table.uri)
    assert known(table.partitions()) == known(theirs.partitions())
    where = [("p", "in", ["a", "b"])]
    assert known(table.partitions(where)) == known(theirs.partitions(file_pruning_predicate=where))
    assert table.partitions("p = 'a' AND q IS NULL").to_pylist() == [{"p": "a", "q": None}]
    assert table.partitions("p = 'zz'").schema == pa.schema({"p": pa.string(), "q": pa.string()})
    assert txlog.write(tmp_path / "plain", ROWS.drop("st")).partitions().num_rows == 0


def _deleted_from(folder: Path) -> txlog.Table:
    table = txlog.write(
        folder, pa.table({"x": range(40)}), options=txlog.WriteOptions(max_rows_per_file=9)
    )
    table.delete("x % 7 = 3")
    return table


@settings(max_examples=examples(60))
@given(
    st.integers(0, 45), st.none() | st.integers(0, 45), st.sampled_from([None, "x > 11", "x < 5"])
)
def test_a_slice_is_that_of_all_rows(
    tmp_path_factory: pytest.TempPathFactory, offset: int, length: int | None, where: str | None
) -> None:
    folder = tmp_path_factory.getbasetemp() / "slices"
    table = txlog.Table(folder) if folder.exists() else _deleted_from(folder)
    expected = table.to_arrow(where=where).slice(offset, length).to_pydict()
    assert table.scan(where=where).slice(offset, length).to_pydict() == expected


def test_fragments_before_a_slice_are_not_opened(tmp_path: Path) -> None:
    table = _deleted_from(tmp_path / "t")
    expected = table.to_arrow().slice(20, 5)
    for fragment in table.fragments()[:2]:
        (tmp_path / "t" / fragment.files[0].path).unlink()
    assert table.scan().slice(20, 5) == expected
    assert table.scan().slice(99).num_rows == 0
    for wrong in ({"offset": -1}, {"length": -1}, {"offset": 0.5}):
        with pytest.raises(InvalidInputError, match=r"offset|length"):
            table.scan().slice(**wrong)


def test_a_sample_has_rows_of_the_table_once_each(tmp_path: Path) -> None:
    table = _deleted_from(tmp_path / "t")
    rows = table.to_arrow()["x"].to_pylist()
    found = table.sample(12)["x"].to_pylist()
    assert len(set(found)) == 12
    assert [x for x in rows if x in found] == found  # In their order.
    assert table.sample(12, ["x"], seed=4) == table.sample(12, seed=4)
    assert table.sample(99)["x"].to_pylist() == rows
    assert table.sample(0).num_rows == 0
    with pytest.raises(InvalidInputError, match="num_rows"):
        table.sample(-1)


def test_deletion_vectors_are_those_of_deltalake(tmp_path: Path) -> None:
    table = _deleted_from(tmp_path / "t")
    ours = table.scan().deletion_vectors().read_all()
    theirs = pa.table(deltalake.DeltaTable(tmp_path / "t").deletion_vectors())
    assert ours.num_rows == 5
    assert dict(zip(*(ours[name].to_pylist() for name in ours.column_names), strict=True)) == dict(
        zip(*(theirs[name].to_pylist() for name in theirs.column_names), strict=True)
    )
    assert txlog.write(tmp_path / "u", ROWS).scan().deletion_vectors().read_all().num_rows == 0


def test_a_merge_by_key_as_pylance_builds_it(tmp_path: Path) -> None:
    import lance

    before = pa.table({"k": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]})
    rows = pa.table({"k": [2, 3, 9], "v": ["x", "y", "z"]})
    theirs = lance.write_dataset(before, tmp_path / "lance")
    merge = theirs.merge_insert("k").when_matched_update_all("source.v <> 'y'")
    merge = merge.when_not_matched_insert_all().when_not_matched_by_source_delete("k > 3")
    told = merge.execute(rows)
    table = txlog.write(tmp_path / "t", before)
    ours = table.merge(rows, on="k", user_metadata="by key")
    done = (
        ours.when_matched_update_all("source.v <> 'y'")
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete("k > 3")
        .execute()
    )
    assert table.to_arrow().sort_by("k") == theirs.to_table().sort_by("k")
    assert done.metrics["numTargetRowsInserted"] == told["num_inserted_rows"]
    assert done.metrics["numTargetRowsUpdated"] == told["num_updated_rows"]
    assert done.metrics["numTargetRowsDeleted"] == told["num_deleted_rows"]
    table.merge(rows, on=["k", "v"]).when_matched_delete().execute()
    assert table.to_arrow()["k"].to_pylist() == [1, 3]


def test_a_merge_by_key_of_some_columns(tmp_path: Path) -> None:
    import lance

    before = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"], "w": [1.5, None, 3.5]})
    rows = pa.table({"K": [2, 9], "W": [7.5, 9.5]})
    theirs = lance.write_dataset(before, tmp_path / "lance")
    table = txlog.write(tmp_path / "t", before)
    merge = theirs.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows.rename_columns(["k", "w"]))
    table.merge(rows, on="k").when_matched_update_all().when_not_matched_insert_all().execute()
    assert table.to_arrow().sort_by("k") == theirs.to_table().sort_by("k")
    table.merge(pa.table({"k": [1, 9]}), on="k").when_matched_delete().execute()
    assert sorted(table.to_arrow()["k"].to_pylist()) == [2, 3]


def test_a_merge_by_key_does_not_lose_a_misspelt_column(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"k": [1, 2], "v": ["a", "b"]}))
    rows = pa.table({"k": [2, 3], "vv": ["x", "y"]})
    for merge in (
        table.merge(rows, on="k").when_matched_update_all(),
        table.merge(rows, on="k").when_not_matched_insert_all(),
    ):
        with pytest.raises(InvalidInputError, match=r"no column vv .*field='vv'.*Choose from k, v"):
            merge.execute()
    table.merge(rows, on="k", schema_mode="merge").when_matched_update_all().execute()
    found = table.to_arrow().sort_by("k").to_pydict()
    assert found == {"k": [1, 2], "v": ["a", "b"], "vv": [None, "x"]}


def test_a_merge_by_key_with_other_aliases(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"k": [1, 2], "n": [5, 6]}))
    source = pa.table({"k": [2, 3], "n": [1, 1]})
    merge = table.merge(source, None, "new", "old", on="k")
    merge.when_matched_update({"n": "old.n + new.n"}).execute()
    assert sorted(table.to_arrow()["n"].to_pylist()) == [5, 7]
    with pytest.raises(InvalidInputError, match="both were given") as caught:
        table.merge(source, "target.k = source.k", on="k")
    assert caught.value.argument == "on"
    with pytest.raises(txlog.InvalidTypeError, match='or on="id"'):
        table.merge(source)


def test_a_key_column_that_a_side_lacks_is_named(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"k": [1, 2], "n": [5, 6]}))

    def refused(call: Callable[[], object], reason: str) -> None:
        with pytest.raises(InvalidInputError, match=reason) as caught:
            call()
        assert (caught.value.argument, caught.value.field) == ("on", "nix")

    rows, odd = pa.table({"k": [2], "n": [1]}), pa.table({"k": [2], "nix": [1]})
    refused(table.merge(rows, on="nix").when_matched_delete().execute, "the target has no column")
    refused(lambda: table.upsert(rows, on=["k", "nix"]), "the target has no column")
    table.alter.add_columns({"nix": pa.int64()})
    refused(table.merge(rows, on="nix").when_matched_delete().execute, "the source has no column")
    table.merge(odd, on="nix").when_matched_delete().execute()


def test_keys_that_must_be_new(tmp_path: Path) -> None:
    properties = {"delta.appendOnly": "true"}
    table = txlog.write(tmp_path, pa.table({"k": [1, 2]}), properties=properties)
    other = txlog.Table(tmp_path)

    def add(handle: txlog.Table, *keys: int) -> Any:
        merge = handle.merge(pa.table({"k": list(keys)}), on="k")
        return merge.when_matched_fail().when_not_matched_insert_all().execute()

    assert add(table, 3, 4).metrics["numTargetRowsInserted"] == 2
    with pytest.raises(InvalidInputError, match="match rows of the table: `k` = 2 "):
        add(table, 5, 2)
    with pytest.raises(InvalidInputError, match="match rows of the table: `k` = 4 "):
        add(other, 4)  # Another writer added it meanwhile.
    assert sorted(txlog.Table(tmp_path).to_arrow()["k"].to_pylist()) == [1, 2, 3, 4]
    add(table, *range(5, 12))
    with pytest.raises(InvalidInputError, match=r"table: `k` = 5; .*; `k` = 9, … \("):
        add(table, *range(12, 4, -1))  # A few of the keys are named.


def test_a_merge_by_key_from_an_older_handle(tmp_path: Path) -> None:
    before = pa.table({"k": [1, 2], "v": ["a", "b"], "gone": [True, False]})
    mapped = {"delta.columnMapping.mode": "name"}
    table = txlog.write(tmp_path, before, properties=mapped)
    stale = txlog.Table(tmp_path)
    table.alter.drop_columns("gone")
    table.alter.add_columns({"w": pa.int64()})
    table.update({"w": "k * 10"})
    merge = stale.merge(pa.table({"k": [2, 3], "v": ["y", "z"]}), on="k")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    found = table.refresh().to_arrow().sort_by("k").to_pydict()
    assert found == {"k": [1, 2, 3], "v": ["a", "y", "z"], "w": [10, 20, None]}
    stale = txlog.Table(tmp_path, version=0)
    stale.merge(pa.table({"k": [1], "w": [7]}), on="k").when_matched_update_all().execute()
    assert stale.to_arrow(where="k = 1").to_pydict() == {"k": [1], "v": ["a"], "w": [7]}


def test_rows_by_their_lasting_ids(tmp_path: Path) -> None:
    import lance

    rows = pa.table({"k": range(12), "v": ["a"] * 12})
    theirs = lance.write_dataset(
        rows, tmp_path / "lance", max_rows_per_file=4, enable_stable_row_ids=True
    )
    table = txlog.write(
        tmp_path / "t",
        rows,
        options=txlog.WriteOptions(max_rows_per_file=4),
        properties={"delta.enableRowTracking": "true"},
    )
    other = txlog.Table(tmp_path / "t")
    table.optimize.compact()  # The ids stay.
    other.update({"v": "'b'"}, where="_rowid IN (3, 7)")
    other.delete("_rowid = 5 OR (_rowid = 3 AND v = 'a')")
    assert other.to_arrow(where="_rowid = 7")["k"].to_pylist() == [7]
    theirs.update({"v": "'b'"}, where="_rowid IN (3, 7)")
    theirs.delete("_rowid = 5 OR (_rowid = 3 AND v = 'a')")
    assert other.to_arrow().sort_by("k") == theirs.to_table().sort_by("k")


def test_versions_by_their_tags(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS)
    table.append(ROWS)
    table.pins.create("first", 0)
    assert list(table.pins.list()) == ["first"]
    old = table.at("first")
    assert (old.version, old.at().version, old.count()) == (0, table.version, ROWS.num_rows)
    assert old.at(1).count() == table.count() == 2 * ROWS.num_rows
    with pytest.raises(txlog.NotFoundError):
        table.at(99)
    assert old.timestamp_ms is not None
    assert table.at(timestamp=old.timestamp_ms).version == 0
    assert table.at(timestamp="1999-01-01", out_of_range="nearest").version == 0
    with pytest.raises(txlog.NotFoundError, match="before the first"):
        table.at(timestamp="1999-01-01")
    with pytest.raises(InvalidInputError, match="both given"):
        table.at(0, timestamp="1999-01-01")


def test_a_cast_brings_back_the_types_that_delta_lacks(tmp_path: Path) -> None:
    """docs/properties.md says so."""
    wanted = pa.schema(
        [
            ("large", pa.large_list(pa.int8())),
            ("name", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
    values = {"large": [[1], [], None]}
    rows = pa.table(values | {"name": ["a", None, "a"]}, schema=wanted)
    table = txlog.write(tmp_path / "t", rows)
    assert table.to_arrow().cast(wanted).equals(rows)
