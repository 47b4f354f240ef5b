"""Operations that began at one version, compared with a model that runs one after the other.

All of them have read the same version. They are committed in every order, so that each meets those
before it as winners, and each must do to the table what the model does to rows in lists: or fail
with a conflict, where it may, and leave no trace.
"""

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.moved import moved
from tests.verb_calls import (
    add_columns,
    add_features,
    append,
    compact,
    delete,
    drop_columns,
    overwrite,
    replace_columns,
    restore,
    update,
    upsert,
)
from txlog.base.errors import CommitConflictError, TxlogError
from txlog.commit.context import Context
from txlog.commit.operation import execute
from txlog.extend import context_of
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.repair import RemoveLostFiles

# The serial model -----------------------------------------------------------------------------

Row = dict[str, Any]


class RefusedError(Exception):
    """The operation cannot be done to such a table, concurrent or not."""


@dataclass(frozen=True)
class State:
    """A version: its columns, and its rows in no order."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...] = ()

    def with_rows(self, rows: Iterable[Row]) -> "State":
        return replace(self, rows=tuple({c: row.get(c) for c in self.columns} for row in rows))

    def values(self) -> list[str]:
        return sorted(repr([row[c] for c in self.columns]) for row in self.rows)


Model = Callable[[State, list[State]], State]
"""Does an operation to a version; all versions before it are given too."""


def appends(rows: list[Row], new: tuple[str, ...] = ()) -> Model:
    def do(now: State, _: list[State]) -> State:
        wider = State(now.columns + tuple(c for c in new if c not in now.columns))
        require(wider, *rows[0])
        return wider.with_rows([*now.rows, *rows])

    return do


def deletes(column: str, gone: Callable[[Any], bool]) -> Model:
    def do(now: State, _: list[State]) -> State:
        require(now, column)
        return now.with_rows(r for r in now.rows if r[column] is None or not gone(r[column]))

    return do


def replaces(column: str, gone: Callable[[Any], bool], rows: list[Row]) -> Model:
    return lambda now, held: appends(rows)(deletes(column, gone)(now, held), held)


def overwrites(rows: list[Row]) -> Model:
    return lambda now, held: appends(rows)(now.with_rows(()), held)


def updates(column: str, value: Callable[[Any], Any], where: Callable[[Any], bool]) -> Model:
    """Give rows that are chosen by `a` other values in a column."""

    def do(now: State, _: list[State]) -> State:
        require(now, column, "a")
        chosen = [r["a"] is not None and where(r["a"]) for r in now.rows]
        return now.with_rows(
            {**r, column: value(r[column])} if hit else r
            for r, hit in zip(now.rows, chosen, strict=True)
        )

    return do


def upserts(rows: list[Row]) -> Model:
    """Update the rows whose `a` is given, and add the others; no two rows have the same `a`.

    A column that was dropped does not come back in this way: files still contain its values.
    """

    def do(now: State, held: list[State]) -> State:
        given = {row["a"]: row for row in rows}
        added = tuple(c for c in rows[0] if c not in now.columns)
        if any(c in before.columns for before in held for c in added):
            raise RefusedError
        columns = now.columns + added
        kept = [{**row, **given.get(row["a"], {})} for row in now.rows]
        known = {row["a"] for row in now.rows}
        new = [row for row in rows if row["a"] not in known]
        return State(columns).with_rows([*kept, *new])

    return do


def gives(column: str, read: str, value: Callable[[Any], Any], *, new: bool) -> Model:
    """Give a column values made from those of another one."""

    def do(now: State, _: list[State]) -> State:
        if (column in now.columns) == new:
            raise RefusedError
        require(now, read)
        after = State(now.columns + ((column,) if new else ()))
        return after.with_rows({**r, column: value(r[read])} for r in now.rows)

    return do


def drops(column: str) -> Model:
    def do(now: State, _: list[State]) -> State:
        require(now, column)
        return State(tuple(c for c in now.columns if c != column)).with_rows(now.rows)

    return do


def require(now: State, *columns: str) -> None:
    if not set(columns) <= set(now.columns):
        raise RefusedError


def same(now: State, _: list[State]) -> State:
    return now


def times(factor: int) -> Callable[[int | None], int | None]:
    return lambda value: None if value is None else factor * value


# The operations -------------------------------------------------------------------------------

Do = Callable[[Context, Snapshot, str | None], Any]


@dataclass(frozen=True)
class Operation:
    do: Do
    model: Model


def rows_of(*rows: Row) -> pa.Table:
    kinds = {"a": pa.int64(), "b": pa.int64(), "c": pa.string()}
    names = list(rows[0])
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in names])
    return pa.Table.from_pylist(list(rows), schema=schema)


def delete_rows(place: Context, seen: Snapshot, note: str | None) -> Any:
    """Delete the row with a = 6 by its place, as a worker and its driver do."""
    table = txlog.Table(place.store.root, version=seen.version)
    fragment = table.fragments().of_id(1)
    assert fragment is not None
    updated = fragment.delete_rows([2])
    assert updated is not None
    return table.commit(txlog.FragmentOperation.Delete([updated]), user_metadata=note)


def by_layers(update: Callable[[], Any]) -> Any:
    """Run an update that gives values by column files, although the files are small."""
    costs = {"_FILE_BYTES": -(1 << 40), "_BITS": 0, "_LAYER_TIMES": 1}
    with moved({f"txlog.data_files.column_updates:{name}": n for name, n in costs.items()}):
        return update()


COLUMNS = ("a", "b", "c")
FIRST = [{"a": a, "b": 100 - 10 * a, "c": "x"} for a in range(4)]
SECOND = [{"a": a, "b": 100 - 10 * a, "c": "y"} for a in range(4, 8)]
THIRD = [{"a": a, "b": 100 - 10 * a, "c": "z", "n": 10 * a} for a in range(8, 10)]
APPENDED = [{"a": 20, "b": 45}, {"a": 2, "b": None}]
WIDER = [{"a": 21, "b": 46, "w": 1}]
WITH_M = [{"a": 22, "b": 47, "m": 2}]
REPLACED = [{"a": 5, "b": 48, "n": 55}, {"a": 8, "b": 49, "n": None}]
UPSERTED = [{"a": 5, "b": 60}, {"a": 9, "b": 61}, {"a": 40, "b": 62}]
WHOLE = [{"a": 30, "b": 50, "n": 65}, {"a": 5, "b": None, "n": 1}]
GIVEN = {row["a"]: 1000 + row["a"] for row in [*FIRST[:1], *FIRST[2:], *SECOND, *THIRD]}

OPERATIONS: dict[str, Operation] = {
    "append": Operation(
        lambda place, seen, note: append(place, seen, rows_of(*APPENDED), user_metadata=note),
        appends(APPENDED),
    ),
    "append w": Operation(
        lambda place, seen, note: append(
            place, seen, rows_of(*WIDER), schema_mode="merge", user_metadata=note
        ),
        appends(WIDER, ("w",)),
    ),
    "append m": Operation(
        lambda place, seen, note: append(
            place, seen, rows_of(*WITH_M), schema_mode="merge", user_metadata=note
        ),
        appends(WITH_M, ("m",)),
    ),
    "delete by a": Operation(
        lambda place, seen, note: delete(place, seen, "a IN (2, 5)", user_metadata=note),
        deletes("a", lambda a: a in (2, 5)),
    ),
    "delete by n": Operation(
        lambda place, seen, note: delete(place, seen, "n >= 50 AND n < 70", user_metadata=note),
        deletes("n", lambda n: 50 <= n < 70),
    ),
    "delete a fragment": Operation(
        lambda place, seen, note: delete(place, seen, "a < 4", user_metadata=note),
        deletes("a", lambda a: a < 4),
    ),
    "delete rows": Operation(delete_rows, deletes("a", lambda a: a == 6)),
    "update": Operation(
        lambda place, seen, note: update(
            place, seen, {"n": "n * 2"}, "a >= 2 AND a < 6", user_metadata=note
        ),
        updates("n", times(2), lambda a: 2 <= a < 6),
    ),
    "update by layers": Operation(
        lambda place, seen, note: by_layers(
            lambda: update(place, seen, {"n": "n * 2"}, "a >= 2 AND a < 6", user_metadata=note)
        ),
        updates("n", times(2), lambda a: 2 <= a < 6),
    ),
    "upsert": Operation(
        lambda place, seen, note: upsert(place, seen, rows_of(*UPSERTED), "a", user_metadata=note),
        upserts(UPSERTED),
    ),
    "replace": Operation(
        lambda place, seen, note: overwrite(
            place, seen, rows_of(*REPLACED), where="a >= 5 AND a <= 8", user_metadata=note
        ),
        replaces("a", lambda a: 5 <= a <= 8, REPLACED),
    ),
    "overwrite": Operation(
        lambda place, seen, note: overwrite(place, seen, rows_of(*WHOLE), user_metadata=note),
        overwrites(WHOLE),
    ),
    "compact": Operation(
        lambda place, seen, note: compact(place, seen, None, user_metadata=note), same
    ),
    "add m from b": Operation(
        lambda place, seen, note: add_columns(place, seen, {"m": "b * 2"}, user_metadata=note),
        gives("m", "b", times(2), new=True),
    ),
    "add m from n": Operation(
        lambda place, seen, note: add_columns(place, seen, {"m": "n * 3"}, user_metadata=note),
        gives("m", "n", times(3), new=True),
    ),
    "add m given": Operation(
        lambda place, seen, note: add_columns(
            place, seen, {"m": pa.array(list(GIVEN.values()))}, user_metadata=note
        ),
        gives("m", "a", GIVEN.get, new=True),
    ),
    "replace n": Operation(
        lambda place, seen, note: replace_columns(place, seen, {"n": "b + 1"}, user_metadata=note),
        gives("n", "b", lambda b: None if b is None else b + 1, new=False),
    ),
    "drop b": Operation(
        lambda place, seen, note: drop_columns(place, seen, ["b"], user_metadata=note),
        drops("b"),
    ),
    "drop n": Operation(
        lambda place, seen, note: drop_columns(place, seen, ["n"], user_metadata=note),
        drops("n"),
    ),
    "drop c": Operation(
        lambda place, seen, note: drop_columns(place, seen, ["c"], user_metadata=note),
        drops("c"),
    ),
    "restore 4": Operation(
        lambda place, seen, note: restore(place, seen, 4, user_metadata=note),
        lambda _, held: held[4],
    ),
    "restore 3": Operation(
        lambda place, seen, note: restore(place, seen, 3, user_metadata=note),
        lambda _, held: held[3],
    ),
    "upgrade": Operation(
        lambda place, seen, note: add_features(place, seen, ["v2Checkpoint"], user_metadata=note),
        same,
    ),
}


# The table ------------------------------------------------------------------------------------


def make(root: Path, deletion_format: str) -> list[State]:
    """Make three fragments, the first with a deleted row, two with a column file."""
    properties = {"delta.feature.txlog.fragments": "supported"}
    if deletion_format == "lance":
        properties["txlog.deletionFormat"] = "lance"
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())])
    table = txlog.Table.create(root, schema, properties=properties)
    table.append(rows_of(*FIRST))
    table.append(rows_of(*SECOND))
    table.delete("a = 1")
    table.alter.add_columns({"n": "a * 10"})
    table.append(rows_of(*THIRD))
    held = [State(COLUMNS)]
    for model in (
        appends(FIRST),
        appends(SECOND),
        deletes("a", lambda a: a == 1),
        gives("n", "a", times(10), new=True),
        appends(THIRD),
    ):
        held.append(model(held[-1], held))
    return held


FIRST_VERSION = 5  # Which all operations see.

Base = tuple[Path, list[State]]


@pytest.fixture(autouse=True)
def one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """To start threads costs more than there is for them to do."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)


