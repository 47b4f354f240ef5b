"""txlog's requests to a remote store: how many, how large, and how many at a time."""

import pickle
import threading
import time
import uuid
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.base.effects import Effects
from txlog.base.threads import Threads
from txlog.checkpoint.parquet import read_footer
from txlog.parquet.file_footer import FileFooter
from txlog.store.base import Store
from txlog.store.open import open_store
from txlog.store.ranged import open_ranged
from txlog.testing import CountingStore, LatencyStore, Request, StoreContract, open_table, unsealed

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string())])
AFTER = 3  # Commits after the checkpoint.
FILES = 8 + AFTER


def rows(start: int, count: int = 10) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"a": pa.array(numbers, pa.int64()), "s": [f"s{n}" for n in numbers]})


def far(root: str | Path, options: dict[str, str] | None = None) -> CountingStore:
    return CountingStore(LatencyStore(open_store(root, options), delay_s=0))


@pytest.fixture
def root() -> str:
    """A table of files with ten rows each, a checkpoint, and a few commits after it."""
    uri = f"memory://{uuid.uuid4()}/t"
    table = txlog.Table.create(uri, SCHEMA, properties={"delta.checkpointInterval": "1000"})
    for n in range(FILES - AFTER):
        table.append(rows(10 * n))
    table.maintenance.checkpoint()
    for n in range(FILES - AFTER, FILES):
        table.append(rows(10 * n))
    return uri


@pytest.mark.slow
class TestWatchedStore(StoreContract):
    """A store that is watched is as it was."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.root = tmp_path / "t"

    def make_store(self) -> Store:
        return far(self.root)

    def test_a_store_is_a_value(self) -> None:
        store = self.make_store()
        store.write_new("f", b"x")
        copy: Store = pickle.loads(pickle.dumps(store))
        assert copy.read("f") == b"x"
        assert copy.root == store.root


def test_requests_are_counted_with_their_bytes(tmp_path: Path) -> None:
    store = CountingStore(open_store(tmp_path))
    store.write_new("f/a", b"0123456789")
    store.put_if_absent("f/b", b"12")
    store.replace("f/b", b"123")
    with store.open_output("f/c") as sink:
        sink.write(b"1234")
    store.read("f/a")
    with pytest.raises(txlog.NotFoundError):
        store.read("f/z")
    with store.open_input("f/a") as file:
        file.seek(4)
        assert (file.read(3), file.read()) == (b"456", b"789")
    with store.open_input("f/a", size=10) as file:
        assert file.read() == b"0123456789"
    assert [info.name for info in store.list_after("f", "b")] == ["b", "c"]
    store.delete(["f/b", "f/c"])
    assert store.calls == [
        Request("write_new", "f/a", 10),
        Request("put_if_absent", "f/b", 2),
        Request("replace", "f/b", 3),
        Request("open_output", "f/c", 4),
        Request("read", "f/a", 10),
        Request("read", "f/z", 0),
        Request("info", "f/a"),
        Request("read_range", "f/a", 3),
        Request("read_range", "f/a", 3),
        Request("read_range", "f/a", 10),
        Request("list_after", "f/b"),
        Request("delete", "f/b"),
    ]
    assert store.requests["read_range"] == 3
    assert store.bytes["read_range"] == 16
    store.reset()
    assert store.requests.total() == 0


def test_a_listing_is_a_request_for_each_thousand_names() -> None:
    store = CountingStore(open_store(f"memory://{uuid.uuid4()}"))
    for n in range(1001):
        store.inner.write_new(f"log/{n:04d}", b"")
    assert len(list(store.list_after("log", ""))) == 1001
    assert store.requests == {"list_after": 2}


class Waits(Effects):
    """Keeps account of who waits, instead of waiting for long."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now, self.most, self.waited = 0, 0, 0.0

    def sleep_s(self, seconds: float) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.waited += seconds
        time.sleep(0.02)
        with self.lock:
            self.now -= 1


def slow(root: str) -> tuple[LatencyStore, Waits]:
    waits = Waits()
    return LatencyStore(open_store(root), effects=waits), waits


def test_each_request_takes_its_time(root: str) -> None:
    store, waits = slow(root)
    store.read("_delta_log/_last_checkpoint")
    assert waits.waited == 0.05
    assert store.reads_at_once == 16
    assert LatencyStore(open_store("local:///nowhere")).reads_at_once == 16
    assert CountingStore(store).reads_at_once == 16
    assert CountingStore(open_store(root)).reads_at_once == 1


