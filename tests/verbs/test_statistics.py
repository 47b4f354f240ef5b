"""Computed statistics of files without statistics equal written ones."""

import json
import math
import os
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.verb_calls import append, compute_statistics, delete
from txlog.actions.columns import decode_rows
from txlog.actions.stats_text import StatsText
from txlog.base.errors import DataFileError, InvalidInputError
from txlog.commit.context import Context
from txlog.extend import context_of
from txlog.schema.arrow import from_arrow
from txlog.snapshot.load import load_snapshot
from txlog.stats.collect import leaf_types
from txlog.testing import unsealed
from txlog.verbs.statistics import lacking

Row = dict[str, Any]
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("y", pa.int8()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("m", pa.decimal128(5, 2)),
        ("w", pa.decimal128(38, 3)),
        ("z", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("v", pa.binary()),
        ("s", pa.struct([("x", pa.int32()), ("r", pa.struct([("t", pa.string())]))])),
        ("l", pa.list_(pa.int64())),
        ("p", pa.string()),
    ]
)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
cells = {
    "i": st.integers(-5, 2**62),
    "y": st.integers(-128, 127),
    "f": st.sampled_from([-1.5, 0.0, -0.0, 2.0, math.nan, math.inf]),
    "t": st.sampled_from(["", "a", "b" * 40, "ü" * 70, "\U0010ffff" * 80]),
    "b": st.booleans(),
    "d": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "m": st.integers(-999, 999).map(lambda n: Decimal(n).scaleb(-2)),
    "w": st.integers(-(10**28) + 1, 10**28 - 1).map(lambda n: Decimal(f"{n}.125")),
    "z": moments,
    "n": moments,
    "v": st.binary(max_size=3),
    "s": st.fixed_dictionaries(
        {
            "x": st.none() | st.integers(0, 5),
            "r": st.none() | st.fixed_dictionaries({"t": st.none() | st.sampled_from("ab")}),
        }
    ),
    "l": st.lists(st.none() | st.integers(0, 3), max_size=2),
    "p": st.sampled_from("ab"),
}
rows = st.fixed_dictionaries({name: st.none() | value for name, value in cells.items()})


def commit_path(table: txlog.Table, version: int | None = None) -> Path:
    at = table.version if version is None else version
    return Path(table.uri) / "_delta_log" / f"{at:020d}.json"


def edit(table: txlog.Table, change: Callable[[Row], Any]) -> txlog.Table:
    """Change the adds of all commits, as if another writer had made them."""
    for version in range(table.version + 1):
        path = commit_path(table, version)
        lines = [json.loads(line) for line in unsealed(path.read_bytes()).splitlines()]
        for line in lines:
            if "add" in line:
                change(line["add"])
        path.write_text("\n".join(map(json.dumps, lines)))
    return txlog.Table(table.uri)


def without(table: txlog.Table) -> txlog.Table:
    return edit(table, lambda add: add.pop("stats", None))


def stats(table: txlog.Table) -> list[Any]:
    return [text and orjson.loads(text) for text in table.files()["stats"].to_pylist()]


def texts(table: txlog.Table) -> dict[str, str | None]:
    files = table.files()
    return dict(zip(files["path"].to_pylist(), files["stats"].to_pylist(), strict=True))


def actions(table: txlog.Table) -> list[Row]:
    return [json.loads(line) for line in commit_path(table).read_text().splitlines()]


@pytest.mark.spec("FRG-38")
@settings(max_examples=examples(25))
@given(st.lists(rows, min_size=1, max_size=9), st.integers(1, 4), st.sampled_from([(), ("p",)]))
def test_they_are_those_that_writing_gives(
    data: list[Row], size: int, partition_by: tuple[str, ...]
) -> None:
    with TemporaryDirectory() as root:
        given_rows = pa.Table.from_pylist(data, schema=SCHEMA)
        table = txlog.write(
            root,
            given_rows,
            partition_by=partition_by,
            options=txlog.WriteOptions(max_rows_per_file=size),
        )
        expected, before = texts(table), repr(table.to_arrow().to_pylist())
        table = without(table)
        assert set(texts(table).values()) == {None}
        outcome = table.optimize.compute_statistics()
        assert (outcome.operation, outcome.version) == ("COMPUTE STATS", 1)
        assert texts(table) == expected
        assert repr(table.to_arrow().to_pylist()) == before
        assert not table.optimize.compute_statistics()
        assert not table.optimize.compute_statistics(recompute=True)


