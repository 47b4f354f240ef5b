"""A vacuum whose workers read the log keeps what a vacuum of one process keeps."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from tests.scan.test_lazy_plan_apart import ALWAYS, STEPS, Failing, Workers, in_parts, make
from txlog.base.threads import Engine
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.store.open import open_store
from txlog.verbs.vacuum import each_referenced, referenced

SMALL = {
    "txlog.checkpoint.write:_ROW_GROUP": 2,
    "txlog.checkpoint.sidecars:PART_ROWS": 3,
    "txlog.checkpoint.read:_SHARE_BYTES": 1,
}
NEWER = STEPS.filter(lambda step: step != "checkpoint")


def made(path: Path, before: list[str], after: list[str], kind: str, partitioned: bool) -> None:
    policy = "v2" if kind == "v2" else "classic"
    make(path, [*before, "append", "checkpoint", *after], policy, partitioned)
    if kind == "parts":
        in_parts(path / "_delta_log", 3)


def plain_keys(path: Path, cutoff_ms: int | None) -> set[str]:
    """Return the keys of all files at once."""
    store = open_store(str(path))
    files = load_files(store, load_snapshot(store))
    if cutoff_ms is None:
        return {*referenced(files, 1 << 62).to_pylist()}
    return {*referenced(files, cutoff_ms).to_pylist()}


def keys(path: Path, cutoff_ms: int | None, engine: Engine) -> set[str]:
    store, found = open_store(str(path)), [pa.array([], pa.string())]
    each_referenced(store, load_snapshot(store), cutoff_ms, found.append, engine)
    return {*pa.concat_arrays(found).to_pylist()}


def moments(path: Path) -> list[int]:
    """Return the times when files were removed."""
    store = open_store(str(path))
    rows = load_files(store, load_snapshot(store)).tombstones
    return sorted({0, *rows["deletion_timestamp"].to_pylist()})


@pytest.mark.slow
@pytest.mark.spec("SPK-34")
@settings(max_examples=examples(40), deadline=None)
@given(
    before=st.lists(STEPS, max_size=4),
    after=st.lists(NEWER, max_size=3),
    kind=st.sampled_from(["classic", "parts", "v2"]),
    partitioned=st.booleans(),
    in_turn=st.integers(1, 3),
    at=st.integers(0, 9),
)
def test_workers_find_the_files_that_one_process_finds(
    before: list[str], after: list[str], kind: str, partitioned: bool, in_turn: int, at: int
) -> None:
    turns = {"txlog.snapshot.live_files:_SHARES_IN_TURN": in_turn}
    with TemporaryDirectory() as root, moved(SMALL | turns):
        path = Path(root, "t")
        made(path, before, after, kind, partitioned)
        removed = moments(path)
        cutoffs = [None, 0, removed[at % len(removed)], removed[at % len(removed)] + 1]
        expected = [plain_keys(path, cutoff) for cutoff in cutoffs]
        engine = Workers()
        with moved(ALWAYS):
            assert [keys(path, cutoff, engine) for cutoff in cutoffs] == expected
        assert len(engine.items) >= len(cutoffs)


@pytest.mark.slow
@pytest.mark.spec("SPK-34", "VAC-6")
@settings(max_examples=examples(30), deadline=None)
@given(
    before=st.lists(STEPS, max_size=4),
    after=st.lists(NEWER, max_size=3),
    kind=st.sampled_from(["classic", "v2"]),
    pins=st.sets(st.integers(0, 9), max_size=2),
    hours=st.sampled_from([0, 400]),
    copied=st.booleans(),
)
def test_a_vacuum_on_workers_decides_as_one_in_one_process(
    before: list[str], after: list[str], kind: str, pins: set[int], hours: int, copied: bool
) -> None:
    with TemporaryDirectory() as root, moved(SMALL):
        path = Path(root, "t")
        made(path, before, after, kind, True)
        table = txlog.Table(path)
        newest = table.version
        for version in pins:
            table.pins.create(f"pin {version}", version=version % (newest + 1))
        if copied:
            table.clone(Path(root, "clone"))
        table.branches.create("b")
        txlog.Table(path, branch="b").delete("n = 3")
        keep = [newest // 2]
        expected = txlog.Table(path).vacuum(hours, True, False, keep_versions=keep)
        with moved(ALWAYS):
            engine = Workers()
            found = txlog.Table(path, engine=engine)
            assert found.vacuum(hours, True, False, keep_versions=keep) == expected
            assert engine.items


@pytest.mark.slow
@pytest.mark.spec("SPK-31", "SPK-34")
@settings(max_examples=examples(40), deadline=None)
@given(
    before=st.lists(STEPS, min_size=1, max_size=3),
    after=st.lists(NEWER, max_size=2),
    kind=st.sampled_from(["classic", "parts", "v2"]),
    fault=st.sampled_from(["missing", "damaged", "throttled"]),
    share=st.integers(0, 5),
    is_cleaned=st.booleans(),
)
def test_a_share_that_cannot_be_read_never_lets_a_file_be_deleted(
    before: list[str], after: list[str], kind: str, fault: str, share: int, is_cleaned: bool
) -> None:
    with TemporaryDirectory() as root, moved(SMALL):
        path, log = Path(root), Path(root, "_delta_log")
        made(path, before, after, kind, True)
        newest = load_snapshot(open_store(root)).checkpoint[0].version
        for file in log.iterdir() if is_cleaned else ():  # As a clean-up of the log leaves it.
            if file.name[:20].isdecimal() and int(file.name[:20]) < newest:
                file.unlink()
        version = txlog.Table(path).version
        expected = txlog.Table(path).vacuum(0, True, False)
        engine = Failing(share, fault, path)
        found: Any
        with moved(ALWAYS), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found = txlog.Table(path, engine=engine).vacuum(0, False, False)
            except txlog.TxlogError as error:
                found = error
        if engine.struck is None or (fault != "throttled" and not is_cleaned):
            assert found == expected
            assert bool(said) is (engine.struck is not None)
            return
        assert isinstance(
            found, txlog.StoreError if fault == "throttled" else txlog.LogCorruptError
        )
        assert all((path / name).exists() for name in expected["file"].to_pylist())
        if fault == "throttled":
            assert not said
            assert txlog.Table(path).version == version


def test_a_vacuum_on_workers_loads_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from txlog.snapshot import live_files

    table = txlog.write(tmp_path / "t", pa.table({"x": [1, 2]}))
    table.append(pa.table({"x": [3]}))
    table.maintenance.checkpoint()
    table.delete("x = 3")
    expected = txlog.Table(tmp_path / "t").vacuum(0, True, False)

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("this process reads the checkpoint")

    engine = Workers()
    monkeypatch.setattr(live_files, "_states", refused)
    monkeypatch.setattr(live_files, "read_files", refused)
    with moved(ALWAYS | SMALL):
        assert txlog.Table(tmp_path / "t", engine=engine).vacuum(0, True, False) == expected
    assert engine.items
