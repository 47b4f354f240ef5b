# ruff: noqa: ARG005 - the model asks all functions alike.
"""Merges, compared with rows as dicts, and with the same merge in another engine."""

import shutil
import tracemalloc
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog import col
from txlog.base.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from txlog.verbs.merge import match
from txlog.verbs.merge.merge import Merge
from txlog.verbs.merge.source import MergeSource

Row = dict[str, Any]
SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int64())])

VECTORS = {"delta.enableDeletionVectors": "true"}
NO_VECTORS = {"delta.enableDeletionVectors": "false"}


def table_of(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def make(
    root: Path,
    rows: list[Row],
    properties: dict[str, str],
    partition_by: tuple[str, ...] = (),
    files: int = 3,
) -> txlog.Table:
    table = txlog.Table.create(root, SCHEMA, partition_by, properties)
    step = max(1, -(-len(rows) // files))
    for start in range(0, len(rows), step):
        table.append(table_of(rows[start : start + step]))
    return table


def bag(rows: list[Row]) -> Counter[str]:
    return Counter(repr([row[name] for name in SCHEMA.names]) for row in rows)


# The plain model ------------------------------------------------------------------------------

Test = Callable[[Row, Row], bool | None]
CONDITIONS: dict[str, Test] = {
    "target.k = source.k": lambda t, s: None not in (t["k"], s["k"]) and t["k"] == s["k"],
    "target.k <=> source.k": lambda t, s: bool(t["k"] == s["k"]),
    "target.k = source.k AND source.g = target.g": lambda t, s: (
        None not in (t["k"], s["k"], t["g"], s["g"]) and (t["k"], t["g"]) == (s["k"], s["g"])
    ),
    "target.k = source.k + 1 AND target.v > 3": lambda t, s: (
        None not in (t["k"], s["k"], t["v"]) and t["k"] == s["k"] + 1 and t["v"] > 3
    ),
    "target.k = source.k AND target.v < source.v": lambda t, s: (
        None not in (t["k"], s["k"], t["v"], s["v"]) and t["k"] == s["k"] and t["v"] < s["v"]
    ),
    "target.k > source.k AND target.g = 'a' AND source.g = 'a'": lambda t, s: (
        None not in (t["k"], s["k"]) and t["k"] > s["k"] and t["g"] == s["g"] == "a"
    ),
}
BOTH: dict[str | None, Test] = {
    None: lambda t, s: True,
    "source.v > 4": lambda t, s: s["v"] is not None and s["v"] > 4,
    "target.v > source.v": lambda t, s: None not in (t["v"], s["v"]) and t["v"] > s["v"],
}
OF_SOURCE: dict[str | None, Test] = {
    None: lambda t, s: True,
    "source.k IS NOT NULL": lambda t, s: s["k"] is not None,
    "source.v > 4": lambda t, s: s["v"] is not None and s["v"] > 4,
}
OF_TARGET: dict[str | None, Test] = {
    None: lambda t, s: True,
    "target.v > 4": lambda t, s: t["v"] is not None and t["v"] > 4,
}


def plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


# Method, arguments, predicates, and what the row becomes; None: it goes.
CLAUSES: dict[str, tuple[str, dict[str, Any], dict[str | None, Test], Any]] = {
    "update all": ("when_matched_update_all", {}, BOTH, lambda t, s: dict(s)),
    "update v": (
        "when_matched_update",
        {"updates": {"v": "target.v + source.v", "g": "'new'"}},
        BOTH,
        lambda t, s: {**t, "v": plus(t["v"], s["v"]), "g": "new"},
    ),
    "delete": ("when_matched_delete", {}, BOTH, lambda t, s: None),
    "insert all": ("when_not_matched_insert_all", {}, OF_SOURCE, lambda t, s: dict(s)),
    "insert k": (
        "when_not_matched_insert",
        {"updates": {"k": "source.k + 100", "v": "7"}},
        OF_SOURCE,
        lambda t, s: {"k": plus(s["k"], 100), "g": None, "v": 7},
    ),
    "update the others": (
        "when_not_matched_by_source_update",
        {"updates": {"v": "target.v * 2"}},
        OF_TARGET,
        lambda t, s: {**t, "v": None if t["v"] is None else t["v"] * 2},
    ),
    "delete the others": (
        "when_not_matched_by_source_delete",
        {},
        OF_TARGET,
        lambda t, s: None,
    ),
}
KINDS = {
    name: "by source" if "others" in name else "not matched" if "insert" in name else "matched"
    for name in CLAUSES
}
Given = list[tuple[str, str | None]]


class SeveralError(Exception):
    """Several rows of the source would change one row."""


def model(target: list[Row], source: list[Row], on: str, clauses: Given) -> list[Row]:
    result: list[Row] = []
    matched: set[int] = set()
    for t in target:
        pairs = [n for n, s in enumerate(source) if CONDITIONS[on](t, s)]
        matched |= set(pairs)
        kind = "matched" if pairs else "by source"
        applied = [
            found
            for n in pairs or [None]
            if (found := first(kind, clauses, t, {} if n is None else source[n])) is not None
        ]
        if len(applied) > 1 and any(new is not None for (new,) in applied):
            raise SeveralError
        new = applied[0][0] if applied else t
        if new is not None:
            result.append(new)
    for n, s in enumerate(source):
        if n not in matched and (found := first("not matched", clauses, {}, s)) is not None:
            result.append(found[0])
    return result


def first(kind: str, clauses: Given, t: Row, s: Row) -> tuple[Any] | None:
    for name, where in clauses:
        if KINDS[name] == kind and CLAUSES[name][2][where](t, s):
            return (CLAUSES[name][3](t, s),)
    return None


def merged(table: txlog.Table, source: Any, on: str, clauses: Given) -> Any:
    merger: Any = table.merge(source, on)
    for name, where in clauses:
        method, arguments, _, _ = CLAUSES[name]
        merger = getattr(merger, method)(**arguments, predicate=where)
    return merger.execute()


rows = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.one_of(st.none(), st.integers(0, 12)),
            "g": st.sampled_from([None, "a", "b"]),
            "v": st.one_of(st.none(), st.integers(0, 9)),
        }
    ),
    max_size=14,
)


