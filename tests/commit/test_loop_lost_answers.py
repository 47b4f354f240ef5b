"""Commits with lost answers: none is doubled or lost, and no needed file is deleted."""

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
from tests.verb_calls import append, delete, overwrite
from txlog.base.effects import Effects
from txlog.base.errors import OutcomeUnknownError, StoreError
from txlog.base.threads import Threads
from txlog.commit.context import Context
from txlog.data_files.definition import Definition
from txlog.data_files.options import WriteOptions, as_schema
from txlog.snapshot.load import load_snapshot
from txlog.store.base import BasicStore
from txlog.store.local.local import LocalStore
from txlog.store.memory import MemoryStore
from txlog.verbs.checkpoint import checkpoint
from txlog.verbs.create import create, write_new_table

SCHEMA = pa.schema([("x", pa.int64())])
FAULTS = ("none", "lost after", "lost before", "lying", "refused")


class Flaky(BasicStore):
    """A store that goes wrong at commits, as told, and is sound when it is told nothing."""

    def __init__(self, inner: LocalStore | MemoryStore, *faults: str) -> None:
        self._inner = inner
        self.faults = list(faults)
        self.unreadable = False
        self.info_fails = False
        self.lacks_memory = False
        self.puts: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> str:
        fault = self.faults.pop(0) if self.faults else "none"
        self.puts.append(path)
        if fault == "refused":
            raise StoreError(path=path, operation="create", reason="no space")
        if fault == "interrupted before":
            raise KeyboardInterrupt
        if fault == "lost before":
            raise OutcomeUnknownError(path=path)
        put = self._inner.put_if_absent(path, data)
        if fault == "lost after":
            raise OutcomeUnknownError(path=path)
        if fault == "interrupted after":
            raise KeyboardInterrupt
        if fault == "no memory after":
            raise MemoryError
        return "exists" if fault == "lying" else put

    def read(self, path: str) -> bytes:
        if self.unreadable and path.endswith(".json") and self.puts:
            raise StoreError(path=path, operation="read", reason="no connection")
        return self._inner.read(path)

    def info(self, path: str) -> Any:
        if self.info_fails and self.puts:
            raise StoreError(path=path, operation="look at", reason="no connection")
        if self.lacks_memory and self.puts:
            raise MemoryError
        return self._inner.info(path)


