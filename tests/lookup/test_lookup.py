"""Look-ups by key, compared with a filter in plain Python."""

from __future__ import annotations

import datetime as dt
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.lookup.keys import KeyRun, encode
from txlog.lookup.lookup import LookupCache
from txlog.schema.types import PrimitiveType, StructField

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [-(2**63), -1, 0, 1, 7, 2**63 - 1]),
    "byte": (pa.int8(), [-128, 0, 1, 127]),
    "short": (pa.int16(), [-(2**15), 0, 300, 2**15 - 1]),
    "integer": (pa.int32(), [-(2**31), -7, 0, 2**31 - 1]),
    "text": (pa.string(), ["", "a", "a\0", "aaaaaaaa", "aaaaaaaab", "é", "z" * 40]),
    "bytes": (pa.binary(), [b"", b"\0", b"\0\0", b"12345678", b"123456789"]),
    "truth": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2026, 11, 24)]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 1, tzinfo=dt.UTC)],
    ),
    "local": (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(2026, 1, 1, 0, 0, 0, 1)]),
    "money": (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("99999999.99")]),
    "large": (pa.decimal128(30, 0), [Decimal(10**29), Decimal(-(10**20)), Decimal(0)]),
}


def plain(rows: list[dict[str, Any]], keys: list[Any], on: list[str]) -> list[tuple[int, int]]:
    """Return the place of each key, and the id of each row that has it."""
    found = []
    for place, key in enumerate(keys):
        parts = key if len(on) > 1 else (key,)
        if key is None or None in parts:
            continue
        found += [
            (place, row["id"])
            for row in rows
            if all(row[name] == part for name, part in zip(on, parts, strict=True))
        ]
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[str], list[dict[str, Any]], list[Any]]:
    on = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3, unique=True))
    some = {name: st.sampled_from([*VALUES[name][1], None]) for name in on}
    rows = draw(st.lists(st.fixed_dictionaries(some), max_size=25))
    keys = st.tuples(*some.values()) if len(on) > 1 else some[on[0]]
    numbered = [{"id": number, **row} for number, row in enumerate(rows)]
    return on, numbered, draw(st.lists(st.one_of(keys, st.none()), max_size=12))


