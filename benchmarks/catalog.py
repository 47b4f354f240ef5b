"""Small transactions over 1, 10 and 100 tables, by a catalog in SQLite and by DuckLake.

    python benchmarks/catalog.py --ducklake PYTHON

Each transaction adds one row to each of its tables. DuckLake has its catalog in SQLite, too; the
limit of 0 turns off that it keeps small inserts in its catalog instead of files. PYTHON is an
interpreter with `duckdb`, `duckdb-extension-ducklake` and `duckdb-extension-sqlite-scanner` of one
version. Each run is a process of its own on a new folder; its first transactions are not timed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from math import nan
from pathlib import Path
from statistics import median
from tempfile import gettempdir

from bench import commit, machine, put_section

TITLE = "Small transactions over several tables"
RUNS = ("txlog", "DuckLake", "DuckLake, limit 0")

_TXLOG = """
import sys, time
from pathlib import Path
import pyarrow as pa, txlog

folder, tables, times = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
catalog = txlog.Catalog(folder / "lake.db", folder / "lake")
schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
for number in range(tables):
    catalog.create_table(f"t{number}", schema, managed="writes")
for step in range(times + 3):
    if step == 3:
        began = time.perf_counter()
    with catalog.transaction() as changes:
        for number in range(tables):
            changes[f"t{number}"].append(pa.table({"id": [step], "v": ["x"]}))
print((time.perf_counter() - began) / times * 1000)
assert catalog.table("t0").count() == times + 3
"""

_DUCKLAKE = """
import sys, time
from pathlib import Path
import duckdb, duckdb_extension_ducklake, duckdb_extension_sqlite_scanner

folder, tables, times = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for module in (duckdb_extension_sqlite_scanner, duckdb_extension_ducklake):
    (found,) = Path(module.__file__).parent.rglob("*.duckdb_extension")
    connection.execute(f"LOAD '{found}'")
limit = f", DATA_INLINING_ROW_LIMIT {sys.argv[4]}" if len(sys.argv) > 4 else ""
connection.execute(
    f"ATTACH 'ducklake:sqlite:{folder}/lake.db' AS lake (DATA_PATH '{folder}/lake'{limit})"
)
for number in range(tables):
    connection.execute(f"CREATE TABLE lake.t{number} (id BIGINT, v VARCHAR)")
for step in range(times + 3):
    if step == 3:
        began = time.perf_counter()
    connection.execute("BEGIN")
    for number in range(tables):
        connection.execute(f"INSERT INTO lake.t{number} VALUES ({step}, 'x')")
    connection.execute("COMMIT")
print((time.perf_counter() - began) / times * 1000)
assert connection.execute("SELECT count(*) FROM lake.t0").fetchone() == (times + 3,)
"""


def milliseconds(run: str, folder: Path, tables: int, times: int, ducklake: str | None) -> float:
    """Return the wall time of a transaction; NaN without DuckLake."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    given = [str(folder), str(tables), str(times)]
    if run == "txlog":
        words = [sys.executable, "-c", _TXLOG, *given]
    elif ducklake is None:
        return nan
    else:
        words = [ducklake, "-c", _DUCKLAKE, *given, *(["0"] if run.endswith("0") else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ducklake", help="An interpreter that has DuckLake.")
    parser.add_argument("--times", type=int, default=50, help="Transactions of a run.")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(gettempdir()) / "txlog-catalog")
    parser.add_argument("--dry", action="store_true", help="Print only.")
    given = parser.parse_args()
    about = (
        f"{machine()}, commit {commit()}, {datetime.now(UTC):%Y-%m-%d}. Wall time of one "
        f"transaction in ms, the median of {given.repeat} runs of {given.times}."
    )
    lines = [
        about,
        "",
        "| tables | " + " | ".join(RUNS) + " |",
        "|---|" + "---|" * len(RUNS),
    ]
    for tables in (1, 10, 100):
        found: dict[str, list[float]] = {run: [] for run in RUNS}
        for _ in range(given.repeat):
            for run in RUNS:
                found[run].append(
                    milliseconds(run, given.folder, tables, given.times, given.ducklake)
                )
        row = " | ".join(f"{median(found[run]):.1f}" for run in RUNS)
        lines.append(f"| {tables} | {row} |")
    shutil.rmtree(given.folder, ignore_errors=True)
    text = "\n".join(lines)
    print(text)
    if not given.dry:
        put_section(TITLE, text)


if __name__ == "__main__":
    main()
