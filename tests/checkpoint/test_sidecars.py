"""V2 checkpoints: workers write the sidecars, each one a part of the previous checkpoint."""

import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle

import txlog
from txlog.base.threads import Threads
from txlog.checkpoint.read import Source
from txlog.checkpoint.sidecars import choose_parts
from txlog.testing import unsealed

V2 = {
    "delta.feature.v2Checkpoint": "supported",
    "delta.checkpointPolicy": "v2",
    "delta.checkpointInterval": "1000",
    # Other libraries do not read deletion vectors.
    "delta.enableDeletionVectors": "false",
}


class Workers:
    """An engine that does its work behind pickles, and counts it."""

    in_process = False

    def __init__(self) -> None:
        self.items = 0
        self.largest = 0

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            packed = cloudpickle.dumps((function, item))
            self.items += 1
            self.largest = max(self.largest, len(packed))
            there, one = cloudpickle.loads(packed)
            yield there(one)


def changed_since_its_checkpoint(root: Path) -> txlog.Table:
    """Return a table with a checkpoint of 20 files, and a file that was added later."""
    options = txlog.WriteOptions(max_rows_per_file=2)
    table = txlog.write(root, data(*range(40)), options=options, properties=V2)
    table.maintenance.checkpoint()
    table.append(data(99))
    return table


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    # A verb has the module's name.
    monkeypatch.setattr(import_module("txlog.verbs.checkpoint"), "PART_ROWS", 8)
    monkeypatch.setattr("txlog.checkpoint.write._ROW_GROUP", 3)


@pytest.fixture
def _every_part_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    verb = import_module("txlog.verbs.checkpoint")
    monkeypatch.setattr(verb, "is_reusable", lambda *_, **__: False)


def data(*numbers: int) -> pa.Table:
    return pa.table({"x": list(numbers)})


def log_of(path: Path) -> Path:
    return path / "_delta_log"


def manifests(path: Path) -> list[Path]:
    return sorted(log_of(path).glob("*.checkpoint.*.parquet"))


def sidecars(path: Path) -> set[str]:
    return {file.name for file in (log_of(path) / "_sidecars").glob("*")}


def named_by(manifest: Path) -> list[dict[str, Any]]:
    return [row for row in pq.read_table(manifest)["sidecar"].to_pylist() if row]


def paths_added(path: Path, named: list[dict[str, Any]]) -> list[str]:
    """Read sidecars as plain Parquet."""
    found = []
    for one in named:
        table = pq.read_table(log_of(path) / "_sidecars" / one["path"])
        assert table.schema.names == ["add", "remove"]
        found += [row["path"] for row in table["add"].to_pylist() if row]
    return found


def without_commits(path: Path, version: int) -> None:
    """Leave nothing of the log before a version but its newest checkpoint."""
    for file in log_of(path).glob("*.json"):
        if int(file.name[:20]) <= version:
            file.unlink()
    for file in manifests(path)[:-1]:
        file.unlink()


@pytest.mark.usefixtures("_every_part_anew")
@pytest.mark.spec("ENG-2", "ENG-5")
def test_the_parts_are_together_what_the_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(
        tmp_path, data(*range(40)), options=txlog.WriteOptions(max_rows_per_file=2), properties=V2
    )
    table.maintenance.checkpoint()  # The first one has nothing to begin with but commits.
    table.append(data(*range(40, 50)), options=txlog.WriteOptions(max_rows_per_file=2))
    table.delete("x < 4 OR x = 21 OR x = 44")
    engine = Workers()
    held = txlog.Table(tmp_path, engine=engine)
    expected = sorted(held.to_arrow()["x"].to_pylist())
    engine.items = 0
    with monkeypatch.context() as without:  # Nobody reads all files at once.
        without.setattr(import_module("txlog.verbs.checkpoint"), "load_files", None)
        held.maintenance.checkpoint()
    # 20 files in row groups of three, so two groups a part; the commits' own files come on top.
    assert engine.items == 4
    assert engine.largest < 4_000
    first, second = manifests(tmp_path)
    named = named_by(second)
    assert {one["path"] for one in named} <= sidecars(tmp_path)
    assert not {one["path"] for one in named} & {one["path"] for one in named_by(first)}
    assert sorted(paths_added(tmp_path, named)) == sorted(held.files()["path"].to_pylist())
    assert all((log_of(tmp_path) / "_sidecars" / one["path"]).stat().st_size
               == one["sizeInBytes"] for one in named)  # fmt: skip
    hint = orjson.loads((log_of(tmp_path) / "_last_checkpoint").read_bytes())
    assert (hint["version"], hint["numOfAddFiles"]) == (held.version, len(held.files()))
    without_commits(tmp_path, held.version)
    again = txlog.Table(tmp_path)
    assert sorted(again.to_arrow()["x"].to_pylist()) == expected
    assert sorted(expected) == sorted(set(range(4, 50)) - {21, 44})
    # As another library reads the log.
    theirs = [Path(uri).name for uri in DeltaTable(str(tmp_path)).file_uris()]
    assert sorted(theirs) == sorted(again.files()["path"].to_pylist())
    again.append(data(50))
    assert txlog.Table(tmp_path).count() == len(expected) + 1


def test_tombstones_are_kept_until_they_expire(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path, data(*range(20)), options=txlog.WriteOptions(max_rows_per_file=2), properties=V2
    )
    table.maintenance.checkpoint()
    table.delete("x < 6")
    txlog.Table(tmp_path).maintenance.checkpoint()
    table.append(data(99))
    txlog.Table(tmp_path).maintenance.checkpoint()
    removed = [
        row["path"] for one in named_by(manifests(tmp_path)[-1])
        for row in pq.read_table(log_of(tmp_path) / "_sidecars" / one["path"])["remove"].to_pylist()
        if row
    ]  # fmt: skip
    assert len(removed) == len(set(removed)) == 3


