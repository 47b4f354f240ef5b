"""Requests of look-ups in a store far away, counted."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import txlog
from tests.moved import moved
from tests.rounds import ticking
from txlog.lookup.lookup import Lookup
from txlog.lookup.segments import read_tail
from txlog.scan import pages
from txlog.store.base import Store
from txlog.store.open import open_store
from txlog.testing import CountingStore, Fault, FaultyStore, LatencyStore, open_table
from txlog.testing.stores import Request

GROUP_ROWS = 16_384
FILE_GROUPS = 4


def make_far(root: Path, groups: int) -> Path:
    """Make a table as docs/lookup.md has it for stores far away; no key is near its neighbours."""
    draw = np.random.default_rng(5)
    count = groups * GROUP_ROWS
    keys = draw.permutation(count)
    data = pa.table(
        {
            "k": keys,
            "a": draw.integers(0, 1 << 60, count),
            "b": draw.random(count),
            "c": draw.integers(0, 1_000, count),
            "s": pa.array(keys * 7).cast(pa.string()),
            "t": pa.array(draw.integers(0, 1 << 40, count)).cast(pa.string()),
        }
    )
    properties = {
        "txlog.rowGroupRows": str(GROUP_ROWS), "txlog.pageRows": "256",
        "delta.parquet.compression.codec": "lz4_raw", "delta.enableDeletionVectors": "true",
    }  # fmt: skip
    table = txlog.Table.create(root, data.schema, properties=properties)
    table.append(data, options=txlog.WriteOptions(max_rows_per_file=FILE_GROUPS * GROUP_ROWS))
    table.delete("k % 100 = 0")
    table.indexes.create("k")
    assert len(table.fragments()) == groups // FILE_GROUPS
    return root


@pytest.fixture(scope="module")
def far_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_far(tmp_path_factory.mktemp("far"), 12)


def far(root: Path) -> CountingStore:
    return CountingStore(LatencyStore(open_store(root), delay_s=0))


class _AtOnce(CountingStore):
    """A store whose requests end when as many are under way as `party` says."""

    party: threading.Barrier | None = None

    def _requested(self, request: Request) -> None:
        super()._requested(request)
        if self.party is not None:
            self.party.wait(60)  # Where one waits for the other, it breaks, and the test fails.


def live_keys(count: int, rows: int) -> list[int]:
    """Return keys that are not deleted, at random."""
    draw = np.random.default_rng(count)
    found: list[int] = (draw.choice(rows // 100, count, replace=False) * 100 + 7).tolist()
    return found


def warmed(store: Store, rows: int) -> txlog.Table:
    """Open the table; each file was met once, so that its deletion vector is known."""
    table = open_table(store)
    table.lookup(live_keys(200, rows), on="k")
    return table


def require_requests(
    root: Path, rows: int, keys: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> int:
    """Hold the requests for keys that nobody asked for before to a number; return it."""
    store = _AtOnce(LatencyStore(open_store(root), delay_s=0))
    table = warmed(store, rows)
    rounds: list[int] = []
    fetch = pages.fetch

    def counted(wanted: Any) -> Any:
        rounds.append(len(wanted))
        return fetch(wanted)

    monkeypatch.setattr("txlog.scan.pages.fetch", counted)
    asked = live_keys(keys, rows)
    store.reset()
    assert table.lookup(asked, on="k")["k"].to_pylist() == asked
    assert set(store.requests) == {"read_range"}
    number = store.requests["read_range"]
    assert number <= most
    assert len(rounds) == 1, "a request has waited for the answer to another"
    store.reset()
    table.lookup(asked, on="k")  # Dictionaries are known by now.
    if (again := store.requests["read_range"]) <= store.reads_at_once:
        store.party = threading.Barrier(again)  # All of them are under way at the same time.
        assert table.lookup(asked, on="k")["k"].to_pylist() == asked
    return number


@pytest.mark.parametrize(("keys", "most"), [(1, 1), (10, 11), (100, 110)])
def test_requests_of_a_warm_look_up(
    far_table: Path, keys: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segments hold footers and offset indexes: only rows are fetched, in one round trip."""
    require_requests(far_table, 12 * GROUP_ROWS, keys, most, monkeypatch)