def test_a_footer_is_enough_where_it_tells(tmp_path: Path, row_groups_read: list[int]) -> None:
    columns = {"i": [3, None, 1], "t": ["b", "a", None], "s": [{"x": 1}, None, {"x": None}]}
    table = without(txlog.write(tmp_path, pa.table(columns)))
    table.optimize.compute_statistics()
    assert row_groups_read == []
    (found,) = stats(table)
    assert found["nullCount"] == {"i": 1, "t": 1, "s": {"x": 2}}
    table = without(txlog.write(tmp_path / "f", pa.table(columns | {"f": [1.0, math.nan, 0.0]})))
    table.optimize.compute_statistics()
    assert row_groups_read == [0]
    (found,) = stats(table)
    assert (found["minValues"]["f"], "f" in found["maxValues"]) == (0.0, False)


SPOILT: dict[str, Callable[[pa.Table, str], None]] = {
    "no statistics": lambda rows, path: pq.write_table(rows, path, write_statistics=False),
    "of one column": lambda rows, path: pq.write_table(rows, path, write_statistics=["t"]),
    "a narrower type": lambda rows, path: pq.write_table(
        rows.set_column(0, "i", rows["i"].cast(pa.int32())), path
    ),
    "large texts": lambda rows, path: pq.write_table(
        rows.set_column(1, "t", rows["t"].cast(pa.large_string())), path
    ),
    "many row groups": lambda rows, path: pq.write_table(rows, path, row_group_size=1),
    "a dictionary": lambda rows, path: pq.write_table(
        rows.set_column(1, "t", rows["t"].dictionary_encode()), path
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_footers_of_others(tmp_path: Path, name: str) -> None:
    data = pa.table({"i": pa.array([3, None, -1], pa.int64()), "t": ["b", None, "ä"]})
    table = txlog.write(tmp_path, data)
    (expected,) = texts(table).values()
    path = str(tmp_path / table.files()["path"][0].as_py())
    SPOILT[name](data, path)
    table = edit(
        table,
        lambda add: add.update(stats=None, size=os.path.getsize(path)),  # noqa: PTH202
    )
    table.optimize.compute_statistics()
    assert list(texts(table).values()) == [expected]


def test_a_column_that_files_lack_is_all_null(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"a": [1, 2]}))
    table.append(pa.table({"a": [3], "b": ["x"]}), schema_mode="merge")
    expected = texts(table)
    assert table.optimize.compute_statistics().metrics == {"numUpdatedFiles": 1}
    older, newer = stats(table)
    assert older["nullCount"] == {"a": 0, "b": 2}
    assert older["minValues"] == {"a": 1}
    assert newer == orjson.loads(list(expected.values())[1] or "")
    assert table.scan(where="b = 'x'").explain().files_to_read == 1


@pytest.mark.spec("FRG-38")
def test_the_rest_of_a_file_stays(tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path, pa.schema([("x", pa.int64()), ("p", pa.string())]), ["p"],
        properties={"delta.enableRowTracking": "true"},
    )  # fmt: skip
    table.append(pa.table({"x": [1, 2, 3, 4], "p": ["a", "a", "b", "b"]}))
    table.delete("x = 2")
    before = table.to_arrow(["x", "_rowid", "_rowaddr", "_row_last_updated_at_version"])
    changed = edit(table, lambda add: add.update(stats='{"numRecords":2}', tags=add["tags"]))
    adds = {a["add"]["path"]: a["add"] for v in (1, 2) for a in lines_of(changed, v) if "add" in a}
    outcome = changed.optimize.compute_statistics(user_metadata="nightly")
    info, *found = actions(changed)
    said = info["commitInfo"]
    assert (said["operation"], said["userMetadata"]) == ("COMPUTE STATS", "nightly")
    assert said["operationParameters"] == {"predicate": "[]"}
    assert said["operationMetrics"] == {"numUpdatedFiles": "2"}
    assert (said["isBlindAppend"], outcome.metrics) == (False, {"numUpdatedFiles": 2})
    assert [next(iter(action)) for action in found] == ["add", "add"]
    for action in found:
        add = action["add"]
        computed = orjson.loads(add.pop("stats"))
        was = adds[add["path"]] | {"dataChange": False}
        assert was.pop("stats") == '{"numRecords":2}'
        assert add == was
        assert computed["tightBounds"] is ("deletionVector" not in add)
    assert changed.to_arrow(before.column_names) == before
    assert changed.count() == 3