@st.composite
def clause_lists(draw: st.DrawFn) -> Given:
    names = draw(st.lists(st.sampled_from(list(CLAUSES)), min_size=1, max_size=4, unique=True))
    chosen: Given = []
    for place, name in enumerate(names):
        later = any(KINDS[other] == KINDS[name] for other in names[place + 1 :])
        wheres = [where for where in CLAUSES[name][2] if not (later and where is None)]
        chosen.append((name, draw(st.sampled_from(wheres))))
    return chosen


FORMS = [
    {**vectors, "delta.enableRowTracking": tracking, **more}
    for vectors in (VECTORS, NO_VECTORS)
    for tracking in ("false", "true")
    for more in ({}, {"delta.feature.txlog.fragments": "supported"})
    if not (more and vectors is NO_VECTORS)
]


@pytest.mark.slow
@settings(max_examples=examples(240), deadline=None)
@given(
    target=rows,
    source=rows,
    on=st.sampled_from(list(CONDITIONS)),
    clauses=clause_lists(),
    form=st.sampled_from(FORMS),
    partition_by=st.sampled_from([(), ("g",)]),
    memory=st.sampled_from([0, 1 << 30]),
)
def test_merges_do_as_the_model(
    target: list[Row],
    source: list[Row],
    on: str,
    clauses: Given,
    form: dict[str, str],
    partition_by: tuple[str, ...],
    memory: int,
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Merge, "memory_bytes", memory)
        table = make(Path(folder) / "t", target, form, partition_by)
        before = set(Path(folder).rglob("*.parquet"))
        version = table.version
        try:
            expected = model(target, source, on, clauses)
        except SeveralError:
            with pytest.raises(InvalidInputError, match="several rows of the source"):
                merged(table, table_of(source), on, clauses)
            assert set(Path(folder).rglob("*.parquet")) == before
            assert txlog.Table(table.uri).version == version
            return
        merged(table, table_of(source), on, clauses)
        again = txlog.Table(table.uri)
        assert bag(again.to_arrow().to_pylist()) == bag(expected)
        assert again.count() == len(expected)
        old = txlog.Table(table.uri, version=version).to_arrow().to_pylist()
        assert bag(old) == bag(target)


