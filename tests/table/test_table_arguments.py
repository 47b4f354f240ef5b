"""Errors name arguments of the method that was called, and one fault is one class at each door."""

import ast
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.callers import FACES, foreign_argument, functions, parameters_of
from txlog.table.merge import TableMerger

HOME = Path(txlog.__file__).parent
# Of other surfaces: options of Spark's reader, writer and streams, HTTP, gRPC, and environments.
ELSEWHERE = {
    "Idempotency-Key", "body", "checkpointLocation", "dataChange", "dataset_type", "readChangeFeed",
    "skipChangeCommits", "startingTimestamp", "timeZone", "timestampAsOf", "txnVersion",
}  # fmt: skip


def named() -> Iterator[tuple[str, str]]:
    """Yield the arguments that raise sites name, each with its place."""
    for path in sorted(HOME.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            values: list[ast.expr] = []
            if isinstance(node, ast.keyword) and node.arg == "argument":
                values = [node.value]
            called = getattr(getattr(node, "func", None), "id", "")
            if called in ("of_argument", "require_whole"):
                values = node.args[:1]  # type: ignore[attr-defined]
            for value in values:
                if isinstance(value, ast.Constant):
                    yield str(value.value), f"{path.relative_to(HOME)}:{value.lineno}"


@pytest.mark.slow
def test_raise_sites_name_arguments_that_callers_have() -> None:
    for face in FACES:
        import_module(face)
    known = {*ELSEWHERE}.union(*map(parameters_of, functions(FACES)))
    sites = list(named())
    assert len(sites) > 400
    assert [(name, place) for name, place in sites if name not in known] == []
    assert {name for name, _ in sites} >= ELSEWHERE - {"startingTimestamp"}


def test_the_watch_of_all_tests_sees_a_foreign_argument() -> None:
    for call in (
        lambda: txlog.Table("memory://no/table", version=wrong(-1)),
        lambda: txlog.Table.create(wrong(5), SCHEMA),
        lambda: txlog.blob(wrong(5)),
        lambda: txlog.col("x").cast("nothing"),
    ):
        with pytest.raises(txlog.InvalidInputError) as caught:
            call()
        error = caught.value
        assert foreign_argument(error) is None
        error.argument = "nothing"
        assert "(argument='nothing')" in (foreign_argument(error) or "")


SCHEMA = pa.schema(
    [pa.field("x", pa.int32()), pa.field("k", pa.string(), nullable=False), ("p", pa.string())]
)
# The SQL of a value, the value, and the field of the error.
FAULTS: dict[str, tuple[str, str, Any, str]] = {
    "a constraint": ("x", "500", 500, "small"),
    "a number that is too large": ("x", "5000000000", 5_000_000_000, "x"),
    "a fraction": ("x", "1.5", 1.5, "x"),
    "a null": ("k", "NULL", None, "k"),
    "a text": ("x", "'y'", "y", "x"),
}


def doors(
    table: txlog.Table, column: str, sql: str, value: Any
) -> dict[str, tuple[Callable[[], object], str]]:
    """Return calls with a wrong value, and the argument that has it."""
    row = {"x": 1, "k": "a", "p": "u"} | {column: value}
    data = pa.table({name: pa.array([one]) for name, one in row.items()})
    if value is None:
        data = data.drop_columns(column).append_column(column, pa.nulls(1, pa.string()))
    keys = pa.table({"p": ["u"]})
    more = pa.table({"p": ["new"]})
    inserted = {"x": "1", "k": "'b'", "p": "source.p"} | {column: sql}

    def merging(source: pa.Table) -> TableMerger:
        return table.merge(source, "target.p = source.p")

    return {
        "append": (lambda: table.append(data), "data"),
        "overwrite": (lambda: table.overwrite(data), "data"),
        "update": (lambda: table.update({column: sql}), "updates"),
        "update to a value": (lambda: table.update(new_values={column: value}), "new_values"),
        "upsert": (lambda: table.upsert(data, on="p"), "source"),
        "merge all": (lambda: merging(data).when_matched_update_all().execute(), "source"),
        "merge": (lambda: merging(keys).when_matched_update({column: sql}).execute(), "updates"),
        "insert": (lambda: merging(more).when_not_matched_insert(inserted).execute(), "updates"),
        "write": (lambda: txlog.write(table.uri, data, mode="append"), "data"),
    }


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_class_and_names_the_argument(tmp_path: Path, fault: str) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA, partition_by="p")
    table.alter.add_constraint({"small": "x < 100"})
    table.append(pa.table({"x": [1], "k": ["a"], "p": ["u"]}).cast(SCHEMA))
    column, sql, value, field = FAULTS[fault]
    for name, (call, argument) in doors(table, column, sql, value).items():
        with pytest.raises(txlog.InvalidInputError) as caught:
            call()
        assert type(caught.value) is txlog.SchemaMismatchError, (name, caught.value)
        assert caught.value.argument == argument, (name, caught.value)
        assert caught.value.field in (field, None), (name, caught.value)
    assert table.refresh().version == 2