@pytest.mark.spec("LKP-1", "LKP-4")
@given(case=cases(), files=st.integers(1, 3), deleted=st.sets(st.integers(0, 24), max_size=5))
@settings(max_examples=examples(90), deadline=None)
def test_a_look_up_is_a_filter(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[list[str], list[dict[str, Any]], list[Any]],
    files: int,
    deleted: set[int],
) -> None:
    on, rows, keys = case
    schema = pa.schema([("id", pa.int64()), *((name, VALUES[name][0]) for name in on)])
    table = txlog.Table.create(
        tmp_path_factory.mktemp("t"), schema, properties={"txlog.pageRows": "2"}
    )
    step = -(-len(rows) // files) or 1
    for start in range(0, len(rows), step):
        table.append(pa.Table.from_pylist(rows[start : start + step], schema=schema))
    before = table.version
    if deleted:
        table.delete(txlog.col("id").isin(sorted(deleted)))
    for version, gone in ((table.version, deleted), (before, set())):
        opened = table if version == table.version else txlog.Table(table.uri, version=version)
        left = [row for row in rows if row["id"] not in gone]
        wanted = plain(left, keys, on)
        found = opened.lookup(keys, on=on, columns=["_key", "id"])
        assert list(zip(*found.to_pydict().values(), strict=True)) == wanted
        counts = [sum(place == key for key, _ in wanted) for place in range(len(keys))]
        assert opened.lookup_counts(keys, on=on).to_pylist() == counts
        assert opened.contains(keys, on=on).to_pylist() == [count > 0 for count in counts]
        nulls = opened.lookup(keys, on=on, columns=["_key", *on], missing="null")
        assert sorted(set(nulls["_key"].to_pylist())) == list(range(len(keys)))
        for row in nulls.to_pylist():
            key = keys[row["_key"]]
            parts = [None] * len(on) if key is None else key if len(on) > 1 else [key]
            assert [row[name] for name in on] == list(parts)


@pytest.mark.spec("LKP-1")
def test_after_every_verb_and_writer(tmp_path: Path) -> None:
    """One handle, whose cache goes along, answers for every version as a new one does."""
    table = txlog.write(tmp_path, pa.table({"k": range(100), "v": [f"v{i}" for i in range(100)]}))
    rows = {key: f"v{key}" for key in range(100)}

    def check() -> None:
        table.refresh()
        keys = [5, 99, 7, 1_000, 150, 5]
        wanted = [(key, rows[key]) for key in keys if key in rows]
        for opened in (table, txlog.Table(tmp_path)):
            found = opened.lookup(keys, on="k", columns=["k", "v"]).to_pydict()
            assert list(zip(found["k"], found["v"], strict=True)) == wanted

    check()
    table.delete("k = 7")
    del rows[7]
    check()
    table.update({"v": "concat(v, '!')"}, "k >= 99")
    rows[99] += "!"
    check()
    deltalake.write_deltalake(
        tmp_path, pa.table({"k": pa.array([150], pa.int64()), "v": ["other"]}), mode="append"
    )
    rows[150] = "other"
    check()
    table.optimize.compact()
    check()
    table.upsert(pa.table({"k": [5, 1_000], "v": ["five", "new"]}), on="k")
    rows |= {5: "five", 1_000: "new"}
    check()
    table.restore(version=0)
    rows = {key: f"v{key}" for key in range(100)}
    check()


def test_partitions_are_keys_too(tmp_path: Path) -> None:
    data = pa.table({"day": ["a", "a", "b", None], "n": [1, 2, 1, 1]})
    table = txlog.write(tmp_path, data, partition_by=["day"])
    found = table.lookup([("b", 1), ("a", 2), ("a", 3)], on=["day", "n"], columns=["_key", "n"])
    assert found.to_pydict() == {"_key": [0, 1], "n": [1, 2]}
    assert table.lookup_counts(["a", "b", None], on="day").to_pylist() == [2, 1, 0]


def test_keys_as_tables_and_other_integers(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"k": [1, 2, 3], "v": [10, 20, 30]}))
    keys = pa.table({"other": ["x"], "k": pa.array([3], pa.int8())})
    assert table.lookup(keys, on="k")["v"].to_pylist() == [30]
    assert table.lookup(pa.chunked_array([[2], [1]]), on="k")["v"].to_pylist() == [20, 10]
    assert table.lookup([], on="k").num_rows == 0
    assert table.lookup(np.array([2]), on="k").to_pydict() == {"k": [2], "v": [20]}


NAMED = pa.array([{"b": 2, "a": 1}, None], pa.struct([("b", pa.int64()), ("a", pa.int64())]))


@pytest.mark.parametrize(
    "keys",
    [
        NAMED,
        pa.chunked_array([NAMED[:1], NAMED[1:]]),
        [{"b": 2, "a": 1, "more": 0}, None],
        [(1, 2), {"b": None, "a": 1}],
        pd.DataFrame({"b": [2, 2], "a": [1, 7]}),
        pl.DataFrame({"b": [2, None], "a": [1, 1]}),
        pa.table({"b": [2], "a": [1]}).to_reader(),
    ],
    ids=["structs", "chunks", "dicts", "tuples and dicts", "pandas", "polars", "reader"],
)
def test_keys_with_names_are_matched_by_name(tmp_path: Path, keys: Any) -> None:
    """Not by position, which would be another row."""
    table = txlog.write(tmp_path, pa.table({"a": [1, 2], "b": [2, 1]}))
    assert table.lookup(keys, on=["a", "b"]).to_pylist() == [{"a": 1, "b": 2}]


