"""Errors in the methods of an operation, and in the deletion of files that nobody needs."""

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import StoreError
from txlog.extend import Append, execute, open_store, open_table
from txlog.snapshot.snapshot import Snapshot
from txlog.testing import Fault, FaultyStore
from txlog.verbs import cluster

ERRORS: dict[str, BaseException] = {
    "store": StoreError(path="f", operation="write", reason="the store failed"),
    "system": OSError("the disk failed"),
    "memory": MemoryError(),
    "own": ValueError("an error of its own"),
}


class Stranger(Append):
    """Adds a row; raises in one of its methods, after it has done its work."""

    def __init__(self, raised: dict[str, BaseException]) -> None:
        super().__init__(pa.table({"x": [2]}))
        self._raised = raised

    def _raise(self, method: str) -> None:
        if method in self._raised:
            raise self._raised[method]

    def intent(self, base: Snapshot) -> Any:
        intent = super().intent(base)
        self._raise("intent")
        return intent

    def discard(self) -> None:
        super().discard()
        self._raise("discard")

    def landed(self, intent: Any) -> None:
        self._raise("landed")


METHODS = ("intent", "discard", "landed")


@given(
    raised=st.dictionaries(st.sampled_from(METHODS), st.sampled_from(sorted(ERRORS))),
)
@settings(max_examples=examples(200), deadline=None)
def test_the_first_error_is_raised_and_a_commit_stays(
    tmp_path_factory: pytest.TempPathFactory, raised: dict[str, str]
) -> None:
    root = tmp_path_factory.mktemp("t")
    table = txlog.write(root, pa.table({"x": [1]}))
    operation = Stranger({method: ERRORS[kind] for method, kind in raised.items()})
    first = ERRORS[raised["intent"]] if "intent" in raised else None
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        error: BaseException | None = None
        try:
            execute(table, operation)
        except Exception as failure:
            error = failure
    values = sorted(txlog.Table(root).to_arrow()["x"].to_pylist())
    if first is None:
        assert error is None
        assert values == [1, 2]
        messages = [str(one.message) for one in seen if one.category is txlog.TxlogWarning]
        assert any("is committed" in one for one in messages) == ("landed" in raised)
        return
    assert values == [1]
    assert error is first or (isinstance(error, txlog.TxlogError) and error.__cause__ is first)
    assert len([*root.glob("*.parquet")]) == 1  # What was written is deleted.
    notes = [*getattr(error, "__notes__", []), *getattr(first, "__notes__", [])]
    assert bool(notes) == ("discard" in raised)
    for one in (error, first):
        getattr(one, "__notes__", []).clear()


def test_vectors_that_cannot_be_deleted_fail_no_delete(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [*range(20_000)]}))
    store = FaultyStore(
        open_store(table.uri),
        [Fault("delete", 1, "not_done")],
        before={("put_if_absent", 1): lambda: txlog.Table(table.uri).delete("x % 7 = 1")},
    )
    with pytest.warns(txlog.TxlogWarning, match="could not be deleted"):
        open_table(store).delete("x % 3 = 0")
    left = sorted(txlog.Table(table.uri).to_arrow()["x"].to_pylist())
    assert left == [x for x in range(20_000) if x % 7 != 1 and x % 3]


@pytest.mark.parametrize("is_full", [True, False])
def test_temporary_files_that_stay_hide_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [*range(20_000)][::-1]}))
    store = FaultyStore(open_store(table.uri), [Fault("list_tree", 1, "not_done")])
    if is_full:
        monkeypatch.setattr(cluster, "_range_written", _fail)
    operation = cluster.Cluster(["x"], task_bytes=10_000)
    if is_full:
        with pytest.raises(txlog.TxlogError, match="the disk is full") as caught:
            execute(open_table(store), operation)
        assert "could not be deleted" in caught.value.__notes__[0]
    else:
        with pytest.warns(txlog.TxlogWarning, match="could not be deleted"):
            execute(open_table(store), operation)
        assert txlog.Table(table.uri).to_arrow()["x"].to_pylist() == [*range(20_000)]


def _fail(*_: object) -> Any:
    raise StoreError(path="f", operation="write", reason="the disk is full")
