"""Fragment ids, compared with the rules of spec/fragments.md."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txlog
from txlog.actions.columns import FILE_ROWS, decode_rows, empty_rows
from txlog.actions.file import Add
from txlog.base.effects import REAL
from txlog.commit.intent import Intent
from txlog.commit.loop import Committed, commit
from txlog.extend import context_of
from txlog.fragments import fragment as fragment_module
from txlog.fragments.fragment import FragmentSequence, fragments_of
from txlog.fragments.ids import ID_APP, ID_TAG, PROVISIONAL, fragment_ids, highest_id, valid_id
from txlog.fragments.rows import ColumnFiles, FragmentRows, single_files

INVALID = ["", "-1", "+1", "01", "00", " 1", "1 ", "1\n", "1.0", "1e3", "0x1", "a", "١",
           str(PROVISIONAL), str(2**31), str(2**64), "9" * 30]  # fmt: skip
VALID = ["0", "1", "7", "10", "4294", str(PROVISIONAL - 1)]

paths = st.text(st.sampled_from("aZ/%é\uffff\U00010000"), min_size=1, max_size=4)
tags = st.none() | st.sampled_from([*VALID, *INVALID, None])
logs = st.dictionaries(paths, tags, max_size=8)


def add(path: str, tag: str | None, **more: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {}, "size": 5, "modificationTime": 0}
    return {"add": {**body, "dataChange": True, "tags": {"other": "9", ID_TAG: tag}, **more}}


def rows(found: dict[str, str | None]) -> pa.Table:
    return decode_rows([(0, [add(path, tag) for path, tag in found.items()], "f")])


@pytest.mark.spec("FRG-1")
@pytest.mark.parametrize("text", VALID)
def test_a_durable_id(text: str) -> None:
    assert valid_id(text)
    assert fragment_ids(rows({"a": text})).to_pylist() == [int(text)]


@pytest.mark.spec("FRG-1", "FRG-6")
@pytest.mark.parametrize("text", [None, *INVALID])
def test_another_text_counts_as_none(text: str | None) -> None:
    assert not valid_id(text)
    assert fragment_ids(rows({"a": text})).to_pylist() == [PROVISIONAL]


@pytest.mark.spec("FRG-1")
@pytest.mark.parametrize("form", [None, {}, {"other": "1"}], ids=["null", "empty", "other"])
def test_no_tag_is_no_id(form: dict[str, str] | None) -> None:
    table = decode_rows([(0, [add("a", None, tags=form)], "f")])
    assert fragment_ids(table).to_pylist() == [PROVISIONAL]


@pytest.mark.spec("FRG-1", "FRG-6", "FRG-7")
@given(logs, st.randoms(use_true_random=False))
def test_ids_agree_with_one_by_one(found: dict[str, str | None], chance: Any) -> None:
    claims = [text for text in found.values() if valid_id(text)]
    durable = {p: int(t) for p, t in found.items() if t in claims and claims.count(t) == 1}
    others = sorted(found.keys() - durable.keys(), key=lambda path: path.encode())
    expected = durable | {path: PROVISIONAL + place for place, path in enumerate(others)}
    items = list(found.items())
    chance.shuffle(items)  # The order of rows has no meaning.
    table = rows(dict(items))
    ids = dict(zip(table["path"].to_pylist(), fragment_ids(table).to_pylist(), strict=True))
    assert ids == expected
    assert len(set(ids.values())) == len(ids)


@pytest.mark.spec("FRG-2")
@given(logs, st.none() | st.integers(-1, PROVISIONAL))
def test_the_highest_id(found: dict[str, str | None], recorded: int | None) -> None:
    claims = [int(text) for text in found.values() if text is not None and valid_id(text)]
    expected = max([-1, *claims, *([] if recorded is None else [recorded])])
    assert highest_id(rows(found), recorded) == expected


@pytest.mark.spec("FRG-2")
def test_no_files_have_no_highest_id() -> None:
    assert highest_id(empty_rows(), None) == -1
    assert highest_id(empty_rows(), 4) == 4
    assert fragment_ids(empty_rows()).to_pylist() == []


@pytest.mark.spec("FRG-8")
def test_fragments_are_ordered_by_id_and_pickle() -> None:
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 2}
    lines = [
        add("foreign", None),
        add("late", "7", partitionValues={"p": None}, baseRowId=3),
        add("early", "2", deletionVector=vector),
    ]
    table = decode_rows([(0, lines, "f")])
    grouped = single_files(table, fragment_ids(table))
    found = fragments_of(grouped, pa.array([None, 4, 10], pa.int64()))
    assert pickle.loads(pickle.dumps(found)) == found
    early, late, foreign = found
    assert [f.fragment_id for f in found] == [2, 7, PROVISIONAL]
    assert [f.is_durable for f in found] == [True, True, False]
    assert (early.physical_rows, early.num_deletions, early.num_rows) == (10, 2, 8)
    assert early.deletion is not None
    assert early.deletion.file_type == "bitmap"
    assert (late.partition_values, late.base_row_id, late.num_rows) == ({"p": None}, 3, 4)
    assert (foreign.physical_rows, foreign.num_rows) == (None, None)
    assert [(f.path, f.size) for f in foreign.files] == [("foreign", 5)]


# What writers do with ids ------------------------------------------------------------------


def ids(table: txlog.Table) -> list[int]:
    return [fragment.id for fragment in table.fragments()]


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"a": pa.array(range(start, stop), pa.int64())})


@pytest.mark.spec("FRG-3", "FRG-5", "FRG-9")
def test_ids_over_the_life_of_a_table(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path / "t", numbers(0, 10), options=txlog.WriteOptions(max_rows_per_file=5)
    )
    assert ids(table) == [0, 1]
    assert table.transaction_version(ID_APP) == 1
    table.append(numbers(10, 20))
    assert ids(table) == [0, 1, 2]
    table.delete("a IN (0, 12)")  # New deletion vectors: the fragments stay themselves.
    assert ids(table) == [0, 1, 2]
    assert [f.num_deletions for f in table.fragments()] == [1, 0, 1]
    table.delete("a >= 10")  # The fragment goes, and its id with it.
    table.append(numbers(20, 25))
    assert ids(table) == [0, 1, 3]
    table.overwrite(numbers(0, 3))
    assert ids(table) == [4]
    assert table.transaction_version(ID_APP) == 4
    table.maintenance.checkpoint()
    assert ids(txlog.Table(tmp_path / "t")) == [4]
    assert ids(txlog.Table(tmp_path / "t", version=1)) == [0, 1, 2]


@pytest.mark.spec("FRG-4", "CON-0")
def test_ids_are_given_afresh_after_a_lost_race(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", numbers(0, 5))
    base = table.snapshot

    def one(path: str) -> Intent:
        file = Add(path=path, partition_values={}, size=1, modification_time=0, data_change=True)
        return Intent("WRITE", base.version, "append", adds=(file,))

    outcomes = [
        commit(context_of(table).store, base, one(name), effects=REAL) for name in ("b", "c")
    ]
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    table.refresh()
    files = table.files()
    by_path = dict(zip(files["path"].to_pylist(), files["fragment_id"].to_pylist(), strict=True))
    assert (by_path["b"], by_path["c"]) == (1, 2)
    assert table.transaction_version(ID_APP) == 2


def file_rows(paths: list[str], chunks: int) -> pa.Table:
    kept = {"path": paths, "size": [len(path) for path in paths], "is_add": [True] * len(paths)}
    columns = [
        pa.array(kept[field.name], field.type)
        if field.name in kept
        else pa.nulls(len(paths), field.type)
        for field in FILE_ROWS
    ]
    whole = pa.table(columns, schema=FILE_ROWS)
    step = -(-len(paths) // chunks) or 1
    parts = [whole.slice(start, step) for start in range(0, len(paths), step)]
    return pa.concat_tables([FILE_ROWS.empty_table(), *parts])


@st.composite
def fragments(draw: st.DrawFn) -> tuple[FragmentRows, pa.Array]:
    ids = draw(st.lists(st.integers(0, 30), unique=True, max_size=12))
    owned = st.integers(0, max(len(ids) - 1, 0))
    owners = draw(st.lists(owned, max_size=8)) if ids else []
    chunks = draw(st.integers(1, 3))
    names = draw(st.permutations([f"é{at}" for at in range(len(owners))]))
    columns = ColumnFiles(
        file_rows(list(names), chunks),
        pa.array(owners, pa.int64()),
        (("a",), ("b", "c")),
        pa.array([at % 2 for at in range(len(owners))], pa.int64()),
        pa.array([at * (at % 3 == 2) for at in range(len(owners))], pa.int64()),
    )
    counts = draw(st.lists(st.none() | st.integers(0, 9), min_size=len(ids), max_size=len(ids)))
    primaries = file_rows([f"p{number}" for number in ids], chunks)
    rows = FragmentRows(primaries, pa.array(ids, pa.int64()), columns)
    return rows, pa.array(counts, pa.int64())


places = st.none() | st.integers(-14, 14)


@given(fragments(), places, places, st.none() | st.integers(-3, 3).filter(bool), st.integers(1, 4))
def test_a_sequence_is_the_list_of_its_fragments(
    given_: tuple[FragmentRows, pa.Array],
    start: int | None,
    stop: int | None,
    step: int | None,
    at_once: int,
) -> None:
    rows, counts = given_
    expected = fragments_of(rows, counts)
    found = FragmentSequence(rows, counts)
    before, fragment_module._AT_ONCE = fragment_module._AT_ONCE, at_once
    try:
        assert list(found) == expected
    finally:
        fragment_module._AT_ONCE = before
    assert len(found) == len(expected)
    assert [found[at] for at in range(-len(found), len(found))] == 2 * expected
    assert found[start:stop:step] == expected[start:stop:step]
    assert [found.place_of(fragment.id) for fragment in expected] == list(range(len(expected)))
    assert found.place_of(31) is None
    for at, fragment in enumerate(expected):
        paths = [file.path for file in fragment.files]
        assert found.file_rows(at)["path"].to_pylist() == paths
    for beyond in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            found[beyond]