@pytest.mark.parametrize("partition_by", [(), ("g",)])
@pytest.mark.parametrize(
    "clauses",
    [
        [("update all", None), ("insert all", None)],
        [("delete", "source.v > 4"), ("update v", None), ("insert k", "source.v > 4")],
        [("update the others", "target.v > 4"), ("insert all", None)],
        [("delete the others", None)],
    ],
)
def test_deltalake_merges_the_same(
    tmp_path: Path, clauses: Given, partition_by: tuple[str, ...]
) -> None:
    target = [{"k": k, "g": "ab"[k % 2], "v": k % 9} for k in range(60)]
    source = table_of([{"k": k, "g": "ab"[k % 2], "v": k % 7} for k in range(40, 80, 2)])
    ours = make(tmp_path / "ours", target, NO_VECTORS, partition_by)
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    on = "target.k = source.k"
    outcome = merged(ours, source, on, clauses)
    other = deltalake.DeltaTable(tmp_path / "theirs")
    merger = other.merge(source, on, source_alias="source", target_alias="target")
    for name, where in clauses:
        method, arguments, _, _ = CLAUSES[name]
        merger = getattr(merger, method)(**arguments, predicate=where)
    said = merger.execute()
    theirs = other.to_pyarrow_table().select(SCHEMA.names).to_pylist()
    assert bag(ours.to_arrow().to_pylist()) == bag(theirs)
    read = deltalake.DeltaTable(ours.uri).to_pyarrow_table().select(SCHEMA.names).to_pylist()
    assert bag(read) == bag(theirs)
    for our_name, their_name in [
        ("numSourceRows", "num_source_rows"),
        ("numTargetRowsInserted", "num_target_rows_inserted"),
        ("numTargetRowsUpdated", "num_target_rows_updated"),
        ("numTargetRowsDeleted", "num_target_rows_deleted"),
    ]:
        assert outcome.metrics[our_name] == said[their_name]


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "a", "ä", "zz", None]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff", b"ab", None]),
    "bool": (pa.bool_(), [True, False, None]),
    "double": (pa.float64(), [0.0, -0.0, float("nan"), 1.5, None]),
    "decimal": (pa.decimal128(20, 3), [Decimal("1.500"), Decimal("-7"), Decimal(0), None]),
    "date": (pa.date32(), [date(1969, 1, 1), date(2024, 2, 29), None]),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC), None]),
    "byte": (pa.int8(), [-128, 0, 127, None]),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KEYS))
@pytest.mark.parametrize("operator", ["=", "<=>"])
def test_keys_of_all_types(tmp_path: Path, kind: str, operator: str) -> None:
    arrow, values = KEYS[kind]
    schema = pa.schema([("k", arrow), ("n", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema)
    table.append(pa.table({"k": pa.array(values, arrow), "n": range(len(values))}, schema))
    matched = []
    for place, value in enumerate(values):
        source = pa.table({"k": pa.array([value], arrow), "n": [100 + place]}, schema)
        merger = table.merge(source, f"target.k {operator} source.k")
        outcome = merger.when_matched_update({"n": "target.n + 1000"}).execute()
        matched.append(outcome.metrics.get("numTargetRowsUpdated", 0))
    zeros = kind == "double"
    expected = [2 if zeros and value == 0 else 1 for value in values]
    if operator == "=":
        expected[-1] = 0
    assert matched == expected


def test_keys_of_two_types(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [{"k": k, "g": str(k), "v": 0} for k in range(20)], {})
    source = pa.table({"k": pa.array([3.0, 4.5, 7.0]), "v": pa.array([1, 2, 3], pa.int16())})
    outcome = (
        table.merge(source, "target.k = source.k").when_matched_update({"v": "source.v"}).execute()
    )
    assert outcome.metrics["numTargetRowsUpdated"] == 2
    assert table.to_arrow(where="v > 0").sort_by("k")["k"].to_pylist() == [3, 7]
    decimals = pa.table({"k": pa.array([Decimal("5.00"), Decimal("6.50")])})
    outcome = table.merge(decimals, "target.k = source.k").when_matched_delete().execute()
    assert outcome.metrics["numTargetRowsDeleted"] == 1


def test_days_and_moments_as_keys(tmp_path: Path) -> None:
    days = [date(2024, 1, day) for day in (1, 2, 3)]
    table = txlog.write(tmp_path / "t", pa.table({"day": days, "v": [0, 0, 0]}))
    moments = [datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 3, 12, tzinfo=UTC)]
    source = pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC"))})
    outcome = table.merge(source, "target.day = source.at").when_matched_delete().execute()
    assert outcome.metrics["numTargetRowsDeleted"] == 1
    assert sorted(table.to_arrow()["day"].to_pylist()) == [days[0], days[2]]


def test_many_keys_of_many_columns(tmp_path: Path) -> None:
    """More combinations than a number can count are renumbered."""
    names = [f"c{n}" for n in range(8)]
    count = 3000
    columns = {
        name: pa.array([(k * (n + 3)) % 4001 for k in range(count)]) for n, name in enumerate(names)
    }
    table = txlog.write(tmp_path / "t", pa.table({**columns, "v": range(count)}))
    source = pa.table({**columns, "v": [-1] * count}).slice(1000, 500)
    outcome = table.upsert(source, on=names)
    assert outcome.metrics["numTargetRowsUpdated"] == 500
    assert outcome.metrics["numTargetRowsInserted"] == 0


def test_files_that_cannot_match_are_not_read(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [{"k": k, "g": "a", "v": k} for k in range(100)], {}, files=10)
    for path in (tmp_path / "t").glob("*.parquet"):
        keys = pl.read_parquet(path)["k"]
        if keys.max() < 40 or keys.min() > 59:
            path.unlink()
    source = table_of([{"k": k, "g": "b", "v": -k} for k in (45, 52)])
    assert table.upsert(source, on="k").metrics["numTargetRowsUpdated"] == 2


@pytest.mark.parametrize("feed", ["true", "false"])
def test_new_rows_of_many_fragments_are_computed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feed: str
) -> None:
    table = txlog.Table.create(
        tmp_path,
        pa.schema([("id", pa.int64()), ("t", pa.string())]),
        properties={"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": feed},
    )
    ids = np.arange(600)
    table.append(
        pa.table({"id": ids, "t": ids.astype(str)}),
        options=txlog.WriteOptions(max_rows_per_file=20),
    )
    computed = []
    whole = match.pair_rows

    def counted(sides: Any, source: Any, rows: Any, ours: Any, *more: Any) -> Any:
        computed.append(len(ours))
        return whole(sides, source, rows, ours, *more)

    monkeypatch.setattr(match, "pair_rows", counted)
    given = np.random.default_rng(1).permutation(np.arange(0, 900, 3))
    source = pa.table({"id": given, "t": np.char.add("new ", given.astype(str))})
    merge = table.merge(source, "target.id = source.id", source_alias="source")
    merge = merge.when_matched_delete("target.id % 2 = 0").when_matched_update_all()
    merge.when_not_matched_insert_all().execute()
    odd = [number for number in range(0, 600, 3) if number % 2]
    if feed == "false":
        assert computed.count(len(odd)) == 1  # One batch has the new rows of 30 fragments.
    rest = {number: str(number) for number in range(600) if number % 3}
    new = {number: f"new {number}" for number in (*odd, *range(600, 900, 3))}
    found = table.to_arrow()
    assert dict(zip(*(found[name].to_pylist() for name in ("id", "t")), strict=True)) == rest | new


