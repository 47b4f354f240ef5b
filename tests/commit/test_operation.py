"""Operations of strangers: what is missing in them, and intents that contradict themselves."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import txlog
from tests.verb_calls import Built
from txlog.actions.file import Add, DeletionVectorDescriptor, Remove
from txlog.base.effects import rehearsing
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    UnsupportedFeatureError,
)
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation, execute
from txlog.data_files.options import as_schema
from txlog.expressions.sql import as_expression
from txlog.snapshot.snapshot import Snapshot
from txlog.store.local.local import LocalStore
from txlog.testing import Fault, FaultyStore
from txlog.verbs.append import Append
from txlog.verbs.create import CreateTable, new_table
from txlog.verbs.delete import Delete
from txlog.verbs.overwrite import Overwrite
from txlog.verbs.update import Update

EMPTY = Intent("TEST", read_version=0, kind="append")


def added(path: str = "a", **given: Any) -> Add:
    fields = {"partition_values": {}, "size": 1, "modification_time": 0, "data_change": True}
    return Add(path=path, **{**fields, **given})


def removed(path: str = "a", **given: Any) -> Remove:
    return Remove(path=path, **{"data_change": True, "deletion_timestamp": 0, **given})


def vector(name: str) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="p", path_or_inline_dv=name, size_in_bytes=1, cardinality=1, offset=0
    )


class Unnamed(Operation):
    """An operation without a name."""

    def intent(self, base: Snapshot) -> Intent | None:
        return None


class Undecided(Operation):
    """An operation without the method `intent`."""

    name = "TEST"


class Removing(Built):
    """An operation that may remove rows."""

    removes_rows = True


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    return txlog.Table.create(tmp_path / "t", pa.schema([("x", pa.int64())]))


def test_what_is_missing_is_named(table: txlog.Table) -> None:
    with pytest.raises(TypeError, match="intent"):
        Undecided()  # type: ignore[abstract]
    with pytest.raises(InvalidInputError, match="Unnamed has no text in the attribute name") as e:
        execute(Unnamed(), table._context, table.snapshot)
    assert (e.value.argument, e.value.field) == ("operation", "name")


def test_what_is_no_operation_or_no_intent_is_refused(table: txlog.Table) -> None:
    with pytest.raises(InvalidTypeError, match="an Operation was expected, not a str") as caught:
        execute("append", table._context, table.snapshot)  # type: ignore[arg-type]
    assert caught.value.argument == "operation"
    with pytest.raises(InvalidTypeError, match="intent of Built returned a str") as caught:
        execute(Built(lambda _: "all"), table._context, table.snapshot)  # type: ignore[arg-type]
    assert caught.value.argument == "intent"


ROWS = pa.table({"x": [1, 2, 3]})
WRITING: dict[str, Callable[[], Operation]] = {
    "append": lambda: Append(ROWS),
    "overwrite": lambda: Overwrite.of_data(ROWS),
    "update": lambda: Update({"x": "x + 1"}, where=as_expression("x > 1")),
    "delete": lambda: Delete(as_expression("x > 1")),
}


@pytest.mark.parametrize("first", ["committed", "recorded", "failed", "rehearsed", "lost"])
@pytest.mark.parametrize("name", WRITING)
def test_an_operation_is_executed_once(name: str, first: str, tmp_path: Path) -> None:
    """A second execution would delete files of the first one, or commit files that are gone."""
    table = txlog.write(tmp_path / "t", ROWS, properties={"delta.enableDeletionVectors": "true"})
    inner = LocalStore(str(tmp_path / "t"))
    store = FaultyStore(inner, [])
    operation, txn = WRITING[name](), None if first == "committed" else ("job", 1)
    match first:
        case "failed":
            store = FaultyStore(inner, [Fault("put_if_absent", 1, "not_done")])
            with pytest.raises(StoreError):
                execute(operation, Context(store), table.snapshot, txn=txn)
        case "rehearsed":
            with rehearsing():
                execute(operation, Context(store), table.snapshot, txn=txn)
        case "lost":
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("txlog.commit.loop.require_landed", lose)
                with pytest.raises(OutcomeUnknownError):
                    execute(operation, Context(store), table.snapshot, txn=txn)
        case _:
            assert execute(operation, Context(store), table.snapshot, txn=txn).outcome
    rows = txlog.Table(table.uri).to_arrow()
    with pytest.raises(InvalidInputError, match="was executed before") as caught:
        execute(operation, Context(store), txlog.Table(table.uri).snapshot, txn=txn)
    assert caught.value.argument == "operation"
    assert txlog.Table(table.uri).to_arrow().equals(rows)


def lose(*_: object) -> None:
    raise OutcomeUnknownError(path="x", version=1, txn_id="x", reason="the answer was lost")


def test_an_operation_makes_a_table_only_if_it_says_how(tmp_path: Path) -> None:
    context = Context(LocalStore(str(tmp_path / "t")))
    with pytest.raises(NotFoundError, match="TEST makes none"):
        execute(Built(lambda _: None), context, None)
    made = new_table(as_schema(pa.schema([("x", pa.int64())])), effects=context.effects)
    with rehearsing():
        tried = execute(CreateTable(made.intent), context, None)
    assert (tried.outcome.rehearsed, tried.snapshot.version) == (True, 0)
    assert not txlog.Table.exists(tmp_path / "t")
    done = execute(CreateTable(made.intent), context, None, txn=("job", 1), user_metadata="note")
    assert (done.outcome.operation, done.outcome.version) == ("CREATE TABLE", 0)
    assert txlog.Table(tmp_path / "t").history(1)[0]["userMetadata"] == "note"
    # Both know no table yet: the first one may be this application's own.
    again = execute(CreateTable(made.intent), context, None, txn=("job", 1))
    assert again.outcome.skipped
    with pytest.raises(AlreadyExistsError):
        execute(CreateTable(made.intent), context, None, txn=("other", 1))


CONTRADICTIONS: dict[str, tuple[str, Intent]] = {
    "no kind": ("kind", replace(EMPTY, kind="rename")),  # type: ignore[arg-type]
    "another version": ("read_version", replace(EMPTY, read_version=7)),
    "an append removes": ("removes", replace(EMPTY, removes=(removed(),))),
    "no protocol": ("protocol", replace(EMPTY, kind="protocol")),
    "columns of an append": ("columns", replace(EMPTY, columns=frozenset({"x"}))),
    "added twice": ("adds", replace(EMPTY, adds=(added(), added(size=2)))),
    "removed twice": ("removes", replace(EMPTY, kind="delete", removes=(removed(), removed()))),
    "added and removed": (
        "adds",
        replace(EMPTY, kind="replace", adds=(added(),), removes=(removed(),)),
    ),
    "rows deleted from no file": (
        "row_deletes",
        replace(EMPTY, kind="delete", removes=(removed(),), row_deletes=frozenset({"a"})),
    ),
    "an append without change": ("adds", replace(EMPTY, adds=(added(data_change=False),))),
    "a delete without change": (
        "removes",
        replace(EMPTY, kind="delete", removes=(removed(data_change=False),)),
    ),
    "a compaction with change": ("adds", replace(EMPTY, kind="compact", adds=(added(),))),
    "metadata with change": ("removes", replace(EMPTY, kind="metadata", removes=(removed(),))),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_contradiction_is_refused_and_names_the_field(case: str, table: txlog.Table) -> None:
    field, intent = CONTRADICTIONS[case]
    with pytest.raises(InvalidInputError, match="contradicts itself") as caught:
        execute(Removing(lambda _: intent), table._context, table.snapshot)
    assert (caught.value.argument, caught.value.field) == ("intent", field)
    with rehearsing(), pytest.raises(InvalidInputError, match="contradicts itself"):
        execute(Removing(lambda _: intent), table._context, table.snapshot)
    assert table.refresh().version == 0


@pytest.mark.parametrize("make", [Built, Removing])
def test_who_removes_rows_says_so(
    make: Callable[[Callable[[Snapshot], Intent]], Operation], table: txlog.Table
) -> None:
    intent = replace(EMPTY, kind="delete", removes=(removed(),))
    if make is Removing:
        assert execute(make(lambda _: intent), table._context, table.snapshot).outcome
        return
    with pytest.raises(InvalidInputError, match="removes_rows = False") as caught:
        execute(make(lambda _: intent), table._context, table.snapshot)
    assert caught.value.field == "removes"


def test_a_file_may_get_another_vector(table: txlog.Table) -> None:
    intent = replace(
        EMPTY,
        kind="delete",
        adds=(added(deletion_vector=vector("new")),),
        removes=(removed(deletion_vector=vector("old")),),
        row_deletes=frozenset({"a"}),
    )
    assert execute(Removing(lambda _: intent), table._context, table.snapshot).outcome.version == 1


class Raced(FaultyStore):
    """A store in which another engine makes the table just before the first commit is put."""

    def put_if_absent(self, path: str, data: bytes) -> Any:
        if path.endswith("/00000000000000000000.json"):
            lines = [orjson.loads(line) for line in data.splitlines()]
            (metadata,) = (line for line in lines if "metaData" in line)
            features = {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["unheardOf"],
            }
            others = b"\n".join(map(orjson.dumps, ({"protocol": features}, metadata)))
            assert super().put_if_absent(path, others) == "created"
        return super().put_if_absent(path, data)


@pytest.mark.parametrize("mode", ["ignore", "error", "append", "overwrite"])
def test_a_table_that_another_engine_made_first_exists(
    mode: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether txlog can write it matters only to those who write to it."""
    raced = Raced(LocalStore(str(tmp_path / "t")), [])
    monkeypatch.setattr("txlog.table.write_table.open_store", lambda *_, **__: raced)
    if mode == "ignore":
        assert txlog.write(tmp_path / "t", ROWS, mode).count() == 0
        return
    wrong = AlreadyExistsError if mode == "error" else UnsupportedFeatureError
    with pytest.raises(wrong):
        txlog.write(tmp_path / "t", ROWS, mode)
    assert txlog.Table(tmp_path / "t").count() == 0
    assert not [*(tmp_path / "t").glob("*.parquet")]
