"""The steps of a verb are in proportion to the columns of a table."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import txlog
from tests.steps import steps_of
from txlog.table.seam import table_facts

FEW, MANY = 40, 160


def wide(columns: int) -> pa.Table:
    return pa.table({f"c{at}": [float(at), 1.0, 2.0] for at in range(columns)})


def names(table: txlog.Table) -> list[str]:
    return table.schema.names


def merge(table: txlog.Table) -> None:
    source = wide(len(names(table))).slice(0, 2)
    merging = table.merge(source, "target.c0 = source.c0 AND target.c1 < 2")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


WORKS: dict[str, Callable[[txlog.Table], object]] = {
    "open": lambda table: txlog.Table(table.uri).schema,
    "read": lambda table: table.to_arrow(),
    "read by names": lambda table: table.to_arrow(names(table)),
    "read a row": lambda table: table.to_arrow(where="c7 = 7"),
    "take": lambda table: table.take(addresses=[table.fragments()[1].id << 32]),
    "head": lambda table: table.head(),
    "plan": lambda table: table.scan(where="c7 > 6").fragments(),
    "typed statistics": lambda table: table.files(statistics="flat"),
    "append": lambda table: table.append(wide(len(names(table)))),
    "update": lambda table: table.update({"c3": "4"}),
    "delete": lambda table: table.delete("c3 = 2"),
    "upsert": lambda table: table.upsert(wide(len(names(table))).slice(0, 1), on="c1"),
    "merge": lambda table: merge(table),
    "compact": lambda table: table.optimize.compact(),
    "z-order": lambda table: table.optimize.z_order("c0"),
    "doctor": lambda table: table.doctor(),
    "report": lambda table: table_facts(table),
    "checkpoint": lambda table: table.maintenance.checkpoint(),
    "changes": lambda table: table.changes(0).to_arrow(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(WORKS))
def test_no_step_is_repeated_for_each_pair_of_columns(tmp_path: Path, name: str) -> None:
    def made(columns: int) -> txlog.Table:
        feed = {"delta.enableChangeDataFeed": "true"}
        table = txlog.write(tmp_path / f"{columns}", wide(columns), properties=feed)
        table.append(wide(columns))
        return table

    WORKS[name](made(10))  # What is loaded when it is first used.
    few, many = (steps_of(lambda held=held: WORKS[name](held)) for held in map(made, (FEW, MANY)))
    assert many / few < MANY / FEW * 1.1, (few, many)