def xs(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def flaky(root: str, effects: Effects, *faults: str) -> tuple[Context, Any]:
    store: Any = Flaky(LocalStore(root), *faults)
    return Context(store, effects, Threads(1)), store


def rows(root: str, version: int | None = None) -> list[int]:
    return sorted(txlog.Table(root, version).to_arrow()["x"].to_pylist())


def parquet_files(root: str) -> set[str]:
    return {path.name for path in Path(root).rglob("*.parquet")}


@pytest.fixture
def root(tmp_path: Path, effects: Effects) -> str:
    root = str(tmp_path / "t")
    place = Context(LocalStore(root), effects, Threads(1))
    create(place, as_schema(SCHEMA))
    append(place, load_snapshot(place.store), xs(1, 2, 3))
    return root


@pytest.mark.parametrize(
    ("faults", "puts"),
    [
        (("lost after",), 1),
        (("lying",), 1),
        (("lost before",), 2),
        (("lost before", "lost after"), 2),
        (("lost before", "lost before", "lying"), 3),
    ],
)
def test_a_lost_answer_is_looked_up(
    root: str, effects: Effects, faults: tuple[str, ...], puts: int
) -> None:
    place, store = flaky(root, effects, *faults)
    done = append(place, load_snapshot(place.store), xs(9))
    assert done.outcome.version == 2
    assert store.puts == ["_delta_log/00000000000000000002.json"] * puts
    assert rows(root) == [1, 2, 3, 9]


@pytest.mark.parametrize("fault", ["lost after", "lost before", "lying"])
def test_a_table_is_made_once(tmp_path: Path, effects: Effects, fault: str) -> None:
    root = str(tmp_path / "new")
    place, _ = flaky(root, effects, fault)
    assert create(place, as_schema(SCHEMA)).snapshot.version == 0
    assert txlog.Table(root).version == 0


def test_a_lost_answer_does_not_hide_another_winner(root: str, effects: Effects) -> None:
    place, store = flaky(root, effects, "lost before")
    seen = load_snapshot(place.store)
    inner = place.store.put_if_absent

    def other_first(path: str, data: bytes) -> str:
        if not store.puts:
            plain = Context(LocalStore(root), effects, Threads(1))
            append(plain, seen, xs(8))
        return str(inner(path, data))

    store.put_if_absent = other_first
    assert append(place, seen, xs(9)).outcome.version == 3
    assert rows(root) == [1, 2, 3, 8, 9]


@pytest.mark.parametrize("verb", ["append", "overwrite", "delete"])
@pytest.mark.parametrize("fault", ["lost after", "lying"])
def test_what_cannot_be_read_back_is_unknown_and_kept(
    root: str, effects: Effects, verb: str, fault: str
) -> None:
    place, store = flaky(root, effects, fault)
    seen = load_snapshot(place.store)
    store.unreadable = True
    act = {
        "append": lambda: append(place, seen, xs(9)),
        "overwrite": lambda: overwrite(place, seen, xs(9), where="x >= 2 or x = 9"),
        "delete": lambda: delete(place, seen, "x = 2"),
    }[verb]
    with pytest.raises(OutcomeUnknownError) as caught:
        act()
    assert caught.value.version == 2
    assert caught.value.txn_id
    assert txlog.Table(root).history(1)[0]["txnId"] == caught.value.txn_id
    expected = {"append": [1, 2, 3, 9], "overwrite": [1, 9], "delete": [1, 3]}
    assert rows(root) == expected[verb]


@pytest.mark.spec("GUA-4")
@pytest.mark.parametrize("at", ["put", "looking whether it landed"])
def test_a_commit_at_which_memory_runs_out_may_have_landed(
    root: str, effects: Effects, at: str
) -> None:
    """So its files are kept, and callers that clean up after a certain failure keep theirs."""
    context, store = flaky(root, effects, *(["no memory after"] if at == "put" else []))
    store.lacks_memory = at != "put"
    with pytest.raises(OutcomeUnknownError, match="may have landed, but there is not enough"):
        append(context, load_snapshot(context.store), xs(9))
    assert 9 in rows(root)


def test_an_answer_that_never_comes_is_unknown_in_the_end(root: str, effects: Effects) -> None:
    place, store = flaky(root, effects, *["lost before"] * 50)
    before = parquet_files(root)
    with pytest.raises(OutcomeUnknownError):
        append(place, load_snapshot(place.store), xs(9))
    assert len(store.puts) < 50
    # A put on its way may still arrive, so its data file stays.
    assert len(parquet_files(root) - before) == 1


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_refused_commit_leaves_no_file(tmp_path: Path, effects: Effects, vectors: str) -> None:
    root = str(tmp_path / "t")
    plain = Context(LocalStore(root), effects, Threads(1))
    create(
        plain,
        as_schema(SCHEMA),
        Definition(properties={"delta.enableDeletionVectors": vectors}),
    )
    append(plain, load_snapshot(plain.store), xs(*range(40_000)))
    place, store = flaky(root, effects)
    seen = load_snapshot(place.store)
    before = {str(path) for path in Path(root).rglob("*")}
    for act in (
        lambda: append(place, seen, xs(9)),
        lambda: delete(place, seen, "x % 7 = 0"),
        lambda: overwrite(place, seen, xs(9), where="x % 7 = 2"),
    ):
        store.faults.append("refused")
        with pytest.raises(StoreError, match="no space"):
            act()
        assert {str(path) for path in Path(root).rglob("*")} == before


@pytest.mark.parametrize("fault", ["interrupted before", "interrupted after"])
@pytest.mark.parametrize("verb", ["append", "overwrite", "delete", "write"])
def test_an_interrupt_at_the_commit_never_breaks_the_table(
    root: str, tmp_path: Path, effects: Effects, verb: str, fault: str
) -> None:
    if verb == "write":
        root = str(tmp_path / "new")
    place, _ = flaky(root, effects, fault)
    landed = fault == "interrupted after"

    def act() -> None:
        if verb == "write":
            write_new_table(
                place, xs(9), options=WriteOptions(), allow_existing=False,
            )  # fmt: skip
        elif verb == "append":
            append(place, load_snapshot(place.store), xs(9))
        elif verb == "overwrite":
            overwrite(place, load_snapshot(place.store), xs(9))
        else:
            delete(place, load_snapshot(place.store), "x = 2")

    with pytest.raises(KeyboardInterrupt):
        act()
    if not landed and verb == "write":
        assert not txlog.Table.exists(root)
        return
    after = {"append": [1, 2, 3, 9], "overwrite": [9], "delete": [1, 3], "write": [9]}
    assert rows(root) == (after[verb] if landed else [1, 2, 3])


@pytest.mark.parametrize("new", [False, True])
def test_a_commit_that_landed_is_a_success_whatever_comes_after(
    root: str, tmp_path: Path, effects: Effects, new: bool
) -> None:
    root = str(tmp_path / "new") if new else root
    place, store = flaky(root, effects)
    store.info_fails = True
    if new:
        store.unreadable = True
        done = write_new_table(
            place, xs(9), options=WriteOptions(), allow_existing=False,
        )  # fmt: skip
        assert done is not None
    else:
        done = append(place, load_snapshot(place.store), xs(9))
    assert done.outcome.version == (0 if new else 2)
    assert 9 in rows(root)


steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "delete", "overwrite"]),
        st.lists(st.sampled_from(FAULTS), max_size=3),
        st.booleans(),
        st.integers(0, 9),
    ),
    max_size=6,
)


