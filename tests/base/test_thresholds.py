"""Numbers that only choose a way, with random small values: the same rows, the same errors.

The state machines of the other tests, which hold the package against plain models, are played with
them. Besides, tables are made with them and read with the usual ones, and the reverse.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

import txlog
from tests.examples import examples
from tests.lookup.test_indexes import AgainstAFilter
from tests.moved import moved, small_values, thresholds, with_moved
from tests.snapshot.test_snapshot_held import HeldHandles
from tests.stream.test_stream_machine import Streaming
from tests.training.datasets.test_commits import CommitMachine
from tests.verbs.test_mapped_columns import Columns
from tests.verbs.test_verbs_machine import AllVerbs
from txlog.training import Loader, Shuffle

pytestmark = pytest.mark.slow

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("g", pa.string()),
        ("t", pa.string()),
        ("s", pa.struct([("a", pa.list_(pa.int32()))])),
    ]
)


def rows(start: int, stop: int, group: str = "a") -> pa.Table:
    numbers = range(start, stop)
    return pa.table(
        {
            "k": [*numbers],
            "g": [group] * len(numbers),
            "t": [None if k % 11 == 0 else "t" * (k % 17) + str(k) for k in numbers],
            "s": [None if k % 7 == 0 else {"a": [k] * (k % 4)} for k in numbers],
        },
        SCHEMA,
    )


def make(path: Path, tracked: bool) -> txlog.Table:
    """Make a table by many verbs."""
    properties = {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "4"}
    properties["delta.enableRowTracking"] = str(tracked).lower()
    table = txlog.Table.create(path, SCHEMA, ["g"], properties)
    table.indexes.create("k")
    for start in range(0, 90, 30):
        table.append(rows(start, start + 30, "ab"[start % 60 == 0]))
    table.delete("k % 5 = 1")
    table.update({"t": "concat('u', t)"}, where="k % 9 = 2")
    merger = table.merge(rows(80, 110, "b"), "target.k = source.k")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    table.overwrite(rows(400, 410, "c"), "g = 'c'")
    table.optimize.z_order(["k", "t"], where="g = 'a'")
    table.delete("k >= 20 AND k < 40")
    table.append(rows(500, 510, "a"))
    table.optimize.compact()
    table.indexes.merge()
    table.maintenance.checkpoint()
    table.delete("k = 3")
    table.vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, keep_versions=[3]
    )
    table.delete("k % 10 = 7")
    table.update({"t": "'v'"}, where="k > 300")
    return table


def by_key(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=str)


READS: dict[str, Callable[[txlog.Table], Any]] = {
    "rows": lambda table: by_key(table.to_arrow()),
    "where": lambda table: by_key(table.to_arrow(["k", "s"], "k % 3 = 0 AND t > 'tt'")),
    "long list": lambda table: by_key(table.to_arrow(where=f"k IN {tuple(range(0, 600, 3))}")),
    "count": lambda table: (table.count(), table.count("g = 'a'"), table.count("s IS NULL")),
    "head": lambda table: table.head(7).num_rows,
    "batches": lambda table: sum(batch.num_rows for batch in table.to_batches()),
    "dataset": lambda table: by_key(table.to_pyarrow_dataset().to_table()),
    "polars": lambda table: by_key(table.to_polars().to_arrow().cast(SCHEMA)),
    "lookup": lambda table: by_key(table.lookup([2, 5, 7, 100, 505, 999])),
    "contains": lambda table: table.contains([*range(600)]).to_pylist(),
    "take": lambda table: table.take([0, 5, 12]).num_rows,
    "feed": lambda table: changed(table, table.version - 1),
    "diff": lambda table: sorted(map(str, table.diff(3, on="k").to_arrow().to_pylist())),
    "loader": lambda table: sorted(
        k for batch in Loader(table, batch_size=1, columns=["k"]) for k in batch["k"].tolist()
    ),
}


def changed(table: txlog.Table, start: int) -> list[str]:
    found = table.changes(start).to_arrow()
    return sorted(map(str, found.drop_columns(["_commit_timestamp"]).to_pylist()))


def answers(table: txlog.Table) -> dict[str, Any]:
    found = {}
    for name, read in READS.items():
        try:
            found[name] = read(table)
        except txlog.TxlogError as error:
            found[name] = type(error)
    return found


class Usual:
    """A table that was made with the usual values, and what reading it gives."""

    def __init__(self, path: Path, tracked: bool) -> None:
        make(path, tracked)
        self.path, self.tracked, self.answers = path, tracked, answers(txlog.Table(path))


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tracked"])
def usual(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Usual:
    path = tmp_path_factory.mktemp("usual") / "t"
    made = Usual(path, request.param)
    assert [name for name, answer in made.answers.items() if isinstance(answer, type)] == []
    return made


def test_every_threshold_is_moved(usual: Usual) -> None:
    assert len(thresholds()) > 90
    with moved(dict.fromkeys(thresholds(), 2)):
        assert answers(txlog.Table(usual.path)) == usual.answers


@given(values=small_values())
@settings(max_examples=examples(30), deadline=None)
def test_a_table_is_read_alike(usual: Usual, values: dict[str, int]) -> None:
    with moved(values):
        assert answers(txlog.Table(usual.path)) == usual.answers


@given(values=small_values())
@settings(max_examples=examples(30), deadline=None)
def test_a_table_is_made_alike(
    usual: Usual, tmp_path_factory: pytest.TempPathFactory, values: dict[str, int]
) -> None:
    path = tmp_path_factory.mktemp("moved") / "t"
    with moved(values):
        make(path, usual.tracked)
    found = answers(txlog.Table(path))
    assert found == usual.answers
    shutil.rmtree(path)


@given(values=small_values(), lanes=st.sampled_from([1, 4]))
@settings(max_examples=examples(30), deadline=None)
def test_an_epoch_has_one_order(usual: Usual, values: dict[str, int], lanes: int) -> None:
    def epoch() -> list[int]:
        loader = Loader(
            usual.path, batch_size=8, columns=["k"], shuffle=Shuffle(seed=1, lanes=lanes)
        )
        return [k for batch in loader for k in batch["k"].tolist()]

    with moved(values):
        found = epoch()
    assert found == epoch()


# State machines ----------------------------------------------------------------------------------


def played(machine: type[RuleBasedStateMachine], often: int, steps: int) -> Any:
    case = with_moved(machine).TestCase
    case.settings = settings(max_examples=examples(often), stateful_step_count=steps, deadline=None)
    return case


TestMovedVerbs = played(AllVerbs, 20, 7)
# It damages segments, of which look-ups warn.
TestMovedIndexes = pytest.mark.filterwarnings("ignore::txlog.TxlogWarning")(
    played(AgainstAFilter, 10, 8)
)
TestMovedHandles = played(HeldHandles, 20, 14)
TestMovedStreams = played(Streaming, 10, 20)
TestMovedDataSets = played(CommitMachine, 30, 10)
TestMovedColumns = played(Columns, 30, 10)