def test_a_version_that_changed_no_file(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, data(1).schema, properties=V2)
    table.maintenance.checkpoint()
    assert named_by(manifests(tmp_path)[-1]) == []
    without_commits(tmp_path, 0)
    assert txlog.Table(tmp_path).count() == 0


@pytest.mark.parametrize("left_out", ["delta.feature.v2Checkpoint", "delta.checkpointPolicy"])
def test_without_the_feature_or_the_property_they_are_classic(
    tmp_path: Path, left_out: str
) -> None:
    # As another writer may have left the table: txlog itself lists the feature of the property.
    properties = {name: text for name, text in V2.items() if name != "delta.checkpointPolicy"}
    if left_out == "delta.feature.v2Checkpoint":
        txlog.write(tmp_path, data(1))
        log = log_of(tmp_path) / "00000000000000000000.json"
        policy = b'"configuration":{"delta.checkpointPolicy":"v2",'
        text = unsealed(log.read_bytes()).replace(b'"configuration":{', policy, 1)
        log.write_bytes(text)
        table = txlog.Table(tmp_path)
        assert table.properties["delta.checkpointPolicy"] == "v2"
    else:
        table = txlog.write(tmp_path, data(1), properties=properties)
    table.maintenance.checkpoint()
    assert manifests(tmp_path) == []
    assert (log_of(tmp_path) / "00000000000000000000.checkpoint.parquet").exists()


def test_another_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(txlog.InvalidInputError, match="expected classic or v2"):
        txlog.write(tmp_path, data(1), properties={"delta.checkpointPolicy": "v3"})


class FailingOnce(Threads):
    """Its third item fails."""

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for place, item in enumerate(items):
            if place == 2:
                raise txlog.EngineError(reason="a worker was lost")
            yield function(item)


@pytest.mark.usefixtures("_every_part_anew")
@pytest.mark.spec("ENG-3")
def test_a_lost_worker_leaves_no_checkpoint_and_no_sidecar(tmp_path: Path) -> None:
    changed_since_its_checkpoint(tmp_path)
    before = sidecars(tmp_path)
    with pytest.raises(txlog.EngineError, match="a worker was lost"):
        txlog.Table(tmp_path, engine=FailingOnce()).maintenance.checkpoint()
    assert sidecars(tmp_path) == before
    assert len(manifests(tmp_path)) == 1
    assert txlog.Table(tmp_path).count() == 41


def test_a_damaged_sidecar_is_made_good_by_the_commits(tmp_path: Path) -> None:
    table = changed_since_its_checkpoint(tmp_path)
    lost = log_of(tmp_path) / "_sidecars" / named_by(manifests(tmp_path)[0])[0]["path"]
    lost.write_bytes(lost.read_bytes()[:-20])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        txlog.Table(tmp_path).maintenance.checkpoint()
    assert any("damaged and skipped" in str(one.message) for one in said)
    lost.unlink()
    shutil.copytree(tmp_path, tmp_path / "copy")
    without_commits(tmp_path / "copy", table.version)
    assert sorted(txlog.Table(tmp_path / "copy").to_arrow()["x"].to_pylist()) == [*range(40), 99]


def test_damage_after_the_checkpoint_leaves_no_sidecar_that_no_checkpoint_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_since_its_checkpoint(tmp_path)

    def damaged(rows: pa.Table) -> None:
        raise txlog.LogCorruptError(reason="a version names a file twice")

    monkeypatch.setattr(import_module("txlog.verbs.checkpoint"), "reconcile_files", damaged)
    txlog.Table(tmp_path).maintenance.checkpoint()
    named = [one["path"] for manifest in manifests(tmp_path) for one in named_by(manifest)]
    assert sidecars(tmp_path) == set(named)


class Elsewhere(Threads):
    """While the work is handed out, another writer puts a newer checkpoint in the way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: list[Any] = []

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        without_commits(self.path, 0)
        for file in manifests(self.path):
            other = file.name.replace(file.name.split(".")[2], str(UUID(int=0)))
            file.rename(file.with_name(other))
        for item in items:
            self.results.append(function(item))
            yield self.results[-1]


@pytest.mark.usefixtures("_every_part_anew")
@pytest.mark.spec("ENG-5")
def test_a_worker_that_finds_another_checkpoint_writes_nothing(tmp_path: Path) -> None:
    table = changed_since_its_checkpoint(tmp_path)
    engine = Elsewhere(tmp_path)
    with pytest.warns(txlog.TxlogWarning, match="damaged and skipped"):
        txlog.Table(tmp_path, engine=engine).maintenance.checkpoint()  # This process does it then.
    assert {str(result) for result in engine.results} == {str(engine.results[0])}
    assert "has changed since the work was planned" in str(engine.results[0])
    without_commits(tmp_path, table.version)
    assert sorted(txlog.Table(tmp_path).to_arrow()["x"].to_pylist()) == [*range(40), 99]


def test_parts_are_full_but_not_too_full() -> None:
    groups = [Source("a", rows, (at,)) for at, rows in enumerate([3, 3, 3, 9, 1, 1])]
    odd = Source("b.json", 0)
    parts = choose_parts([*groups[:4], odd, *groups[4:]], 8)
    assert [[source.rows for source in part] for part in parts] == [[3, 3], [3], [9], [0], [1, 1]]
    assert choose_parts([], 8) == []