def test_a_source_that_is_read_once_serves_every_attempt(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [{"k": k, "g": "a", "v": 0} for k in range(5)], {})
    seen = txlog.Table(table.uri)
    table.append(table_of([{"k": 7, "g": "late", "v": 0}]))
    source = table_of([{"k": 7, "g": "b", "v": 1}, {"k": 8, "g": "b", "v": 1}]).to_reader()
    outcome = seen.upsert(source, on="k")
    assert (outcome.metrics["numTargetRowsUpdated"], outcome.metrics["numTargetRowsInserted"]) == (
        1,
        1,
    )
    assert seen.to_arrow(where="k >= 7").sort_by("k")["g"].to_pylist() == ["b", "b"]


@pytest.mark.parametrize("kind", ["polars", "pandas", "scan", "reader"])
def test_sources(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "t", [{"k": 1, "g": "a", "v": 1}], {})
    data = table_of([{"k": 1, "g": "z", "v": 2}, {"k": 2, "g": "z", "v": 2}])
    source: Any = {
        "polars": lambda: pl.from_arrow(data),
        "pandas": lambda: data.to_pandas(),
        "scan": lambda: txlog.write(tmp_path / "other", data).scan(),
        "reader": lambda: data.to_reader(),
    }[kind]()
    table.upsert(source, on="k")
    assert table.to_arrow().sort_by("k").to_pylist() == data.to_pylist()


def test_new_columns(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [{"k": k, "g": "a", "v": k} for k in range(4)], {})
    source = pa.table({"k": [2, 9], "g": ["n", "n"], "extra": [1.5, 2.5]})
    with pytest.raises(InvalidInputError, match="the source has no column v"):
        table.upsert(source, on="k")
    table.upsert(source, on="k", schema_mode="merge")
    assert table.to_arrow().sort_by("k").to_pylist() == [
        {"k": 0, "g": "a", "v": 0, "extra": None},
        {"k": 1, "g": "a", "v": 1, "extra": None},
        {"k": 2, "g": "n", "v": 2, "extra": 1.5},
        {"k": 3, "g": "a", "v": 3, "extra": None},
        {"k": 9, "g": "n", "v": None, "extra": 2.5},
    ]