def lines_of(table: txlog.Table, version: int) -> list[Row]:
    return [json.loads(line) for line in commit_path(table, version).read_text().splitlines()]


def test_bounds_of_a_file_with_deletions_are_of_all_its_rows(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1, 2, 9]}))
    table.delete("x = 9")
    table.optimize.compute_statistics(recompute=True)
    (found,) = stats(table)
    assert (found["maxValues"], found["numRecords"]) == ({"x": 9}, 3)
    assert found["tightBounds"] is False
    assert (table.count(), table.count("x >= 9"), table.count("x = 1")) == (2, 0, 1)


def test_wrong_statistics_are_put_right(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1, 2, 3], "f": [0.5, 1.0, 2.0]}))
    (right,) = texts(table).values()
    bounds = '"minValues":{"x":7,"f":7},"maxValues":{"x":8,"f":8},"nullCount":{"x":0,"f":0}'
    wrong = f'{{"numRecords":2,{bounds}}}'
    table = edit(table, lambda add: add.update(stats=wrong))
    assert table.count("x = 3") == 0  # As the log says.
    assert not table.optimize.compute_statistics()  # They lack nothing.
    assert table.optimize.compute_statistics(recompute=True)
    assert list(texts(table).values()) == [right]
    assert table.count("x = 3") == 1


def test_a_wrong_row_count_under_deletions_is_no_matter_of_statistics(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1, 2, 3]}))
    table.delete("x = 2")
    table = edit(table, lambda add: add.update(stats='{"numRecords":2}'))
    with pytest.raises(DataFileError, match="its deletion vector cannot be trusted"):
        table.optimize.compute_statistics()
    assert table.version == 1


def test_only_some_columns(tmp_path: Path) -> None:
    nested = pa.array([{"x": 1, "y": 2}, None], pa.struct([("x", pa.int64()), ("y", pa.int64())]))
    wide = pa.array(
        [Decimal("12345678901234567890123456789012345.678"), None], pa.decimal128(38, 3)
    )
    data = pa.table({"a": [1, 2], "m": wide, "s": nested, "d.e": [5, 6]})
    table = txlog.write(tmp_path, data, properties={"delta.dataSkippingNumIndexedCols": "2"})
    assert stats(table)[0]["nullCount"] == {"a": 0, "m": 1}
    table.optimize.compute_statistics(["s.y", "d.e"])
    assert stats(table)[0]["nullCount"] == {"a": 0, "m": 1, "s": {"y": 1}, "d.e": 0}
    (text,) = texts(table).values()
    assert '"m":12345678901234567890123456789012345.678' in (text or "")
    assert not table.optimize.compute_statistics(["a", "s.y"])
    table.optimize.compute_statistics("s")
    assert stats(table)[0]["maxValues"]["s"] == {"x": 1, "y": 2}
    for name in ("nope", "s.z"):
        with pytest.raises(InvalidInputError, match="no such column"):
            table.optimize.compute_statistics([name])


def test_only_some_partitions(tmp_path: Path) -> None:
    data = pa.table({"x": [1, 2, 3], "p": ["a", "b", "c"]})
    table = without(txlog.write(tmp_path, data, partition_by=["p"]))
    table.optimize.compute_statistics(where="p <> 'c'")
    assert [found is None for found in stats(table)] == [False, False, True]
    assert json.loads(actions(table)[0]["commitInfo"]["operationParameters"]["predicate"])
    for wrong, what in (
        ("x > 1", "not a partition column"),
        ("_fragid = 1", "not a partition column"),
    ):
        with pytest.raises(InvalidInputError, match=what):
            table.optimize.compute_statistics(where=wrong)
    with pytest.raises(InvalidInputError, match="no such column"):
        table.optimize.compute_statistics(["p"])


