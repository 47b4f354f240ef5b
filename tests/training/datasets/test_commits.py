"""Commits of a data set: one version each, numbered without gaps, read by every engine."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import deltalake
import orjson
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.examples import examples
from tests.training.datasets.plain_type import ROWS, UUID, add, commits, make_table, rows_of, table
from txlog.actions.table import DomainMetadata
from txlog.base.errors import (
    InvalidInputError,
    InvalidTypeError,
    LogCorruptError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from txlog.base.threads import Threads, map_ahead
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.loop import Committed, commit
from txlog.snapshot.load import load_snapshot
from txlog.store.local.local import LocalStore
from txlog.store.memory import MemoryStore
from txlog.table.table import Table
from txlog.training.datasets.commits import Note, digest_of, read_rows
from txlog.training.datasets.folder import Datasets
from txlog.training.datasets.training_set import TrainingSet
from txlog.training.datasets.values import Asked, Commit, Input, Summary


@pytest.fixture
def place(tmp_path: Path) -> Context:
    place = Context(LocalStore(str(tmp_path / "t")), engine=Threads(1))
    make_table(place)
    return place


def texts(place: Context, commit_id: int) -> list[str]:
    return [t for b in read_rows(table(place), [commit_id], ["text"]) for t in b[0].to_pylist()]


def data_files(place: Context) -> list[str]:
    names = (file.name for file in place.store.list_tree(""))
    return [name for name in names if name.endswith(".parquet") and not name.startswith("_")]


@pytest.mark.spec("DST-1", "DST-2")
def test_a_commit_is_one_version_that_says_everything(place: Context) -> None:
    source = Input("in/1.csv", digest="ab")
    made = add(place, rows_of("abc"), "first", {"category": "test set"}, inputs=lambda: [source])
    snapshot = load_snapshot(place.store)
    assert snapshot.version == 1
    assert commits(place) == [made]
    assert made is not None
    assert (made.commit_id, made.rows, made.statistics) == (1, 3, {"numRows": 3})
    assert (made.message, made.tags, made.inputs) == ("first", {"category": "test set"}, (source,))
    text = snapshot.controls.domains["txlog.dataset.commit.1"].configuration
    told = orjson.loads(text)
    assert text == orjson.dumps(told, option=orjson.OPT_SORT_KEYS).decode()
    assert set(told) == {
        "code", "commit", "created_ms", "digest", "inputs", "message", "rows", "statistics",
        "tags", "type",
    }  # fmt: skip
    assert table(place).history(1)[0]["userMetadata"] == "first"
    assert digest_of(table(place), 1) == (3, made.digest)


@pytest.mark.spec("DST-2")
def test_commits_stay_when_the_log_is_cleaned(place: Context) -> None:
    made = [add(place, rows_of(text)) for text in ("ab", "c", "de")]
    opened = table(place)
    opened.maintenance.checkpoint()
    for file in place.store.list_after("_delta_log", ""):
        if file.name.endswith(".json") and int(file.name[:20]) < opened.version:
            place.store.delete([f"_delta_log/{file.name}"])
    assert commits(place) == made


@pytest.mark.spec("DST-4")
def test_other_engines_read_the_rows_and_are_refused_to_append(place: Context) -> None:
    add(place, rows_of("ab"))
    add(place, rows_of("c"))
    root = place.store.root
    wanted = [(1, "a"), (1, "b"), (2, "c")]
    frame = pl.read_delta(root).sort("commit_id", "n")
    assert list(zip(frame["commit_id"], frame["text"], strict=True)) == wanted
    other = deltalake.DeltaTable(root)
    rows = pa.table(other.to_pyarrow_table()).sort_by(
        [("commit_id", "ascending"), ("n", "ascending")]
    )
    assert list(zip(rows["commit_id"].to_pylist(), rows["text"].to_pylist(), strict=True)) == wanted
    more = pa.table({"commit_id": pa.array([9], pa.int32()), "text": ["x"], "n": [1]})
    with pytest.raises(Exception, match=r"(?i)DomainMetadata|unsupported"):
        deltalake.write_deltalake(root, more, mode="append")
    assert len(commits(place)) == 2


@pytest.mark.spec("DST-6")
def test_no_engine_changes_a_commit(place: Context) -> None:
    add(place, rows_of("ab"))
    opened = table(place)
    for change in (
        lambda: opened.delete("n = 1"), lambda: opened.update({"n": "0"}),
        lambda: opened.overwrite(opened.to_arrow()),
    ):  # fmt: skip
        with pytest.raises(UnsupportedFeatureError, match="append-only"):
            change()
    with pytest.raises(Exception, match=r"(?i)append|unsupported|DomainMetadata"):
        deltalake.DeltaTable(place.store.root).delete("n = 1")
    assert "".join(texts(place, 1)) == "ab"


@pytest.mark.spec("DST-3")
def test_who_loses_a_number_takes_the_next_one_with_the_same_files(place: Context) -> None:
    old = load_snapshot(place.store)
    first = add(place, rows_of("first"), snapshot=old)
    second = add(place, rows_of("second"), snapshot=old)
    third = add(place, rows_of("third"), snapshot=old)
    assert [c and c.commit_id for c in (first, second, third)] == [1, 2, 3]
    assert ["".join(texts(place, k)) for k in (1, 2, 3)] == ["first", "second", "third"]
    live = {row["path"]: dict(row["partition_values"]) for row in table(place).files().to_pylist()}
    assert {path.partition("/")[0] for path in live} == {f"commit_id={k}" for k in (1, 2, 3)}
    assert all(path.startswith(f"commit_id={v['commit_id']}/") for path, v in live.items())
    assert sorted(data_files(place)) == sorted(live)  # No copy is left.


@pytest.mark.spec("DST-3")
def test_threads_race_and_numbers_have_no_gaps(tmp_path: Path) -> None:
    place = Context(MemoryStore(f"memory://race-{tmp_path.name}"), engine=Threads(1))
    make_table(place)
    old = load_snapshot(place.store)
    said = [f"writer {i}" for i in range(8)]
    made = [*map_ahead(lambda m: add(place, rows_of(m), m, snapshot=old), said, workers=4, ahead=8)]
    assert sorted(c.commit_id for c in made if c) == list(range(1, 9))
    for one in commits(place):
        assert "".join(texts(place, one.commit_id)) == one.message
        assert digest_of(table(place), one.commit_id) == (one.rows, one.digest)


WRITER = """
import sys
from tests.training.datasets.plain_type import add, rows_of
from txlog.commit.context import Context
from txlog.store.local.local import LocalStore
place = Context(LocalStore(sys.argv[1]))
for i in range(int(sys.argv[3])):
    add(place, rows_of(f"{sys.argv[2]} {i}"), f"{sys.argv[2]} {i}")