@pytest.mark.parametrize("verb", ["upsert", "merge"])
def test_fields_of_structs_that_the_source_lacks_keep_their_values(
    tmp_path: Path, verb: str
) -> None:
    deep = pa.struct([("c", pa.int64()), ("d", pa.string())])
    kind = pa.struct([("a", pa.int32()), ("b", pa.string()), ("in", deep)])
    old: Row = {"a": 1, "b": "old", "in": {"c": 2, "d": "deep"}}
    rows = [{"k": k, "st": old if k < 4 else None} for k in range(1, 6)]
    table = txlog.write(
        tmp_path / "t", pa.Table.from_pylist(rows, pa.schema([("k", pa.int64()), ("st", kind)]))
    )
    part = pa.struct([("A", pa.int64()), ("in", pa.struct([("c", pa.int64())]))])
    given = [
        {"k": 2, "st": {"A": 9, "in": {"c": None}}},
        {"k": 3, "st": None},
        {"k": 4, "st": {"A": 7, "in": {"c": 8}}},
        {"k": 6, "st": {"A": 6, "in": None}},
    ]
    source = pa.Table.from_pylist(given, pa.schema([("k", pa.int64()), ("st", part)]))
    if verb == "upsert":
        table.upsert(source, on="k")
    else:
        merge = table.merge(source, on="k").when_matched_update_all()
        merge.when_not_matched_insert_all().execute()
    assert table.to_arrow().sort_by("k").column("st").to_pylist() == [
        old,
        {"a": 9, "b": "old", "in": {"c": None, "d": "deep"}},
        None,
        {"a": 7, "b": None, "in": {"c": 8, "d": None}},
        None,
        {"a": 6, "b": None, "in": None},
    ]
    added = pa.table({"k": [1], "st": [{"new": 5}]})
    table.upsert(added, on="k", schema_mode="merge")
    assert table.to_arrow(where="k = 1").column("st").to_pylist() == [{**old, "new": 5}]


def test_rows_keep_their_ids(tmp_path: Path) -> None:
    table = make(
        tmp_path / "t",
        [{"k": k, "g": "a", "v": k} for k in range(6)],
        {"delta.enableRowTracking": "true"},
    )
    names = ["k", "_rowid", "_row_last_updated_at_version"]
    before = {row["k"]: row for row in table.to_arrow(names).to_pylist()}
    table.upsert(table_of([{"k": 2, "g": "b", "v": 0}, {"k": 50, "g": "b", "v": 0}]), on="k")
    after = {row["k"]: row for row in table.to_arrow(names).to_pylist()}
    assert {k: row["_rowid"] for k, row in after.items() if k in before} == {
        k: row["_rowid"] for k, row in before.items()
    }
    assert after[2]["_row_last_updated_at_version"] == table.version
    assert after[3] == before[3]
    assert after[50]["_rowid"] not in {row["_rowid"] for row in before.values()}


def test_aliases_and_columns_without_one(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [{"k": 1, "g": "a", "v": 1}], {})
    source = pa.table({"id": [1], "new": [5]})
    table.merge(source, "k = id", "s", "t").when_matched_update({"t.v": "s.new + v"}).execute()
    assert table.to_arrow()["v"].to_pylist() == [6]
    table.merge(source, col("target.k") == col("source.id")).when_matched_delete().execute()
    assert table.count() == 0


def test_an_alias_named_like_a_struct(tmp_path: Path) -> None:
    """As in Spark, `s.v` is a column v of the alias s, and else a field of the column s."""
    rows = [{"id": 1, "x": 1, "s": {"id": 10, "v": 1, "x": 1}}]
    table = txlog.write(tmp_path / "t", pa.Table.from_pylist(rows))
    source = pa.table({"id": [1]})
    merge = table.merge(source, "s.id = src.id", "src", "s")
    merge.when_matched_update({"s.v": "7", "s.x": "8", "s.s.x": "9"}).execute()
    assert table.to_arrow().to_pylist() == [{"id": 1, "x": 8, "s": {"id": 10, "v": 7, "x": 9}}]


def test_a_condition_and_a_value_of_a_struct_named_like_an_alias(tmp_path: Path) -> None:
    rows = [{"id": 1, "s": {"v": 1, "w": 2}}, {"id": 2, "s": {"v": 9, "w": 2}}]
    table = txlog.write(tmp_path / "t", pa.Table.from_pylist(rows))
    source = pa.table({"id": [1, 2, 3], "v": [50, 50, 50]})
    merge = table.merge(source, "s.id = q.id AND s.v < 5", "q", "s")
    merge = merge.when_matched_update({"s.v": "s.w + 100"}, predicate="s.w = 2")
    merge.when_not_matched_by_source_update({"s.w": "s.v"}).execute()
    found = table.to_arrow().sort_by("id")["s"].to_pylist()
    assert found == [{"v": 102, "w": 2}, {"v": 9, "w": 9}]
    for text, reason in (("s.x = 1", "s has no column x"), ("q.s.v = 1", "q has no column s")):
        with pytest.raises(InvalidInputError, match=reason):
            table.merge(source, f"s.id = q.id AND {text}", "q", "s").when_matched_delete().execute()
    merge = table.merge(source, "s.id = q.id", "q", "s").when_not_matched_insert({"id": "s.v"})
    with pytest.raises(InvalidInputError, match="has none yet"):
        merge.execute()