@pytest.mark.exhaustive
def test_requests_among_two_million_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many row groups that a hundred keys are hardly ever in one and the same."""
    groups = 120
    make_far(tmp_path, groups)
    for keys, least, most in ((1, 1, 1), (10, 6, 11), (100, 25, 110)):
        number = require_requests(tmp_path, groups * GROUP_ROWS, keys, most, monkeypatch)
        assert number >= least, "the table is too small to show it"


def calls_of_segments(store: CountingStore) -> list[str]:
    return [call.kind for call in store.calls if "_txlog_index" in call.path]


def test_requests_of_the_first_look_up(far_table: Path, tmp_path: Path) -> None:
    """Opening lists once, and fetches each segment once; what is kept is not fetched again."""
    store = far(far_table)
    table = open_table(store)
    store.reset()
    table.lookup([1], on="k")
    assert calls_of_segments(store) == ["list_after", "read"]
    # Its pages; neither its footer nor its offset indexes.
    ranges = [call for call in store.calls if call.path.endswith(".parquet")]
    assert len(ranges) == 1

    def fetched_once() -> None:
        for expected in (["list_after", "read"], ["list_after"]):
            store.reset()
            again = open_table(store)
            again._context.lookups.folder = str(tmp_path)
            assert again.lookup([1], on="k").num_rows == 1
            assert calls_of_segments(store) == expected

    fetched_once()
    (kept,) = tmp_path.rglob("*.idx")
    data = bytearray(kept.read_bytes())
    data[100] ^= 1
    kept.write_bytes(data)
    fetched_once()  # The head of what is kept is damaged, so it is fetched again.


def test_segments_that_are_gone_are_not_kept(tmp_path: Path) -> None:
    """The folder for other processes holds what there is, of each index of each table."""
    kept, tables = tmp_path / "kept", []
    for name in "ab":
        data = pa.table({"k": [3, 1], "v": ["c", "a"]})
        table = txlog.write(tmp_path / name, data)
        table.indexes.create("k")
        table.indexes.create("v")
        tables.append(table)

    def kept_after_looking_up() -> set[str]:
        for table in tables:
            opened = open_table(far(Path(table.uri)))
            opened._context.lookups.folder = str(kept)
            assert opened.lookup([1], on="k")["v"].to_pylist() == ["a"]
            assert opened.lookup(["c"], on="v")["k"].to_pylist() == [3]
        return {path.name for path in kept.rglob("*.idx")}

    first = kept_after_looking_up()
    assert first == {path.name for path in tmp_path.glob("?/_txlog_index/*/*.idx")}
    assert len(first) == 4
    tables[0].append(pa.table({"k": [2], "v": ["b"]}))
    tables[0].indexes.merge("k")
    second = kept_after_looking_up()
    assert second == {path.name for path in tmp_path.glob("?/_txlog_index/*/*.idx")}
    assert len(first & second) == 3
    old, young = (
        next(kept.rglob("*.idx")).with_suffix(f".idx.{name}") for name in ("old", "young")
    )
    for part in (old, young):
        part.write_bytes(b"torn")
    os.utime(old, (1e9, 1e9))
    for table in tables:
        table.indexes.drop("v")
        opened = open_table(far(Path(table.uri)))
        opened._context.lookups.folder = str(kept)
        assert opened.lookup([1], on="k").num_rows == 1
    assert {path.name for path in kept.rglob("*.idx")} == {
        path.name for path in tmp_path.glob("?/_txlog_index/*/*.idx")
    }
    assert (old.exists(), young.exists()) == (False, True)
    assert {path.name for path in kept.glob("*/*")} == {
        next(iter(table.indexes.list())) for table in tables
    }


def test_an_absent_key_reads_no_data(far_table: Path) -> None:
    store = far(far_table)
    table = open_table(store)
    table.lookup([1], on="k")
    store.reset()
    assert table.contains([10**9, -5], on="k").to_pylist() == [False, False]
    assert not store.calls


def test_the_cache_of_segments_is_an_argument(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"k": [1]}))
    table.indexes.create("k")
    opened = txlog.Table(tmp_path / "t", index_cache=tmp_path / "kept")
    assert opened.lookup([1]).num_rows == 1
    assert not (tmp_path / "kept").exists()  # The store is this machine's own disk.
    import pickle

    assert pickle.loads(pickle.dumps(opened))._context.lookups.folder == str(tmp_path / "kept")
    assert isinstance(opened._lookup(opened._open, None), Lookup)


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("kept_bytes", [8 << 20, 100])
def test_a_write_fetches_no_end_of_its_files(nan: bool, kept_bytes: int) -> None:
    uri = f"memory://{uuid4()}"
    store = CountingStore(LatencyStore(open_store(uri), 0))
    rows = pa.table({"k": range(1_000), "x": [float("nan") if nan else 1.0] * 1_000})
    txlog.Table.create(uri, rows.schema, properties={"txlog.pageRows": "10"})
    table = open_table(store)
    table.indexes.create("k", name="by_k")
    store.reset()
    with moved({"txlog.data_files.write:_KEPT_BYTES": kept_bytes}):
        table.append(rows)
        table.append(rows)
        table.append(rows)
    assert (store.requests["read_range"] == 0) is (kept_bytes > 100)
    # Only the first of these writes does not know how many segments there are.
    listed = [one for one in store.calls if one.kind == "list_after" and "_index" in one.path]
    assert len(listed) <= 1
    segments = txlog.Table(uri)._context.lookups.cache().segments.segments(open_store(uri), "by_k")
    files = [file for one in segments for run in one.runs for file in run.files]
    assert len(files) == 3
    for file in files:
        read = read_tail(open_store(uri), file.paths[0], file.sizes[0])
        assert read is not None
        assert file.tail is not None
        assert file.tail.start == read.start
        assert file.tail.unpacked(file.sizes[0]) == read.unpacked(file.sizes[0])


FILES = 100


@pytest.fixture(scope="module")
def many_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a table of many files of which each has keys from everywhere."""
    root = tmp_path_factory.mktemp("many")
    draw = np.random.default_rng(6)
    count = FILES * 100
    payload = draw.bytes(count * 1_000)
    data = pa.table(
        {
            "k": draw.permutation(count),
            "v": draw.random(count),
            # More bytes than are read together with a footer.
            "b": [payload[at : at + 1_000] for at in range(0, len(payload), 1_000)],
        }
    )
    table = txlog.Table.create(
        root, data.schema, properties={"delta.enableDeletionVectors": "true"}
    )
    table.append(data, options=txlog.WriteOptions(max_rows_per_file=100))
    table.indexes.create("k")
    table.maintenance.checkpoint()
    assert len(table.fragments()) == FILES
    return root