"""


def race(place: Context, processes: int, each: int) -> None:
    """Have processes add commits at once, and check what is there."""
    names = [f"p{i}" for i in range(processes)]
    command = [sys.executable, "-c", WRITER, place.store.root]
    running = [subprocess.Popen([*command, name, str(each)]) for name in names]
    assert [one.wait() for one in running] == [0] * processes
    found = commits(place)
    assert [one.commit_id for one in found] == list(range(1, processes * each + 1))
    assert sorted(c.message for c in found) == sorted(
        f"{n} {i}" for n in names for i in range(each)
    )
    assert all("".join(texts(place, c.commit_id)) == c.message for c in found)


@pytest.mark.slow
@pytest.mark.spec("DST-3")
def test_processes_race_and_numbers_have_no_gaps(place: Context) -> None:
    race(place, processes=2, each=3)


@pytest.mark.exhaustive
def test_three_processes_race_for_45_commits(place: Context) -> None:
    race(place, processes=3, each=15)


@pytest.mark.spec("DST-5")
def test_a_retry_with_the_same_txn_is_one_commit(place: Context) -> None:
    old = load_snapshot(place.store)
    assert add(place, rows_of("a"), "one", txn=("job", 7)) is not None
    assert add(place, rows_of("a"), "one", txn=("job", 7)) is None
    assert add(place, rows_of("a"), "one", snapshot=old, txn=("job", 7)) is None
    assert [c.message for c in commits(place)] == ["one"]
    assert len(data_files(place)) == 1


def test_a_source_that_breaks_off_leaves_nothing(place: Context) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows_of("ab").to_batches()[0]
        raise SchemaMismatchError(field="text", reason="row 3 has no label")

    reader = pa.RecordBatchReader.from_batches(ROWS, batches())

    class Broken:
        def to_reader(self) -> pa.RecordBatchReader:
            return reader

    with pytest.raises(SchemaMismatchError, match="row 3 has no label"):
        add(place, Broken())  # type: ignore[arg-type]
    assert (commits(place), data_files(place)) == ([], [])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (ROWS.empty_table(), "no rows"),
        (pa.table({"text": ["a"], "n": [1], "other": [2]}), "column other is not in the table"),
        (pa.table({"text": ["a"], "Commit_ID": [1]}), "commit_id"),
    ],
    ids=["empty", "new column", "own number"],
)
def test_rows_that_do_not_fit_are_refused_whole(
    place: Context, data: pa.Table, reason: str
) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        add(place, data)
    assert (commits(place), data_files(place)) == ([], [])


def test_inputs_that_fail_leave_no_file(place: Context) -> None:
    def failing() -> list[Input]:
        raise InvalidInputError(argument="source", reason="it changed while it was read")

    with pytest.raises(InvalidInputError, match="it changed"):
        add(place, rows_of("ab"), inputs=failing)
    assert data_files(place) == []


def test_columns_are_added_when_asked_for(place: Context) -> None:
    first = add(place, rows_of("ab"))
    more = rows_of("c").append_column("later", pa.array([[1]], pa.list_(pa.int64())))
    add(place, more, schema_mode="merge")
    assert table(place).schema.names == ["commit_id", "text", "n", "later"]
    assert first is not None
    assert digest_of(table(place), 1) == (2, first.digest)


@pytest.mark.spec("DST-33")
@pytest.mark.parametrize("change", ["compact", "z_order", "restore", "deep clone", "shallow clone"])
def test_digests_outlive_what_moves_rows(place: Context, tmp_path: Path, change: str) -> None:
    for text in ("cab", "xyz", "m"):
        add(place, rows_of(text))
    opened, later = table(place), place
    if change == "restore":
        add(place, rows_of("later"))
        opened.alter.set_properties({"delta.appendOnly": "false"})
        opened.delete(None)
        opened.restore(version=3)
    elif "clone" in change:
        opened.clone(tmp_path / "clone", shallow=change.startswith("shallow"))
        later = Context(LocalStore(str(tmp_path / "clone")))
    else:
        opened.optimize.z_order(["text"])
        if change == "compact":
            opened.optimize.compact()
    for one in commits(place)[:3]:
        assert digest_of(table(later), one.commit_id) == (one.rows, one.digest)
    assert "".join(texts(later, 1)) == "cab"


def test_rows_come_in_their_order_whatever_files_they_are_in(place: Context) -> None:
    """Files of one commit in an odd order, as other engines may leave them after OPTIMIZE."""
    add(place, rows_of("abcdef"))
    opened = table(place)
    ids = opened.to_arrow(columns=["text", "n", "_rowid"])["_rowid"].to_pylist()
    assert ids == sorted(ids)
    opened.optimize.z_order(["text"])
    opened.alter.set_properties({"delta.appendOnly": "false"})
    opened.update({"n": "n + 10"}, "text IN ('b', 'e')")  # Their rows go to another file.
    assert len(opened.fragments()) == 2
    assert "".join(texts(place, 1)) == "abcdef"


@pytest.mark.spec("DST-2")
@pytest.mark.parametrize("text", ['{"commit":2}', "no JSON", '{"commit":1}'])
def test_a_domain_that_is_no_commit_is_told(place: Context, text: str) -> None:
    snapshot = load_snapshot(place.store)
    domain = DomainMetadata(domain="txlog.dataset.commit.1", configuration=text)
    done = commit(
        place.store, snapshot,
        Intent("WRITE", read_version=snapshot.version, kind="append", domains=(domain,)),
        effects=place.effects,
    )  # fmt: skip
    assert isinstance(done, Committed)
    with pytest.raises(LogCorruptError, match=r"txlog\.dataset\.commit\.1"):
        commits(place)


class CommitMachine(RuleBasedStateMachine):
    """Commits against a list, with compaction and deletion of nothing in between."""

    number = 0

    @initialize()
    def begin(self) -> None:
        CommitMachine.number += 1
        store = MemoryStore(f"memory://commit-machine-{CommitMachine.number}")
        self.place = Context(store, engine=Threads(1))
        self.old = make_table(self.place)
        self.plain: list[tuple[str, dict[str, str]]] = []
        self.txns: dict[int, int] = {}

    @rule(text=st.text("abc", min_size=1, max_size=4), tag=st.sampled_from("xy"),
          behind=st.booleans())  # fmt: skip
    def update(self, text: str, tag: str, behind: bool) -> None:
        snapshot = self.old if behind else load_snapshot(self.place.store)
        made = add(self.place, rows_of(text), text, {"tag": tag}, snapshot=snapshot)
        assert made is not None
        self.plain.append((text, {"tag": tag}))
        assert made.commit_id == len(self.plain)

    @rule(version=st.integers(0, 3), text=st.text("abc", min_size=1, max_size=2))
    def update_once(self, version: int, text: str) -> None:
        made = add(self.place, rows_of(text), text, txn=("job", version))
        seen = max(self.txns, default=-1) >= version
        assert (made is None) == seen
        if made is not None:
            self.plain.append((text, {}))
            self.txns[version] = made.commit_id

    @rule()
    def compact(self) -> None:
        table(self.place).optimize.compact()

    @rule()
    def remember(self) -> None:
        self.old = load_snapshot(self.place.store)

    def teardown(self) -> None:
        if not hasattr(self, "place"):
            return
        found = commits(self.place)
        assert [(c.message, dict(c.tags)) for c in found] == self.plain
        opened = table(self.place)
        for one in found:
            assert digest_of(opened, one.commit_id) == (one.rows, one.digest)
        rows = read_rows(opened, range(1, len(found) + 1))
        everything = [text for batch in rows for text in batch["text"].to_pylist()]
        assert "".join(everything) == "".join(text for text, _ in self.plain)


TestCommitMachine: Any = CommitMachine.TestCase
TestCommitMachine.settings = settings(
    max_examples=examples(40), stateful_step_count=10, deadline=None
)


def test_the_uuid_is_no_part_of_what_is_stored(place: Context) -> None:
    made = add(place, rows_of("a"))
    assert isinstance(made, Commit)
    assert made.dataset == UUID
    assert UUID not in load_snapshot(place.store).controls.domains[
        "txlog.dataset.commit.1"
    ].configuration  # fmt: skip
    assert Table.exists(place.store.root)


VALUES: list[type[Any]] = [Commit, Summary, Asked, TrainingSet, Note]


@pytest.mark.parametrize("kind", VALUES)
def test_values_that_callers_share_have_no_mapping_that_can_change(kind: type[Any]) -> None:
    names = [f.name for f in fields(kind) if "Mapping[" in str(f.type)]
    given = {f.name: {"a": "1"} if f.name in names else "x" for f in fields(kind)}
    value = kind(**given)
    for name in set(names) - {"storage_options"}:
        with pytest.raises(InvalidTypeError):
            getattr(value, name)["a"] = "2"


def test_a_commit_stays_what_it_was(tmp_path: Path) -> None:
    made = Datasets(tmp_path).create("d", "TABLE", pa.table({"n": [1]}), tags={"k": "old"})
    with pytest.raises(InvalidTypeError):
        made.commit(1).tags["k"] = "new"  # type: ignore[index]
    assert made.commit(1).tags == {"k": "old"}
    assert made.prepare(tags={"k": "old"}).picked == (1,)
