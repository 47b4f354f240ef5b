"""Files that cannot be deleted: each verb gives the same rows, or the same error, and a warning."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import StoreError
from txlog.extend import open_store, open_table


def rows(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64()), "y": pa.array(values, pa.int64())})


def merge(table: txlog.Table) -> None:
    merger = table.merge(rows(2, 9), "target.x = source.x")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def several(table: txlog.Table) -> None:
    with table.transaction() as tx:
        tx.delete("x = 3")
        tx.update({"y": "7"}, where="x < 3")


def left_by_an_error(table: txlog.Table) -> None:
    with table.transaction() as tx:
        tx.append(rows(5))
        raise ValueError("the caller's own error")


def wrong_column(table: txlog.Table) -> None:
    with table.transaction() as tx:
        tx.append(rows(5))
        tx.delete("nope = 1")


VERBS: dict[str, Callable[[txlog.Table], Any]] = {
    "append": lambda table: table.append(
        rows(8).append_column("z", pa.array([1])), schema_mode="merge"
    ),
    "delete": lambda table: table.delete("x % 3 = 0"),
    "update": lambda table: table.update({"y": "7"}, where="x < 3"),
    "merge": merge,
    "overwrite": lambda table: table.overwrite(rows(1, 2), "x < 3"),
    "transaction": several,
    "own error": left_by_an_error,
    "wrong column": wrong_column,
    "compact": lambda table: table.optimize.compact(sort_by="x"),
    "z_order": lambda table: table.optimize.z_order(["x"]),
    "recorded": lambda table: table.append(rows(1), txn=("job", 1)),
}


class Keeping:
    """A store that deletes no file, in which another writer commits before the first commit."""

    def __init__(self, inner: Any, others: Callable[[], None], keeps: bool) -> None:
        self.inner = inner
        self._others: Callable[[], None] | None = others
        self._keeps = keeps

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def delete(self, paths: Any) -> None:
        if self._keeps and paths:
            raise StoreError(operation="delete", path=paths[0], reason="permission denied")
        self.inner.delete(paths)

    def attempts(self) -> Any:
        others, self._others = self._others, None
        if others is not None:
            others()
        return self.inner.attempts()


def outcome_of(path: Path, verb: str, form: dict[str, str], keeps: bool) -> tuple[Any, list[str]]:
    """Return the rows, or the error, of a verb that is decided twice."""
    properties = {"delta.columnMapping.mode": "name", **form}
    table = txlog.Table.create(path, rows().schema, properties=properties)
    table.append(rows(*range(3000)), txn=("job", 0))

    def others() -> None:
        more = rows(0, 5000).append_column("w", pa.array([1, 1]))
        txlog.Table(path).append(more, schema_mode="merge", txn=("job", 1))

    error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store: Any = Keeping(open_store(path), others, keeps)
        try:
            VERBS[verb](open_table(store))
        except (txlog.TxlogError, ValueError) as failure:
            error = type(failure), str(failure)
    found = txlog.Table(path).to_arrow()
    names = sorted(found.schema.names)
    return error, sorted(map(str, found.select(names).to_pylist()))


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "form",
    [{}, {"delta.enableChangeDataFeed": "true"}, {"delta.enableDeletionVectors": "false"}],
    ids=["vectors", "feed", "rewritten"],
)
def test_files_that_stay_change_nothing(tmp_path: Path, verb: str, form: dict[str, str]) -> None:
    plain = outcome_of(tmp_path / "plain", verb, form, keeps=False)
    assert outcome_of(tmp_path / "kept", verb, form, keeps=True) == plain
