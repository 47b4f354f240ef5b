"""The loader, compared with the order of plain_loader.py over the rows of scans."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.training.loader.plain_loader import batches_of, blocks_of, epoch_of
from txlog.base.errors import DataFileError, InvalidInputError, InvalidTypeError
from txlog.scan.data_file import OpenFile
from txlog.store.base import Store
from txlog.testing import CountingStore, LatencyStore, open_store, open_table
from txlog.testing.stores import Request
from txlog.training import Loader, Shuffle
from txlog.training.loader import stream
from txlog.training.loader.order import block_rows_for

NAMES = count()


def blocks(table: txlog.Table, block_rows: int, where: str | None = None) -> list[list[int]]:
    """Return the blocks of a table's rows, by ids that a scan gives."""
    rows = table.to_arrow(["id", "_rowaddr"], where)
    ids = dict(zip(rows["_rowaddr"].to_pylist(), rows["id"].to_pylist(), strict=True))
    fragments = []
    for fragment in table.fragments():
        assert fragment.physical_rows is not None
        addresses = range(fragment.id << 32, (fragment.id << 32) + fragment.physical_rows)
        fragments.append([(ids.get(at, -1), at in ids) for at in addresses])
    return blocks_of(fragments, block_rows)


def ids_of(batches: Iterator[Any] | Loader) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


@st.composite
def tables(draw: st.DrawFn) -> txlog.Table:
    """A table in memory: partitions, files of few rows, deletions, files of columns."""
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    partitioned, mapped = draw(st.booleans()), draw(st.booleans())
    properties = {"txlog.pageRows": "4"}
    if mapped:
        properties["delta.columnMapping.mode"] = draw(st.sampled_from(["name", "id"]))
    schema = pa.schema([("id", pa.int64()), ("p", pa.int32()), ("x", pa.float32())])
    table = txlog.Table.create(
        f"memory://loader-{next(NAMES)}", schema, properties=properties,
        partition_by=["p"] if partitioned else [],
    )  # fmt: skip
    first = 0
    for size in sizes:
        ids = np.arange(first, first + size)
        table.append(pa.table([ids, ids % 2, ids / 2], schema=schema))
        first += size
    for _ in range(draw(st.integers(0, 2))):
        going = draw(st.lists(st.integers(0, first - 1), min_size=1, max_size=9))
        table.delete(f"id IN ({', '.join(map(str, going))})")
    if draw(st.booleans()):
        table.alter.add_features("txlog.fragments")
        table.alter.add_columns({"y": "2 * id"})
    if mapped and draw(st.booleans()):
        table.alter.rename_column("x", "z")
    return table


SHUFFLES = st.none() | st.builds(
    Shuffle,
    seed=st.integers(0, 3),
    lanes=st.integers(1, 9),
    window_rows=st.integers(1, 8),
    block_rows=st.integers(1, 12),
)


def plain_shuffle(shuffle: Shuffle | None) -> tuple[int, int, int] | None:
    if shuffle is None:
        return None
    assert shuffle.window_rows is not None
    return shuffle.seed, shuffle.lanes, shuffle.window_rows


