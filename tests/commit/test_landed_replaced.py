"""Tables that were removed and made again, or replaced by older copies, while a write was open."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import txlog
from txlog.base.errors import CommitConflictError, NotFoundError, OutcomeUnknownError, StoreError
from txlog.store.base import Put
from txlog.store.local.local import LocalStore
from txlog.testing import FaultyStore, LatencyStore, open_table


def xs(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def made(root: Path, first: int, commits: int) -> None:
    """Make a table with one row in each commit, by another engine."""
    for number in range(commits + 1):
        write_deltalake(root, xs(first + number), mode="append")


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def do_append(table: txlog.Table, meanwhile: Callable[[], object]) -> object:
    meanwhile()
    return table.append(xs(900))


def do_lazy_append(table: txlog.Table, meanwhile: Callable[[], object]) -> object:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from xs(900).to_batches()
        meanwhile()
        yield from xs(901).to_batches()

    return table.append(pa.RecordBatchReader.from_batches(xs(1).schema, batches()))


def do_delete(table: txlog.Table, meanwhile: Callable[[], object]) -> object:
    meanwhile()
    return table.delete("x % 2 = 0")


def do_set(table: txlog.Table, meanwhile: Callable[[], object]) -> object:
    meanwhile()
    return table.alter.set_properties({"user.n": "mine"})


def do_transaction(table: txlog.Table, meanwhile: Callable[[], object]) -> object:
    with table.transaction() as tx:
        tx.append(xs(900))
        tx.delete("x = 0")
        meanwhile()
    return tx


def do_merge(table: txlog.Table, meanwhile: Callable[[], object]) -> object:
    with table.transaction() as tx:
        merge = tx.merge(xs(0, 5000), on="x")
        merge.when_matched_delete().when_not_matched_insert_all().execute()
        meanwhile()
    return tx


VERBS = [do_append, do_lazy_append, do_delete, do_set, do_transaction, do_merge]


def of_log(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if "_delta_log" in name}


class Replaced:
    """A table of three versions in whose place another act happens while a write is open."""

    def __init__(self, root: Path, moment: str, act: Callable[[], object], *, far: bool) -> None:
        made(root, 0, 2)
        self.root, self.act, self.log = root, act, dict[str, bytes]()
        puts = {("put_if_absent", 1): self} if moment == "before the put" else {}
        inner = FaultyStore(LocalStore(str(root)), before=puts)
        self.table = open_table(LatencyStore(inner, delay_s=0) if far else inner)
        self.meanwhile = self if moment == "meanwhile" else lambda: None

    def __call__(self) -> None:
        self.act()
        self.log = of_log(contents(self.root))


@pytest.mark.slow
@pytest.mark.spec("CON-2", "CON-19")
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("moment", ["meanwhile", "before the put"])
@pytest.mark.parametrize("new", [0, 2, 3, 5])
@pytest.mark.parametrize("verb", VERBS)
def test_no_commit_lands_on_another_table(
    tmp_path: Path, verb: Callable[..., object], new: int, moment: str, far: bool
) -> None:
    """Whether the new table is shorter than the old one, longer, or of the same length."""
    root = tmp_path / "t"

    def remake() -> None:
        shutil.rmtree(root)
        made(root, 100, new)

    replaced = Replaced(root, moment, remake, far=far)
    with pytest.raises(CommitConflictError, match="another table replaced this one") as caught:
        verb(replaced.table, replaced.meanwhile)
    assert caught.value.rule == "CON-2"
    assert of_log(contents(root)) == replaced.log
    assert sorted(DeltaTable(root).to_pyarrow_table()["x"].to_pylist()) == [*range(100, 101 + new)]


@pytest.mark.spec("CON-2", "CON-19")
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("moment", ["meanwhile", "before the put"])
@pytest.mark.parametrize("verb", [do_append, do_transaction])
def test_no_commit_lands_above_an_older_copy(
    tmp_path: Path, verb: Callable[..., object], moment: str, far: bool
) -> None:
    root, copy = tmp_path / "t", tmp_path / "copy"

    def put_back() -> None:
        shutil.copytree(root, copy)
        shutil.rmtree(root)
        (copy / "_delta_log" / f"{2:020d}.json").unlink()
        shutil.copytree(copy, root)

    replaced = Replaced(root, moment, put_back, far=far)
    with pytest.raises(CommitConflictError, match="the log ends at version 1"):
        verb(replaced.table, replaced.meanwhile)
    assert of_log(contents(root)) == replaced.log
    assert sorted(DeltaTable(root).to_pyarrow_table()["x"].to_pylist()) == [0, 1]


@pytest.mark.slow(cases=6)
@pytest.mark.spec("CON-2", "CON-19")
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("moment", ["meanwhile", "before the put"])
@pytest.mark.parametrize("new", [1, 2])
@pytest.mark.parametrize("verb", [do_lazy_append, do_transaction, do_merge])
def test_no_commit_lands_on_what_others_made_of_an_older_copy(
    tmp_path: Path, verb: Callable[..., object], new: int, moment: str, far: bool
) -> None:
    """The version that was read is another one, in a log of the same table that is long enough."""
    root = tmp_path / "t"

    def put_back() -> None:  # The data files stay, so that rows of the lost versions could return.
        for path in (root / "_delta_log").glob("*[12].json"):
            path.unlink()
        made(root, 100, new)

    replaced = Replaced(root, moment, put_back, far=far)
    with pytest.raises(CommitConflictError, match="others have committed to the copy"):
        verb(replaced.table, replaced.meanwhile)
    assert of_log(contents(root)) == replaced.log
    expected = [0, *range(100, 101 + new)]
    assert sorted(DeltaTable(root).to_pyarrow_table()["x"].to_pylist()) == expected
    verb(txlog.Table(root), lambda: None)  # As the remedy says.
    assert txlog.Table(root).version == new + 2


@pytest.mark.spec("CON-2", "CON-19")
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("meanwhile", ["checkpoint", "cleaned", "unchanged"])
def test_a_copy_is_the_same_version_if_it_has_the_same_files(
    tmp_path: Path, meanwhile: str, far: bool
) -> None:
    """Whether it is read from commits or from a checkpoint, after which they were cleaned up."""
    root = tmp_path / "t"
    table = txlog.write(root, xs(*range(9)), properties={"user.n": "1"})
    table.delete("x = 3", txn=("app", 1))
    table.alter.add_constraint({"small": "x < 10000"})
    table.pins.create("kept")

    def touch() -> None:
        if meanwhile != "unchanged":
            txlog.Table(root).maintenance.checkpoint()
        if meanwhile == "cleaned":
            for path in (root / "_delta_log").glob("*.json"):
                path.unlink()
        for path in root.rglob("*"):
            os.utime(path, (1_600_000_000, 1_600_000_000))

    inner = FaultyStore(LocalStore(str(root)), before={("put_if_absent", 1): touch})
    opened = open_table(LatencyStore(inner, delay_s=0) if far else inner)
    assert opened.append(xs(900)).version == opened.version
    assert sorted(txlog.Table(root).to_arrow()["x"].to_pylist()) == [0, 1, 2, *range(4, 9), 900]


@pytest.mark.spec("CON-2", "CON-19")
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("moment", ["meanwhile", "before the put"])
@pytest.mark.parametrize("verb", [do_append, do_transaction])
def test_no_commit_makes_a_table_that_was_removed(
    tmp_path: Path, verb: Callable[..., object], moment: str, far: bool
) -> None:
    root = tmp_path / "t"
    replaced = Replaced(root, moment, lambda: shutil.rmtree(root), far=far)
    with pytest.raises((CommitConflictError, NotFoundError, StoreError)):
        verb(replaced.table, replaced.meanwhile)
    assert of_log(contents(root)) == {}


@pytest.mark.spec("CON-2", "CON-19")
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("moment", ["meanwhile", "before the put"])
@pytest.mark.parametrize("verb", [do_append, do_transaction])
def test_a_table_that_was_copied_is_the_same(
    tmp_path: Path, verb: Callable[..., object], moment: str, far: bool
) -> None:
    """A copy has other times of its files, and others may have committed to it."""
    root = tmp_path / "t"

    def touch() -> None:
        for path in root.rglob("*"):
            os.utime(path, (1_600_000_000, 1_600_000_000))
        if moment == "meanwhile":
            write_deltalake(root, xs(7), mode="append")

    replaced = Replaced(root, moment, touch, far=far)
    verb(replaced.table, replaced.meanwhile)
    assert txlog.Table(root).version == 3 + (moment == "meanwhile")


@pytest.mark.spec("CON-19")
@pytest.mark.parametrize("far", [False, True])
def test_a_commit_that_others_built_on_in_another_table_is_unknown(
    tmp_path: Path, far: bool
) -> None:
    root = tmp_path / "t"
    made(root, 0, 2)

    def remake() -> None:
        shutil.rmtree(root)
        made(root, 100, 2)

    class Busy(FaultyStore):
        def put_if_absent(self, path: str, data: bytes) -> Put:
            answer = super().put_if_absent(path, data)
            write_deltalake(root, xs(103), mode="append")
            return answer

    inner = Busy(LocalStore(str(root)), before={("put_if_absent", 1): remake})
    table = open_table(LatencyStore(inner, delay_s=0) if far else inner)
    with pytest.raises(OutcomeUnknownError, match="or an older copy, replaced this one") as caught:
        table.alter.set_properties({"user.n": "mine"})
    assert "restore(2)" in str(caught.value)
    txlog.Table(root).restore(version=2)
    assert sorted(txlog.Table(root).to_arrow()["x"].to_pylist()) == [100, 101, 102]
