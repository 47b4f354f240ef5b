"""Generated columns are computed if the data lacks them, and checked if it has them."""

import re
from datetime import UTC, date, datetime
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
from txlog.base.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from txlog.schema.types import PrimitiveType, StructField, StructType

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("double_n", pa.int64()),
        ("day", pa.date32()),
        ("label", pa.string()),
    ]
)
GENERATED = {
    "double_n": "n * 2",
    "day": "CAST(at AS DATE)",
    "label": "CASE WHEN n > 2 THEN upper('big') ELSE NULL END",
}
PLAIN = {"delta.enableDeletionVectors": "false"}


def moment(day: int) -> datetime:
    return datetime(2024, 1, day, 23, 30, tzinfo=UTC)


def data(*ns: int | None) -> pa.Table:
    return pa.table(
        {"n": list(ns), "at": [None if n is None else moment(n % 28 + 1) for n in ns]},
        pa.schema([SCHEMA.field("n"), SCHEMA.field("at")]),
    )


def make(path: Path, partition_by: tuple[str, ...] = (), **properties: str) -> txlog.Table:
    return txlog.Table.create(
        path, SCHEMA, partition_by, {**PLAIN, **properties}, generated=GENERATED
    )


def check(table: txlog.Table) -> list[dict[str, Any]]:
    rows = txlog.Table(table.uri).to_arrow().to_pylist()
    for row in rows:
        n, at = row["n"], row["at"]
        assert row["double_n"] == (None if n is None else 2 * n)
        assert row["day"] == (None if at is None else at.date())
        assert row["label"] == ("BIG" if n is not None and n > 2 else None)
    return rows


@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_columns_that_the_data_leaves_out_are_computed(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    table = make(tmp_path / "t", partition_by)
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 4)
    table.append(data(1, 2, None))
    whole = data(5).append_column("day", pa.array([date(2024, 1, 6)]))
    table.append(whole)
    assert len(check(table)) == 4
    theirs = deltalake.DeltaTable(table.uri).to_pyarrow_table().select(SCHEMA.names)
    assert sorted(map(repr, theirs.to_pylist())) == sorted(map(repr, check(table)))


def test_values_that_are_given_are_checked(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.append(data(1))
    for name, values, said in (
        ("double_n", [2, 7, 8], "double_n than n * 2 gives; the first has double_n = 7, n = 2 "),
        ("label", ["a" * 99, None, "BIG"], f"gives; the first has label = '{'a' * 79}…, n = 1 "),
    ):
        wrong = data(1, 2, 3).append_column(
            SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type)
        )
        with pytest.raises(SchemaMismatchError, match=re.escape(said)):
            table.append(wrong)
    with pytest.raises(SchemaMismatchError, match="double_n"):
        table.update({"double_n": "7"})
    assert txlog.Table(table.uri).version == 1


def test_deltalake_keeps_the_rule_too(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.append(data(1))
    rows = table.to_arrow()
    wrong = rows.set_column(2, SCHEMA.field("double_n"), pa.array([9]))
    with pytest.raises(Exception, match=r"(?i)generat|check|invariant|valid"):
        deltalake.write_deltalake(table.uri, wrong, mode="append")


STEPS: dict[str, Any] = {
    "append": lambda t: t.append(data(1, 3, None)),
    "update": lambda t: t.update({"n": "n + 1"}, "n % 2 = 1"),
    "move": lambda t: t.update(new_values={"at": moment(20)}, where="n > 2"),
    "upsert": lambda t: t.upsert(data(3, 4), on="n"),
    "clauses": lambda t: (
        t.merge(data(2, 9), "target.n = source.n")
        .when_matched_update(
            {"n": "target.n + 10", "double_n": "(target.n + 10) * 2"}, "target.n > 3"
        )
        .when_matched_update({"n": "source.n + 5"})
        .when_not_matched_insert({"n": "source.n"})
        .execute()
    ),
    "overwrite": lambda t: t.overwrite(data(7)),
    "delete": lambda t: t.delete("n = 3"),
    "compact": lambda t: t.optimize.compact(),
}


@settings(max_examples=examples(40), deadline=None)
@given(
    steps=st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=5),
    vectors=st.sampled_from(["true", "false"]),
    partition_by=st.sampled_from([(), ("day",)]),
)
def test_every_verb_keeps_generated_columns(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[str],
    vectors: str,
    partition_by: tuple[str, ...],
) -> None:
    folder = tmp_path_factory.mktemp("generated")
    table = make(folder / "t", partition_by, **{"delta.enableDeletionVectors": vectors})
    table.append(data(2, 5))
    for step in steps:
        STEPS[step](table)
        check(table)


def marked(name: str, text: str) -> pa.Field:
    return pa.field(name, pa.int64(), metadata={"delta.generationExpression": text})


