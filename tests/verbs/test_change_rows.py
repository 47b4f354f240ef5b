"""An attempt keeps what the last one computed for files that winners did not touch."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.losing import losing
from tests.moved import moved
from txlog.scan.read import FragmentReader
from txlog.store.local.local import LocalStore

Verb = Callable[[Any], Any]
LARGE = "txlog.snapshot.live_files:_LARGE_BYTES"


def rows(*xs: int, y: int = 0) -> pa.Table:
    return pa.table({"x": pa.array(xs, pa.int64()), "y": pa.array([y] * len(xs), pa.int64())})


def upsert(table: Any) -> None:
    source = rows(1, 5, 60, y=9)
    merging = table.merge(source, on="x").when_matched_update_all()
    merging.when_not_matched_insert_all().execute()


def together(table: Any) -> None:
    """Several verbs as one version; on the result of a model, one by one."""
    table.update({"y": "y + 1"}, "x < 50")
    table.append(rows(2, 3, y=7))
    table.delete("y = 1 AND x = 2")
    upsert(table)


VERBS: dict[str, Verb] = {
    "update": lambda table: table.update({"y": "y + 1"}, "x < 50"),
    "update all": lambda table: table.update({"y": "x + y"}),
    "delete": lambda table: table.delete("x < 3"),
    "merge": upsert,
    "merge of the others": lambda table: (
        table.merge(rows(1, 2), on="x").when_not_matched_by_source_update({"y": "y + 5"}).execute()
    ),
    "together": together,
}
WINNERS: dict[str, Verb] = {
    "append": lambda table: table.append(rows(2, 7, y=1)),
    "append of a key that is inserted": lambda table: table.append(rows(60, y=3)),
    "append of no concern": lambda table: table.append(rows(90, y=1)),
    "delete": lambda table: table.delete("x = 1"),
    "delete of a new row": lambda table: table.delete("x = 7"),
    "update": lambda table: table.update({"y": "y + 20"}, "x = 2"),
    "compact": lambda table: table.optimize.compact(),
    "property": lambda table: table.alter.set_properties({"some.name": "1"}),
    "checkpoint": lambda table: table.maintenance.checkpoint(),
}
PROPERTIES: dict[str, dict[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "tracked": {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
    "recorded": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
    "rewritten and recorded": {"delta.enableChangeDataFeed": "true"},
}


def run(path: Path, name: str) -> None:
    table = txlog.Table(path)
    if name == "together":
        with table.transaction() as transaction:
            together(transaction)
    else:
        VERBS[name](table)


def content(table: txlog.Table) -> list[tuple[int, int]]:
    found = table.to_arrow(["x", "y"]).to_pydict()
    return sorted(zip(found["x"], found["y"], strict=True))


def files_below(path: Path) -> set[str]:
    kinds = (".parquet", ".bin")
    every = (one for one in path.rglob("*") if one.suffix in kinds and one.is_file())
    return {one.relative_to(path).as_posix() for one in every if "_delta_log" not in one.parts}


@pytest.mark.slow
@pytest.mark.spec("CON-6", "CON-21", "CON-29")
@settings(max_examples=examples(120), deadline=None)
@given(
    verb=st.sampled_from(sorted(VERBS)),
    winners=st.lists(st.sampled_from(sorted(WINNERS)), min_size=1, max_size=4),
    properties=st.sampled_from(sorted(PROPERTIES)),
    large=st.booleans(),
)
@example("together", ["append", "append", "delete of a new row"], "vectors", False)
@example("together", ["append", "append"], "tracked", False)
@example("merge", ["append", "append of a key that is inserted", "append"], "plain", True)
@example("update", ["append", "delete", "append"], "vectors", True)
@example("delete", ["append", "checkpoint", "append"], "rewritten and recorded", True)
def test_the_rows_are_those_of_the_verb_after_all_winners(
    verb: str, winners: list[str], properties: str, large: bool
) -> None:
    """The oracle runs the verb alone, on the rows of the version before its commit."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "t")
        made = txlog.write(path, rows(1, 2, 3), properties=PROPERTIES[properties])
        made.append(rows(4, 5))
        made.maintenance.checkpoint()
        size = moved({LARGE: 1}) if large else nullcontext()
        with size, losing(path, [WINNERS[name] for name in winners]):
            run(path, verb)
        after = txlog.Table(path)
        before = txlog.Table(path, version=after.version - 1)
        alone = Path(folder, "alone")
        txlog.write(alone, before.to_arrow(["x", "y"]))
        run(alone, verb)
        assert content(after) == content(txlog.Table(alone))
        if properties == "tracked":
            ids = after.to_arrow(["_rowid"])["_rowid"]
            assert len(ids.unique()) == len(ids)
            assert ids.null_count == 0
        if "recorded" in properties:
            feed = after.changes(after.version, after.version).to_arrow().to_pydict()
            kinds = zip(feed["_change_type"], feed["x"], feed["y"], strict=True)
            changed = Counter(content(before))
            for kind, *row in kinds:
                changed[tuple(row)] += 1 if kind in ("insert", "update_postimage") else -1
            assert sorted(changed.elements()) == content(after)
        named = set()
        for version in range(after.version + 1):
            commit = Path(path, "_delta_log", f"{version:020d}.json").read_text()
            named |= {name for name in files_below(path) if Path(name).name in commit}
        vectors = {name for name in files_below(path) if name.endswith(".bin")}
        assert files_below(path) - named <= vectors