def test_one_key_column_of_dicts_structs_and_frames(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"t": ["t", "a"]}))
    frames: list[Any] = [pd.DataFrame({"t": ["a"]}), pl.DataFrame({"t": ["a"]})]
    for keys in [*frames, [{"t": "a"}], pa.array([{"t": "a"}])]:
        assert table.lookup(keys, on="t")["t"].to_pylist() == ["a"]


def test_integers_for_decimals_and_categories(tmp_path: Path) -> None:
    data = pa.table(
        {
            "d": pa.array([Decimal(1), Decimal("2.50")], pa.decimal128(5, 2)),
            "l": pa.array([Decimal(10**25), Decimal(3)], pa.decimal128(38, 0)),
            "t": ["a", "b"],
        }
    )
    table = txlog.write(tmp_path, data)
    whole: list[Any] = [[1], [1, Decimal("2.5")], pa.array([1], pa.uint64()), np.array([1])]
    for keys in whole:
        assert table.lookup(keys, on="d")["t"].to_pylist() == ["a", "b"][: len(keys)]
    assert table.lookup([10**25, 4, None], on="l")["t"].to_pylist() == ["a"]
    with pytest.raises(txlog.InvalidInputError, match=r"'d' \(decimal\(5,2\)\)"):
        table.lookup([10**6], on="d")
    parts = [pa.array(["b", None]).dictionary_encode(), pa.array(["a"]).dictionary_encode()]
    text = ["b", None, "a"]
    categories: list[Any] = [
        pa.chunked_array(parts), pd.DataFrame({"t": pd.Series(text, dtype="category")}),
        pl.DataFrame({"t": pl.Series(text, dtype=pl.Categorical)}),
    ]  # fmt: skip
    for keys in categories:
        assert table.lookup_counts(keys, on="t").to_pylist() == [1, 0, 1]


def test_missing_keys_of_pandas(tmp_path: Path) -> None:
    """pandas holds whole numbers as doubles then; what is missing is null."""
    table = txlog.write(tmp_path, pa.table({"k": [1, 2**53 + 2], "t": ["a", "b"]}))
    numbers: list[Any] = [
        pd.Series([1.0, np.nan, 7.0]), pd.Series([1, None, 7], dtype="Int64"),
        pd.Series([1, np.nan, 7], dtype="object"), pd.array([1, pd.NA, 7], dtype="Int64"),
        pd.DataFrame({"k": [1, np.nan, 7]}), pd.Series([{"k": 1}, {"k": None}, {"k": 7}]),
        pd.DataFrame({"k": [1, np.nan, 7], "t": "x"}, index=[2, 1, 0])["k"],
    ]  # fmt: skip
    for keys in numbers:
        assert table.lookup_counts(keys, on="k").to_pylist() == [1, 0, 0]
    texts: list[Any] = [
        pd.Series(["b", np.nan], dtype="object"), pd.Series(["b", None]), pd.Index(["b", None]),
        pd.Series(["b", pd.NA], dtype="string"), pd.Series(["b", None], dtype="category"),
    ]  # fmt: skip
    for keys in texts:
        assert table.lookup_counts(keys, on="t").to_pylist() == [1, 0]
    for nothing in (pd.Series([np.nan]), pd.Series([]), pd.DataFrame({"k": [None], "t": [np.nan]})):
        for on in ("k", "t") if nothing.ndim == 1 else ("k", ["t", "k"]):
            assert table.lookup(nothing, on=on).num_rows == 0
    # The double may stand for 2**53 + 1 too; and what NumPy calls NaN is a number.
    odd: list[Any] = [pd.Series([2.0**53, np.nan]), pd.Series([1.5]), np.array([1.0, np.nan])]
    for keys in odd:
        with pytest.raises(txlog.InvalidInputError, match="the column has int64, these are double"):
            table.lookup(keys, on="k")