def test_clauses_of_one_side_need_no_alias(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [{"k": k, "g": "a", "v": k} for k in (1, 2, 3)], {})
    merger = table.merge(
        table_of([{"k": 3, "g": "b", "v": 9}, {"k": 4, "g": "c", "v": 9}]), "target.k = source.k"
    )
    merger = merger.when_not_matched_by_source_update({"v": "v + k"}, "k > 1")
    merger.when_not_matched_insert({"k": "k", "v": "v * 10"}, "v = 9").execute()
    found = {row["k"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert found == {1: 1, 2: 4, 3: 3, 4: 90}


@pytest.mark.parametrize(
    ("predicate", "clause", "message"),
    [
        ("k = source.k", "when_matched_delete", "both have a column k"),
        ("target.z = source.k", "when_matched_delete", "target has no column z"),
        ("target.k = (source.k > 1)", "when_matched_delete", "cannot be compared"),
        ("target.k + source.k", "when_matched_delete", "a predicate was expected"),
        ("target.k = source.k", None, "the merge has no clause"),
    ],
)
def test_wrong_merges_are_refused(
    tmp_path: Path, predicate: str, clause: str | None, message: str
) -> None:
    table = make(tmp_path / "t", [{"k": 1, "g": "a", "v": 1}], {})
    merger: Any = table.merge(table_of([]), predicate)
    with pytest.raises(InvalidInputError, match=message):
        (getattr(merger, clause)() if clause else merger).execute()


def test_wrong_clauses_are_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [{"k": 1, "g": "a", "v": 1}], {})
    source = table_of([{"k": 1, "g": "b", "v": 2}])
    on = "target.k = source.k"
    with pytest.raises(InvalidInputError, match="can never apply"):
        table.merge(source, on).when_matched_delete().when_matched_update_all().execute()
    with pytest.raises(InvalidInputError, match="no column"):
        table.merge(source, on).when_matched_update({"w": "1"}).execute()
    with pytest.raises(InvalidInputError, match="is a column of the table"):
        table.merge(source, on).when_not_matched_insert({"k": "target.k"}).execute()
    with pytest.raises(InvalidInputError, match="is a column of the source"):
        table.merge(source, on).when_not_matched_by_source_delete("source.v > 1").execute()
    with pytest.raises(InvalidInputError, match="both called"):
        table.merge(source, on, "x", "X").when_matched_delete().execute()
    with pytest.raises(InvalidInputError, match="schema_mode"):
        table.merge(source, on, schema_mode="overwrite").when_matched_delete().execute()  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="no column is named"):
        table.upsert(source, on=[])
    assert txlog.Table(table.uri).version == table.version == 1


def test_names_of_a_source_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"k": [1], "v": [1], "st": [{"a": 1}]}))
    for source, said in (
        (pa.table({"k": [1], "v": [2], "V": [3]}), "columns v and V"),
        (pa.table({"K": [1], "k": [1], "v": [2]}), "columns K and k"),
        (pa.table({"k": [1], "st": [{"a": 2, "A": 3}]}), r"columns st\.a and st\.A"),
    ):
        with pytest.raises(InvalidInputError, match=said) as caught:
            table.merge(source, on="k").when_matched_update_all().execute()
        assert caught.value.argument == "source"
        with pytest.raises(InvalidInputError, match=said):
            table.upsert(source, on="k")
    assert txlog.Table(table.uri).version == 0


def test_a_value_that_does_not_fit_leaves_no_file(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("small", pa.int8())])
    table = txlog.Table.create(tmp_path / "t", schema)
    table.append(pa.table({"k": [1, 2], "small": [1, 2]}, schema))
    before = sorted((tmp_path / "t").rglob("*.parquet"))
    with pytest.raises(SchemaMismatchError):
        table.upsert(pa.table({"k": [1, 9], "small": [5, 1000]}), on="k")
    assert sorted((tmp_path / "t").rglob("*.parquet")) == before


