"""Replay, held against the protocol's own words as a loop over a dictionary."""

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.actions.base import Action
from txlog.actions.columns import decode_rows, empty_rows
from txlog.actions.table import DomainMetadata, Metadata, Protocol, Txn
from txlog.errors import LogCorruptError
from txlog.reconcile.files import FileState, overlay, reconcile_files
from txlog.reconcile.state import ActionBatch, replay

Key = tuple[str, str | None]

PATHS = ("a", "b", "c%20d")
keys = st.tuples(st.sampled_from(PATHS), st.sampled_from([None, "v1", "v2"]))
# A commit: for each logical file that it touches, whether it adds it.
commits = st.lists(
    st.fixed_dictionaries(
        {
            "files": st.dictionaries(keys, st.booleans(), max_size=4),
            "txns": st.dictionaries(st.sampled_from("xy"), st.integers(0, 9), max_size=2),
            "domains": st.dictionaries(st.sampled_from("mn"), st.booleans(), max_size=2),
            "protocol": st.none() | st.integers(1, 3),
            "schema": st.none() | st.sampled_from(["s1", "s2"]),
        }
    ),
    min_size=1,
    max_size=7,
)
Commit = dict[str, Any]


def body(path: str, vector: str | None, version: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "path": path,
        "partitionValues": {},
        "size": version,
        "modificationTime": 0,
        "dataChange": True,
    }
    if vector is not None:
        found["deletionVector"] = {
            "storageType": "u",
            "pathOrInlineDv": vector,
            "sizeInBytes": 1,
            "cardinality": 1,
        }
    return found


def file_rows(version: int, files: dict[Key, bool]) -> pa.Table:
    lines = [
        {"add" if added else "remove": body(path, vector, version)}
        for (path, vector), added in files.items()
    ]
    return decode_rows([(version, lines, "f")])


def batch(version: int, commit: Commit) -> ActionBatch:
    controls: list[Action] = [Txn(app_id=a, version=v) for a, v in commit["txns"].items()]
    controls += [
        DomainMetadata(domain=d, configuration=str(version), removed=gone)
        for d, gone in commit["domains"].items()
    ]
    if commit["protocol"] is not None:
        controls.append(Protocol(min_reader_version=commit["protocol"], min_writer_version=2))
    if commit["schema"] is not None:
        controls.append(Metadata(id="1", schema_string=commit["schema"]))
    return ActionBatch(
        file_rows(version, commit["files"]), tuple((version, action) for action in controls)
    )


def one_by_one(log: list[Commit]) -> dict[str, Any]:
    """The oracle: the newest action of each name counts."""
    state: dict[str, Any] = {"files": {}, "txns": {}, "domains": {}, "protocol": None}
    state["schema"] = None
    for version, commit in enumerate(log):
        for key, added in commit["files"].items():
            state["files"][key] = (added, version)
        state["txns"].update(commit["txns"])
        state["domains"].update(dict.fromkeys(commit["domains"], version))
        for name in ("protocol", "schema"):
            if commit[name] is not None:
                state[name] = commit[name]
    return state


def as_files(state: FileState) -> dict[Key, tuple[bool, int]]:
    found = {}
    for table, added in ((state.live, True), (state.tombstones, False)):
        for row in table.to_pylist():
            vector = row["deletion_vector"]
            key = (row["path"], vector["pathOrInlineDv"] if vector else None)
            assert key not in found
            assert row["is_add"] is added
            found[key] = (added, row["version"])
    return found


@pytest.mark.spec("REC-1", "REC-2", "REC-3", "REC-4")
@given(commits, st.randoms(use_true_random=False), st.integers(0, 6))
def test_replay_agrees_with_one_by_one(
    log: list[Commit], chance: random.Random, version: int
) -> None:
    version = min(version, len(log) - 1)
    expected = one_by_one(log[: version + 1])
    batches = [batch(at, commit) for at, commit in enumerate(log)]
    # Neither the order of batches nor that of rows, nor how they are cut, has a meaning.
    chance.shuffle(batches)
    cut = [
        ActionBatch(part.files.slice(start, 1))
        for part in batches
        for start in range(part.files.num_rows)
    ]
    whole = [ActionBatch(empty_rows(), part.controls) for part in batches]
    for form in (batches, [*cut, *whole]):
        state = replay(form, version=version)
        assert as_files(state.files) == expected["files"]
        controls = state.controls
        assert {a: t.version for a, t in controls.txns.items()} == expected["txns"]
        assert {d: int(m.configuration) for d, m in controls.domains.items()} == expected["domains"]
        protocol = controls.protocol
        assert (protocol.min_reader_version if protocol else None) == expected["protocol"]
        metadata = controls.metadata
        assert (metadata.schema_string if metadata else None) == expected["schema"]


@pytest.mark.spec("REC-7")
@given(commits, st.integers(0, 7))
def test_a_checkpoint_anywhere_changes_nothing(log: list[Commit], at: int) -> None:
    at = min(at, len(log))
    rows = [file_rows(version, commit["files"]) for version, commit in enumerate(log)]
    base = reconcile_files(pa.concat_tables([empty_rows(), *rows[:at]]))
    base_rows = pa.concat_tables([base.live, base.tombstones])
    state = overlay(base_rows, pa.concat_tables([empty_rows(), *rows[at:]]))
    assert as_files(state) == one_by_one(log)["files"]


@pytest.mark.spec("REC-4")
def test_spellings_of_one_path_are_one_file() -> None:
    lines = [{"add": body("file:/x/a%20b", None, 0)}]
    gone = [{"remove": body("/x/a b", None, 1)}]
    rows = decode_rows([(0, lines, "f"), (1, gone, "g")])
    assert reconcile_files(rows).live.num_rows == 0


@pytest.mark.spec("REC-5")
def test_a_file_named_twice_in_one_commit_is_an_error() -> None:
    lines = [{"add": body("a", None, 0)}, {"remove": body("a", None, 0)}]
    with pytest.raises(LogCorruptError, match="twice"):
        reconcile_files(decode_rows([(3, lines, "f")]))


@pytest.mark.spec("REC-6")
def test_two_metadata_in_one_commit_are_an_error() -> None:
    pair = tuple((2, Metadata(id="1", schema_string=text)) for text in ("a", "b"))
    with pytest.raises(LogCorruptError, match="metaData"):
        replay([ActionBatch(empty_rows(), pair)], version=2)
