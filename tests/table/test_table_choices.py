"""Each name that a remedy offers is one that the call takes, and never the refused one."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("p", pa.string()),
        ("st", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64()))])),
        ("li", pa.list_(pa.int64())),
        ("raw", pa.binary()),
        ("ma", pa.map_(pa.string(), pa.int64())),
    ]
)
ROW: dict[str, Any] = {
    "a": 1, "b": "u", "p": "v", "st": {"x": 1, "y": [1]}, "li": [1], "raw": b"r", "ma": [("k", 1)]
}  # fmt: skip
ROWS = pa.Table.from_pylist([ROW], SCHEMA)
NAMES = [*SCHEMA.names, "nope", "st.nope", "st.x", "A", "a,a"]

# Calls that take a name, or several. Nothing is asked of types: each takes what it can.
DOORS: dict[str, Callable[[txlog.Table, list[str]], object]] = {
    "scan": lambda t, names: t.scan(names).to_arrow(),
    "head": lambda t, names: t.head(1, names),
    "count": lambda t, names: t.count(f"{names[0]} IS NULL"),
    "files": lambda t, names: t.files(names),
    "blame": lambda t, names: t.blame(names).to_batches(),
    "diff": lambda t, names: t.diff(0, columns=names).count(),
    "diff on": lambda t, names: t.diff(0, on=names).count(),
    "update": lambda t, names: t.update(dict.fromkeys(names, "NULL")),
    "upsert": lambda t, names: t.upsert(ROWS, on=names),
    "z_order": lambda t, names: t.optimize.z_order(names),
    "compact": lambda t, names: t.optimize.compact(sort_by=names),
    "compute_statistics": lambda t, names: t.optimize.compute_statistics(names),
    "cluster_by": lambda t, names: t.alter.cluster_by(*names),
    "index": lambda t, names: t.indexes.create(names),
    "lookup": lambda t, names: t.lookup(ROWS.select(names), on=names),
    "drop_columns": lambda t, names: t.alter.drop_columns(names),
    "rename_column": lambda t, names: t.alter.rename_column(names[0], "other"),
    "move_column": lambda t, names: t.alter.move_column(names[0], first=True),
    "set_default": lambda t, names: t.alter.set_default(names[0], "NULL"),
    "set_nullable": lambda t, names: t.alter.set_nullable(names[0]),
    "sync_identity": lambda t, names: t.alter.sync_identity(names[0]),
    "statistics": lambda t, names: t.alter.set_properties(
        {"delta.dataSkippingStatsColumns": ",".join(names)}
    ),
    "drop_constraint": lambda t, names: t.alter.drop_constraint(names[0]),
    "drop_feature": lambda t, names: t.alter.drop_feature(names[0]),
    "pin": lambda t, names: txlog.Table(t.uri, version=names[0]),
    "drop index": lambda t, names: t.indexes.drop(names[0]),
    "delete pin": lambda t, names: t.pins.delete(names[0]),
}


# Names that are right, and that the call refuses for what the table makes of them.
REFUSED = {
    ("drop_columns", "p"): "rows are divided by it",
    ("set_default", "st.x"): "fields of structs have no defaults",
    ("set_default", "st.y"): "fields of structs have no defaults",
    ("drop_feature", "domainMetadata"): "another feature needs it, and the error says which",
}


def made(path: Path, door: str) -> txlog.Table:
    features = {
        "delta.columnMapping.mode": "name",
        "delta.enableRowTracking": "true",  # Scans offer the columns that it has.
        "delta.feature.allowColumnDefaults": "supported",
    }
    table = txlog.Table.create(path, SCHEMA, partition_by="p", properties=features)
    table.append(ROWS)
    if door == "drop_constraint":  # Columns that a constraint needs cannot be dropped.
        table.alter.add_constraint({"positive": "a > 0"})
    table.pins.create("best")
    return table


def offered(remedy: str) -> list[str]:
    found = re.match(r"Choose from ([^;]*?)(?:, or pass .*)?$|Choose from ([^;]*);", remedy)
    return [] if found is None else (found[1] or found[2]).split(", ")


@pytest.mark.slow(cases=9)
@pytest.mark.parametrize("door", DOORS)
def test_a_remedy_offers_names_that_are_taken(tmp_path: Path, door: str) -> None:
    call, number = DOORS[door], 0
    for name in NAMES:
        names = name.split(",")
        number += 1
        try:
            call(made(tmp_path / f"{number}", door), names)
        except txlog.TxlogError as error:
            refused = error
        except KeyError:  # Of the rows that are looked up.
            continue
        else:
            continue
        for other in offered(refused.remedy):
            assert other not in names, refused
            if (door, other) in REFUSED:
                continue
            number += 1
            try:
                call(made(tmp_path / f"{number}", door), [other])
            except txlog.TxlogError as error:
                pytest.fail(f"{name}: {refused}\n{other} is not taken: {error}")