def test_opening_asks_for_little_beside_what_must_be_read(root: str) -> None:
    store = far(root)
    assert open_table(store).version == FILES
    must = AFTER + 1  # The commits after the checkpoint, and its footer.
    assert store.requests.total() <= must + 4
    (listing,) = (call for call in store.calls if call.kind == "list_after")
    assert listing.path == f"_delta_log/{FILES - AFTER:020d}"
    read = [call.path for call in store.calls if call.kind == "read"]
    assert len(set(read)) == len(read) == AFTER + 1
    assert store.requests["info"] == 0
    assert store.requests["read_range"] == 1  # A short checkpoint is read with its footer.


def test_opening_reads_no_more_of_a_large_checkpoint_than_it_needs(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, SCHEMA, properties={"delta.checkpointInterval": "1000"})
    table.append(rows(0))
    commit = tmp_path / "_delta_log" / f"{1:020d}.json"
    lines = [orjson.loads(line) for line in unsealed(commit.read_bytes()).splitlines()]
    (add,) = (line["add"] for line in lines if "add" in line)
    adds = [{"add": add | {"path": f"{uuid.uuid4()}.parquet", "tags": None}} for _ in range(20_000)]
    lines = [line for line in lines if "add" not in line and "txn" not in line]
    commit.write_bytes(b"\n".join(map(orjson.dumps, [*lines, *adds])))
    txlog.Table(tmp_path).maintenance.checkpoint()
    size = (tmp_path / "_delta_log" / f"{1:020d}.checkpoint.parquet").stat().st_size
    store = far(tmp_path)
    opened = open_table(store)
    assert store.requests.total() <= 1 + 4
    assert store.bytes.total() < 100_000 < size // 4
    assert len(opened.files()) == 20_000


def test_a_commit_is_three_requests(root: str) -> None:
    store = far(root)
    table = open_table(store)
    store.reset()
    table.append(rows(1000))
    assert store.requests["open_output"] == 1  # The data file.
    assert store.requests.total() - store.requests["open_output"] <= 3
    assert store.requests["put_if_absent"] == 1
    txlog.Table(root).append(rows(2000))
    store.reset()
    table.append(rows(3000))
    # One more for the commit that another writer made.
    assert store.requests.total() - store.requests["open_output"] <= 4
    assert table.count() == txlog.Table(root).count() == (FILES + 3) * 10


def test_a_refresh_is_one_request_and_one_for_each_new_commit(root: str) -> None:
    store = far(root)
    table = open_table(store)
    store.reset()
    assert table.refresh().version == FILES
    assert store.requests.total() <= 2
    other = txlog.Table(root)
    other.append(rows(1000))
    other.append(rows(2000))
    store.reset()
    assert table.refresh().version == FILES + 2
    assert store.requests.total() <= 1 + 2
    assert table.to_arrow().equals(other.to_arrow())


def test_a_refresh_sees_that_only_a_checkpoint_leads_on(root: str) -> None:
    table, other = open_table(far(root)), txlog.Table(root)
    other.append(rows(1000))
    other.append(rows(2000))
    other.maintenance.checkpoint()
    open_store(root).delete([f"_delta_log/{FILES + 1:020d}.json"])
    assert table.refresh().version == FILES + 2


def test_a_refresh_sees_that_the_table_was_replaced(root: str) -> None:
    table, store = open_table(far(root)), open_store(root)
    store.delete([f"_delta_log/{info.name}" for info in store.list_tree("_delta_log")])
    txlog.Table.create(root, SCHEMA)
    with pytest.raises(txlog.CommitConflictError, match="another table replaced"):
        table.refresh()


