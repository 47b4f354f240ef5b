"""The tail's file actions, combined when they are needed, equal combining them at once."""

from __future__ import annotations

import pickle
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.actions.action import Action
from txlog.actions.columns import empty_rows
from txlog.actions.file import Add, Remove
from txlog.actions.ndjson import encode
from txlog.fragments.ids import ID_TAG, highest_id
from txlog.log.names import LogFile, commit_name
from txlog.log.paths import canonical_key, canonical_keys
from txlog.snapshot import snapshot as snapshot_module
from txlog.snapshot.commits import Commit, file_rows, parse_commit
from txlog.snapshot.snapshot import Tail

paths = st.sampled_from(["a", "b", "b%20c", "b c", "./a", "file:/x", "/x", "é"])
tags = st.sampled_from([None, {}, {ID_TAG: "7"}, {ID_TAG: "12"}, {ID_TAG: "012"}, {"other": "99"}])


@st.composite
def actions(draw: Any) -> list[Action]:
    found: list[Action] = []
    for path in draw(st.lists(paths, max_size=3, unique=True)):
        tag = draw(tags)
        if draw(st.booleans()):
            found.append(
                Add(
                    path=path,
                    partition_values={},
                    size=1,
                    modification_time=0,
                    data_change=True,
                    tags=tag,
                )
            )
        else:
            found.append(Remove(path=path, data_change=True, tags=tag))
    return found


def commit(version: int, held: list[Action]) -> Commit:
    file = LogFile(commit_name(version), "commit", version)
    return parse_commit(encode(held) or b"{}\n", file)


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(actions(), st.booleans(), st.booleans()), max_size=12),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_lazily_is_as_at_once(
    log: list[tuple[list[Action], bool, bool]], unfolded: int, folded_at_first: int
) -> None:
    commits = [commit(version, held) for version, (held, _, _) in enumerate(log)]
    held = Tail(pa.concat_tables([empty_rows(), file_rows(commits[:folded_at_first])]))
    with patch.object(snapshot_module, "_UNFOLDED", unfolded):
        for version, (_, as_rows, asked) in list(enumerate(log))[folded_at_first:]:
            mine = commits[version]
            held = held.plus(file_rows([mine]) if as_rows else mine)
            if asked:
                agrees(held, commits[: version + 1])
    agrees(held, commits[: max(len(log), folded_at_first)])
    agrees(pickle.loads(pickle.dumps(held)), commits)


def agrees(held: Tail, commits: list[Commit]) -> None:
    rows = file_rows(commits)
    assert held.highest_id == highest_id(rows, None)
    keys = canonical_keys(rows["path"]).to_pylist()
    first: dict[str, int] = {}
    for key, version in zip(keys, rows["version"].to_pylist(), strict=True):
        first.setdefault(key, version)
    for path in ("a", "b c", "b", "/x", "file:///x", "nowhere"):
        assert held.first_version(path) == first.get(canonical_key(path))
    assert held.rows.equals(rows)


def test_ids_that_are_written_as_numbers_count() -> None:
    body = b'"path":"a","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true'
    data = b'{"add":{' + body + b',"tags":{"txlog.fragmentId":7}}}'
    held = Tail(empty_rows())
    assert held.highest_id == -1
    assert held.plus(parse_commit(data, LogFile(commit_name(0), "commit", 0))).highest_id == 7


def test_a_tail_that_branched_off_is_not_told_of_later_versions() -> None:
    old = Tail(empty_rows()).plus(commit(0, [Remove(path="a", data_change=True)]))
    assert old.first_version("a") == 0
    new = old.plus(commit(1, [Remove(path="b", data_change=True)]))
    assert new.first_version("b") == 1
    assert old.first_version("b") is None


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 20), st.lists(actions(), max_size=3), st.booleans(), st.booleans()
        ),
        max_size=14,
    )
)
def test_tails_that_part_know_only_their_own_files(
    steps: list[tuple[int, list[list[Action]], bool, bool]],
) -> None:
    """A handle that stays, a refresh of many commits, and an attempt that loses are such tails."""
    found: list[tuple[Tail, list[Commit]]] = [(Tail(empty_rows()), [])]
    for parent, logged, as_rows, asked in steps:
        held, before = found[parent % len(found)]
        more = [commit(len(before) + at, one) for at, one in enumerate(logged)]
        for part in [file_rows(more)] if as_rows else more:
            held = held.plus(part)
        found.append((held, [*before, *more]))
        if asked:
            agrees(*found[-1])
    for held, commits in reversed(found):
        agrees(held, commits)
