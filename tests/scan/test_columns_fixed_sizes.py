"""Fixed-size lists come back as such: Delta has none, so a field's metadata keeps their sizes."""

import json
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.schema.arrow import FIXED_SIZE, arrow_schema, fixed_rows, fixed_schema, from_arrow

VECTOR = pa.list_(pa.float32(), 3)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", VECTOR),
        ("m", pa.list_(pa.list_(pa.int8(), 2), 3)),
        ("st", pa.struct([("w", VECTOR)])),
        ("l", pa.list_(VECTOR)),
        ("mp", pa.map_(pa.string(), pa.list_(pa.int16(), 2))),
    ]
)
ROWS = pa.Table.from_pylist(
    [
        {"id": 1, "v": [1, 2, 3], "m": [[1, 2], [3, 4], [5, 6]], "st": {"w": [1, 2, 3]},
         "l": [[1, 2, 3], None], "mp": [("a", [1, 2])]},
        {"id": 2},
        {"id": 3, "v": [None, 2, 3], "m": [[1, 2], None, [5, 6]], "st": {"w": None}, "l": [],
         "mp": []},
    ],
    SCHEMA,
)  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    feed = {"delta.enableChangeDataFeed": "true"}
    return txlog.write(tmp_path / "t", ROWS, properties=feed)


def test_every_way_to_read_returns_them(table: txlog.Table) -> None:
    assert table.schema == table.scan().schema == SCHEMA
    assert table.to_arrow().equals(ROWS)
    assert [batch.schema for batch in table.to_batches(batch_size=2)] == [SCHEMA] * 2
    assert table.take([2, 0]).equals(ROWS.take([2, 0]))
    assert table.head(1).equals(ROWS[:1])
    assert table.scan().slice(1, 1).equals(ROWS[1:2])
    assert table.lookup([3, 1], on="id").equals(ROWS.take([2, 0]))
    fragment = table.fragments()[0]
    assert fragment.schema == SCHEMA
    assert fragment.to_table().equals(ROWS)
    assert fragment.take([0, 1, 2]).equals(ROWS)
    assert table.scan(["st.w"]).to_arrow()["st.w"].type == VECTOR
    for rows in (table.changes(0), table.diff(0, 0), table.blame()):
        assert rows.schema.field("v").type == VECTOR
        assert rows.to_arrow().schema == rows.schema
    assert table.to_polars().equals(pl.from_arrow(ROWS))
    assert table.to_polars(where="size(v) = 3")["v"].dtype == pl.Array(pl.Float32, 3)
    assert table.to_pyarrow_dataset().to_table().equals(ROWS)
    table.delete("id = 1")
    assert table.to_pyarrow_dataset().to_table().equals(ROWS[1:])
    assert table.to_pyarrow_dataset(as_large_types=True).schema.field("v").type == VECTOR


def test_other_engines_see_lists(table: txlog.Table) -> None:
    fields = {one["name"]: one for one in json.loads(table.metadata.schema_string or "")["fields"]}
    assert fields["v"]["type"]["type"] == "array"
    assert fields["v"]["metadata"] == {FIXED_SIZE: 3}
    assert fields["m"]["metadata"] == {FIXED_SIZE: 3, f"{FIXED_SIZE}.element": 2}
    theirs = deltalake.DeltaTable(table.uri)
    assert pa.schema(theirs.schema()).field("v").type == pa.list_(pa.float32())
    assert theirs.to_pyarrow_table().to_pylist() == ROWS.to_pylist()
    plain = pa.table({"id": [4], "v": pa.array([[4, 5, 6]], pa.list_(pa.float32()))})
    deltalake.write_deltalake(theirs, plain, mode="append", schema_mode="merge")
    table.refresh()
    assert table.to_arrow(where="id = 4")["v"].to_pylist() == [[4, 5, 6]]
    assert table.schema == SCHEMA  # They keep the metadata.