def test_a_column_of_the_name_of_the_numbers(tmp_path: Path) -> None:
    """It wins; names are matched as everywhere else, and may come twice."""
    table = txlog.write(tmp_path, pa.table({"k": [5, 1], "_key": ["x", "y"]}))
    assert table.lookup([1], on="k").to_pylist() == [{"k": 1, "_key": "y"}]
    assert table.lookup([1], on="k", columns=["_key"]).to_pydict() == {"_key": ["y"]}
    assert table.lookup(["x"], on="_key")["k"].to_pylist() == [5]
    twice = table.lookup([1], on="k", columns=["K", "_key", "k"])
    assert twice.schema.names == ["k", "_key", "k"]
    assert [column.to_pylist() for column in twice.columns] == [[1], ["y"], [1]]


@pytest.mark.parametrize(
    ("keys", "on", "reason"),
    [
        ([1.5], "k", "they are not values of the column 'k'"),
        (["1"], "k", "they are not values of the column 'k'"),
        ([2**70], "k", "they are not values of the column 'k'"),
        ("abc", "t", "a str is not a list of keys"),
        ([1], "x", "cannot be keys"),
        ([1], "l", "cannot be keys"),
        ([1], [], "no column is named"),
        ([1], "nothing", "nothing"),
        ([(1,)], ["k", "t"], "not a tuple of k, t"),
        (pa.table({"t": ["a"]}), "k", "no column 'k'"),
        (pa.table([[1], [1]], names=["k", "k"]), "k", "2 columns 'k'"),
        ([{"t": "a"}], ["k", "t"], "no column 'k'"),
        (pa.array([{"t": "a"}]), ["k", "t"], "no column 'k'"),
        (pd.DataFrame({"t": ["k"]}), "k", "no column 'k'"),
        (pd.DataFrame({"k": [1, "a"]}), "k", "a DataFrame is not a list of keys"),
        ({"k": 1}, "k", "a dict is not a list of keys"),
    ],
)
def test_bad_arguments(tmp_path: Path, keys: Any, on: Any, reason: str) -> None:
    data = pa.table({"k": [1], "t": ["a"], "x": [1.5], "l": [[1]]})
    table = txlog.write(tmp_path, data)
    with pytest.raises(txlog.InvalidInputError, match=reason):
        table.lookup(keys, on=on)
    with pytest.raises(txlog.InvalidInputError, match="is not one of skip"):
        table.lookup([1], on="k", missing="drop")  # type: ignore[arg-type]


def test_absent_keys_are_named(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"k": [1, 2, 3]}))
    with pytest.raises(txlog.NotFoundError, match=r"the key 4, 5, 6, 7, 8 and 2 more"):
        table.lookup([1, 4, 5, 6, 7, 8, 9, 10], on="k", missing="error")
    assert table.lookup([1, 1], on="k", missing="error").num_rows == 2


def test_a_second_look_up_reads_no_key_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path, pa.table({"k": range(1_000), "v": range(1_000)}))
    assert table.lookup([17], on="k")["v"].to_pylist() == [17]
    monkeypatch.setattr(
        "txlog.lookup.lookup._build_run", lambda *_: pytest.fail("the column is read again")
    )
    assert table.lookup([999, 18], on="k")["v"].to_pylist() == [999, 18]
    table.delete("k = 18")
    assert table.lookup([18], on="k").num_rows == 0


def test_files_that_cannot_have_a_key_are_not_read(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"k": range(10)}))
    table.append(pa.table({"k": range(100, 110)}))
    for uri in table.scan(where="k >= 100").file_uris():
        Path(uri).unlink()
    assert table.lookup([3], on="k")["k"].to_pylist() == [3]
    with pytest.raises(txlog.DataFileError):
        table.lookup([103], on="k")