def test_an_append_only_table_takes_inserts_alone(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [{"k": 1, "g": "a", "v": 1}], {"delta.appendOnly": "true"})
    source = table_of([{"k": 1, "g": "b", "v": 2}, {"k": 2, "g": "b", "v": 2}])
    with pytest.raises(UnsupportedFeatureError, match="append-only"):
        table.upsert(source, on="k")
    merger = table.merge(source, "target.k = source.k").when_not_matched_insert_all()
    assert merger.execute().metrics["numTargetRowsInserted"] == 1


def test_what_the_commit_says(tmp_path: Path) -> None:
    table = make(tmp_path / "t", [{"k": 1, "g": "a", "v": 1}], {})
    source = table_of([{"k": 1, "g": "b", "v": 2}])
    merger = table.merge(source, "target.k = source.k", txn=("app", 4), user_metadata="nightly")
    merger.when_matched_update_all("source.v > 1").execute()
    (entry,) = table.history(1)
    assert (entry["operation"], entry["userMetadata"]) == ("MERGE", "nightly")
    assert entry["operationMetrics"]["numTargetRowsUpdated"] == "1"
    assert "source.v" in entry["operationParameters"]["matchedPredicates"]
    assert table.upsert(source, on="k", txn=("app", 4)).skipped


@pytest.mark.parametrize(
    ("vectors", "few"),
    [("true", 8), pytest.param("false", 32, marks=pytest.mark.exhaustive)],
)
def test_memory_does_not_grow_with_the_table(tmp_path: Path, vectors: str, few: int) -> None:
    peaks = []
    for files in (few, 4 * few):
        count = files * 1_000
        keys = np.random.default_rng(files).permutation(count)
        columns = {"k": keys, **{f"c{n}": keys * 0.5 for n in range(4)}}
        properties = {"delta.enableDeletionVectors": vectors}
        path = tmp_path / f"{vectors}{files}"
        txlog.write(
            path,
            pa.table(columns),
            options=txlog.WriteOptions(max_rows_per_file=1_000),
            properties=properties,
        )
        source = pa.table({"k": np.arange(500) * (count // 500), "c0": np.zeros(500)})
        table = txlog.Table(path)
        usual = pa.default_memory_pool()
        counted = pa.proxy_memory_pool(usual)
        pa.set_memory_pool(counted)
        try:
            table.merge(source, on="k").when_matched_update_all().execute()
        finally:
            pa.set_memory_pool(usual)
        assert table.count("c0 = 0") >= 500
        peaks.append(counted.max_memory() or 0)
    assert 0 < peaks[1] < 2 * peaks[0], peaks  # Of a table that is four times as large.


def test_memory_does_not_grow_with_the_matches_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(match, "_MOST_MATCHES", 1 << 16)
    source = pa.table({"k": range(20)})
    peaks = []
    for count in (1, 200_000, 1_600_000):  # The first merge imports modules.
        table = txlog.write(tmp_path / str(count), pa.table({"k": np.arange(count) % 10}))
        tracemalloc.start()
        merge = table.merge(source, "target.k = s.k", source_alias="s")
        merge.when_not_matched_insert_all().execute()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 2 * peaks[1], peaks


def test_a_large_source_is_kept_in_a_file() -> None:
    batches = [
        pa.record_batch({"k": range(start, start + 1000), "t": [str(k) for k in range(1000)]})
        for start in range(0, 10_000, 1000)
    ]
    spilled = MergeSource(pa.Table.from_batches(batches).to_reader(), memory_bytes=30_000)
    kept = MergeSource(pa.Table.from_batches(batches))
    assert (spilled.is_spilled, kept.is_spilled) == (True, False)
    import numpy as np

    indices = np.array([9999, 0, 5000, 5000, 1])
    for names in (["k", "t"], ["t"]):
        assert spilled.take(indices, names).to_pylist() == kept.take(indices, names).to_pylist()
    assert spilled.take(indices[:0], ["k"]).num_rows == 0


@pytest.mark.parametrize(
    ("values", "kind", "schema_mode"),
    [
        (["7", "x", None, "99999999999999999999"], pa.int64(), None),
        (["7", "", None, "3000000000"], pa.int32(), "merge"),
        (["1.5", "x", None, "1e3"], pa.float64(), None),
        (pa.array([7, 2**31, None, -(2**31) - 1]), pa.int32(), None),
        (pa.array([7.0, 1e30, None, float("nan")]), pa.int64(), "merge"),
    ],
)
def test_values_that_do_not_fit_become_null_on_demand(
    tmp_path: Path, values: Any, kind: pa.DataType, schema_mode: Any
) -> None:
    source = pa.table({"id": [1, 2, 3, 4], "v": values})
    if schema_mode:
        source = source.append_column("extra", pa.array(["a", "b", "c", "d"]))
    target = pa.table({"id": [1, 4], "v": pa.nulls(2, kind)})
    table = txlog.write(tmp_path / "ours", target)
    theirs = deltalake.DeltaTable(shutil.copytree(tmp_path / "ours", tmp_path / "theirs"))
    with pytest.raises((InvalidInputError, SchemaMismatchError)):
        table.merge(
            source, "source.id = target.id", schema_mode=schema_mode
        ).when_matched_update_all().execute()
    for merger in (
        table.merge(
            source,
            "source.id = target.id",
            schema_mode=schema_mode,
            options=txlog.WriteOptions(error_on_type_mismatch=False),
        ),
        theirs.merge(
            source,
            "source.id = target.id",
            "source",
            "target",
            merge_schema=bool(schema_mode),
            error_on_type_mismatch=False,
        ),
    ):
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
    ours = table.to_arrow().sort_by("id")
    assert ours.schema.field("v").type == kind
    assert ours.to_pylist() == theirs.to_pyarrow_table().sort_by("id").to_pylist()
    assert ours["v"][0].as_py() is not None
    assert ours["v"][1].as_py() is None


@pytest.mark.parametrize(("on", "changed"), [("st", [10, 20]), ("l", [10]), (["st", "l"], [10])])
def test_keys_may_be_structs_and_arrays(
    tmp_path: Path, on: str | list[str], changed: list[int]
) -> None:
    schema = pa.schema(
        [
            ("st", pa.struct([("a", pa.int64()), ("b", pa.string())])),
            ("l", pa.list_(pa.int32())),
            ("v", pa.int64()),
        ]
    )
    one, other = {"a": 1, "b": "x"}, {"a": None, "b": "y"}
    rows = [
        {"st": one, "l": [1], "v": 1},
        {"st": other, "l": [1, 2], "v": 2},
        {"st": None, "l": None, "v": 3},  # It equals nothing.
    ]
    table = txlog.write(tmp_path / "t", pa.Table.from_pylist(rows, schema))
    source = [{"st": one, "l": [1], "v": 10}, {"st": other, "l": [9], "v": 20}, {"v": 30}]
    done = table.upsert(pa.Table.from_pylist(source, schema), on=on)
    assert done.metrics["numTargetRowsUpdated"] == len(changed)
    values = sorted(table.to_arrow()["v"].to_pylist())
    assert set(changed) | {3, 20, 30} <= set(values)
    assert len(values) == 6 - len(changed)


@pytest.mark.parametrize(
    ("method", "arguments", "argument"),
    [
        ("when_matched_update", {"updates": {"b": "qq"}}, "updates"),
        ("when_matched_update", {"updates": {"b": "1"}, "predicate": "qq = 1"}, "predicate"),
        ("when_matched_delete", {"predicate": "source.qq = 1"}, "predicate"),
        ("when_not_matched_insert", {"updates": {"b": "target.b"}}, "updates"),
        ("when_not_matched_by_source_update", {"updates": {"b": "source.c"}}, "updates"),
        ("when_not_matched_by_source_delete", {"predicate": "source.c = 1"}, "predicate"),
    ],
)
def test_errors_name_the_argument_in_which_a_name_stands(
    tmp_path: Path, method: str, arguments: dict[str, Any], argument: str
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1], "b": [2]}))
    merger = table.merge(pa.table({"a": [1], "c": [2]}), "target.a = source.a")
    with pytest.raises(txlog.InvalidInputError) as caught:
        getattr(merger, method)(**arguments).execute()
    assert caught.value.argument == argument


@pytest.mark.parametrize("kind", [pa.int64(), pa.int16(), pa.date32(), pa.timestamp("us", "UTC")])
def test_keys_that_lie_far_apart_leave_out_the_files_between_them(
    tmp_path: Path, kind: pa.DataType
) -> None:
    keys = pa.array([2_000 * at for at in range(12)], pa.int64())  # Microseconds: bounds have ms.
    keys = keys.cast(pa.int32() if pa.types.is_date32(kind) else keys.type).cast(kind)
    each = txlog.WriteOptions(max_rows_per_file=1)
    table = txlog.write(tmp_path, pa.table({"k": keys, "v": range(12)}), options=each)
    for at in set(range(12)) - set(range(0, 12, 3)):
        (uri,) = table.scan(where=f"v = {at}").file_uris()
        Path(uri).unlink()
    chosen = pa.array(range(0, 12, 3))
    with moved({"txlog.lookup.keys:_FEW": 2, "txlog.lookup.keys:_RANGES": 1}):
        table.upsert(pa.table({"k": keys.take(chosen), "v": [70, 71, 72, 73]}), on="k")
    assert table.count("v >= 70") == 4
