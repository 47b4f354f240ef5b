"""Empty texts in partition columns are null before anything is checked or computed."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import SchemaMismatchError, TxlogError

WORDS = pa.schema([("x", pa.string()), ("n", pa.int64())])
values = st.lists(
    st.tuples(st.sampled_from(["", "a", None]), st.integers(0, 2)), min_size=1, max_size=4
)
RULES = ("x IS NOT NULL", "x IS NULL OR length(x) > 0", "coalesce(x, '-') <> ''", "x = 'a'")


def rows(*pairs: tuple[str | None, int]) -> pa.Table:
    return pa.Table.from_pylist([{"x": x, "n": n} for x, n in pairs], WORDS)


def stored(pairs: list[tuple[str | None, int]]) -> list[tuple[str | None, int]]:
    return sorted(((x or None, n) for x, n in pairs), key=repr)


def found(table: txlog.Table, where: str | None = None) -> list[tuple[str | None, int]]:
    read = table.to_arrow(where=where).to_pylist()
    return sorted(((row["x"], row["n"]) for row in read), key=repr)


def test_the_rows_that_replace_a_partition_are_those_that_it_will_hold(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, rows(("", 1), ("a", 2)), partition_by=["x"])
    for _ in range(2):
        with pytest.raises(SchemaMismatchError, match="do not satisfy"):
            table.overwrite(rows(("", 1)), where="x = ''")
    assert found(table) == [("a", 2), (None, 1)]
    table.overwrite(rows(("", 3)), where="x IS NULL")
    assert found(table) == [("a", 2), (None, 3)]


def test_a_constraint_sees_what_is_stored(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, rows(("a", 1)), partition_by=["x"])
    table.alter.add_constraint({"given": "x IS NOT NULL"})
    with pytest.raises(SchemaMismatchError, match="break the constraint given"):
        table.append(rows(("", 2)))
    with pytest.raises(SchemaMismatchError, match="break the constraint given"):
        table.update({"x": "''"})
    with pytest.raises(SchemaMismatchError, match="break the constraint given"):
        table.upsert(rows(("", 1)), on="n")
    table.update({"n": "n + 1"})
    assert found(table) == [("a", 2)]


def test_generated_columns_are_computed_from_what_is_stored(tmp_path: Path) -> None:
    schema = pa.schema([*WORDS, ("g", pa.string()), ("p", pa.string())])
    generated = {"g": "coalesce(x, 'none')", "p": "trim(x)"}
    table = txlog.Table.create(tmp_path, schema, ["x", "p"], generated=generated)
    table.append(rows(("", 1), ("  ", 2)))
    one, two = sorted(table.to_arrow().to_pylist(), key=lambda row: row["n"])
    assert (one["x"], one["g"], one["p"]) == (None, "none", None)
    assert (two["x"], two["g"], two["p"]) == ("  ", "  ", None)
    table.update({"n": "n + 1"})
    table.append(table.to_arrow())
    assert table.count() == 4


def test_binary_partitions_too(tmp_path: Path) -> None:
    data = pa.table({"x": pa.array([b"", b"a"]), "n": [1, 2]})
    table = txlog.write(tmp_path, data, partition_by=["x"])
    table.alter.add_constraint({"given": "x IS NOT NULL OR n = 1"})
    with pytest.raises(SchemaMismatchError, match="break the constraint given"):
        table.append(pa.table({"x": pa.array([b""]), "n": [2]}))


def test_elsewhere_an_empty_text_stays(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, rows(("", 1)), partition_by=["n"])
    assert found(table) == [("", 1)]


@given(before=values, more=values, rule=st.sampled_from(RULES))
@settings(max_examples=examples(60), deadline=None)
def test_what_is_let_through_is_what_the_table_then_says(
    before: list[tuple[str | None, int]], more: list[tuple[str | None, int]], rule: str
) -> None:
    """Rows pass a predicate or a constraint if, and only if, it is true of the stored rows."""
    with TemporaryDirectory() as folder:
        table = txlog.write(folder, rows(*before), partition_by=["x"])
        old = found(table)
        assert old == stored(before)
        scratch = txlog.write(f"{folder}/scratch", rows(*more), partition_by=["x"])
        passes = scratch.count(where=rule) == len(more)
        matching = found(table, rule)
        kept = [pair for pair in old if pair not in matching]
        for write in ("overwrite", "append"):
            if write == "append":
                if table.count(where=rule) < table.count():
                    return
                table.alter.add_constraint({"rule": rule})
            try:
                if write == "overwrite":
                    table.overwrite(rows(*more), where=rule)
                else:
                    table.append(rows(*more))
            except TxlogError:
                assert not passes
                assert found(table) == old
            else:
                assert passes
                old = sorted([*(kept if write == "overwrite" else old), *stored(more)], key=repr)
                assert found(table) == old