@pytest.mark.spec("LKP-1")
@pytest.mark.parametrize("indexed", [False, True])
def test_ten_thousand_keys_as_polars_joins_them(tmp_path: Path, indexed: bool) -> None:
    """Each key up to three times in the table and twice among the keys, a fifth of them absent."""
    draw = np.random.default_rng(9)
    held = np.concatenate([draw.permutation(12_000), draw.integers(0, 12_000, 12_000)])
    data = pa.table({"k": held, "row": range(len(held))})
    table = txlog.write(tmp_path, data, properties={"txlog.pageRows": "100"})
    if indexed:
        table.indexes.create("k")
    table.delete("row % 9 = 4")
    asked = draw.integers(0, 15_000, 10_000)
    found = table.lookup(asked, on="k", columns=["_key", "k", "row"])
    keys = pl.DataFrame({"_key": range(len(asked)), "k": asked})
    rows = pl.DataFrame(data).filter(pl.col("row") % 9 != 4)
    joined = keys.join(rows, "k").sort("_key", "row")
    assert found.to_pydict() == joined.to_dict(as_series=False)
    counts = np.bincount(joined["_key"].to_numpy(), minlength=len(asked))
    assert table.lookup_counts(asked, on="k").to_pylist() == counts.tolist()


def test_runs_that_are_too_large_are_not_kept() -> None:
    run = KeyRun(np.arange(100, dtype=np.uint64), None)
    cache = LookupCache(max_bytes=1_000)
    names = [((("k", "long"),), ((f"file {number}", 1),)) for number in range(3)]
    for name in names:
        cache.keep(name, run)
    assert [cache.get(name) is not None for name in names] == [False, False, True]
    cache.keep(names[0], KeyRun(np.arange(1_000, dtype=np.uint64), None))
    assert cache.get(names[0]) is None


numbers = st.lists(st.one_of(st.none(), st.integers(-20, 20)), max_size=60)


@pytest.mark.spec("LKP-3")
@given(numbers, st.lists(st.integers(-22, 22), min_size=1, max_size=20))
def test_runs_find_what_a_loop_finds(values: list[int | None], asked: list[int]) -> None:
    column = StructField("k", PrimitiveType("long"))
    array = pa.array(values, pa.int64())
    valid = np.array([value is not None for value in values], bool)
    run = KeyRun.of(encode([column], [array]), None if valid.all() else valid)
    wanted = np.unique(encode([column], [pa.array(asked, pa.int64())]))
    found = run.find(wanted).tolist()
    assert found == [row for row, value in enumerate(values) if value in asked]


def test_threads_share_a_table(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"k": range(2_000), "v": range(2_000)}))
    problems: list[object] = []

    def ask(seed: int) -> None:
        draw = np.random.default_rng(seed)
        for _ in range(20):
            keys = draw.integers(0, 2_500, 10).tolist()
            values = table.lookup(keys, on="k", columns=["v"])["v"].to_pylist()
            if values != [key for key in keys if key < 2_000]:
                problems.append((keys, values))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for start in range(2_000, 2_040, 10):
        table.append(pa.table({"k": range(start + 1_000, start + 1_010), "v": range(10)}))
    for thread in threads:
        thread.join()
    assert problems == []


@pytest.mark.spec("LKP-2")
def test_fixed_encodings() -> None:
    """Values that another program would compute by the rule; written here as plain numbers."""

    def mix(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    def of_bytes(data: bytes) -> int:
        h = len(data) * 0x9E3779B97F4A7C15 % 2**64
        for start in range(0, len(data), 8):
            h = mix(h ^ int.from_bytes(data[start : start + 8], "little"))
        return h

    k, t = (StructField(name, PrimitiveType(of)) for name, of in (("k", "long"), ("t", "string")))
    ints = pa.array([-(2**63), -1, 0, 5], pa.int64())
    assert encode([k], [ints]).tolist() == [0, 2**63 - 1, 2**63, 2**63 + 5]
    texts = ["", "a", "12345678", "123456789", "é" * 20]
    assert encode([t], [pa.array(texts)]).tolist() == [of_bytes(text.encode()) for text in texts]
    both = encode([k, t], [pa.array([7], pa.int64()), pa.array(["a"])]).tolist()
    assert both == [mix(of_bytes((7).to_bytes(8, "little")) ^ of_bytes(b"a"))]
    assert of_bytes(b"a") == 18119689086777206668
