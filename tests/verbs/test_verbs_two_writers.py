"""Two writers from one version with any two verbs: as if the second had waited for the first."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.verb_calls import append, compact, compute_statistics, delete, overwrite, restore
from txlog.commit.context import Context
from txlog.commit.operation import Done
from txlog.extend import context_of
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot

Rows = frozenset[int]
SCHEMA = pa.schema([("x", pa.int64()), ("p", pa.string())])


def xs(*values: int) -> pa.Table:
    return pa.table({"x": list(values), "p": ["ab"[x % 2] for x in values]}, schema=SCHEMA)


def partition(seen: Snapshot, n: int) -> str | None:
    return "p = 'a'" if n % 2 and seen.partition_columns else None


# Verbs as they are done, and as an oracle does them to the rows of all versions so far. Each has
# something to do in the version that all of them see: else it would rightly do nothing.
Verb = Callable[[Context, Snapshot, int], Done]
Oracle = Callable[[list[Rows], int], Rows]
VERBS: dict[str, tuple[Verb, Oracle]] = {
    "append": (
        lambda place, seen, n: append(place, seen, xs(1000 + n, 2000 + n)),
        lambda held, n: held[-1] | {1000 + n, 2000 + n},
    ),
    "delete": (
        lambda place, seen, n: delete(place, seen, f"x % 4 = {n % 4}"),
        lambda held, n: frozenset(x for x in held[-1] if x % 4 != n % 4),
    ),
    "overwrite": (
        lambda place, seen, n: overwrite(place, seen, xs(3000 + n)),
        lambda _, n: frozenset({3000 + n}),
    ),
    "compact": (
        lambda place, seen, n: compact(place, seen, partition(seen, n)),
        lambda held, _: held[-1],
    ),
    "statistics": (
        lambda place, seen, n: compute_statistics(place, seen, ["x"], where=partition(seen, n)),
        lambda held, _: held[-1],
    ),
    "restore": (
        lambda place, seen, n: restore(place, seen, n % 2),
        lambda held, n: held[n % 2],
    ),
}
steps = st.lists(
    st.tuples(st.sampled_from(sorted(VERBS)), st.integers(0, 6)), min_size=2, max_size=3
)


@pytest.mark.slow
@pytest.mark.spec("FRG-30", "FRG-34", "FRG-35", "FRG-39")
@settings(max_examples=examples(30))
@given(st.booleans(), st.sampled_from([(), ("p",)]), st.sampled_from(["0", "32"]), steps)
def test_all_land_one_after_the_other(
    vectors: bool, partition_by: tuple[str, ...], indexed: str, found: list[tuple[str, int]]
) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        properties = {
            "delta.enableRowTracking": "true",
            "delta.dataSkippingNumIndexedCols": indexed,
            "delta.enableDeletionVectors": str(vectors).lower(),
        }
        table = txlog.Table.create(root, SCHEMA, list(partition_by), properties)
        table.append(xs(*range(10)), options=txlog.WriteOptions(max_rows_per_file=4))
        table.delete("x = 3 or x = 8")
        held = [frozenset[int](), frozenset(range(10)), frozenset(range(10)) - {3, 8}]
        place, seen = context_of(table), load_snapshot(context_of(table).store)
        owners: dict[int, int] = {}
        for version in range(3):
            note(owners, txlog.Table(root, version=version))
        for number, (name, n) in enumerate(found):
            verb, oracle = VERBS[name]
            n = n + 7 * number if name in ("append", "overwrite") else n
            expected = oracle(held, n)
            verb(place, seen, n)
            now = txlog.Table(root)
            assert set(now.to_arrow(["x"])["x"].to_pylist()) == expected
            assert now.count() == len(expected)
            note(owners, now)
            held = [*held, expected] if now.version == len(held) else held
            assert now.version == len(held) - 1


def note(owners: dict[int, int], table: txlog.Table) -> None:
    """Take down whose each row id is; it stays so for ever."""
    found = table.to_arrow(["x", "_rowid"])
    ids = found["_rowid"].to_pylist()
    assert len(ids) == len(set(ids))
    for x, number in zip(found["x"].to_pylist(), ids, strict=True):
        assert owners.setdefault(number, x) == x
