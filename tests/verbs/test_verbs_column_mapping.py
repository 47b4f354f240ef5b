"""Tables with column mapping are written by every verb; other engines read the same."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from tests.acceptance.corpus import cases
from tests.verb_calls import run
from txlog.data_files.definition import Definition
from txlog.log.paths import decode_path
from txlog.schema.arrow import from_arrow
from txlog.verbs.replace import ReplaceTable

deltalake = pytest.importorskip("deltalake")
kernel = pytest.importorskip("polars_deltalake")

MODE = "delta.columnMapping.mode"
HIGHEST = "delta.columnMapping.maxColumnId"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p q", pa.string()),
        ("st", pa.struct([("x", pa.int32()), ("y z", pa.string())])),
        ("l", pa.list_(pa.struct([("a", pa.int64())]))),
        ("m", pa.map_(pa.string(), pa.struct([("v", pa.int64())]))),
    ]
)


PLAIN = {MODE: "none", "delta.enableDeletionVectors": "false"}


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "p q": f"p {i % 2}",
                "st": {"x": i, "y z": str(i)} if i % 3 else None,
                "l": [{"a": i}, None],
                "m": [("k", {"v": i})],
            }
            for i in ids
        ],
        schema=SCHEMA,
    )


def table_with(path: Path, **properties: str) -> txlog.Table:
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return txlog.Table.create(path, SCHEMA, ["p q"], named)


def by_id(rows: Any) -> list[dict[str, Any]]:
    return sorted(pa.table(rows).to_pylist(), key=lambda row: (row["id"] is None, row["id"]))


def read_by_others(path: Path) -> list[list[dict[str, Any]]]:
    """Return what deltalake and a reader on the Delta kernel see."""
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    return [
        by_id(pa.table(query.execute("SELECT * FROM t"))),
        by_id(kernel.scan_delta(str(path)).collect().to_arrow()),
    ]


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with maps as lists of pairs, whatever spelling a library has."""
    return json.loads(json.dumps(rows, default=str).replace('{"key": ', '{"key":'))


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("mode", ["name", "id"])
def test_every_verb_writes(tmp_path: Path, mode: str, vectors: str) -> None:
    table = table_with(
        tmp_path / "t",
        delta__columnMapping__mode=mode,
        delta__enableDeletionVectors=vectors,
        delta__enableChangeDataFeed="true",
        delta__enableRowTracking="true",
    )
    table.append(rows(*range(6)))
    table.append(rows(6, 7).append_column("new, col", pa.array([0.5, 1.5])), schema_mode="merge")
    table.delete("id = 2")
    table.update({"st.x": "st.x + 100"}, "id = 1")
    more = rows(4, 20).append_column("w", pa.array(["a", "b"]))
    merge = table.merge(more, "source.id = target.id", schema_mode="merge")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    table.overwrite(rows(3), where="id = 3")
    table.alter.add_columns({"z": pa.int64(), "st.k": pa.string(), "l.element.b": pa.int64()})
    table.optimize.compact()
    table.optimize.compute_statistics(recompute=True)
    found = by_id(table.to_arrow())
    assert [row["id"] for row in found] == [0, 1, 3, 4, 5, 6, 7, 20]
    assert found[1]["st"] == {"x": 101, "y z": "1", "k": None}
    assert found[1]["l"] == [{"a": 1, "b": None}, None]
    assert [row["new, col"] for row in found][5:7] == [0.5, 1.5]
    for others in read_by_others(tmp_path / "t"):
        for ours, theirs in zip(found, others, strict=True):
            assert {k: v for k, v in ours.items() if k != "m"} == {
                k: v for k, v in theirs.items() if k != "m"
            }
    assert int(table.properties[HIGHEST]) == 14  # Nine columns, and five that came.
    # Time travel, and the feed by today's names.
    assert txlog.Table(tmp_path / "t", version=1).to_arrow().num_rows == 6
    changes = table.changes(3).to_arrow().select(["id", "st", "_change_type"]).to_pylist()
    assert {
        "id": 1,
        "st": {"x": 101, "y z": "1", "k": None},
        "_change_type": "update_postimage",
    } in changes
    assert [row["id"] for row in changes if row["_change_type"] == "delete"] == [2, 3]


