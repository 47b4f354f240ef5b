"""Verbs on a remote store, which write files beside one another, while one of the writes fails."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pyarrow as pa
import pytest

import txlog
from tests.moved import moved
from tests.reliability.cases import (
    Files,
    clear,
    files_below,
    fill,
    opened,
    rows,
)
from txlog.base.errors import StoreError, TxlogError
from txlog.store.memory import MemoryStore
from txlog.testing import Crash, Fault, FaultyStore, open_table
from txlog.testing.faults import FaultKind

IN_FILES = {"txlog.fragments.deletion_vector:INLINE_LIMIT": 0}  # Each deletion vector is a file.
WRITES = ("open_output", "write_new", "replace", "put_if_absent")
KINDS = (*(kind for kind in get_args(FaultKind) if kind != "exists_though_created"), "crash")


class Far(FaultyStore):
    """A store whose files are written beside one another."""

    reads_at_once = 16


def merge(table: txlog.Table) -> object:
    """Change three files, and add rows for three partitions."""
    given = [*range(0, 9, 2), *range(10, 30, 3), *range(100, 106)]
    data = pa.concat_tables([rows(one, one + 1, 1_000) for one in given])
    merging = table.merge(data, "target.id = source.id")
    return merging.when_matched_update_all().when_not_matched_insert_all().execute()


VERBS: dict[str, Callable[[txlog.Table], object]] = {
    "append": lambda table: table.append(rows(100, 110)),
    "delete": lambda table: table.delete("id % 7 = 1"),
    "update": lambda table: table.update({"n": "-1"}, "id % 5 = 2"),
    "merge": merge,
    "overwrite": lambda table: table.overwrite(rows(200, 210)),
}


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    made = MemoryStore(f"memory://{uuid.uuid4()}")
    yield made
    clear(made)


def table_of(store: MemoryStore) -> Files:
    """Return the files of a table with partitions, an index and deletion vectors."""
    schema, properties = rows(0, 0).schema, {"delta.enableDeletionVectors": "true"}
    made = txlog.Table.create(store.root, schema, partition_by="s", properties=properties)
    for start in (0, 10, 20):
        made.append(rows(start, start + 10))
    made.indexes.create("id")
    return files_below(store)


def rows_of(store: MemoryStore) -> list[dict[str, Any]]:
    return opened(store).to_arrow().sort_by("id").to_pylist()


def crash() -> None:
    raise Crash


def broken(
    store: MemoryStore, verb: str, write: tuple[str, int], kind: Any
) -> BaseException | None:
    """Run a verb of which one write fails, and return its error."""
    plan, before = ([], {write: crash}) if kind == "crash" else ([Fault(*write, kind)], {})
    table = open_table(Far(store, plan, before=before))
    try:
        VERBS[verb](table)
    except (TxlogError, Crash) as error:
        return error
    return None


@pytest.mark.slow
@pytest.mark.spec("GUA-10")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.filterwarnings("ignore::txlog.TxlogWarning")  # Segments are written if possible.
def test_a_write_fails_beside_others(verb: str, store: MemoryStore) -> None:
    with moved(IN_FILES):
        files = table_of(store)
        old = rows_of(store)
        far = Far(store)
        VERBS[verb](open_table(far))
        new = rows_of(store)
        counts = Counter(operation for operation, _ in far.calls)
        writes = [(name, call) for name in WRITES for call in range(1, counts[name] + 1)]
        assert len(writes) > 1
        for write in writes:
            for kind in KINDS:
                clear(store)
                fill(store, files)
                error = broken(store, verb, write, kind)
                found = rows_of(store)
                what = write, kind, error
                if error is None:
                    assert found == new, what
                elif isinstance(error, StoreError):
                    assert found == old, what
                    # A vacuum deletes segments that cover no file of the table.
                    left = files_below(store).keys() - files.keys()
                    assert [name for name in left if not name.endswith(".idx")] == [], what
                else:
                    assert found in (old, new), what
