"""The bytes of a commit that do not depend on the version are the same in all attempts."""

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txlog
from tests.verb_calls import append
from txlog.actions.file import Add, DeletionVectorDescriptor
from txlog.actions.table import Txn
from txlog.base.threads import Threads
from txlog.commit.context import Context
from txlog.commit.intent import Intent, encode_commit
from txlog.commit.loop import Committed, commit, unparsed
from txlog.data_files.definition import Definition
from txlog.data_files.options import as_schema
from txlog.log.names import LogFile, commit_name
from txlog.snapshot.commits import parse_commit
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.local.disk import Disk
from txlog.store.local.local import LocalStore
from txlog.verbs.create import create

SCHEMA = pa.schema([("x", pa.int64())])


class Noting(Disk):
    """Notes what is written, and with which call."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def create(self, path: str) -> int:
        self.calls.append("create")
        return super().create(path)

    def reopen(self, path: str) -> int:
        self.calls.append("reopen")
        return super().reopen(path)

    def link(self, source: str, target: str) -> None:
        self.calls.append("link")
        super().link(source, target)


def made(root: Path, effects: Any, properties: dict[str, str]) -> tuple[Snapshot, Context, Noting]:
    """Return a table's first version, from which two others have followed meanwhile."""
    place = Context(LocalStore(str(root / "t")), effects, Threads(1))
    create(place, as_schema(SCHEMA), Definition(properties=properties))
    seen = load_snapshot(place.store)
    for x in range(2):
        append(place, load_snapshot(place.store), pa.table({"x": pa.array([x], pa.int64())}))
    disk = Noting()
    return seen, Context(LocalStore(place.store.root, disk=disk), effects, Threads(1)), disk


def committed(place: Context, seen: Snapshot, **changes: Any) -> list[dict[str, Any]]:
    intent = Intent("WRITE", seen.version, "append", **changes)
    done = commit(place.store, seen, intent, effects=place.effects)
    assert isinstance(done, Committed)
    assert (done.snapshot.version, done.attempts) == (3, 2)
    data = Path(place.store.root, "_delta_log", f"{3:020d}.json").read_bytes()
    assert txlog.Table(place.store.root).version == 3
    hidden = [p for p in Path(place.store.root, "_delta_log").iterdir() if p.name[0] == "."]
    assert hidden == []
    return [orjson.loads(line) for line in data.splitlines()]


def test_a_lost_race_links_the_same_file_again(tmp_path: Path, effects: Any) -> None:
    seen, place, disk = made(tmp_path, effects, {})
    lines = committed(place, seen, txn=Txn(app_id="job", version=1))
    assert disk.calls == ["create", "link", "link"]
    assert lines[0]["commitInfo"]["readVersion"] == 0


def test_ids_that_were_given_meanwhile_make_it_written_over(tmp_path: Path, effects: Any) -> None:
    seen, place, disk = made(tmp_path, effects, {})
    file = Add(path="f", partition_values={}, size=1, modification_time=0, data_change=True)
    lines = committed(place, seen, adds=(file,))
    assert disk.calls == ["create", "link", "reopen", "link"]
    assert lines[-1]["add"]["tags"] == {"txlog.fragmentId": "2"}
    ids = txlog.Table(place.store.root).files()["fragment_id"].to_pylist()
    assert sorted(ids) == [0, 1, 2]


@pytest.mark.spec("CON-0")
def test_stamps_rise_above_those_of_winners(tmp_path: Path, effects: Any) -> None:
    seen, place, disk = made(tmp_path, effects, {"delta.enableInCommitTimestamps": "true"})
    before = load_snapshot(place.store).timestamp_ms
    lines = committed(place, seen, txn=Txn(app_id="job", version=1))
    assert disk.calls == ["create", "link", "reopen", "link"]
    assert lines[0]["commitInfo"]["inCommitTimestamp"] == before + 1


texts = st.text(max_size=8)
maps = st.dictionaries(texts, st.none() | texts, max_size=3)
longs = st.integers(-(2**63), 2**63 - 1)
files = st.builds(
    Add,
    path=texts,
    partition_values=maps,
    size=st.integers(0, 2**63 - 1),
    modification_time=longs,
    data_change=st.booleans(),
    stats=st.none() | texts,
    tags=st.none() | maps,
    deletion_vector=st.none()
    | st.builds(
        DeletionVectorDescriptor,
        storage_type=texts,
        path_or_inline_dv=texts,
        offset=st.none() | st.integers(0, 9),
        size_in_bytes=st.integers(0, 9),
        cardinality=st.integers(0, 2**63 - 1),
    ),
    base_row_id=st.none() | longs,
    default_row_commit_version=st.none() | longs,
    clustering_provider=st.none() | texts,
)
intents = st.builds(
    Intent,
    operation=texts,
    read_version=st.integers(-1, 9),
    kind=st.just("append"),
    adds=st.lists(files, max_size=3).map(tuple),
    txn=st.none() | st.builds(Txn, app_id=texts, version=longs, last_updated=st.none() | longs),
    parameters=st.dictionaries(texts, st.none() | texts | st.lists(longs, max_size=2), max_size=3),
    metrics=st.dictionaries(texts, longs, max_size=3),
    user_metadata=st.none() | texts,
)


@given(intents, st.booleans())
def test_a_commit_is_what_reading_it_would_give(intent: Intent, stamped: bool) -> None:
    found = encode_commit(intent, highest_id=3, timestamp_ms=5, stamped=stamped, txn_id="me")
    file = LogFile(commit_name(7), "commit", 7, modified_ms=8)
    mine, read = unparsed(found, file), parse_commit(found.data, file)
    assert mine == read
    assert mine.info == read.info


def test_a_commit_holds_nothing_that_a_caller_can_change(tmp_path: Path, effects: Any) -> None:
    place = Context(LocalStore(str(tmp_path / "t")), effects, Threads(1))
    create(place, as_schema(SCHEMA), Definition(partition_by=()))
    seen = load_snapshot(place.store)
    values: dict[str, str | None] = {"p": "1"}
    file = Add(path="f", partition_values=values, size=1, modification_time=0, data_change=True)
    done = commit(place.store, seen, Intent("WRITE", 0, "append", (file,)), effects=effects)
    assert isinstance(done, Committed)
    file.partition_values["p"] = "2"
    assert done.snapshot.tail.rows["partition_values"].to_pylist() == [[("p", "1")]]
