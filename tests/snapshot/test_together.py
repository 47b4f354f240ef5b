"""Versions that are loaded together have the files that each of them has alone."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from tests.scan.test_lazy_plan_apart import STEPS, Workers, in_parts, make
from txlog.actions.columns import empty_rows
from txlog.commit.context import Context
from txlog.log.names import parse_name
from txlog.reconcile.files import FileState, file_keys, reconcile_files
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.together import by_checkpoint, each_together, live_in_any
from txlog.store.open import open_store
from txlog.testing import CountingStore
from txlog.verbs.vacuum import needed_elsewhere, referenced

ACTIONS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([None, "v1", "v2"]), st.booleans()),
    max_size=4,
    unique_by=lambda one: one[:2],
)


@settings(max_examples=examples(100), deadline=None)
@given(
    commits=st.lists(ACTIONS, max_size=7),
    versions=st.sets(st.integers(0, 8), min_size=1, max_size=4),
)
def test_an_add_is_live_up_to_the_next_action_of_its_file(
    commits: list[list[tuple[str, str | None, bool]]], versions: set[int]
) -> None:
    rows = pa.table(
        [
            pa.array([path for commit in commits for path, _, _ in commit], pa.string()),
            pa.array([vector for commit in commits for _, vector, _ in commit], pa.string()),
            pa.array([is_add for commit in commits for _, _, is_add in commit], pa.bool_()),
            pa.array([at for at, commit in enumerate(commits) for _ in commit], pa.int64()),
        ],
        names=["path", "dv_id", "is_add", "version"],
    )
    expected: set[str] = set()
    for version in versions:
        until = rows.filter(pa.compute.less_equal(rows["version"], version))
        expected |= {*file_keys(reconcile_files(until).live).to_pylist()}
    found = live_in_any(rows, sorted(versions))
    assert found is not None
    assert {*file_keys(found).to_pylist()} == expected


def pinned(path: Path, versions: list[int]) -> txlog.Table:
    table = txlog.Table(path)
    for version in versions:
        table.pins.create(f"pin {version}", version)
    return table


def plain_keys(path: Path, versions: list[int]) -> set[str]:
    """Return the keys of the files of versions, each loaded alone."""
    store = open_store(str(path))
    found: set[str] = set()
    for version in versions:
        live = load_files(store, load_snapshot(store, version=version)).live
        found |= {*referenced(FileState(live, empty_rows()), 0).to_pylist()}
    return found


def keys(path: Path, latest: Snapshot, *, apart: bool = False) -> set[str]:
    """Return the keys of the files that pins need."""
    store, found = open_store(str(path)), [pa.array([], pa.string())]
    context = Context(store, engine=Workers()) if apart else Context(store)
    needed_elsewhere(context, latest, 1 << 40, 1 << 41, found.append)
    return {*pa.concat_arrays(found).to_pylist()}


def changed(path: Path, step: str) -> None:
    table = txlog.Table(path)
    if step == "property":
        table.alter.set_properties({"a.b": str(table.version)})
    elif step == "feature":
        table.alter.add_features("changeDataFeed")
    elif step == "same twice":  # A commit may name a file twice with the same contents.
        log = path / "_delta_log"
        lines = (log / f"{table.version:020d}.json").read_text().splitlines()
        adds = [line for line in lines if line.startswith('{"add"')]
        (log / f"{table.version + 1:020d}.json").write_text("\n".join([*adds, *adds, "{}"]))


@pytest.mark.slow
@pytest.mark.spec("VAC-6")
@settings(max_examples=examples(60), deadline=None)
@given(
    before=st.lists(STEPS, min_size=1, max_size=3),
    between=st.sampled_from(["property", "feature", "same twice", ""]),
    after=st.lists(STEPS, max_size=3),
    kind=st.sampled_from(["classic", "parts", "v2"]),
    pins=st.sets(st.integers(0, 12), min_size=1, max_size=5),
    lost=st.none() | st.integers(0, 20),
    apart=st.booleans(),
)
def test_pins_keep_the_files_that_each_of_them_has_alone(
    before: list[str], between: str, after: list[str], kind: str, pins: set[int],
    lost: int | None, apart: bool,
) -> None:  # fmt: skip
    small = {
        "txlog.checkpoint.sidecars:PART_ROWS": 3,
        "txlog.checkpoint.write:_ROW_GROUP": 2,
        "txlog.checkpoint.read:_SHARE_BYTES": 1,
    }
    large = {"txlog.snapshot.live_files:_LARGE_BYTES": 1, "txlog.scan.lazy_plan:APART_FROM": 1}
    with TemporaryDirectory() as root, moved(small | (large if apart else {})):
        path = Path(root)
        make(path, before, "v2" if kind == "v2" else "classic", True)
        changed(path, between)
        for step in after:
            further(path, step)
        if kind == "parts":
            in_parts(path / "_delta_log", 2)
        newest = txlog.Table(path).version
        versions = sorted({version % (newest + 1) for version in pins})
        latest = pinned(path, versions).snapshot
        log = [(file, parse_name(file.name)) for file in sorted((path / "_delta_log").iterdir())]
        old = [file for file, known in log if known is not None and known.version <= newest]
        if lost is not None and lost < len(old):
            old[lost].unlink()
        try:
            expected = plain_keys(path, versions)
        except (txlog.NotFoundError, txlog.LogCorruptError):
            with pytest.raises((txlog.NotFoundError, txlog.LogCorruptError)):
                keys(path, latest, apart=apart)
        else:
            assert keys(path, latest, apart=apart) == expected


def further(path: Path, step: str) -> None:
    table = txlog.Table(path)
    data = pa.table({"n": [1, 2, 3], "t": ["t", "u", "t"], "p": ["a", "b", "b"]})
    match step:
        case "append" | "overwrite":
            (table.append if step == "append" else table.overwrite)(data)
        case "restore":
            table.restore(max(1, table.version - 2))
        case "checkpoint":
            table.maintenance.checkpoint()
        case _:
            table.delete("n = 2" if step == "delete rows" else "p = 'a'")


def test_versions_have_the_newest_checkpoint_before_them() -> None:
    names = [f"{at:020d}.json" for at in range(8)]
    names += [f"{at:020d}.checkpoint.parquet" for at in (2, 5)]
    names += [f"{6:020d}.checkpoint.{1:010d}.{2:010d}.parquet"]  # The other part is missing.
    files = [file for name in names if (file := parse_name(name))]
    assert by_checkpoint(files, {7, 0, 5, 2, 4, 1}) == [(-1, [0, 1]), (2, [2, 4]), (5, [5, 7])]
    assert by_checkpoint(files, {3}) == [(2, [3])]


def test_versions_that_a_compaction_hides_are_loaded_alone(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [0]}))
    for at in range(1, 5):
        table.append(pa.table({"x": [at]}))
    table.delete("x = 2")
    table.append(pa.table({"x": [5]}))
    log = tmp_path / "_delta_log"
    texts = [(log / f"{at:020d}.json").read_text() for at in (3, 4)]
    adds = [line for text in texts for line in text.splitlines() if line.startswith('{"add"')]
    (log / f"{3:020d}.{4:020d}.compacted.json").write_text("\n".join(adds))
    store = open_store(str(tmp_path))
    assert [bool(one) for _, one in each_together(store, {1, 2, 4, 6})] == [True]
    expected = plain_keys(tmp_path, [1, 2, 4, 6])
    latest = pinned(tmp_path, [1, 2, 4, 6]).snapshot
    for at in (3, 4):
        (log / f"{at:020d}.json").unlink()
    assert list(each_together(store, {1, 2, 4, 6})) == [([1, 2, 4, 6], None)]
    assert keys(tmp_path, latest) == expected


@pytest.mark.spec("VAC-6")
def test_the_commits_of_many_pins_are_read_once(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [0]}))
    for at in range(1, 16):
        table.append(pa.table({"x": [at]}))
        if at == 6:
            table.maintenance.checkpoint()
    pinned(tmp_path, list(range(0, 16, 2)))
    store = CountingStore(open_store(str(tmp_path)))
    snapshot = load_snapshot(store)
    store.reset()
    needed_elsewhere(Context(store), snapshot, 1 << 40, 1 << 41, lambda _: None)
    commits = [call.path for call in store.calls if call.path.endswith(".json")]
    assert len(commits) == len({*commits})
    assert len(store.calls) < 40