@pytest.fixture(scope="module", params=["delta", "lance"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Base:
    root = tmp_path_factory.mktemp("base") / "t"
    return root, make(root, request.param)


def check(root: Path, held: list[State]) -> txlog.Table:
    """Hold the latest version, in all its aspects, against what the model says."""
    table, expected = txlog.Table(root), held[-1]
    assert table.version == len(held) - 1
    assert tuple(table.schema.names) == expected.columns
    rows = table.to_arrow([*expected.columns, "_fragid"])
    assert state_of(rows.drop_columns("_fragid")).values() == expected.values()
    assert table.count() == len(expected.rows)
    fragments = table.fragments()
    assert all(fragment.is_durable for fragment in fragments)
    counted = Counter(rows["_fragid"].to_pylist())
    assert [(f.id, f.num_rows) for f in fragments] == sorted(counted.items())
    return table


def check_checkpoint(root: Path, held: list[State]) -> None:
    """Check a version as its checkpoint has it, and that its log says the same."""
    logged = txlog.Table(root)
    logged.maintenance.checkpoint()
    assert (root / "_delta_log" / f"{logged.version:020d}.checkpoint.parquet").exists()
    read = check(root, held)
    assert [f.value for f in read.fragments()] == [f.value for f in logged.fragments()]


def state_of(rows: pa.Table) -> State:
    return State(tuple(rows.column_names), tuple(rows.to_pylist()))


def log_of(root: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((root / "_delta_log").glob("*.json")):
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def orphans(root: Path) -> set[str]:
    """Return the data and deletion files that no commit refers to."""
    known = set()
    for action in log_of(root):
        if (add := action.get("add")) is None:
            continue
        known.add(add["path"])
        vector = add.get("deletionVector")
        if vector is not None and vector["storageType"] == "lance":
            known.add(f"_deletions/{vector['pathOrInlineDv']}")
    files = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {path for path in files if not path.startswith("_delta_log/")} - known


# Which operations fail, though the model can do them -----------------------------------------

NEW_M = {"append m", "add m from b", "add m from n", "add m given"}
NEW_COLUMNS = {"append w", *NEW_M}
DROPS = {"drop b", "drop n", "drop c"}
OTHER_COLUMNS = {*DROPS, "restore 3"}
WRITE_ROWS = ("append", "append w", "append m", "replace", "overwrite")

# Where the table of CON-11 says so: whatever else has been committed, too.
FORBIDDEN: dict[str, set[str]] = {
    **{name: {*NEW_M, *OTHER_COLUMNS, "upgrade"} for name in NEW_M - {"append m"}},
    **{name: {*NEW_COLUMNS, *OTHER_COLUMNS, "restore 4"} for name in DROPS},
    "upgrade": {"upgrade"},
}
# Where data or rows are given, so that the operation cannot be run again.
GIVEN_ONCE: dict[str, set[str]] = {
    # Rows were written for columns that are others now (CON-2).
    **dict.fromkeys(WRITE_ROWS, OTHER_COLUMNS),
    # There are no values for rows that came, or moved (CON-6).
    "add m given": {
        "append",
        "append w",
        "update",
        "upsert",
        "replace",
        "overwrite",
        "compact",
    },
    # Rows are named by place: others deleted the same ones (FRG-25), moved them, or changed what
    # the table is made of.
    "delete rows": {
        "delete by n",
        "delete rows",
        "replace",
        "overwrite",
        "compact",
        *OTHER_COLUMNS,
        "upgrade",
    },
}

# The same, but only if there was something before it to be undone.
GIVEN_ONCE_AFTER_OTHERS: dict[str, set[str]] = {"delete rows": {"restore 4"}}


def step(root: Path, held: list[State], name: str) -> tuple[str, list[State]]:
    """Do an operation that saw the first version; return how it fared, and all versions.

    `ok`: it did what the model does. `refused`: the model says that it cannot be done. `conflict`:
    it failed, because of what was committed meanwhile.
    """
    operation, table = OPERATIONS[name], txlog.Table(root, version=FIRST_VERSION)
    left = orphans(root)
    expected: State | None = None
    with suppress(RefusedError):
        expected = operation.model(held[-1], held)
    expected_errors = TxlogError if expected is None else CommitConflictError
    try:
        operation.do(context_of(table), table.snapshot, None)
    except expected_errors:
        fared = "refused" if expected is None else "conflict"
    else:
        assert expected is not None
        fared = "ok"
        if txlog.Table(root).version == len(held):
            held = [*held, expected]
        assert held[-1].values() == expected.values()
    if name == "delete rows":  # Files of workers are left alone, whatever comes of it (FRG-24).
        left |= {path for path in orphans(root) if path.startswith("_deletions/1-")}
    assert orphans(root) == left
    return fared, held


def require_reason(names: tuple[str, ...], fared: list[str]) -> None:
    """The last operation fails if one that was committed forbids it, and only with a reason."""
    *before, last = names
    committed = {name for name, how in zip(before, fared, strict=False) if how == "ok"}
    forbids = committed & FORBIDDEN.get(last, set())
    given_once = committed & GIVEN_ONCE.get(last, set())
    after_others = committed & GIVEN_ONCE_AFTER_OTHERS.get(last, set()) if before[1:] else set()
    if fared[-1] == "conflict":
        assert forbids or given_once or after_others
    if fared[-1] == "ok":
        # What is given may fit again, if others undid what was in its way.
        assert not forbids
        assert before[1:] or not given_once


def run_all(
    root: Path, held: list[State], names: tuple[str, ...], fared: list[str], others: Iterable[str]
) -> None:
    """Do each of the other operations after those that were done, on a table of its own."""
    for name in others:
        copy = root.with_name("copy")
        shutil.copytree(root, copy)
        try:
            how, after = step(copy, held, name)
            require_reason((*names, name), [*fared, how])
            check_checkpoint(copy, after)
        except BaseException as error:
            error.add_note(f"in this order: {', '.join((*names, name))}")
            raise
        shutil.rmtree(copy)


def run_pairs(base: Base, tmp_path: Path, first: str, others: Iterable[str]) -> None:
    root = tmp_path / "t"
    shutil.copytree(base[0], root)
    how, held = step(root, base[1], first)
    assert how == "ok"
    run_all(root, held, (first,), [how], others)


# These do much the same as others, on other columns or with other values.
MAIN = tuple(n for n in OPERATIONS if n not in ("append m", "add m from b", "drop b"))


@pytest.mark.slow(cases=10)
@pytest.mark.spec("CON-11", "CON-2", "CON-17")
@pytest.mark.parametrize("first", MAIN)
@pytest.mark.parametrize("base", ["lance"], indirect=True)
def test_two_at_once_are_one_after_the_other(base: Base, tmp_path: Path, first: str) -> None:
    """Of each three pairs one; over all first operations, each second one comes after several."""
    run_pairs(base, tmp_path, first, MAIN[MAIN.index(first) % 3 :: 3])


@pytest.mark.exhaustive
@pytest.mark.spec("CON-11", "CON-2", "CON-17")
@pytest.mark.parametrize("first", OPERATIONS)
@pytest.mark.parametrize("base", ["delta", "lance"], indirect=True)
def test_any_two_at_once_are_one_after_the_other(base: Base, tmp_path: Path, first: str) -> None:
    run_pairs(base, tmp_path, first, OPERATIONS)


OF_THREE = tuple(n for n in MAIN if n not in ("delete a fragment", "drop n"))


@pytest.mark.exhaustive
@pytest.mark.spec("CON-11", "CON-2", "CON-17")
@pytest.mark.parametrize("first", OF_THREE)
@pytest.mark.parametrize("second", OF_THREE)
@pytest.mark.parametrize("base", ["delta"], indirect=True)
def test_three_at_once_are_one_after_the_other(
    base: Base, tmp_path: Path, first: str, second: str
) -> None:
    root = tmp_path / "t"
    shutil.copytree(base[0], root)
    one, held = step(root, base[1], first)
    other, held = step(root, held, second)
    run_all(root, held, (first, second), [one, other], OF_THREE)


# Many threads ---------------------------------------------------------------------------------

RACING = ("append", "append w", "delete by a", "delete by n", "replace", "compact", "add m from n")


@pytest.mark.slow
@pytest.mark.spec("CON-11")
def test_threads_at_once_are_as_the_log_has_them(base: Base, tmp_path: Path) -> None:
    """Which of them come first is chance: the log tells."""
    root = tmp_path / "t"
    shutil.copytree(base[0], root)
    names = [name for name in RACING for _ in range(3)]
    start = threading.Barrier(len(names))

    def work(name: str) -> str | None:
        table = txlog.Table(root)
        start.wait()
        try:
            OPERATIONS[name].do(context_of(table), table.snapshot, name)
        except TxlogError as error:
            return f"{name}: {type(error).__name__}"
        return None

    with ThreadPoolExecutor(len(names)) as pool:
        failures = [failure for failure in pool.map(work, names) if failure is not None]
    # One adds the column, and says so to both others.
    assert failures == ["add m from n: CommitConflictError"] * 2
    held = list(base[1])
    infos = [action["commitInfo"] for action in log_of(root) if "commitInfo" in action]
    for info in infos[FIRST_VERSION + 1 :]:
        held.append(OPERATIONS[info["userMetadata"]].model(held[-1], held))
    assert orphans(root) == set()
    check_checkpoint(root, held)


# Files that are gone --------------------------------------------------------------------------

LOST = rows_of(*SECOND).drop_columns("c").to_pylist()
BESIDE_LOST_FILES = {
    **{name: OPERATIONS[name] for name in ("append", "delete a fragment", "overwrite", "upgrade")},
    "FSCK": Operation(
        lambda place, seen, note: execute(RemoveLostFiles(), place, seen, user_metadata=note),
        lambda now, _: now.with_rows(
            r for r in now.rows if r not in [{"n": None, **s} for s in LOST]
        ),
    ),
}


@pytest.mark.spec("CON-11")
@pytest.mark.parametrize("name", BESIDE_LOST_FILES)
@pytest.mark.parametrize("is_first", [True, False])
def test_lost_files_are_given_up_beside_other_changes(
    tmp_path: Path, name: str, is_first: bool
) -> None:
    """FSCK before or after a verb that reads no lost row; both saw the same version."""
    schema = pa.schema([(column, pa.int64()) for column in ("a", "b", "n")])
    table = txlog.Table.create(tmp_path / "t", schema)
    for rows in (FIRST, SECOND):
        table.append(rows_of(*rows).drop_columns("c"))
    for uri in table.scan(where="a > 4").file_uris():
        Path(uri).unlink()
    held = [State(("a", "b", "n")).with_rows({"n": None, **row} for row in (*FIRST, *SECOND))]
    seen = txlog.Table(table.uri).snapshot
    for operation in map(BESIDE_LOST_FILES.get, ("FSCK", name) if is_first else (name, "FSCK")):
        assert operation is not None
        with suppress(CommitConflictError):  # The other took the same files out.
            operation.do(context_of(table), seen, None)
        held.append(operation.model(held[-1], held))
    found = table.refresh().to_arrow()
    assert state_of(found).values() == held[-1].values()
    told = [info["operation"] for info in table.history()]
    assert told.count("FSCK") == (0 if (name, is_first) == ("overwrite", False) else 1)