@pytest.mark.parametrize("deferred", [False, True])
def test_a_footer_is_read_once(
    root: str, tmp_path: Path, deferred: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if deferred:
        monkeypatch.setattr("txlog.snapshot.live_files._LARGE_BYTES", 0)
    read: list[int] = []
    whole = read_footer

    def counted(source: Any) -> FileFooter:
        read.append(1)
        return whole(source)

    monkeypatch.setattr("txlog.checkpoint.parquet.read_footer", counted)
    store = far(root)
    table = open_table(store)
    found = table.to_arrow(where="a = 33")
    assert found.equals(rows(33, 1))
    assert len(read) == 1
    # And of the one data file that survives, all that is read is one request.
    assert sum(call.path.endswith("parquet") and "_log" not in call.path
               for call in store.calls) == 1  # fmt: skip


def test_a_checkpoint_that_was_written_anew_is_read_as_it_is(root: str) -> None:
    store = far(root)
    table = open_table(store)
    path = f"_delta_log/{FILES - AFTER:020d}.checkpoint.parquet"
    sink = pa.BufferOutputStream()
    found = pq.read_table(pa.BufferReader(store.read(path)))
    pq.write_table(found, sink, compression="none", row_group_size=2, use_dictionary=False)
    open_store(root).replace(path, sink.getvalue().to_pybytes())
    assert table.count() == FILES * 10
    assert table.to_arrow(where="a = 33").equals(rows(33, 1))


def test_a_wrong_size_in_the_log_does_no_harm(root: str) -> None:
    store = open_store(root)
    for version, size in ((FILES, 1), (FILES - 1, 1 << 20), (FILES - 2, 0)):
        path = f"_delta_log/{version:020d}.json"
        lines = [orjson.loads(line) for line in unsealed(store.read(path)).splitlines()]
        for line in lines:
            if "add" in line:
                line["add"]["size"] = size
        store.replace(path, b"\n".join(map(orjson.dumps, lines)))
    assert open_table(far(root)).to_arrow().num_rows == FILES * 10


def test_a_small_file_is_one_request(root: str) -> None:
    store = far(root)
    scan = open_table(store).scan()
    assert len(scan.fragments()) == FILES
    store.reset()
    assert scan.to_arrow().num_rows == 10 * FILES
    assert store.requests == {"read_range": FILES}


@pytest.mark.parametrize("options", [{}, {"txlog.paths": "inside"}])
def test_columns_that_lie_side_by_side_are_one_request(
    tmp_path: Path, options: dict[str, str]
) -> None:
    numbers = pa.array(range(100_000), pa.int64())
    table = txlog.Table.create(tmp_path, pa.schema([(f"c{n}", pa.int64()) for n in range(8)]))
    table.append(pa.table({f"c{n}": numbers for n in range(8)}))
    store = far(tmp_path, options)
    scan = open_table(store).scan()
    store.reset()
    assert scan.to_arrow().num_rows == 100_000
    assert store.requests["read_range"] <= 3
    store.reset()
    assert open_table(store).to_arrow(["c1"]).num_rows == 100_000
    assert store.bytes["read_range"] < 2_000_000


def test_deletions_are_one_request_for_each_file(root: str) -> None:
    table = txlog.Table(root)
    table.delete("a % 10 = 3")
    store = far(root)
    scan = open_table(store).scan()
    assert len(scan.fragments()) == FILES
    store.reset()
    assert scan.to_arrow().equals(table.to_arrow())
    assert store.requests.total() <= 2 * FILES


def test_files_are_read_at_the_same_time(root: str) -> None:
    expected = txlog.Table(root).to_arrow()
    for read in ("to_arrow", "to_table", "to_reader"):
        store, waits = slow(root)
        scan = open_table(store).scan()
        scan.fragments()
        waits.most = 0
        found = getattr(scan, read)()
        assert (found if isinstance(found, pa.Table) else found.read_all()).equals(expected)
        assert waits.most > 1


def test_commits_and_sidecars_are_read_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By its path it would be the function of the same name.
    monkeypatch.setattr(import_module("txlog.verbs.checkpoint"), "PART_ROWS", 2)
    monkeypatch.setattr("txlog.checkpoint.write._ROW_GROUP", 2)
    table = txlog.Table.create(
        tmp_path,
        SCHEMA,
        properties={
            "delta.feature.v2Checkpoint": "supported",
            "delta.checkpointPolicy": "v2",
            "delta.checkpointInterval": "1000",
        },
    )
    for n in range(16):
        table.append(rows(10 * n))
    store, waits = slow(str(tmp_path))
    opened = open_table(store)
    assert waits.most > 1
    table.maintenance.checkpoint()
    sidecars = list((tmp_path / "_delta_log" / "_sidecars").glob("*.parquet"))
    assert len(sidecars) > 4
    store, waits = slow(str(tmp_path))
    opened = open_table(store)
    waits.most = 0
    assert len(opened.files()) == 16
    assert waits.most > 1
    counting = CountingStore(store)
    opened = open_table(counting)
    counting.reset()
    opened.files()
    assert counting.requests.total() <= len(sidecars)


def test_a_near_store_is_read_one_by_one(root: str) -> None:
    assert open_table(open_store(root)).scan().engine == Threads()
    assert open_table(far(root)).scan().engine == Threads(16, most=64)


def test_the_end_of_a_file_is_read_once(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1024
    (tmp_path / "f").write_bytes(data)
    store = far(tmp_path)
    for size in (None, len(data)):
        store.reset()
        with open_ranged(store, "f", size) as file:
            assert file.seek(-8, 2) == len(data) - 8
            assert file.read() == data[-8:]
            file.seek(len(data) - 60_000)
            assert file.read(5) == data[-60_000:-59_995]
            assert file.read(0) == b""
            file.seek(5)
            assert file.read(7) == data[5:12]
            file.seek(100_000)
            assert file.read() == data[100_000:]
            assert file.read() == b""
        # A size that is not known is what the opening asks for.
        assert store.requests == {"read_range": 3} | ({"info": 1} if size is None else {})