def test_column_files_tell_of_their_columns(tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path, pa.schema([("x", pa.int64())]),
        properties={"delta.feature.txlog.fragments": "supported"},
    )  # fmt: skip
    table.append(pa.table({"x": [1, 2]}))
    table.append(pa.table({"x": [3, 4]}))
    table.alter.add_columns({"y": "10 * x"})
    table.alter.replace_columns({"x": "x + 100"})

    def forget(add: Row) -> None:
        add["stats"] = '{"numRecords":2}'

    table = edit(table, forget)
    assert table.optimize.compute_statistics().metrics == {"numUpdatedFiles": 4}
    told = [found for found in stats(table) if "nullCount" in found]  # Primaries need tell no more.
    assert {(*found["nullCount"], found["tightBounds"]) for found in told} == {
        ("x", False), ("y", False),
    }  # fmt: skip
    assert table.scan(where="y = 30").explain().files_to_read == 1
    assert table.count("y = 30 and x = 103") == 1


def test_a_table_of_deltalake_is_read_with_skipping(tmp_path: Path) -> None:
    without_any = deltalake.WriterProperties(
        default_column_properties=deltalake.ColumnProperties(statistics_enabled="NONE")
    )
    for start in (0, 100, 200):
        numbers = list(range(start, start + 100))
        data = pa.table({"x": numbers, "t": [f"{number:03}" for number in numbers]})
        deltalake.write_deltalake(tmp_path, data, mode="append", writer_properties=without_any)
    table = txlog.Table(tmp_path)
    assert table.scan(where="x = 150").explain().files_to_read == 3
    table.optimize.compute_statistics()
    assert table.scan(where="x = 150").explain().files_to_read == 1
    assert table.count("t = '150'") == 1
    theirs = deltalake.DeltaTable(tmp_path)
    assert theirs.version() == table.version == 3
    assert theirs.to_pyarrow_dataset().to_table().num_rows == 300
    flat = pa.table(theirs.get_add_actions(flatten=True))
    assert sorted(flat["min.x"].to_pylist()) == [0, 100, 200]
    assert flat["null_count.t"].to_pylist() == [0, 0, 0]


WINNERS: dict[str, Callable[[Context, Any], object]] = {
    "delete of rows": lambda place, seen: delete(place, seen, "x = 1"),
    "delete of a file": lambda place, seen: delete(place, seen, "x < 3"),
    "append": lambda place, seen: append(place, seen, pa.table({"x": [50]})),
    "the same": lambda place, seen: compute_statistics(place, seen),
}


@pytest.mark.spec("FRG-39")
@pytest.mark.parametrize("name", WINNERS)
def test_what_others_commit_meanwhile_stays(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(
        tmp_path, pa.table({"x": [1, 2, 3, 4]}), options=txlog.WriteOptions(max_rows_per_file=2)
    )
    table = without(table)
    place, seen = context_of(table), load_snapshot(context_of(table).store)
    WINNERS[name](place, seen)
    won = txlog.Table(tmp_path).to_arrow()
    done = compute_statistics(place, seen)
    after = txlog.Table(tmp_path)
    assert after.to_arrow() == won
    assert after.count() == won.num_rows
    assert done.outcome.version == (None if name == "the same" else 2)
    paths = after.files()["path"].to_pylist()
    assert len(paths) == len(set(paths))  # None is there with and without its vector.
    assert all(found["nullCount"] == {"x": 0} for found in stats(after))


@pytest.mark.spec("FRG-39")
@pytest.mark.parametrize("name", list(WINNERS)[:3])
def test_others_commit_on_top_of_it(tmp_path: Path, name: str) -> None:
    table = txlog.write(
        tmp_path, pa.table({"x": [1, 2, 3, 4]}), options=txlog.WriteOptions(max_rows_per_file=2)
    )
    table = without(table)
    place, seen = context_of(table), load_snapshot(context_of(table).store)
    compute_statistics(place, seen)
    WINNERS[name](place, seen)
    after = txlog.Table(tmp_path)
    expected = {"append": [1, 2, 3, 4, 50], "delete of rows": [2, 3, 4]}.get(name, [3, 4])
    assert after.to_arrow()["x"].to_pylist() == expected
    paths = after.files()["path"].to_pylist()
    assert len(paths) == len(set(paths))
    assert all(found["nullCount"] == {"x": 0} for found in stats(after))


def test_a_file_is_looked_into_once(tmp_path: Path, row_groups_read: list[int]) -> None:
    table = txlog.write(
        tmp_path,
        pa.table({"f": [1.0, 2.0, 3.0, 4.0]}),
        options=txlog.WriteOptions(max_rows_per_file=2),
    )
    table = without(table)
    place, seen = context_of(table), load_snapshot(context_of(table).store)
    delete(place, seen, "f = 1")
    row_groups_read.clear()
    compute_statistics(place, seen)
    assert row_groups_read == [0, 0]


LEAVES = leaf_types(
    from_arrow(
        pa.schema(
            [("x", pa.int64()), ("l", pa.list_(pa.int64())), ("s", pa.struct([("t", pa.string())]))]
        )
    )
)
WHOLE = {
    "numRecords": 2,
    "minValues": {"x": 1, "s": {"t": "a"}},
    "maxValues": {"x": 2, "s": {"t": "b"}},
    "nullCount": {"x": 0, "l": 1, "s": {"t": 0}},
}


def files(*texts: str | None) -> pa.Table:
    adds = [
        {"add": {"path": f"f{at}", "partitionValues": {}, "size": 1, "modificationTime": 1,
                 "dataChange": True, "stats": text}}
        for at, text in enumerate(texts)
    ]  # fmt: skip
    return decode_rows([(0, adds, "log")])


def changed(**change: Any) -> str:
    return json.dumps(WHOLE | change)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, True),
        ("", True),
        ("no JSON", True),
        ("[1]", True),
        ('{"numRecords":2}', True),
        (changed(), False),
        (changed(maxValues={}), False),  # Of NaN, or of long texts, there is none.
        (changed(numRecords=None), True),
        (changed(minValues={"x": 1}), True),
        (changed(minValues={"s": {"t": "a"}}), True),
        (changed(minValues={"x": 1, "s": 7}), True),
        (changed(minValues={"x": 1}, nullCount={"x": 0, "l": 0, "s": {"t": 2}}), False),
        (changed(nullCount={"x": 0, "s": {"t": 0}}), True),
        (changed(nullCount={"x": 0, "l": "1", "s": {"t": 0}}), True),
        (changed(nullCount=None), True),
    ],
)
def test_what_a_file_lacks(text: str | None, expected: bool) -> None:
    assert lacking(files(text, changed()), LEAVES, {}).to_pylist() == [expected, False]