@pytest.mark.slow
@pytest.mark.spec("CON-29")
@pytest.mark.parametrize("verb", ["update", "delete", "merge", "together"])
@pytest.mark.parametrize("properties", ["plain", "vectors"])
@pytest.mark.parametrize("large", [True, False])
def test_beside_fast_writers_each_file_is_looked_at_once(
    verb: str, properties: str, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many races are lost, the work of the first attempt is not done again."""
    table = txlog.write(tmp_path / "t", rows(1, 2), properties=PROPERTIES[properties])
    for x in range(5):
        table.append(rows(x, 5))
    table.maintenance.checkpoint()
    opened: Counter[str] = Counter()
    init = FragmentReader.__init__

    def counting(self: FragmentReader, store: LocalStore, plan: Any, fragment: Any) -> None:
        opened[fragment.path] += 1
        init(self, store, plan, fragment)

    monkeypatch.setattr(FragmentReader, "__init__", counting)
    shutil.copytree(tmp_path / "t", tmp_path / "alone")
    run(tmp_path / "alone", verb)
    alone = max(opened.values())
    opened.clear()
    losses = 14  # More than are tried before the first wait.
    size = moved({LARGE: 1}) if large else nullcontext()
    with size, losing(tmp_path / "t", [WINNERS["append"]] * losses):
        run(tmp_path / "t", verb)
    assert len(opened) > losses
    assert max(opened.values()) <= alone


def test_a_merge_that_first_finds_nothing_counts_all_files(tmp_path: Path) -> None:
    def run(path: Path, winners: list[Verb]) -> dict[str, int]:
        table = txlog.write(path, pa.table({"k": [1, 2]}))
        source = pa.table({"k": [50]})
        with losing(path, winners), table.transaction() as transaction:
            transaction.delete("k = 2")
            merger = transaction.merge(source, "target.k = source.k")
            merger.when_matched_update({"k": "51"}).execute()
        assert sorted(txlog.Table(path).to_arrow()["k"].to_pylist()) == (
            [1, 51] if winners else [1]
        )
        return dict(transaction.outcome.metrics)

    beside = run(tmp_path / "beside", [lambda table: table.append(pa.table({"k": [50]}))])
    table = txlog.write(tmp_path / "after", pa.table({"k": [1, 2]}))
    table.append(pa.table({"k": [50]}))
    with table.transaction() as transaction:
        transaction.delete("k = 2")
        merger = transaction.merge(pa.table({"k": [50]}), "target.k = source.k")
        merger.when_matched_update({"k": "51"}).execute()
    for name in ("numTargetFilesScanned", "numTargetFilesSkippedDuringScan", "numSourceRows"):
        assert beside[name] == dict(transaction.outcome.metrics)[name]