def test_files_bear_ids_and_names(tmp_path: Path) -> None:
    table = table_with(tmp_path / "t", delta__columnMapping__mode="name")
    table.append(rows(1))
    schema = table.snapshot.schema
    (file,) = table.files().to_pylist()
    stored = pq.read_schema(tmp_path / "t" / decode_path(file["path"]))
    names = {field.name: field.physical_name for field in schema.fields}
    assert stored.names == [names[name] for name in ("id", "st", "l", "m")]
    ids = [int(stored.field(n).metadata[b"PARQUET:field_id"]) for n in stored.names]
    assert ids == [schema.get(n).field_id for n in ("id", "st", "l", "m")]  # type: ignore[union-attr]
    element = stored.field(names["l"]).type.value_type
    assert element.field(0).metadata[b"PARQUET:field_id"] == b"7"
    commit = (tmp_path / "t/_delta_log/00000000000000000001.json").read_text()
    (add,) = [json.loads(line)["add"] for line in commit.splitlines() if '"add"' in line]
    assert add["partitionValues"] == {names["p q"]: "p 1"}
    assert set(json.loads(add["stats"])["nullCount"]) == set(stored.names)
    assert table.scan(where="st.x > 1").explain().files_to_read == 0


def test_a_table_is_upgraded(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", rows(1, 2, 3), partition_by=["p q"])
    table = txlog.Table(tmp_path / "t")
    with pytest.raises(txlog.UnsupportedFeatureError, match="from none to id"):
        table.alter.set_properties({MODE: "id"})
    table.alter.set_properties({MODE: "name"})
    assert table.properties[HIGHEST] == "9"
    assert {f.physical_name == f.name for f in table.snapshot.schema.fields} == {True}
    for text in ("id", "none"):
        with pytest.raises(txlog.UnsupportedFeatureError, match=f"from name to {text}"):
            table.alter.set_properties({MODE: text})
    with pytest.raises(txlog.UnsupportedFeatureError, match="from name to none"):
        table.alter.unset_properties(MODE)
    table.append(rows(4).append_column("n", pa.array([1])), schema_mode="merge")
    assert table.snapshot.schema.fields[-1].physical_name.startswith("col-")
    found = by_id(table.to_arrow())
    assert [row["id"] for row in found] == [1, 2, 3, 4]
    for others in read_by_others(tmp_path / "t"):
        assert [(r["id"], r["p q"], r["n"]) for r in others] == [
            (r["id"], r["p q"], r["n"]) for r in found
        ]
    table.restore(version=0)
    assert (table.snapshot.mapping_mode, table.properties[HIGHEST]) == ("name", "19")
    assert by_id(table.to_arrow()) == by_id(rows(1, 2, 3))


def test_overwriting_and_replacing_give_no_id_twice(tmp_path: Path) -> None:
    table = table_with(tmp_path / "t", delta__columnMapping__mode="name")
    first = {f.name: (f.field_id, f.physical_name) for f in table.snapshot.schema.fields}
    other = pa.table({"id": pa.array([1], pa.int64()), "st": ["text"], "p q": ["x"]})
    table.overwrite(other, schema_mode="overwrite")
    then = {f.name: (f.field_id, f.physical_name) for f in table.snapshot.schema.fields}
    assert then["id"] == first["id"]
    assert then["st"][0] == 10  # Another type is another column.
    assert table.to_arrow().to_pylist() == other.to_pylist()
    operation = ReplaceTable(
        from_arrow(SCHEMA), Definition(properties={"delta.columnMapping.mode": "id"})
    )
    last = {
        f.name: f.field_id
        for f in run(operation, table._context, table.snapshot).snapshot.schema.fields
    }
    assert last == {"id": 1, "p q": 2, "st": 11, "l": 14, "m": 16}


def test_odd_names_bring_mapping(tmp_path: Path) -> None:
    data = pa.table({"a b": [1], "c,d;{e}(f)=\n\t": ["x"], "s": [{"in side": 1}]})
    with pytest.warns(txlog.TxlogWarning, match="because the column name 'a b'") as told:
        table = txlog.write(tmp_path / "t", data)
    assert [one.filename for one in told] == [__file__]
    assert table.snapshot.mapping_mode == "name"
    # Who says name is not told again: this is what the warning says of other readers.
    assert txlog.write(tmp_path / "n", data, properties={MODE: "name"}).version == 0
    with pytest.raises(deltalake.exceptions.DeltaProtocolError, match="columnMapping"):
        deltalake.DeltaTable(tmp_path / "t").to_pandas()
    with pytest.raises(deltalake.exceptions.DeltaProtocolError, match="columnMapping"):
        pl.scan_delta(str(tmp_path / "t")).collect()
    assert table.to_arrow().to_pylist() == data.to_pylist()
    assert table.to_arrow(where="`a b` = 1 AND s.`in side` = 1").num_rows == 1
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(tmp_path / "t"))
    assert pa.table(query.execute("SELECT * FROM t")).to_pylist() == data.to_pylist()
    # Who says none gets the names as they are, as deltalake writes them.
    named = txlog.write(tmp_path / "u", data, properties=PLAIN)
    assert named.snapshot.mapping_mode == "none"
    assert deltalake.DeltaTable(tmp_path / "u").to_pyarrow_table().to_pylist() == data.to_pylist()
    # A table that is there is not changed unasked.
    small = txlog.write(tmp_path / "v", pa.table({"a": [1]}))
    with pytest.raises(txlog.InvalidInputError, match="needs column mapping"):
        small.append(data.select(["a b"]), schema_mode="merge")
    small.alter.set_properties({MODE: "name"})
    small.append(data.select(["a b"]), schema_mode="merge")
    assert small.count("`a b` = 1") == 1