def copied(folder: Path) -> Store:
    """Return a store in memory with the files of a folder."""
    home = open_store(f"memory://{uuid4()}/t")
    for path in folder.rglob("*"):
        if path.is_file():
            home.write_new(path.relative_to(folder).as_posix(), path.read_bytes())
    return home


def changed_keys() -> pa.Array:
    return pa.array(np.random.default_rng(7).choice(FILES * 100, 1_000, replace=False))


def upsert(table: txlog.Table) -> int:
    keys = changed_keys()
    data = {"k": keys, "v": pa.nulls(len(keys), pa.float64()), "b": [b"new"] * len(keys)}
    return table.upsert(pa.table(data), on="k").metrics["numTargetRowsUpdated"]


def delete(table: txlog.Table) -> int:
    return table.delete(has_changed_key()).metrics["numDeletedRows"]


def update(table: txlog.Table) -> int:
    return table.update({"v": "0.5"}, has_changed_key()).metrics["numUpdatedRows"]


def has_changed_key() -> str:
    return f"k in ({', '.join(map(str, changed_keys().to_pylist()))})"


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "most"), [(upsert, 15), (delete, 13), (update, 17)])
def test_a_change_by_keys_waits_for_few_requests(
    many_files: Path, verb: Callable[[txlog.Table], int], most: int
) -> None:
    """Two or three more than are needed: the clock may tick while the machine does other work."""
    home, near = copied(many_files), open_table(copied(many_files))
    with ticking(home) as store:
        assert verb(open_table(store)) == verb(near) == 1_000
    assert open_table(home).to_arrow().sort_by("k") == near.to_arrow().sort_by("k")
    ticks = [dict(Counter(request.kind for request in tick)) for tick in store.ticks]
    assert len(ticks) <= most, ticks
    read = [request.path for tick in store.ticks for request in tick if request.size]
    of_log = [path for path in read if path.startswith("_delta_log")]
    assert len(set(of_log)) == len(of_log), "a file of the log was read twice"