def test_a_fault_of_stored_rows_is_of_what_was_asked(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [1, None]}))
    for call, argument in (
        (lambda: table.alter.add_constraint({"c": "x > 5"}), "constraints"),
        (lambda: table.alter.set_nullable("x", False), "column"),
        (lambda: table.diff("a pin", 0), "start_version"),
        (lambda: table.diff(0, wrong(0.5)), "end_version"),
        (lambda: table.changes(start_timestamp="soon"), "start_timestamp"),
        (lambda: table.changes(0, end_timestamp="late"), "end_timestamp"),
        (lambda: table.alter.protocol_change(drop="none"), "drop"),
        (lambda: table.alter.unset_properties(wrong(5)), "names"),
        (lambda: table.alter.set_properties({"delta.feature.x": "supported"}), "properties"),
        (lambda: table.alter.cluster_by(wrong(5)), "columns"),
        (lambda: table.clone(wrong(5)), "target"),
        (lambda: table.fragments()[0].delete("z = 1"), "predicate"),
        (lambda: table.fragments()[0].count_rows("z = 1"), "filter"),
    ):
        with pytest.raises(txlog.TxlogError) as caught:
            call()
        assert getattr(caught.value, "argument", argument) == argument, caught.value


def wrong(value: object) -> Any:
    """Return a value that types would refuse where it is passed."""
    return value


@pytest.mark.parametrize("value", ["zz + 1", "a +", "'x' || missing(a)"])
def test_a_fault_of_a_generated_column_names_it(tmp_path: Path, value: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    rows = pa.table({"a": [1], "b": [1]})
    for call in (
        lambda: txlog.Table.create(tmp_path / "t", schema, generated={"b": value}),
        lambda: txlog.write(tmp_path / "t", rows, generated={"b": value}),
    ):
        with pytest.raises(txlog.InvalidInputError) as caught:
            call()
        assert (caught.value.argument, caught.value.field) == ("generated", "b")
        assert "constraint" not in caught.value.remedy
    with pytest.raises(txlog.InvalidInputError) as caught:
        txlog.write(tmp_path / "t", rows, properties={"delta.constraints.c": value})
    assert caught.value.argument == "properties"


@pytest.mark.parametrize("inside", [lambda kind: kind, pa.list_])
def test_a_remedy_for_structs_suggests_only_fields_that_have_names(
    tmp_path: Path, inside: Callable[[pa.DataType], pa.DataType]
) -> None:
    kind = inside(pa.struct([("b", pa.int64()), ("c", pa.int64())]))
    row: Any = {"b": 1, "c": 2}
    is_list = pa.types.is_list(kind)
    table = txlog.write(
        tmp_path / "t", pa.table({"s": pa.array([[row] if is_list else row], kind)})
    )
    value = "named_struct('b', 1)"
    with pytest.raises(txlog.SchemaMismatchError) as caught:
        table.update({"s": f"array({value})" if is_list else value})
    assert ("single fields" in caught.value.remedy) == (not is_list)
    if is_list:
        with pytest.raises(txlog.InvalidInputError, match=r"array.*Name s itself"):
            table.update({"s.b": "1"})
    else:
        table.update({"s.b": "5"})


def test_names_are_offered_for_columns_that_order_rows(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [1]}))
    with pytest.raises(txlog.InvalidInputError, match="Choose from x") as caught:
        table.optimize.z_order("zz")
    assert caught.value.argument == "columns"
    with pytest.raises(txlog.InvalidInputError) as caught:
        table.optimize.cluster()
    assert caught.value.argument is None