def test_writes_check_the_lengths(table: txlog.Table) -> None:
    of_two = pa.array([[1, 2]], pa.list_(pa.float32()))
    with pytest.raises(txlog.SchemaMismatchError, match=r"column v is fixed_size_list.*\[3\]"):
        table.append(pa.table({"id": [4], "v": of_two}))
    with pytest.raises(txlog.SchemaMismatchError, match="column l is"):
        table.append(pa.table({"id": [4], "l": pa.array([of_two.to_pylist()])}))
    with pytest.raises(txlog.SchemaMismatchError, match="column v"):
        table.update({"v": "array(v[0])"}, "id = 1")
    merge = table.merge(pa.table({"id": [1], "v": of_two}), "target.id = source.id")
    with pytest.raises(txlog.SchemaMismatchError, match="column v"):
        merge.when_matched_update({"v": "source.v"}).execute()
    assert table.version == 0
    table.update({"v": "array(v[2], v[1], v[0])"}, "id = 1")
    table.upsert(ROWS[:2], on="id")
    table.append(pa.table({"id": [4], "v": pa.array([[4, 5, 6]], pa.list_(pa.float32()))}))
    table.optimize.compact()
    assert table.to_arrow().sort_by("id")["v"].to_pylist() == [*ROWS["v"].to_pylist(), [4, 5, 6]]


def test_replaced_columns_are_checked(tmp_path: Path) -> None:
    fragments = {"delta.feature.txlog.fragments": "supported"}
    table = txlog.write(tmp_path / "t", ROWS.select(["id", "v"]), properties=fragments)
    of_two = pa.array([[1, 2]] * 3, pa.list_(pa.float32(), 2))
    for values in (of_two, of_two.cast(pa.list_(pa.float32()))):
        with pytest.raises(txlog.SchemaMismatchError, match="column v"):
            table.alter.replace_columns({"v": values})
    assert table.version == 0
    table.alter.replace_columns({"v": pa.array([[7, 8, 9]] * 3, pa.list_(pa.float32()))})
    assert table.to_arrow()["v"].to_pylist() == [[7, 8, 9]] * 3


def test_columns_of_workers_have_their_sizes(tmp_path: Path) -> None:
    fragments = {"delta.feature.txlog.fragments": "supported"}
    table = txlog.write(tmp_path / "t", ROWS.select(["id", "v"]), properties=fragments)
    table.append(ROWS.select(["id", "v"]))

    def worked(number: int, of: pa.DataType) -> tuple[txlog.FragmentMetadata, pa.Schema]:
        values = pa.array([list(range(of.list_size))] * 3, of)
        return table.fragments()[number].merge_columns(lambda _: pa.record_batch({"w": values}))

    first, schema = worked(0, VECTOR)
    other, _ = worked(1, pa.list_(pa.float32(), 2))
    with pytest.raises(txlog.InvalidInputError, match="in other types"):
        table.commit(txlog.FragmentOperation.Merge([first, other], schema))
    second, _ = worked(1, VECTOR)
    table.commit(txlog.FragmentOperation.Merge([first, second], schema))
    assert table.to_arrow().schema.field("w").type == VECTOR


def test_lists_of_another_length_are_an_error_with_a_remedy(table: txlog.Table) -> None:
    shorter = pa.table({"id": [4], "v": pa.array([[1, 2]], pa.list_(pa.float32()))})
    deltalake.write_deltalake(table.uri, shorter, mode="append", schema_mode="merge")
    table.refresh()
    for read in (table.to_arrow, table.to_polars, lambda: table.take([3])):
        with pytest.raises(
            txlog.DataFileError, match=r"column v says that .* another length"
        ) as caught:
            read()
    assert table.count("size(v) = 2") == 1  # Predicates see lists.
    (uri,) = table.scan(where="id = 4").file_uris()
    with pytest.raises(
        txlog.DataFileError, match=r"column v says that .* another length"
    ) as stored:
        table.update({"id": "id + 10"}, "id = 4")  # The new row does not blame its caller.
    assert uri.endswith(stored.value.path)
    with pytest.raises(txlog.SchemaMismatchError, match="column v"):
        table.update({"id": "id + 10", "v": "array(id)"}, "id = 4")
    table.optimize.compact()
    call = caught.value.remedy.partition(": ")[2].partition(". ")[0]
    exec(f"table.{call}", {"table": table})
    assert table.to_arrow()["v"].to_pylist() == [*ROWS["v"].to_pylist(), [1, 2]]
    table.delete("id = 4")
    with pytest.raises(txlog.InvalidInputError, match="not a valid size of a list"):
        table.alter.set_column_metadata("v", {FIXED_SIZE: "abc"})
    table.alter.set_column_metadata("v", {FIXED_SIZE: "3"})
    inside = pa.table({"id": [5], "st": [{"w": [1.0]}]})
    deltalake.write_deltalake(table.uri, inside, mode="append", schema_mode="merge")
    table.refresh()
    with pytest.raises(
        txlog.DataFileError, match=r"column st says that .* another length"
    ) as caught:
        table.to_arrow()
    call = caught.value.remedy.partition(": ")[2].partition(". ")[0]
    exec(f"table.{call}", {"table": table})
    assert table.to_arrow()["st"].to_pylist()[-1] == {"w": [1.0]}
    table.delete("id = 5")
    assert table.to_arrow().schema.field("v").type == VECTOR