def test_two_writers_add_columns(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1]}), properties={MODE: "name"})
    same, other = txlog.Table(tmp_path / "t"), txlog.Table(tmp_path / "t")
    with table.transaction() as transaction:
        transaction.append(pa.table({"a": [2], "x": [20]}), schema_mode="merge")
        with other.transaction() as third:
            third.append(pa.table({"a": [4], "y": ["z"]}), schema_mode="merge")
            same.append(pa.table({"a": [3], "x": [30]}), schema_mode="merge")
    table.refresh()
    found = {row["a"]: (row["x"], row["y"]) for row in table.to_arrow().to_pylist()}
    assert found == {1: (None, None), 2: (20, None), 3: (30, None), 4: (None, "z")}
    ids = [field.field_id for field in table.snapshot.schema.fields]
    assert sorted(ids) == [1, 2, 3]  # type: ignore[type-var]


MAPPED = [
    case
    for case in cases()
    if case.is_plain
    and "columnMapping"
    in "".join(
        p.read_text(errors="replace") for p in sorted((case.path / "_delta_log").glob("*.json"))[:1]
    )
]


@pytest.mark.parametrize("case", MAPPED, ids=lambda case: case.name)
def test_tables_of_others(tmp_path: Path, case: Any) -> None:
    shutil.copytree(case.path, tmp_path / "t")
    table = txlog.Table(tmp_path / "t")
    try:
        before = table.to_arrow()
    except txlog.TxlogError:
        pytest.skip("the table is not there as a whole")
    if not table.capabilities()["append"]:
        pytest.skip("another feature forbids writing")
    table.append(before)
    table.optimize.compact()
    first = before.column_names[0]
    table.alter.add_columns({"added_by_txlog": pa.int64()})
    assert table.count() == 2 * before.num_rows
    again = table.to_arrow(columns=before.column_names)
    assert sorted(map(str, again.to_pylist())) == sorted(map(str, before.to_pylist() * 2))
    assert table.count(f"`{first}` IS NULL") == 2 * before[first].null_count


def test_columns_in_files_of_their_own(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path / "t",
        pa.table({"a": [1, 2]}),
        properties={MODE: "name", "delta.feature.txlog.fragments": "supported"},
    )
    table.alter.add_columns({"b": "a * 2"})
    table.append(pa.table({"a": [9], "b": [9]}))
    merged = [fragment.merge_columns({"z": "a + 100"}) for fragment in table.fragments()]
    table.commit(txlog.FragmentOperation.Merge([held for held, _ in merged], merged[0][1]))
    table.commit(
        txlog.FragmentOperation.Append(txlog.write_fragments(pa.table({"a": [7]}), tmp_path / "t"))
    )
    found = sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())
    assert found == [(1, 2, 101), (2, 4, 102), (7, None, None), (9, 9, 109)]
    assert table.to_arrow(where="z > 102")["a"].to_pylist() == [9]
    table.optimize.compact(max_column_files=0)
    assert sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == found