def test_metadata_of_fields_defines_them_as_in_deltalake(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), marked("m", "n * 2")])
    rows = pa.table({"n": [1, 2], "m": [2, 4]}, schema)
    deltalake.write_deltalake(tmp_path / "d", rows)
    theirs = txlog.Table(tmp_path / "d")
    written = txlog.write(tmp_path / "w", rows)
    created = txlog.Table.create(tmp_path / "c", schema)
    again = txlog.Table.create(tmp_path / "a", theirs.schema)
    for table in (theirs, written, created, again):
        assert table.protocol.min_writer_version == 4
        table.append(pa.table({"n": [5]}))
        assert table.to_arrow(where="n = 5")["m"].to_pylist() == [10]
        with pytest.raises(SchemaMismatchError, match=r"column m than n \* 2 gives"):
            table.append(pa.table({"n": [1], "m": [3]}))
    with pytest.raises(SchemaMismatchError, match=r"column m than n \* 2 gives"):
        txlog.write(tmp_path / "x", rows.set_column(1, schema.field("m"), pa.array([2, 5])))
    assert not txlog.Table.exists(tmp_path / "x")
    plain = txlog.write(tmp_path / "p", pa.table({"n": [1]}))
    plain.overwrite(rows, schema_mode="overwrite")
    assert plain.protocol.min_writer_version == 4
    plain.append(pa.table({"n": [3]}))
    assert plain.to_arrow(where="n = 3")["m"].to_pylist() == [6]


def test_new_columns_are_not_generated(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"n": [1]}))
    rows = pa.table({"n": [2], "m": [4]}, pa.schema([("n", pa.int64()), marked("m", "n * 2")]))
    for call in (
        lambda: table.append(rows, schema_mode="merge"),
        lambda: table.overwrite(rows, schema_mode="merge"),
        lambda: table.upsert(rows, on="n", schema_mode="merge"),
    ):
        with pytest.raises(SchemaMismatchError, match="m is generated by its metadata"):
            call()
    with pytest.raises(InvalidInputError, match="cannot be added to existing rows"):
        table.alter.add_columns([marked("m", "n * 2")])
    assert txlog.Table(table.uri).version == 0
    inner = pa.schema([("s", pa.struct([marked("m", "n * 2")]))])
    assert txlog.Table.create(tmp_path / "s", inner).protocol.min_writer_version == 2


def test_metadata_of_converted_files_defines_nothing(tmp_path: Path) -> None:
    rows = pa.table({"n": [1], "m": [9]}, pa.schema([("n", pa.int64()), marked("m", "n * 2")]))
    pq.write_table(rows, tmp_path / "a.parquet")
    assert txlog.convert_to_delta(tmp_path).to_arrow().to_pylist() == [{"n": 1, "m": 9}]


def test_fragments_of_workers(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **{"delta.enableDeletionVectors": "true"})
    fragments = txlog.write_fragments(data(1, 2), table)
    table.commit(txlog.FragmentOperation.Append(fragments))
    assert len(check(table)) == 2