def test_new_columns_have_their_sizes(table: txlog.Table, tmp_path: Path) -> None:
    table.alter.add_columns({"a": VECTOR})
    table.append(ROWS[:1].append_column("b", ROWS[:1]["v"]), schema_mode="merge")
    assert [table.schema.field(name).type == VECTOR for name in "ab"] == [True, True]
    copy = txlog.write(tmp_path / "copy", table.scan(["id", "b"]))
    assert copy.schema.field("b").type == VECTOR
    mapped = txlog.write(tmp_path / "m", ROWS, properties={"delta.columnMapping.mode": "name"})
    mapped.alter.rename_column("v", "vector")
    assert mapped.to_arrow()["vector"].combine_chunks().equals(ROWS["v"].combine_chunks())


kinds = st.recursive(
    st.just(pa.int8()),
    lambda inner: st.one_of(
        st.builds(pa.list_, inner, st.integers(1, 3)),
        st.builds(pa.list_, inner),
        st.builds(lambda kind: pa.struct([("a", kind), ("b", pa.int8())]), inner),
        st.builds(lambda kind: pa.map_(pa.string(), kind), inner),
    ),
    max_leaves=4,
)


@st.composite
def values(draw: st.DrawFn, kind: pa.DataType) -> Any:
    if draw(st.integers(0, 4)) == 0:
        return None
    if pa.types.is_fixed_size_list(kind):
        return [draw(values(kind.value_type)) for _ in range(kind.list_size)]
    if pa.types.is_list(kind):
        return draw(st.lists(values(kind.value_type), max_size=3))
    if pa.types.is_struct(kind):
        return {field.name: draw(values(field.type)) for field in kind}
    if pa.types.is_map(kind):
        return [(key, draw(values(kind.item_type))) for key in draw(st.sets(st.sampled_from("xy")))]
    return draw(st.integers(-9, 9))


@settings(max_examples=examples(200))
@given(st.data())
def test_types_at_any_depth(data: st.DataObject) -> None:
    kind = data.draw(kinds)
    schema = pa.schema([("c", kind)])
    table = from_arrow(schema)
    assert fixed_schema(table) == schema
    given = pa.array(data.draw(st.lists(values(kind), max_size=4)), kind)
    plain = pa.array(given.to_pylist(), arrow_schema(table).field(0).type)
    rows = pa.RecordBatch.from_arrays([plain], schema=arrow_schema(table))
    cut = data.draw(st.integers(0, len(given)))
    found = fixed_rows(rows[cut:], table.fields, AssertionError).column(0)
    assert found.type == kind
    assert found.to_pylist() == given[cut:].to_pylist()
    found.validate(full=True)


def test_batches_for_training(table: txlog.Table) -> None:
    from txlog.training import Loader, Vector

    rows = txlog.write(f"{table.uri}-vectors", ROWS[:1].select(["id", "v"]))
    (batch,) = Loader(rows, batch_size=1, shuffle=None, views={"v": Vector("float32", (3,))})
    assert batch["v"].tolist() == [[1, 2, 3]]