class _WritesAtOnce(CountingStore):
    """A remote store whose writes, but for those of the log, end when five are under way."""

    reads_at_once = 16  # type: ignore[assignment]  # Here it is a constant.

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._party = threading.Barrier(5)

    def _requested(self, request: Request) -> None:
        super()._requested(request)
        if request.kind in ("open_output", "write_new", "replace"):
            self._party.wait(20)  # If one waits for the other, it breaks, and the test fails.


def upsert_of_both(table: txlog.Table) -> None:
    """Update every third row and add others, so that the deletion vector is a file."""
    keys = [*range(0, 3_000, 3), *range(3_000, 3_100)]
    done = table.upsert(pa.table({"k": keys, "v": [-1] * len(keys)}), on="k")
    assert done.metrics["numTargetRowsInserted"] == 100


@pytest.fixture
def one_file() -> str:
    uri = f"memory://{uuid4()}"
    properties = {"delta.enableDeletionVectors": "true"}
    table = txlog.write(uri, pa.table({"k": range(3_000), "v": [0] * 3_000}), properties=properties)
    table.indexes.create("k")
    return uri


@pytest.mark.spec("LKP-12")
def test_the_files_of_an_upsert_are_written_at_once(one_file: str) -> None:
    """The updated and the new rows, a segment of the index for each, and the vector."""
    store = _WritesAtOnce(open_store(one_file))
    upsert_of_both(open_table(store))
    writes = [call for call in store.calls if call.kind in ("open_output", "write_new", "replace")]
    assert sorted(call.path.rpartition(".")[2] for call in writes) == [
        "bin", "idx", "idx", "parquet", "parquet",
    ]  # fmt: skip
    found = txlog.Table(one_file).to_arrow().sort_by("k")
    assert found["v"].to_pylist() == [-1, 0, 0] * 1_000 + [-1] * 100
    assert txlog.Table(one_file).lookup([2_999, 3_001, 0])["v"].to_pylist() == [0, -1, -1]


class _FarFaultyStore(FaultyStore):
    reads_at_once = 16


@pytest.mark.parametrize("fault", [("open_output", 1), ("open_output", 2), ("write_new", 1)])
def test_an_upsert_that_fails_leaves_no_file(one_file: str, fault: tuple[str, int]) -> None:
    home = open_store(one_file)
    before = {info.name for info in home.list_tree("")}
    table = open_table(_FarFaultyStore(home, [Fault(*fault, "not_done")]))
    with pytest.raises(txlog.TxlogError):
        upsert_of_both(table)
    # A vacuum deletes segments that cover no file of the table.
    left = {info.name for info in home.list_tree("") if not info.name.endswith(".idx")}
    assert left <= before