@pytest.mark.slow
@pytest.mark.spec("LDR-1", "LDR-7", "LDR-9", "LDR-10", "LDR-11")
@given(st.data())
@settings(max_examples=examples(45))
def test_batches_are_those_of_the_plain_order(data: st.DataObject) -> None:
    table = data.draw(tables())
    shuffle = data.draw(SHUFFLES)
    where = data.draw(st.sampled_from([None, "id % 3 <> 1", "p = 1", "id > 20", "id < 0"]))
    ranks = data.draw(st.integers(1, 5))
    batch_size, even = (
        data.draw(st.integers(1, 9)),
        data.draw(st.sampled_from(["drop", "pad", "short"])),
    )
    epoch = data.draw(st.integers(0, 2))
    rows = epoch_of(
        blocks(table, (shuffle and shuffle.block_rows) or 5, where), plain_shuffle(shuffle), epoch
    )

    def loader(rank: int, ranks: int, batch_size: int) -> Loader:
        return Loader(
            table, batch_size=batch_size, where=where, shuffle=shuffle, even=even, rank=rank,
            world_size=ranks, threads=data.draw(st.integers(0, 3)),
            ahead=data.draw(st.integers(1, 3)),
        )  # fmt: skip

    # Each rank, perhaps by several workers, up to a step; then others go on.
    stop = data.draw(st.integers(0, 1 + len(rows) // (batch_size * ranks)))
    for rank in range(ranks):
        workers = data.draw(st.integers(1, 3))
        wanted = batches_of(rows, batch_size, rank, ranks, even)
        parts = []
        for worker in range(workers):
            mine = loader(rank, ranks, batch_size)
            mine.set_epoch(epoch)
            parts.append(ids_of(mine.batches(worker, workers)))
            assert (mine.epoch, mine.state_dict()["position"]) == (epoch + 1, 0)
        merged = [parts[i % workers][i // workers] for i in range(sum(map(len, parts)))]
        assert merged == wanted
        assert len(mine) >= len(wanted)
        again = loader(rank, ranks, batch_size)
        again.set_epoch(epoch)
        batches = iter(again)
        some = [batch["id"].tolist() for _, batch in zip(range(stop), batches, strict=False)]
        state = again.state_dict()
        assert some == wanted[:stop]
    others, size = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    if state["epoch"] == epoch:
        assert state == loader(0, ranks, batch_size).state_at(stop) | {"epoch": epoch}
        for rank in range(others):
            mine = loader(rank, others, size)
            mine.load_state_dict(state)
            assert mine.state_dict() == state
            assert ids_of(mine) == batches_of(rows, size, rank, others, even, state["position"])


@pytest.mark.slow
@pytest.mark.spec("LDR-9")
@pytest.mark.parametrize("shuffle", [None, Shuffle(seed=5, lanes=8, window_rows=7, block_rows=16)])
def test_any_number_of_ranks_sees_the_same_global_batches(
    tmp_path: Path, shuffle: Shuffle | None
) -> None:
    table = txlog.write(str(tmp_path), pa.table({"id": range(1000)}))
    table.append(pa.table({"id": range(1000, 1500)}))
    wanted: list[set[int]] = []
    for ranks in (1, 2, 3, 4, 6, 8):
        batches = [
            ids_of(
                Loader(table, batch_size=24 // ranks, shuffle=shuffle, rank=rank, world_size=ranks)
            )
            for rank in range(ranks)
        ]
        together = [{row for part in step for row in part} for step in zip(*batches, strict=True)]
        wanted = wanted or together
        assert together == wanted
        assert sum(map(len, together)) == 1500 // 24 * 24


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    made = txlog.write(str(tmp_path / "table"), pa.table({"id": range(100), "x": [None, 1.5] * 50}))
    made.append(pa.table({"id": range(100, 200), "x": [2.5] * 100}))
    return made


SHUFFLE = Shuffle(seed=1, lanes=4, window_rows=8, block_rows=16)


def made(table: txlog.Table, **more: Any) -> Loader:
    return Loader(table, **{"batch_size": 10, "columns": ["id"], "shuffle": SHUFFLE, **more})


def test_epochs_follow_each_other_and_differ(table: txlog.Table) -> None:
    loader = made(table)
    first, second = ids_of(loader), ids_of(loader)
    assert loader.epoch == 2
    assert len(loader) == len(first) == 20
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(200))
    assert first != second
    loader.set_epoch(0)
    assert ids_of(loader) == first
    assert (
        ids_of(made(table, shuffle=Shuffle(seed=2, lanes=4, window_rows=8, block_rows=16))) != first
    )


def test_an_iteration_that_is_broken_off_begins_again(table: txlog.Table) -> None:
    loader = made(table)
    first = next(iter(loader))["id"].tolist()
    assert loader.state_dict()["position"] == 10
    assert next(iter(loader))["id"].tolist() == first


def test_a_loader_pickles_and_goes_on(table: txlog.Table) -> None:
    loader = made(table, where="id > 20")
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    other = pickle.loads(pickle.dumps(loader))
    other.load_state_dict(loader.state_dict())
    assert ids_of(other) == ids_of(batches)


def test_the_default_version_stays(table: txlog.Table) -> None:
    loader = made(table)
    old = ids_of(loader)
    table.delete("id < 50")
    loader.set_epoch(0)
    assert ids_of(loader) == old
    assert ids_of(made(table, version=1)) == old
    assert ids_of(made(table.uri, version=1)) == old
    assert made(table).num_rows == 150
    table.pins.create("run", version=1)
    assert ids_of(made(table, version="run")) == old


def test_transform_makes_what_is_given_out(table: txlog.Table) -> None:
    loader = made(table, transform=lambda batch: int(batch["id"].sum()))
    assert sum(loader) == sum(range(200))


def test_ranks_come_from_the_environment(
    table: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    loader = made(table)
    assert (loader.rank, loader.world_size) == (2, 4)
    for name, other in (("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")):
        with monkeypatch.context() as patch:
            patch.delenv(name)
            with pytest.raises(InvalidInputError, match=f"WORLD_SIZE, {name} is not set"):
                made(table)
            assert made(table, rank=0, world_size=1).world_size == 1
            if other == "WORLD_SIZE":
                patch.setenv(other, "1")
                assert made(table).world_size == 1
    monkeypatch.setenv("RANK", "four")
    with pytest.raises(InvalidInputError, match="the variable RANK is 'four'"):
        made(table)


@pytest.mark.spec("LDR-3")
def test_blocks_go_by_the_bytes_of_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    data = pa.table({"id": range(300), "b": [random.bytes(10_000) for _ in range(300)]})
    table = txlog.write(str(tmp_path), data)
    files = table.files(["size_bytes", "num_records"]).to_pylist()
    rows = block_rows_for(files[0]["size_bytes"], 300, 1, shuffled=True)
    assert rows == 312
    told = made(table, shuffle=Shuffle(lanes=64, window_rows=156, block_rows=312))
    assert told.fingerprint == made(table, shuffle=Shuffle()).fingerprint
    assert ids_of(told) == ids_of(made(table, shuffle=Shuffle()))


# States -----------------------------------------------------------------------------------


@pytest.mark.spec("LDR-8")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "its format is 2"),
        ({"epoch": -1}, "its epoch is -1"),
        ({"position": 201}, "at row 201 of 200"),
        ({"position": 1.0}, "its position is 1.0"),
        ({"seed": 4}, "its seed is 4, this loader's 1"),
        ({"more": 1}, "a state has the fields"),
        (
            {"fingerprint": "0" * 16},
            "the table, its version, the predicate, the function of rows, the weights,",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    table: txlog.Table, change: dict[str, Any], reason: str
) -> None:
    loader = made(table)
    before = loader.state_dict()
    assert list(before) == ["format", "epoch", "position", "seed", "fingerprint"]
    with pytest.raises(InvalidInputError, match=reason) as raised:
        loader.load_state_dict(before | change)
    assert raised.value.argument == "state"
    assert loader.state_dict() == before


@pytest.mark.spec("LDR-8")
def test_what_differs_is_said(table: txlog.Table, tmp_path: Path) -> None:
    table.append(pa.table({"id": [200], "x": [0.0]}))
    loader = made(table)

    def refused(other: Loader, reason: str) -> None:
        with pytest.raises(InvalidInputError, match=reason):
            loader.load_state_dict(other.state_dict())

    refused(made(table, version=1), "it is of version 1, this loader reads version 2")
    refused(made(table, shuffle=None), "it is of a loader without shuffling")
    refused(
        made(table, where="id > 1"),
        "the table, its version, the predicate, the function of rows, the weights,",
    )
    refused(made(table, shuffle=Shuffle(seed=1, lanes=8, window_rows=8, block_rows=16)), "lanes")
    copy = txlog.write(str(tmp_path / "copy"), table)
    refused(made(copy), "the table, its version, the predicate")
    with pytest.raises(InvalidInputError, match="it is of a loader without a predicate"):
        made(table, where="id > 1").load_state_dict(loader.state_dict())
    loader.load_state_dict(made(table, columns=["x"], fill={"x": 0}).state_dict())
    both = "it is of version 1, this loader reads version 2, and it is of a loader without a pred"
    with pytest.raises(InvalidInputError, match=both):
        made(table, where="id > 1").load_state_dict(made(table, version=1).state_dict())


# Files ------------------------------------------------------------------------------------


def test_files_that_are_gone_are_told_at_the_start(table: txlog.Table) -> None:
    path = Path(table.scan(where="id >= 100").file_uris()[0])
    path.unlink()
    with pytest.raises(DataFileError, match="1 of 2 data files of this version are gone") as raised:
        made(table)
    assert path.name in raised.value.path
    assert made(table, where="id < 100").num_rows == 100  # The file is not needed.


def test_files_gone_from_a_store_far_away_are_told_at_the_start(tmp_path: Path) -> None:
    """Of many files the folder is listed; they are not asked for one by one."""
    data = pa.table({"id": range(270), "p": range(270)})
    here = txlog.write(str(tmp_path), data, partition_by=["p"])
    store = CountingStore(LatencyStore(open_store(str(tmp_path)), delay_s=0))
    table = open_table(store)
    before = store.requests["info"]
    assert made(table).num_rows == 270
    assert store.requests["info"] - before < 10
    Path(here.scan(where="id = 7").file_uris()[0]).unlink()
    with pytest.raises(DataFileError, match="1 of 270 data files"):
        made(table)


class MeetingStore(LatencyStore):
    """A remote store whose first reads of data wait until several of them are under way."""

    def __init__(self, inner: Store, parties: int) -> None:
        super().__init__(inner, delay_s=0)
        self.meeting = Barrier(parties)
        self.waits = False

    def _requested(self, request: Request) -> None:
        if self.waits and request.kind == "read_range" and request.path.endswith(".parquet"):
            self.meeting.wait(60)
            self.waits = False


def test_a_store_far_away_is_read_ahead_and_at_once(tmp_path: Path) -> None:
    """Four lanes are in four files: all of them are asked for before one of them answers."""
    here = txlog.write(str(tmp_path), pa.table({"id": range(100)}))
    for first in (100, 200, 300):
        here.append(pa.table({"id": range(first, first + 100)}))
    store = MeetingStore(open_store(str(tmp_path)), parties=4)
    shuffle = Shuffle(seed=1, lanes=4, window_rows=50, block_rows=100)
    loader = made(open_table(store), shuffle=shuffle)
    store.waits = True
    batches = ids_of(loader)
    assert not store.waits
    assert batches == ids_of(made(here, shuffle=shuffle))


def test_a_file_with_fewer_rows_than_the_log_says_is_refused(table: txlog.Table) -> None:
    path = table.scan(where="id >= 100").file_uris()[0]
    pq.write_table(pq.read_table(path).slice(0, 90), path)
    with (
        pytest.warns(txlog.TxlogWarning, match="has 100 rows, but it has 90"),
        pytest.raises(DataFileError, match=r"has \d+ rows from position \d+ on, but it has \d+"),
    ):
        list(made(table, threads=0))
    with (
        pytest.warns(txlog.TxlogWarning, match="has 100 rows, but it has 90"),
        pytest.raises(DataFileError, match="has 100 rows from position 0 on, but it has 90"),
    ):
        list(made(table, threads=0, shuffle=None))


# Arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "argument", "reason"),
    [
        ({"batch_size": 0}, "batch_size", "from 1"),
        ({"batch_size": True}, "batch_size", "from 1"),
        ({"threads": -1}, "threads", "from 0"),
        ({"ahead": 0}, "ahead", "from 1"),
        ({"rank": 0}, "rank", "given together"),
        ({"rank": 2, "world_size": 2}, "rank", "below 2"),
        ({"even": "cut"}, "even", "drop, pad, short"),
        ({"columns": []}, "columns", "at least one"),
        ({"columns": ["nix"]}, "columns", "no such column"),
        ({"views": {"x": None}}, "views", "no such column is loaded"),
        ({"fill": {"y": 1}}, "fill", "no such column is loaded"),
        ({"shuffle": True}, "shuffle", "a Shuffle or None"),
        ({"storage_options": {}}, "storage_options", "already"),
    ],
)
def test_a_wrong_argument_is_refused(
    table: txlog.Table, wrong: dict[str, Any], argument: str, reason: str
) -> None:
    with pytest.raises(InvalidInputError, match=reason) as raised:
        made(table, **wrong)
    assert raised.value.argument == argument


def test_columns_as_text_are_refused(table: txlog.Table) -> None:
    with pytest.raises(InvalidTypeError, match="columns"):
        made(table, columns="id")


# Processes --------------------------------------------------------------------------------

TRAINER = """
import json, os, sys, time
from txlog.training import Loader, Shuffle
loader = Loader({uri!r}, batch_size=7, columns=["id"], version=1,
                shuffle=Shuffle(seed=9, lanes=8, window_rows=16, block_rows=32))
if os.path.exists({state!r}):
    loader.load_state_dict(json.load(open({state!r})))
with open({seen!r}, "a") as seen:
    for batch in loader:
        print(json.dumps([batch["id"].tolist(), loader.state_dict()]), file=seen, flush=True)
        if loader.state_dict()["position"] >= {stop}:
            print("ready", flush=True)
            time.sleep(60)
"""


@pytest.mark.slow
def test_a_killed_process_goes_on_at_the_exact_row(table: txlog.Table, tmp_path: Path) -> None:
    """kill -9 in mid-epoch, twice; the third process ends the epoch: every row once."""
    seen, state = tmp_path / "seen", tmp_path / "state"
    for stop in (70, 140):
        code = TRAINER.format(uri=table.uri, state=str(state), seen=str(seen), stop=stop)
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            os.kill(process.pid, signal.SIGKILL)
        state.write_text(json.dumps(json.loads(seen.read_text().splitlines()[-1])[1]))
    code = TRAINER.format(uri=table.uri, state=str(state), seen=str(seen), stop=10_000)
    subprocess.run([sys.executable, "-c", code], check=True)
    batches = [json.loads(line)[0] for line in seen.read_text().splitlines()]
    shuffle = Shuffle(seed=9, lanes=8, window_rows=16, block_rows=32)
    assert batches == ids_of(made(table, batch_size=7, version=1, shuffle=shuffle))
    rows = [row for batch in batches for row in batch]
    assert len(rows) == len(set(rows)) == 196


# What is read -------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each read, as they are decoded."""
    calls: list[int] = []
    read_rows = OpenFile.read_rows

    def counted(file: OpenFile, positions: Any) -> pa.RecordBatch:
        calls.append(len(positions))
        return read_rows(file, positions)

    monkeypatch.setattr(OpenFile, "read_rows", counted)
    return calls


def test_ranks_read_no_row_twice(table: txlog.Table, reads: list[int]) -> None:
    for rank in range(4):
        list(made(table, rank=rank, world_size=4, even="short"))
    assert sum(reads) == 200


def of_many_rows(folder: Path, page_rows: int | None = None) -> txlog.Table:
    properties = {} if page_rows is None else {"txlog.pageRows": str(page_rows)}
    chance = np.random.default_rng(1)
    data = pa.table({"id": range(4000), "b": [chance.bytes(200) for _ in range(4000)]})
    return txlog.write(str(folder), data, properties=properties)


def test_the_first_batch_decodes_only_the_pages_of_its_windows(
    tmp_path: Path, reads: list[int]
) -> None:
    table = of_many_rows(tmp_path, page_rows=10)
    shuffle = Shuffle(seed=1, lanes=4, window_rows=20, block_rows=500)
    loader = made(table, shuffle=shuffle, threads=0)
    batches = iter(loader)
    first = next(batches)["id"].tolist()
    assert 80 <= sum(reads) <= 4 * 30  # Of each lane a window, to the end of a page.
    assert [first, *ids_of(batches)] == batches_of(
        epoch_of(blocks(table, 500), (1, 4, 20), 0), 10, 0, 1, "drop"
    )
    assert sum(reads) == 4000
    reads.clear()
    loader.load_state_dict(loader.state_at(200))
    next(iter(loader))
    assert sum(reads) <= 4 * 30  # So it is after a state was loaded.


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    """Files of many small pages, with deletions."""
    made = txlog.write(
        str(tmp_path_factory.mktemp("paged")), pa.table({"id": range(300)}),
        properties={"txlog.pageRows": "4"},
    )  # fmt: skip
    made.append(pa.table({"id": range(300, 450)}))
    made.delete("id % 11 = 3 OR id BETWEEN 120 AND 140")
    return made


@pytest.mark.spec("LDR-1", "LDR-9")
@given(
    seed=st.integers(0, 9), lanes=st.integers(1, 6), window=st.integers(1, 12),
    block=st.integers(20, 80), ranks=st.integers(1, 3), batch_size=st.integers(1, 20),
    at=st.integers(0, 30), even=st.sampled_from(["drop", "pad", "short"]),
)  # fmt: skip
@settings(max_examples=examples(50))
def test_pieces_of_which_the_first_round_reads_a_part_are_returned_whole(
    paged: txlog.Table, seed: int, lanes: int, window: int, block: int, ranks: int,
    batch_size: int, at: int, even: Any,
) -> None:  # fmt: skip
    shuffle = Shuffle(seed=seed, lanes=lanes, window_rows=window, block_rows=block)
    rows = epoch_of(blocks(paged, block), (seed, lanes, window), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "_WORTH_BYTES", 0)  # As of large files.
        for rank in range(ranks):
            loader = made(
                paged, shuffle=shuffle, rank=rank, world_size=ranks, batch_size=batch_size,
                even=even,
            )  # fmt: skip
            state = loader.state_at(at)
            loader.load_state_dict(state)
            assert ids_of(loader) == batches_of(
                rows, batch_size, rank, ranks, even, state["position"]
            )


def test_a_page_of_many_lanes_is_decoded_once(tmp_path: Path, reads: list[int]) -> None:
    table = of_many_rows(tmp_path)
    rows = ids_of(made(table, shuffle=Shuffle(seed=1, lanes=64)))
    assert reads == [4000]
    assert rows == batches_of(epoch_of(blocks(table, 20_000), (1, 64, 4096), 0), 10, 0, 1, "drop")


def test_no_more_rounds_are_read_ahead_than_asked_for(tmp_path: Path, reads: list[int]) -> None:
    """Also if one read returns the rows of a whole round."""
    pq.write_table(pa.table({"id": range(100_000)}), tmp_path / "part.parquet")
    table = txlog.convert_to_delta(str(tmp_path))
    shuffle = Shuffle(seed=1, lanes=64, window_rows=50, block_rows=50)
    batches = iter(made(table, shuffle=shuffle, threads=2))
    next(batches)
    time.sleep(0.3)  # What was asked for is read then.
    assert 64 * 50 <= sum(reads) <= 4 * 64 * 50


def test_a_row_group_without_an_index_of_pages_is_decoded_once_for_all_lanes(
    tmp_path: Path, reads: list[int]
) -> None:
    """As pyarrow and DuckDB write files."""
    pq.write_table(pa.table({"id": range(4000)}), tmp_path / "part.parquet")
    table = txlog.convert_to_delta(str(tmp_path))
    shuffle = Shuffle(seed=1, lanes=8, window_rows=20, block_rows=100)
    batches = iter(made(table, shuffle=shuffle, threads=2))
    first = next(batches)["id"].tolist()
    assert [first, *ids_of(batches)] == batches_of(
        epoch_of(blocks(table, 100), (1, 8, 20), 0), 10, 0, 1, "drop"
    )
    assert sum(reads) == 4000
    assert len(reads[:2]) == 2
    assert sum(reads[:2]) >= 8 * 20
    # Two threads decode it for each round that begins blocks, and not each of 40 blocks.
    assert len(reads) < 20
