"""A refreshed table equals a newly opened one, in all ways to its version."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples

SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string())])
WRITES = ["append", "add a column", "delete rows", "delete", "overwrite", "compact", "restore"]
STEPS = [*WRITES, "checkpoint", "forget", "look", "look at rows", "refresh"]


def rows_at(at: int) -> pa.Table:
    return pa.Table.from_pylist([{"n": 10 * at + k, "p": "ab%"[k % 3]} for k in range(6)], SCHEMA)


def write(table: txlog.Table, step: str, at: int) -> None:
    match step:
        case "append":
            table.append(rows_at(at), txn=(f"job {at % 3}", at))
        case "add a column":
            more = rows_at(at).append_column(f"c{at}", pa.array([at] * 6))
            table.append(more, schema_mode="merge")
        case "delete rows":
            table.delete("n % 5 = 1")
        case "delete":
            table.delete(f"n < {10 * at - 15}")
        case "overwrite":
            table.overwrite(rows_at(at))
        case "compact":
            table.optimize.compact()
        case "restore":
            with suppress(txlog.NotFoundError):  # Perhaps it was cleaned up.
                table.restore(version=table.version - 1)


def forget(root: Path) -> None:
    """Clean up the commits before the newest checkpoint."""
    log = root / "_delta_log"
    newest = max((path.name[:20] for path in log.glob("*.checkpoint*.parquet")), default="")
    for path in log.glob("*.json"):
        if path.name[:20].isdigit() and path.name[:20] < newest:
            path.unlink()


def told(table: txlog.Table) -> dict[str, Any]:
    """What a table says of itself, by all the ways that share what was read before."""
    files = table.files().sort_by([("path", "ascending"), ("deletion_vector", "ascending")])
    return {
        "version": table.version,
        "timestamp": table.timestamp_ms,
        "metadata": table.metadata,
        "protocol": table.protocol,
        "names": table.schema.names,
        "transactions": [table.transaction_version(f"job {at}") for at in range(3)],
        "files": files.to_pylist(),
        "narrow": sorted(table.files(["path"])["path"].to_pylist()),
        "count": table.count(),
        "some": sorted(table.to_arrow(["n"], where="n > 12 AND p <> 'b'")["n"].to_pylist()),
        "rows": sorted(table.to_arrow(["n"])["n"].to_pylist()),
    }


@pytest.mark.slow
@settings(max_examples=examples(50))
@given(
    steps=st.lists(st.sampled_from(STEPS), max_size=12),
    policy=st.sampled_from(["classic", "v2"]),
    partitioned=st.booleans(),
    large=st.booleans(),
)
def test_a_table_that_moves_on_is_the_one_opened_anew(
    steps: list[str], policy: str, partitioned: bool, large: bool
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr("txlog.snapshot.live_files._LARGE_BYTES", 0)
        root = Path(folder, "t")
        writer = txlog.Table.create(
            root,
            SCHEMA,
            partition_by=["p"] if partitioned else [],
            properties={"delta.checkpointPolicy": policy, "delta.enableDeletionVectors": "true"},
        )
        reader = txlog.Table(root)
        for at, step in enumerate(["append", "append", *steps, "refresh"]):
            match step:
                case "checkpoint":
                    writer.maintenance.checkpoint()
                case "forget":
                    forget(root)
                case "look":
                    reader.files(["path"])
                case "look at rows":
                    writer.to_arrow(where="n > 5")
                case "refresh":
                    assert told(reader.refresh()) == told(txlog.Table(root))
                case _:
                    write(writer, step, at)
        assert told(writer) == told(txlog.Table(root))
