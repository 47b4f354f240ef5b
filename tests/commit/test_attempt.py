"""What attempts at one commit have in common: bytes that do not depend on the version."""

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import txlog
from txlog.actions import Add, Txn
from txlog.commit import Committed, Intent, commit
from txlog.scan import Threads
from txlog.snapshot import Snapshot, load_snapshot
from txlog.store import Disk, LocalStore
from txlog.writing import Place, append, as_schema, create

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


def made(root: Path, effects: Any, properties: dict[str, str]) -> tuple[Snapshot, Place, Noting]:
    """Return a table's first version, from which two others have followed meanwhile."""
    place = Place(LocalStore(str(root / "t")), effects, Threads(1))
    create(place, as_schema(SCHEMA), properties=properties)
    seen = load_snapshot(place.store)
    for x in range(2):
        append(place, load_snapshot(place.store), pa.table({"x": pa.array([x], pa.int64())}))
    disk = Noting()
    return seen, Place(LocalStore(place.store.root, disk=disk), effects, Threads(1)), disk


def committed(place: Place, seen: Snapshot, **changes: Any) -> list[dict[str, Any]]:
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
