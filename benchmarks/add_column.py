"""What it costs to add a column to a table that is there already."""

import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench import alternate, arguments, report, timed

import txlog

SQL = "a * 2 + b"


def score(batch: Any) -> Any:
    return pc.add(pc.multiply(batch["a"], 2), batch["b"])


def with_sql(root: Path) -> None:
    txlog.Table(root).alter.add_columns({"score": SQL})


def with_function(root: Path) -> None:
    txlog.Table(root).alter.add_columns({"score": score}, read_columns=["a", "b"])


def column_alone(root: Path) -> None:
    found = pq.read_table(
        [str(path) for path in sorted(root.glob("*.parquet"))], columns=["a", "b"]
    )
    alone = pa.table({"score": score(found)})
    pq.write_table(alone, root / "score.parquet", compression="snappy")


def rewritten(root: Path) -> None:
    table = txlog.Table(root)
    schema = table.schema.append(pa.field("score", pa.float64()))
    rows = (batch.append_column("score", score(batch)) for batch in table.to_batches())
    reader = pa.RecordBatchReader.from_batches(schema, rows)
    table.overwrite(reader, schema_mode="overwrite")


def lance_sql(root: Path) -> None:
    lance.dataset(str(root)).add_columns({"score": SQL})


def lance_function(root: Path) -> None:
    lance.dataset(str(root)).add_columns(
        lambda batch: pa.record_batch({"score": score(batch)}), read_columns=["a", "b"]
    )


WORKS = {
    "plain": (column_alone, "txlog", "(a) plain pyarrow: reads a and b, writes one Parquet file"),
    "txlog-sql": (with_sql, "txlog", f'txlog `add_columns({{"score": "{SQL}"}})`'),
    "txlog-function": (with_function, "txlog", "txlog `add_columns`, a function of batches"),
    "lance-sql": (lance_sql, "lance", "(c) pylance `add_columns`, the same SQL"),
    "lance-function": (lance_function, "lance", "(c) pylance `add_columns`, a function of batches"),
    "rewrite": (rewritten, "txlog", "(b) txlog: all rows written again, with the column"),
}


def main() -> None:
    given = arguments(__doc__ or "", list(WORKS))
    if given.only:
        work, made, _ = WORKS[given.only]
        print(json.dumps(timed(work, given.folder / made, given.folder / "scratch")))
        return
    runs = alternate(given, __file__, list(WORKS))
    report("Adding a column", given, runs, {w: row[2] for w, row in WORKS.items()}, "plain")


if __name__ == "__main__":
    main()