@settings(max_examples=examples(40))
@given(steps)
def test_what_was_acknowledged_is_there_once(plan: list[tuple[str, list[str], bool, int]]) -> None:
    """Two writers, one of them always with an old snapshot; every answer may be lost."""
    with TemporaryDirectory() as folder:
        root = f"{folder}/t"
        place, store = flaky(root, _Instant())
        create(place, as_schema(SCHEMA))
        first = stale = load_snapshot(place.store)
        expected: list[int] = []
        for number, (verb, faults, is_stale, value) in enumerate(plan):
            store.faults[:] = faults
            seen = stale if is_stale else load_snapshot(place.store)
            stale = seen if is_stale else first
            try:
                if verb == "append":
                    append(place, seen, xs(value, number + 100))
                    expected += [value, number + 100]
                elif verb == "delete":
                    done = delete(place, seen, f"x = {value}")
                    if done.outcome.version is None:  # It takes place in the version it saw.
                        assert value not in rows(root, seen.version)
                        continue
                    expected = [x for x in expected if x != value]
                else:
                    overwrite(place, seen, xs(value), where=f"x = {value}")
                    expected = [x for x in expected if x != value] + [value]
            except (StoreError, OutcomeUnknownError):
                pass  # Not there: a fault that lands is seen when the commit is read back.
            store.faults.clear()
            assert rows(root) == sorted(expected)
        live = set(txlog.Table(root).files()["path"].to_pylist())
        assert live <= parquet_files(root)


class _Instant(Effects):
    def sleep_s(self, seconds: float) -> None:
        pass


def test_a_commit_is_a_success_where_warnings_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error for the checkpoint would be taken for that of the append, which is committed."""
    properties = {"delta.checkpointInterval": "1"}
    table = txlog.Table.create(tmp_path / "t", SCHEMA, properties=properties)

    def fail(*_: object) -> None:
        raise StoreError(path="x", operation="create", reason="no space")

    monkeypatch.setattr("txlog.verbs.checkpoint.checkpoint", fail)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert table.append(xs(9)).version == 1
    assert "version 1 is committed, but its checkpoint failed" in capsys.readouterr().err
    assert txlog.Table(tmp_path / "t").count() == 1


def test_a_checkpoint_stands_if_the_answer_for_its_checksum_is_lost(tmp_path: Path) -> None:
    store = Flaky(LocalStore(str(tmp_path / "t")))
    create(Context(store, Effects(), Threads(1)), as_schema(SCHEMA))
    place = Context(store, Effects(), Threads(1))
    store.faults = ["lost before"] * 5
    with pytest.warns(txlog.TxlogWarning, match="no version checksum was written"):
        checkpoint(place, load_snapshot(store))
    assert list((tmp_path / "t/_delta_log").glob("*.checkpoint*.parquet"))
