"""A name in any case means the same column at every door, and keeps the table's spelling."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.training import Loader

ROWS = pa.table(
    {
        "Id": [1, 2, 3],
        "Grp": ["a", "b", "a"],
        "St": pa.array([{"Fa": 1}, {"Fa": 2}, None], pa.struct([("Fa", pa.int64())])),
    }
)
PROPERTIES = {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"}
Spell = Callable[[str], str]


def new(spell: Spell) -> pa.Table:
    kind = pa.struct([(spell("Fa"), pa.int64())])
    return pa.table(
        {
            spell("Id"): [1, 7],
            spell("Grp"): ["a"] * 2,
            spell("St"): pa.array([{spell("Fa"): 5}] * 2, kind),
        }
    )


def merged(table: txlog.Table, spell: Spell) -> None:
    merger = table.merge(new(spell), f"target.{spell('Id')} = source.{spell('Id')}")
    merger.when_matched_update(updates={spell("St"): f"source.{spell('St')}"}).execute()


def merged_all(table: txlog.Table, spell: Spell) -> None:
    merger = table.merge(new(spell), f"target.{spell('Id')} = source.{spell('Id')}")
    merger.when_matched_update_all(except_cols=[spell("Grp")]).when_not_matched_insert_all()
    merger.execute()


def indexed(table: txlog.Table, spell: Spell) -> Any:
    table.indexes.create(spell("Id"))
    found = table.lookup([1, 9], on=spell("Id"), columns=[spell("St")])
    return found.to_pylist(), table.contains([2], on=spell("Id")).to_pylist()


def differs(table: txlog.Table, spell: Spell) -> Any:
    version = table.version
    table.append(new(spell))
    table.delete(f"{spell('Id')} = 1")
    found = table.diff(version, on=spell("Id"), columns=[spell("Id"), spell("Grp")]).to_arrow()
    return sorted(map(str, found.to_pylist()))


DOORS: dict[str, Callable[[txlog.Table, Spell], Any]] = {
    "columns": lambda t, s: t.to_arrow([s("Id"), s("St.Fa")]).schema.names,
    "where": lambda t, s: t.to_arrow(where=f"{s('Id')} > 1 AND {s('St.Fa')} = 2").to_pylist(),
    "col": lambda t, s: t.to_arrow(where=txlog.col(s("Grp")) == "a").to_pylist(),
    "tuples": lambda t, s: t.to_pyarrow_dataset([(s("Grp"), "=", "a")]).to_table().num_rows,
    "count": lambda t, s: t.count(f"{s('St')} IS NULL"),
    "head": lambda t, s: t.head(1, [s("Id")]).to_pylist(),
    "take": lambda t, s: t.take([0], [s("Id")]).schema.names,
    "polars": lambda t, s: t.to_polars(columns=[s("Id")]).columns,
    "pandas": lambda t, s: list(t.to_pandas(columns=[s("Grp")]).columns),
    "blame": lambda t, s: t.blame([s("Id")]).to_arrow().num_rows,
    "append": lambda t, s: t.append(new(s)).operation,
    "overwrite": lambda t, s: t.overwrite(new(s), f"{s('Grp')} = 'a'").operation,
    "partitions": lambda t, s: t.overwrite(new(s), partition_mode="dynamic").operation,
    "delete": lambda t, s: t.delete(f"{s('Id')} = 1").metrics["numDeletedRows"],
    "update": lambda t, s: t.update({s("Id"): f"{s('Id')} + 1"}).operation,
    "update of a field": lambda t, s: t.update({s("St.Fa"): "9"}, where=f"{s('Id')} = 1").operation,
    "upsert": lambda t, s: t.upsert(new(s), on=s("Id")).operation,
    "merge": merged,
    "merge of all": merged_all,
    "index": indexed,
    "diff": differs,
    "z_order": lambda t, s: t.optimize.z_order([s("Id"), s("St.Fa")]).operation,
    "compact": lambda t, s: (
        t.optimize.compact(sort_by=s("Id"), where=f"{s('Grp')} = 'a'").operation
    ),
    "statistics": lambda t, s: t.optimize.compute_statistics([s("St.Fa")], recompute=True).metrics,
    "rename_column": lambda t, s: t.alter.rename_column(s("Id"), "key").operation,
    "rename a field": lambda t, s: t.alter.rename_column(s("St.Fa"), "key").operation,
    "drop_columns": lambda t, s: t.alter.drop_columns([s("St.Fa"), s("Id")][1:]).operation,
    "move_column": lambda t, s: t.alter.move_column(s("Id"), s("St")).operation,
    "set_column_metadata": lambda t, s: t.alter.set_column_metadata(s("Id"), {"c": "1"}).operation,
    "set_default": lambda t, s: t.alter.set_default(s("Id"), 4).operation,
    "constraint": lambda t, s: t.alter.add_constraint({"c": f"{s('Id')} > 0"}).operation,
    "stats columns": lambda t, s: (
        t.alter.set_properties({"delta.dataSkippingStatsColumns": s("Id")}).operation
    ),
    "loader": lambda t, s: len([*Loader(t, batch_size=1, columns=[s("Id")])]),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("names")


def outcome_of(path: Path, door: str, spell: Spell) -> Any:
    """Return what a door gives for names in a spelling, and the table after it."""
    table = txlog.write(path, ROWS, partition_by=[spell("Grp")], properties=PROPERTIES)
    found = DOORS[door](table, spell)
    after = table.refresh()
    rows = sorted(map(str, after.to_arrow().to_pylist()))
    kept = {k: v for k, v in after.properties.items() if not k.startswith("delta.dataSkipping")}
    checked = {k: v.lower() for k, v in kept.items()}
    return found, after.schema, after.partition_columns, rows, checked


NUMBER = iter(range(1_000_000))


@pytest.mark.slow
@given(door=st.sampled_from(sorted(DOORS)), how=st.sampled_from(["lower", "upper", "swapcase"]))
@settings(max_examples=examples(300), deadline=None)
def test_any_case_means_the_column(root: Path, door: str, how: str) -> None:
    plain, other = (root / f"{next(NUMBER)}" for _ in range(2))

    def spell(name: str) -> str:
        spelt: str = getattr(name, how)()
        return spelt

    assert outcome_of(other, door, spell) == outcome_of(plain, door, str)
