"""The commit loop between two writers: who commits, who decides again, and the final table."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import txlog
from tests.commit.conftest import FakeEffects
from tests.verb_calls import Built, append, delete, overwrite, run
from txlog.actions.file import Add
from txlog.actions.ndjson import encode
from txlog.actions.table import DomainMetadata
from txlog.base.effects import Effects
from txlog.base.errors import CommitConflictError, RetriesExhaustedError
from txlog.base.threads import Threads
from txlog.commit.context import Context
from txlog.commit.intent import Intent, encode_commit
from txlog.commit.loop import Committed, Redo, commit
from txlog.data_files.definition import Definition
from txlog.data_files.options import WriteOptions, as_schema
from txlog.fragments.ids import ID_APP, ID_TAG
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import BasicStore
from txlog.store.local.local import LocalStore
from txlog.verbs.create import create

SCHEMA = pa.schema([("x", pa.int64())])


def xs(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


@pytest.fixture
def place(tmp_path: Path, effects: Effects) -> Context:
    place = Context(LocalStore(str(tmp_path / "t")), effects, Threads(1))
    create(place, as_schema(SCHEMA))
    append(place, load_snapshot(place.store), xs(1, 2, 3))
    append(place, load_snapshot(place.store), xs(11, 12, 13))
    return place


def rows(place: Context) -> list[int]:
    return sorted(txlog.Table(place.store.root).to_arrow()["x"].to_pylist())


def data_files(place: Context) -> set[str]:
    return {
        info.name
        for info in place.store.list_tree("")
        if info.name.endswith((".parquet", ".bin")) and not info.name.startswith("_")
    }


def live_files(place: Context) -> set[str]:
    return set(txlog.Table(place.store.root).files()["path"].to_pylist())


def test_two_appends_from_one_version_both_land(place: Context) -> None:
    seen = load_snapshot(place.store)
    first = append(place, seen, xs(21))
    second = append(place, seen, xs(22))
    assert (first.outcome.version, second.outcome.version) == (3, 4)
    assert second.snapshot.version == 4
    assert rows(place) == [1, 2, 3, 11, 12, 13, 21, 22]


def test_fragment_ids_of_two_writers_differ(place: Context) -> None:
    seen = load_snapshot(place.store)
    for value in (21, 22, 23):
        append(place, seen, xs(value))
    table = txlog.Table(place.store.root)
    assert table.files()["fragment_id"].to_pylist() == [0, 1, 2, 3, 4]
    assert table.transaction_version(ID_APP) == 4


def test_a_delete_lands_after_an_append_that_it_cannot_meet(place: Context) -> None:
    seen = load_snapshot(place.store)
    append(place, seen, xs(1000))
    assert delete(place, seen, "x < 3").outcome.version == 4
    assert rows(place) == [3, 11, 12, 13, 1000]
    history = txlog.Table(place.store.root).history(1)[0]
    assert history["readVersion"] == 2  # Nothing was decided anew.


def test_a_delete_is_decided_anew_after_an_append_of_such_rows(place: Context) -> None:
    seen = load_snapshot(place.store)
    append(place, seen, xs(0, 50))
    assert delete(place, seen, "x < 3").outcome.metrics["numDeletedRows"] == 3
    assert rows(place) == [3, 11, 12, 13, 50]
    assert txlog.Table(place.store.root).history(1)[0]["readVersion"] == 3


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_two_deletes_in_one_file_both_count(tmp_path: Path, effects: Effects, vectors: str) -> None:
    place = Context(LocalStore(str(tmp_path / "t")), effects, Threads(1))
    create(
        place,
        as_schema(SCHEMA),
        Definition(properties={"delta.enableDeletionVectors": vectors}),
    )
    append(place, load_snapshot(place.store), xs(1, 2, 3, 4))
    seen = load_snapshot(place.store)
    assert delete(place, seen, "x = 1").outcome.version == 2
    second = delete(place, seen, "x = 4")
    assert second.outcome.version == 3
    assert second.outcome.metrics["numDeletedRows"] == 1
    assert rows(place) == [2, 3]
    # What was written for the attempt in vain is gone, the older versions are whole.
    if vectors == "false":
        assert len(data_files(place)) == 3
    assert txlog.Table(place.store.root, version=2).count() == 3


def test_a_delete_of_rows_that_are_gone_does_nothing(place: Context) -> None:
    seen = load_snapshot(place.store)
    delete(place, seen, "x = 1")
    second = delete(place, seen, "x = 1")
    assert second.outcome.version is None
    assert not second.outcome.skipped
    assert load_snapshot(place.store).version == 3


def test_an_overwrite_takes_what_an_append_added_meanwhile(place: Context) -> None:
    seen = load_snapshot(place.store)
    append(place, seen, xs(99))
    overwrite(place, seen, xs(7))
    assert rows(place) == [7]
    assert len(live_files(place)) == 1


@pytest.mark.parametrize("verb", ["append", "overwrite", "delete"])
def test_one_transaction_by_two_writers_lands_once(place: Context, verb: str) -> None:
    seen = load_snapshot(place.store)
    append(place, seen, xs(21), txn=("job", 5))
    before = data_files(place)
    act: Callable[[], Any] = {
        "append": lambda: append(place, seen, xs(21), txn=("job", 5)),
        "overwrite": lambda: overwrite(place, seen, xs(21), txn=("job", 4)),
        "delete": lambda: delete(place, seen, "x > 0", txn=("job", 5)),
    }[verb]
    done = act()
    assert done.outcome.version is None
    assert done.outcome.skipped
    assert done.snapshot.version == 3
    assert rows(place) == [1, 2, 3, 11, 12, 13, 21]
    assert data_files(place) == before


def test_a_later_transaction_of_the_same_application_lands(place: Context) -> None:
    seen = load_snapshot(place.store)
    append(place, seen, xs(21), txn=("job", 5))
    assert append(place, seen, xs(22), txn=("job", 6)).outcome.version == 4
    assert load_snapshot(place.store).transaction_version("job") == 6


def test_a_new_schema_makes_an_append_check_again(place: Context) -> None:
    seen = load_snapshot(place.store)
    wide = pa.table({"x": pa.array([5], pa.int64()), "y": ["b"]})
    append(place, seen, wide, schema_mode="merge")
    append(place, seen, xs(6))
    found = txlog.Table(place.store.root).to_arrow(where="x in (5, 6)").to_pylist()
    assert found == [{"x": 5, "y": "b"}, {"x": 6, "y": None}]


def test_two_new_columns_both_come(place: Context) -> None:
    seen = load_snapshot(place.store)
    for name in "yz":
        data = pa.table({"x": pa.array([5], pa.int64()), name: ["b"]})
        append(place, seen, data, schema_mode="merge")
    assert txlog.Table(place.store.root).schema.names == ["x", "y", "z"]


@pytest.mark.spec("CON-11")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_delete_lands_after_new_columns(tmp_path: Path, effects: Effects, vectors: str) -> None:
    place = Context(LocalStore(str(tmp_path / "t")), effects, Threads(1))
    create(
        place,
        as_schema(SCHEMA),
        Definition(properties={"delta.enableDeletionVectors": vectors}),
    )
    append(place, load_snapshot(place.store), xs(1, 2, 3))
    seen = load_snapshot(place.store)
    wide = pa.table({"x": pa.array([1000], pa.int64()), "y": ["b"]})
    append(place, seen, wide, schema_mode="merge")
    assert delete(place, seen, "x < 3").outcome.version == 3
    table = txlog.Table(place.store.root)
    assert table.history(1)[0]["readVersion"] == 1  # Nothing was decided anew.
    found = sorted(table.to_arrow().to_pylist(), key=lambda row: row["x"])
    assert found == [{"x": 3, "y": None}, {"x": 1000, "y": "b"}]


def test_an_append_that_a_new_rule_forbids_is_refused(place: Context) -> None:
    seen = load_snapshot(place.store)
    wide = pa.table({"x": pa.array([5], pa.int64()), "y": ["b"]})
    append(place, seen, wide, schema_mode="merge")
    other = pa.table({"x": pa.array([5], pa.int64()), "y": [1.5]})
    before = data_files(place)
    with pytest.raises(txlog.SchemaMismatchError, match="y"):
        append(place, seen, other, schema_mode="merge")
    assert data_files(place) == before


def intent_of(snapshot: Snapshot, path: str) -> Intent:
    file = Add(path=path, partition_values={}, size=1, modification_time=0, data_change=True)
    return Intent("WRITE", snapshot.version, "append", adds=(file,))


def test_the_loop_says_how_often_it_tried(place: Context) -> None:
    seen = load_snapshot(place.store)
    append(place, seen, xs(4))
    append(place, seen, xs(5))
    done = commit(place.store, seen, intent_of(seen, "f"), effects=place.effects)
    assert isinstance(done, Committed)
    assert (done.attempts, done.snapshot.version) == (2, 5)  # One look passes all winners.


def test_a_redo_comes_with_the_newest_snapshot(place: Context) -> None:
    seen = load_snapshot(place.store)
    wide = pa.table({"x": pa.array([5], pa.int64()), "y": ["b"]})
    append(place, seen, wide, schema_mode="merge")
    append(place, seen, xs(5))
    done = commit(place.store, seen, intent_of(seen, "f"), effects=place.effects)
    assert isinstance(done, Redo)
    assert (done.verdict.rule, done.version, done.snapshot.version) == ("CON-2", 3, 4)
    assert done.snapshot.schema.names() == ["x", "y"]


class _Busy(BasicStore):
    """A store in which another writer takes every version first."""

    def __init__(self, inner: LocalStore, others: Iterator[bytes]) -> None:
        self._inner = inner
        self._others = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> str:
        self._inner.put_if_absent(path, next(self._others))
        return self._inner.put_if_absent(path, data)


def busy(place: Context) -> Context:
    def others() -> Iterator[bytes]:
        count = 0
        while True:
            count += 1
            yield encode(list(intent_of(load_snapshot(place.store), f"other-{count}").adds))

    store: Any = _Busy(LocalStore(place.store.root), others())
    return Context(store, place.effects, place.engine)


class Passing(FakeEffects):
    """Each look at the clock takes a second."""

    def monotonic_s(self) -> float:
        self.clock[0] += 1.0
        return super().monotonic_s()


def test_attempts_end_at_the_deadline(place: Context, effects: Any) -> None:
    seen = load_snapshot(place.store)
    crowded = busy(place)
    with pytest.raises(RetriesExhaustedError) as caught:
        commit(crowded.store, seen, intent_of(seen, "f"), effects=crowded.effects, deadline_s=20.0)
    assert caught.value.retry == "after_refresh"
    assert sum(effects.slept) > 20.0
    assert max(effects.slept) <= 1.0
    assert load_snapshot(place.store).version == caught.value.version


@pytest.mark.slow
def test_an_append_that_never_wins_leaves_no_file(place: Context) -> None:
    before = data_files(place)
    crowded = replace(busy(place), effects=Passing())
    with pytest.raises(RetriesExhaustedError):
        append(crowded, load_snapshot(place.store), xs(9))
    assert data_files(place) == before


def test_an_encoded_commit_names_itself_and_its_new_files(effects: Any) -> None:
    file = Add(path="f", partition_values={}, size=1, modification_time=0, data_change=True)
    old = file.model_copy(update={"path": "g", "tags": {ID_TAG: "3", "a": "b"}})
    bad = file.model_copy(update={"path": "h", "tags": {ID_TAG: "x", "a": "b"}})
    data = encode_commit(
        Intent(
            "WRITE", 4, "append", adds=(file, old, bad), parameters={"a": [1], "b": "c", "d": None}
        ),
        highest_id=7,
        timestamp_ms=5,
        stamped=True,
        txn_id="me",
    ).data
    lines = [orjson.loads(line) for line in data.splitlines()]
    info = lines[0]["commitInfo"]
    assert (info["txnId"], info["inCommitTimestamp"], info["readVersion"]) == ("me", 5, 4)
    assert info["operationParameters"] == {"a": "[1]", "b": "c"}
    assert info["isBlindAppend"] is True
    assert lines[1]["txn"] == {"appId": ID_APP, "version": 9, "lastUpdated": 5}
    tags = {line["add"]["path"]: line["add"]["tags"] for line in lines[2:]}
    assert tags["f"] == {ID_TAG: "8"}
    assert tags["g"] == {ID_TAG: "3", "a": "b"}
    assert tags["h"] == {ID_TAG: "9", "a": "b"}


def test_in_commit_timestamps_only_rise(tmp_path: Path, effects: Any) -> None:
    place = Context(LocalStore(str(tmp_path / "t")), effects, Threads(1))
    properties = {"delta.enableInCommitTimestamps": "true"}
    create(place, as_schema(SCHEMA), Definition(properties=properties))
    first = load_snapshot(place.store).timestamp_ms
    effects.clock[0] -= 100.0  # A clock that goes back.
    append(place, load_snapshot(place.store), xs(1), options=WriteOptions())
    assert load_snapshot(place.store).timestamp_ms == first + 1


def property_intent(snapshot: Snapshot, name: str) -> Intent:
    properties = {**snapshot.metadata.configuration, name: "1"}
    metadata = snapshot.metadata.model_copy(update={"configuration": properties})
    return Intent("SET TBLPROPERTIES", snapshot.version, "metadata", metadata=metadata)


@pytest.mark.spec("CON-17")
def test_a_failure_names_the_winner_and_what_to_do(place: Context) -> None:
    seen = load_snapshot(place.store)
    append(place, seen, xs(4))
    first = load_snapshot(place.store)
    assert isinstance(
        commit(place.store, first, property_intent(first, "a"), effects=place.effects), Committed
    )
    append(place, load_snapshot(place.store), xs(5))
    with pytest.raises(CommitConflictError, match="or changed properties meanwhile") as caught:
        commit(place.store, seen, property_intent(seen, "b"), effects=place.effects)
    assert type(caught.value) is CommitConflictError
    assert (caught.value.version, caught.value.rule) == (4, "CON-2")
    assert caught.value.remedy
    assert load_snapshot(place.store).version == 5


@pytest.mark.spec("CON-17")
@pytest.mark.parametrize("first", ["rows", "property"])
def test_no_other_winner_lets_a_forbidden_operation_run_again(place: Context, first: str) -> None:
    """Run again, it would undo what it never saw."""
    seen = load_snapshot(place.store)
    runs: list[int] = []

    def build(base: Snapshot) -> Intent:
        runs.append(base.version)
        return property_intent(base, "delta.logRetentionDuration")  # Redo after rows alone.

    for name in ("rows", "property") if first == "rows" else ("property", "rows"):
        now = load_snapshot(place.store)
        if name == "rows":
            append(place, now, xs(4))
        else:
            commit(place.store, now, property_intent(now, "a"), effects=place.effects)
    with pytest.raises(CommitConflictError):
        run(Built(build), place, seen)
    assert runs == [seen.version]
    assert run(Built(build), place, load_snapshot(place.store)).outcome.version is not None


@pytest.mark.spec("CON-15")
def test_a_property_of_the_system_is_set_anew_after_rows(place: Context) -> None:
    seen = load_snapshot(place.store)
    append(place, seen, xs(4))
    runs: list[int] = []

    def build(base: Snapshot) -> Intent:
        runs.append(base.version)
        return property_intent(base, "delta.logRetentionDuration" if len(runs) < 3 else "mine")

    run(Built(build), place, seen)
    assert runs == [2, 3]
    append(place, load_snapshot(place.store), xs(5))
    run(Built(build), place, load_snapshot(place.store, version=4))
    assert runs == [2, 3, 4]  # One of a user's does not mind.


def test_domains_are_committed(place: Context) -> None:
    seen = load_snapshot(place.store)
    domain = DomainMetadata(domain="mine", configuration="{}")
    intent = replace(intent_of(seen, "f"), domains=(domain,))
    done = commit(place.store, seen, intent, effects=place.effects)
    assert isinstance(done, Committed)
    assert load_snapshot(place.store).controls.domains["mine"] == domain