def test_a_file_lacks_only_what_it_is_to_tell_of() -> None:
    rows = files(changed(nullCount={"x": 0, "s": {"t": 0}}), '{"numRecords":2}')
    answers = {name: pa.array([name != "l", False]) for name in "xls"}
    assert lacking(rows, LEAVES, answers).to_pylist() == [False, False]


def test_structs_of_a_checkpoint_count_too() -> None:
    rows = files(None, None, None, '{"numRecords":2}')
    partly = WHOLE | {"minValues": {"x": None, "s": {"t": "a"}}}
    structs = pa.array([WHOLE, partly, None, WHOLE])
    found = lacking(rows.append_column("stats_parsed", structs), LEAVES, {})
    assert found.to_pylist() == [False, True, True, False]


OLD = '{"numRecords":2,"minValues":{"a":0.10,"s":{"t":1}},"maxValues":{"a":1E2},"nullCount":{"a":0},"z":[12345678901234567890123]}'  # noqa: E501
NEW = '{"numRecords":3,"minValues":{"x":1.50},"maxValues":{},"nullCount":{"x":0,"s":{"t":3}},"tightBounds":true}'  # noqa: E501


def test_other_columns_stay_to_the_digit() -> None:
    found = StatsText(OLD).with_columns(StatsText(NEW), [("x",), ("s", "t")], tight=True)
    assert found.text == (
        '{"numRecords":3,"minValues":{"a":0.10,"x":1.50},"maxValues":{"a":1E2},'
        '"nullCount":{"a":0,"x":0,"s":{"t":3}},"z":[12345678901234567890123],"tightBounds":true}'
    )
    assert found.with_columns(StatsText(NEW), [("x",), ("s", "t")], tight=True) is found


@pytest.mark.parametrize(
    ("old", "tight", "expected"),
    [
        (None, True, True),
        ("torn {", False, False),
        ('{"tightBounds":false}', True, True),
        ('{"tightBounds":false,"minValues":{"x":0}}', True, True),  # It is told anew.
        ('{"tightBounds":false,"minValues":{"a":0}}', True, False),
        ('{"minValues":{"a":0}}', True, True),
    ],
)
def test_bounds_are_tight_if_all_are(old: str | None, tight: bool, expected: bool) -> None:
    found = StatsText(old).with_columns(StatsText(NEW), [("x",), ("s", "t")], tight=tight).document
    assert found["tightBounds"] is expected