def test_wrong_definitions_are_refused(tmp_path: Path) -> None:
    for generated, message in [
        ({"z": "n"}, "no such column"),
        ({"day": 5}, "SQL text was expected"),
        ({"day": "my_udf(n)"}, "MY_UDF"),
        ({"day": "n"}, "cannot be computed"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            txlog.Table.create(tmp_path / "t", SCHEMA, generated=generated)  # type: ignore[arg-type]
    table = txlog.write(tmp_path / "o", pa.table({"x": [1]}))
    field = StructField("y", PrimitiveType("long"), True, {"delta.generationExpression": "x"})
    with pytest.raises(InvalidInputError, match="existing rows"):
        table.alter.add_columns(field)


NESTED = pa.schema(
    [
        ("n", pa.int32()),
        ("l", pa.list_(pa.int64())),
        ("st", pa.struct([("a", pa.int64()), ("x", pa.float64())])),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("text", pa.string()),
        ("first", pa.int64()),
        ("pair", pa.list_(pa.int64())),
        ("keys", pa.list_(pa.string())),
        ("both", pa.struct([("n", pa.int32()), ("a", pa.int64())])),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("half", pa.decimal128(12, 6)),
    ]
)
OF_NESTED = {
    "first": "l[0]",
    "pair": "array(n, 7)",
    "keys": "map_keys(m)",
    "both": "named_struct('n', n, 'a', st.a)",
    "map": "map('n', n, 'i', 1)",
    "at": "to_timestamp(text)",
    "day": "CAST(text AS DATE)",
    "half": "n / 2.0",
}


def test_sources_and_values_may_be_nested_or_times_in_text(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", NESTED, generated=OF_NESTED)
    given = [
        {"n": 1, "l": [4, 5], "st": {"a": 1, "x": 0.5}, "m": [("q", 1)],
         "text": "2024-01-02 03:04:05.5"},
        {"n": None, "l": [None], "st": {"a": None, "x": None}, "m": [], "text": None},
        {"n": 2, "l": None, "st": None, "m": None, "text": "2024-01-02"},
    ]  # fmt: skip
    plain = pa.Table.from_pylist(given, pa.schema([NESTED.field(n) for n in range(5)]))
    table.append(plain)
    whole = table.to_arrow()
    first = whole.to_pylist()[0]
    assert (first["first"], first["pair"], first["keys"]) == (4, [1, 7], ["q"])
    assert (first["both"], first["map"]) == ({"n": 1, "a": 1}, [("n", 1), ("i", 1)])
    assert first["at"] == datetime(2024, 1, 2, 3, 4, 5, 500_000, UTC)
    assert (first["day"], str(first["half"])) == (date(2024, 1, 2), "0.500000")
    table.append(whole)  # All of them are checked.
    other_order = [("i", 1), ("n", 1)]
    place = NESTED.get_field_index("map")
    one = whole.slice(0, 1)
    table.append(one.set_column(place, "map", pa.array([other_order], NESTED.field(place).type)))
    assert table.count() == 7
    for name, wrong in (
        ("pair", [1, 8]), ("both", {"n": 1, "a": None}), ("map", [("n", 2), ("i", 1)]),
        ("keys", []), ("first", None),
    ):  # fmt: skip
        place = NESTED.get_field_index(name)
        with pytest.raises(SchemaMismatchError, match=f"generated column {name}"):
            table.append(one.set_column(place, name, pa.array([wrong], NESTED.field(name).type)))
    table.update({"n": "n + 1"}, "n = 1")
    assert sorted(row["pair"][0] or 0 for row in table.to_arrow().to_pylist()) == [
        0, 0, 2, 2, 2, 2, 2
    ]  # fmt: skip


def test_a_default_of_text_is_written_as_spark_writes_it(tmp_path: Path) -> None:
    moment = "TIMESTAMP '2024-01-02 03:04:05.5'"
    schema = StructType(
        (
            StructField("n", PrimitiveType("long")),
            StructField("s", PrimitiveType("string"), True, {"CURRENT_DEFAULT": moment}),
        )
    )
    table = txlog.Table.create(
        tmp_path / "t", schema, properties={"delta.feature.allowColumnDefaults": "supported"}
    )
    table.append(pa.table({"n": [1]}))
    assert table.to_arrow()["s"].to_pylist() == ["2024-01-02 03:04:05.5"]


def test_an_expression_that_cannot_be_computed_hinders_writes_alone(tmp_path: Path) -> None:
    schema = StructType((StructField("x", PrimitiveType("long")),))
    table = txlog.Table.create(tmp_path / "t", schema)
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    from txlog.testing import unsealed

    text = unsealed(log.read_bytes()).replace(
        b'\\"metadata\\":{}', b'\\"metadata\\":{\\"delta.generationExpression\\":\\"udf(1)\\"}'
    )
    log.write_bytes(text)
    table = txlog.Table(table.uri)
    assert table.count() == 0
    with pytest.raises(UnsupportedFeatureError, match=r"udf\(1\)"):
        table.append(pa.table({"x": [1]}))


def test_errors_of_values_name_where_the_expression_is(tmp_path: Path) -> None:
    """An expression does not know whose it is: its errors must not say `where`."""
    schema = pa.schema([("t", pa.string()), ("n", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, generated={"n": "CAST(t AS BIGINT)"})
    with pytest.raises(InvalidInputError, match="x") as caught:
        table.append(pa.table({"t": ["x"]}))
    assert (caught.value.argument, caught.value.field) == ("data", "n")
    table.append(pa.table({"t": ["1"]}))
    with pytest.raises(InvalidInputError, match="x") as caught:
        table.update({"t": "CAST(concat(t, 'x') AS BIGINT)"})
    assert (caught.value.argument, caught.value.field) == ("updates", "t")
    with pytest.raises(InvalidInputError, match="x") as caught:
        table.merge(pa.table({"t": ["1"]}), on="t").when_matched_update(
            {"t": "CAST(concat(source.t, 'x') AS BIGINT)"}
        ).execute()
    assert (caught.value.argument, caught.value.field) == ("updates", "t")
    checked = txlog.write(tmp_path / "checked", pa.table({"t": ["1"]}))
    checked.alter.add_constraint({"whole": "CAST(t AS BIGINT) > 0"})
    with pytest.raises(InvalidInputError, match="x") as caught:
        checked.append(pa.table({"t": ["x"]}))
    assert (caught.value.argument, caught.value.field) == ("data", "whole")
    with pytest.raises(InvalidInputError) as caught:
        checked.count("CAST(concat(t, 'x') AS BIGINT) = 1")
    assert caught.value.argument == "where"
    properties = {"delta.feature.txlog.fragments": "supported"}
    parts = txlog.write(tmp_path / "f", pa.table({"t": ["x"]}), properties=properties)
    with pytest.raises(InvalidInputError, match="x") as caught:
        parts.alter.add_columns({"n": "CAST(t AS BIGINT)"})
    assert (caught.value.argument, caught.value.field) == ("columns", "n")
