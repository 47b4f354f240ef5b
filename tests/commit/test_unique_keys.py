"""Unique keys: whatever writers do, no version has two rows with one key."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog.commit.intent import Intent
from txlog.commit.operation import execute
from txlog.commit.unique_keys import UniqueCheck
from txlog.extend import context_of
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.append import Append
from txlog.verbs.merge.clauses import UPSERT, MergeRequest
from txlog.verbs.merge.merge import Merge

VALUES: dict[str, list[Any]] = {
    "l": [None, 0, 1, 2, 3, 2**63 - 1],
    "m": [None, Decimal("0.00"), Decimal("1.50"), Decimal("-2.25")],
    "s": [None, "a", "a ", "abcdefgh", "abcdefghi", "\N{GREEK SMALL LETTER ALPHA}" * 9],
    "d": [None, date(1, 1, 1), date(2024, 1, 1)],
    "t": [None, datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC)],
    "b": [None, b"\x00", b"\x00\x00", b"\xff"],
    "p": [None, "x", "y"],
}
SCHEMA = pa.schema(
    [
        ("l", pa.int64()),
        ("m", pa.decimal128(22, 2)),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("b", pa.binary()),
        ("p", pa.string()),
        ("n", pa.int64()),
    ]
)
KEYS = [("l",), ("m",), ("s",), ("d",), ("t",), ("b",), ("p",), ("l", "s"), ("p", "d"), ("s", "m")]
Row = tuple[Any, ...]
NAMES = SCHEMA.names


def table_of(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(NAMES)
    return pa.table(
        [pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)],
        schema=SCHEMA,
    )


def rows_in(table: txlog.Table) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in table.to_arrow().select(NAMES).to_pylist())


def key_of(row: Row, key: tuple[str, ...]) -> Row | None:
    values = tuple(row[NAMES.index(name)] for name in key)
    return None if None in values else values


def is_unique(rows: list[Row], key: tuple[str, ...]) -> bool:
    found = [one for row in rows if (one := key_of(row, key)) is not None]
    return len(found) == len(set(found))


some_rows = st.lists(
    st.tuples(*(st.sampled_from(VALUES[name]) for name in NAMES[:-1]), st.integers(0, 9)),
    max_size=4,
)
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "ignore", "update", "overwrite", "move", "delete", "compact",
             "restore", "two appends", "other key", "cluster"]
        ),
        some_rows,
        st.integers(0, 9),
    ),
    max_size=7,
)  # fmt: skip


def numbered(rows: list[Row], number: int) -> list[Row]:
    return [(*row[:-1], number) for row in rows]


class Model:
    """The rows that the table must have, and what each step would do to them."""

    def __init__(self, rows: list[Row], key: tuple[str, ...]) -> None:
        self.key = key
        self.rows = rows
        self.versions: dict[int, list[Row]] = {}

    def after(self, kind: str, rows: list[Row], number: int) -> list[Row]:
        there = {key_of(row, self.key) for row in self.rows} - {None}
        match kind:
            case "append" | "two appends":
                return self.rows + rows
            case "ignore":
                new: dict[Any, Row] = {}
                for place, row in enumerate(rows):
                    new.setdefault(key_of(row, self.key) or ("no key", place), row)
                return self.rows + [row for key, row in new.items() if key not in there]
            case "update":
                by_key = {key_of(row, self.key): row for row in rows}
                kept = [
                    row if (key := key_of(row, self.key)) is None else by_key.get(key, row)
                    for row in self.rows
                ]
                return kept + [row for row in rows if key_of(row, self.key) not in there]
            case "overwrite":
                return [row for row in self.rows if row[-1] != number] + numbered(rows, number)
            case "move":
                return [
                    (*row[:-1], 0) if row[-1] == number else row for row in self.rows
                ]  # It writes these rows again, with the same keys.
            case "other key":
                place = NAMES.index(self.key[0])
                value = VALUES[self.key[0]][1 + number % 2]
                return [
                    (*row[:place], value, *row[place + 1 :]) if row[-1] == number else row
                    for row in self.rows
                ]
            case "delete":
                return [row for row in self.rows if row[-1] != number]
            case _:
                return self.rows


def carried_out(
    table: txlog.Table, model: Model, kind: str, rows: list[Row], number: int
) -> Callable[[], object]:
    data = table_of(rows)
    literal = VALUES[model.key[0]][1 + number % 2]

    def two_appends() -> None:
        with table.transaction() as changes:
            changes.append(data.slice(0, 1))
            changes.append(data.slice(1))

    done: dict[str, Callable[[], object]] = {
        "append": lambda: table.append(data),
        "two appends": two_appends,
        "ignore": lambda: table.append(data, on_conflict="ignore"),
        "update": lambda: table.append(data, on_conflict="update"),
        "overwrite": lambda: table.overwrite(
            table_of(numbered(rows, number)), where=f"n = {number}"
        ),
        "move": lambda: table.update({"n": "0"}, where=f"n = {number}"),
        "other key": lambda: table.update(
            {model.key[0]: txlog.lit(literal)}, where=f"n = {number}"
        ),
        "delete": lambda: table.delete(f"n = {number}"),
        "compact": lambda: table.optimize.compact(),
        "cluster": lambda: table.optimize.z_order(["n"]),
    }
    return done[kind]


@pytest.mark.slow
@pytest.mark.spec("UNQ-1", "UNQ-2", "UNQ-3", "UNQ-4")
@settings(max_examples=examples(300), deadline=None)
@given(
    first=some_rows,
    key=st.sampled_from(KEYS),
    todo=steps,
    vectors=st.booleans(),
    small=st.booleans(),
    partitioned=st.booleans(),
)
def test_a_commit_is_made_if_and_only_if_all_keys_stay_unique(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[Row],
    key: tuple[str, ...],
    todo: list[tuple[str, list[Row], int]],
    vectors: bool,
    small: bool,
    partitioned: bool,
) -> None:
    values = {
        "txlog.commit.unique_keys:_LISTED": 1,
        "txlog.commit.unique_keys:_AT_ONCE": 1,
        "txlog.lookup.indexed:_LEAST_BYTES": 0,
        "txlog.lookup.indexed:_LEAST_SHARE": 1,
    }
    with moved(values if small else {}):
        table = txlog.Table.create(
            str(tmp_path_factory.mktemp("t")),
            SCHEMA,
            partition_by=["p"] if partitioned else None,
            properties={"delta.enableDeletionVectors": str(vectors).lower()},
        )
        table.append(table_of(first))
        model = Model(first, key)
        if is_unique(first, key):
            table.alter.add_constraint({"pk": txlog.unique(*key)})
        else:
            with pytest.raises(txlog.DuplicateKeyError):
                table.alter.add_constraint({"pk": txlog.unique(*key)})
            assert rows_in(txlog.Table(table.uri)) == Counter(first)
            return
        model.versions[table.version] = model.rows
        for kind, rows, number in todo:
            if kind == "update" and not is_unique(rows, key):
                continue  # Several rows would change one: a fault of the merge.
            before = table.version
            if kind == "restore":
                version = sorted(model.versions)[number % len(model.versions)]
                table.restore(version)
                model.rows = model.versions[version]
            else:
                wanted = model.after(kind, rows, number)
                act = carried_out(table, model, kind, rows, number)
                if is_unique(wanted, key):
                    act()
                    model.rows = wanted
                else:
                    with pytest.raises(txlog.DuplicateKeyError) as caught:
                        act()
                    assert caught.value.field == "pk"
                    assert len(caught.value.key) == len(key)
                    assert txlog.Table(table.uri).version == before
            model.versions[table.version] = model.rows
            assert rows_in(txlog.Table(table.uri)) == Counter(model.rows), kind


def keyed(path: Path, rows: dict[str, list[Any]], **given: Any) -> txlog.Table:
    table = txlog.write(str(path), pa.table(rows), **given)
    table.alter.add_constraint({"pk": txlog.unique("id")})
    return txlog.Table(table.uri)


class LateAppend(Append):
    """An append that another writer overtakes after it was decided."""

    def __init__(self, data: pa.Table, first: Callable[[], object]) -> None:
        super().__init__(data)
        self._first = first
        self.tries = 0

    def intent(self, base: Snapshot) -> Intent:
        found = super().intent(base)
        self.tries += 1
        if self.tries == 1:
            self._first()
        return found


@pytest.mark.spec("UNQ-5")
def test_a_lost_race_names_the_key_and_the_version_of_the_winner(tmp_path: Path) -> None:
    table = keyed(tmp_path / "t", {"id": [1], "v": ["a"]})
    other = txlog.Table(table.uri)

    def win() -> None:
        other.append(pa.table({"id": [7], "v": ["other"]}))
        other.append(pa.table({"id": [2], "v": ["winner"]}))
        other.append(pa.table({"id": [8], "v": ["last"]}))

    late = LateAppend(pa.table({"id": [3, 2], "v": ["b", "c"]}), win)
    with pytest.raises(txlog.DuplicateKeyError, match=r"version 3 has .*: id = 2") as caught:
        execute(late, context_of(table), table.snapshot)
    assert (caught.value.key, caught.value.version) == ((2,), 3)
    assert txlog.Table(table.uri).version == 4
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 4  # The loser's file is deleted.


@pytest.mark.spec("UNQ-5")
@pytest.mark.parametrize("winner", ["append", "constraint", "restore"])
def test_what_a_winner_brings_is_compared(tmp_path: Path, winner: str) -> None:
    """The winner adds the key, or the constraint, or takes a row back that was deleted."""
    table = txlog.write(str(tmp_path / "t"), pa.table({"id": [1, 2], "v": ["a", "b"]}))
    if winner != "constraint":
        table.alter.add_constraint({"pk": txlog.unique("id")})
    if winner == "restore":
        table.delete("id = 2")
    other = txlog.Table(table.uri)
    wins: dict[str, Callable[[], object]] = {
        "append": lambda: other.append(pa.table({"id": [5], "v": ["c"]})),
        "constraint": lambda: other.alter.add_constraint({"pk": "UNIQUE (id)"}),
        "restore": lambda: other.restore(1),
    }
    new = {"append": 5, "constraint": 1, "restore": 2}[winner]
    late = LateAppend(pa.table({"id": [new], "v": ["x"]}), wins[winner])
    with pytest.raises(txlog.DuplicateKeyError):
        execute(late, context_of(table), table.snapshot)
    ids = txlog.Table(table.uri).to_arrow()["id"].to_pylist()
    assert len(ids) == len(set(ids))


@pytest.mark.slow
@pytest.mark.spec("UNQ-5")
@settings(max_examples=examples(300), deadline=None)
@given(
    first=some_rows,
    key=st.sampled_from(KEYS),
    mine=some_rows,
    todo=steps,
    deletes=st.integers(0, 9),
)
def test_whatever_overtakes_an_append_the_keys_stay_unique(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[Row],
    key: tuple[str, ...],
    mine: list[Row],
    todo: list[tuple[str, list[Row], int]],
    deletes: int,
) -> None:
    if not is_unique(first, key):
        first = first[:1]
    table = txlog.Table.create(str(tmp_path_factory.mktemp("t")), SCHEMA)
    table.append(table_of(first))
    table.alter.add_constraint({"pk": txlog.unique(*key)})
    model = Model(first, key)
    model.versions[table.version] = first
    table.delete(f"n = {deletes}")
    model.rows = model.after("delete", [], deletes)
    before = model.versions[table.version] = model.rows
    other = txlog.Table(table.uri)

    def win() -> None:
        for kind, rows, number in todo:
            if kind == "update" and not is_unique(rows, key):
                continue
            if kind == "restore":
                version = sorted(model.versions)[number % len(model.versions)]
                other.restore(version)
                model.rows = model.versions[version]
                continue
            wanted = model.after(kind, rows, number)
            if is_unique(wanted, key):
                carried_out(other, model, kind, rows, number)()
                model.rows = wanted

    late = LateAppend(table_of(mine), win)
    try:
        execute(late, context_of(table), table.snapshot)
        appended = True
    except txlog.DuplicateKeyError:
        appended = False
    after = model.rows + mine if appended else model.rows
    assert is_unique(after, key)
    # The version that it read first may have had a row that a winner deleted.
    assert appended or not (is_unique(before + mine, key) and is_unique(model.rows + mine, key))
    assert rows_in(txlog.Table(table.uri)) == Counter(after)


class LateUpsert(Merge):
    """An upsert that another writer overtakes."""

    first: Callable[[], object] | None = None

    def intent(self, base: Snapshot) -> Intent | None:
        found = super().intent(base)
        if self.first is not None:
            self.first()
            self.first = None
        return found


@pytest.mark.spec("UNQ-5", "CON-31")
def test_an_upsert_updates_the_row_that_a_winner_added(tmp_path: Path) -> None:
    table = keyed(tmp_path / "t", {"id": [1], "v": ["a"]})
    other = txlog.Table(table.uri)
    late = LateUpsert(MergeRequest(pa.table({"id": [2], "v": ["mine"]}), on=["id"]), UPSERT)
    late.first = lambda: other.append(pa.table({"id": [2], "v": ["theirs"]}))
    execute(late, context_of(table), table.snapshot)
    rows = txlog.Table(table.uri).to_arrow().sort_by("id").to_pydict()
    assert rows == {"id": [1, 2], "v": ["a", "mine"]}


WRITER = """
import sys, random, pyarrow as pa, txlog
uri, number = sys.argv[1], int(sys.argv[2])
table = txlog.Table(uri)
chance = random.Random(number)
for key in chance.sample(range(12), 12):
    try:
        table.append(pa.table({"id": [key], "by": [number]}))
        print("won", key)
    except txlog.DuplicateKeyError as error:
        assert error.key == (key,), error
        assert error.version is not None
        print("lost", key, error.version)
"""


@pytest.mark.slow
@pytest.mark.spec("UNQ-5")
@pytest.mark.parametrize("writers", [5, pytest.param(16, marks=pytest.mark.exhaustive)])
def test_each_of_many_processes_that_insert_the_same_keys_wins_or_is_told(
    tmp_path: Path, writers: int
) -> None:
    table = keyed(tmp_path / "t", {"id": [-1], "by": [-1]})
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, table.uri, str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(writers)
    ]
    said = []
    for process in running:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        said.append([line.split() for line in out.splitlines()])
    won = [int(line[1]) for lines in said for line in lines if line[0] == "won"]
    assert sorted(won) == list(range(12))  # Each key once.
    rows = txlog.Table(table.uri).to_arrow()
    assert sorted(rows["id"].to_pylist()) == [-1, *range(12)]
    owner = dict(zip(rows["id"].to_pylist(), rows["by"].to_pylist(), strict=True))
    for number, lines in enumerate(said):
        for outcome, key, *version in lines:
            assert (owner[int(key)] == number) == (outcome == "won")
            if version:  # The version has the key.
                at = txlog.Table(table.uri, version=int(version[0]))
                assert at.count(f"id = {key}") == 1


@pytest.mark.spec("UNQ-6")
def test_other_engines_read_the_table_and_do_not_write_it(tmp_path: Path) -> None:
    table = keyed(tmp_path / "t", {"id": [1, 2], "v": ["a", "b"]})
    assert "txlog.uniqueKeys" in (table.protocol.writer_features or [])
    other = deltalake.DeltaTable(table.uri)
    assert other.to_pyarrow_table().num_rows == 2
    assert duckdb.from_arrow(other.to_pyarrow_dataset()).count("*").fetchall() == [(2,)]
    with pytest.raises(Exception, match=r"uniqueKeys|[Uu]nsupported"):
        deltalake.write_deltalake(table.uri, pa.table({"id": [1], "v": ["x"]}), mode="append")
    assert txlog.Table(table.uri).count() == 2


@pytest.mark.spec("UNQ-1")
def test_bad_definitions_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "x": [1.0, 2.0], "s": [[1], [2]]})
    table = txlog.write(str(tmp_path / "t"), rows)
    for constraint, reason in [
        (txlog.unique("x"), "cannot be keys"),
        (txlog.unique("s"), "cannot be keys"),
        (txlog.unique("nothing"), "no such column"),
        ("PRIMARY KEY (id)", "may be null"),
        ("UNIQUE (id + 1)", "does not name columns"),
        (txlog.unique("id", "ID"), "named twice"),
        (5, "not a predicate"),
    ]:
        with pytest.raises(txlog.InvalidInputError, match=reason):
            table.alter.add_constraint({"pk": constraint})
    with pytest.raises(txlog.InvalidInputError, match="named by text"):
        table.alter.add_constraint({"": txlog.unique("id")})
    for columns in ((), ("a", "a")):
        with pytest.raises(txlog.InvalidInputError):
            txlog.unique(*columns)
    with pytest.raises(txlog.InvalidTypeError):
        txlog.unique(["id"])  # type: ignore[arg-type]
    with pytest.raises(txlog.InvalidInputError, match="rows must be checked first"):
        table.alter.set_properties({"txlog.unique.pk": '{"format":1,"columns":["id"]}'})
    assert txlog.Table(table.uri).version == 0


@pytest.mark.spec("UNQ-1")
def test_a_definition_that_nobody_can_read_forbids_writes(tmp_path: Path) -> None:
    table = txlog.Table.create(
        str(tmp_path / "t"), pa.schema([("id", pa.int64())]),
        properties={"txlog.unique.pk": '{"format":1,"columns":["id"]}'},
    )  # fmt: skip
    log = tmp_path / "t/_delta_log"
    lines = (log / "00000000000000000000.json").read_text().splitlines()
    (metadata,) = (json.loads(line) for line in lines if "metaData" in line)
    metadata["metaData"]["configuration"]["txlog.unique.pk"] = '{"format":2}'
    (log / "00000000000000000001.json").write_text(json.dumps(metadata))
    broken = txlog.Table(table.uri)
    assert broken.to_arrow().num_rows == 0
    with pytest.raises(txlog.UnsupportedFeatureError, match="which key is unique"):
        broken.append(pa.table({"id": [1]}))


@pytest.mark.spec("UNQ-7")
def test_columns_of_a_key_stay_and_follow_their_names(tmp_path: Path) -> None:
    table = keyed(
        tmp_path / "t", {"id": [1], "v": ["a"]}, properties={"delta.columnMapping.mode": "name"}
    )
    with pytest.raises(txlog.InvalidInputError, match="unique key pk is over it"):
        table.alter.drop_columns(["id"])
    table.alter.rename_column("id", "number")
    with pytest.raises(txlog.DuplicateKeyError, match="number = 1"):
        table.append(pa.table({"number": [1], "v": ["b"]}))
    with pytest.raises(txlog.InvalidInputError, match="the new columns lack it"):
        table.overwrite(pa.table({"v": ["c"]}), schema_mode="overwrite")
    with pytest.raises(txlog.InvalidInputError, match="another one of this name"):
        table.overwrite(pa.table({"number": [1.5], "v": ["c"]}), schema_mode="overwrite")
    table.alter.set_properties({"delta.columnMapping.mode": "none"})
    with pytest.raises(txlog.DuplicateKeyError):
        table.append(pa.table({"number": [1], "v": ["b"]}))
    with pytest.raises(txlog.UnsupportedFeatureError, match="has unique keys: pk"):
        table.alter.drop_feature("txlog.uniqueKeys")
    table.alter.drop_constraint("PK")
    table.alter.drop_feature("txlog.uniqueKeys")
    table.append(pa.table({"number": [1], "v": ["b"]}))
    assert "txlog.uniqueKeys" not in (table.protocol.writer_features or [])


@pytest.mark.spec("UNQ-3")
def test_an_index_is_made_and_says_where_the_keys_are(tmp_path: Path) -> None:
    table = keyed(tmp_path / "t", {"id": [1, 2], "v": ["a", "b"]})
    (name,) = table.indexes.list()
    assert table.indexes.list()[name].files_covered == 1
    table.append(pa.table({"id": [3], "v": ["c"]}))
    assert table.indexes.list()[name].files_covered == 2


@pytest.mark.spec("UNQ-3")
def test_rows_that_a_caller_gives_for_moved_ones_are_compared(tmp_path: Path) -> None:
    table = keyed(tmp_path / "t", {"id": [1, 2], "v": [0, 1]})
    old = [fragment.metadata for fragment in table.fragments()]
    rewrite = txlog.FragmentOperation
    for ids in ([7, 7], [1, 7]):
        new = txlog.write_fragments(pa.table({"id": ids, "v": [0, 1]}), table.uri)
        change = rewrite.Rewrite([rewrite.RewriteGroup(old, new)])
        if ids == [7, 7]:
            with pytest.raises(txlog.DuplicateKeyError, match=r"id = 7 \(2 rows\)"):
                table.commit(change)
        else:
            table.commit(change)
    assert sorted(txlog.Table(table.uri).to_arrow()["id"].to_pylist()) == [1, 7]


@pytest.mark.spec("UNQ-1")
def test_columns_of_a_primary_key_stay_without_nulls(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])
    table = txlog.Table.create(str(tmp_path / "t"), schema)
    table.alter.add_constraint({"pk": "PRIMARY KEY (id) ENFORCED"})
    with pytest.raises(txlog.InvalidInputError, match="part of the primary key pk"):
        table.alter.set_nullable("id", True)
    with pytest.raises(txlog.InvalidInputError, match="part of the primary key pk"):
        table.overwrite(pa.table({"id": [1]}), schema_mode="overwrite")
    with pytest.raises(txlog.InvalidInputError, match="has the primary key pk already"):
        table.alter.add_constraint({"other": "PRIMARY KEY (id)"})
    with pytest.raises(txlog.InvalidInputError, match="part of the primary key pk"):
        txlog.Table.create(
            str(tmp_path / "new"), pa.schema([("id", pa.int64())]),
            properties={"txlog.unique.pk": '{"format":1,"columns":["id"],"primary":true}'},
        )  # fmt: skip
    assert not (tmp_path / "new/_delta_log/00000000000000000000.json").exists()
    with pytest.raises(txlog.UnsupportedFeatureError, match="hint for a query optimizer"):
        table.alter.add_constraint({"other": "UNIQUE (v) NOT ENFORCED"})
    table.alter.drop_constraint("pk")
    table.alter.set_nullable("id", True)


@pytest.mark.spec("UNQ-8")
@pytest.mark.parametrize("on_conflict", ["ignore", "update"])
def test_data_may_lack_columns_as_in_other_appends(tmp_path: Path, on_conflict: Any) -> None:
    table = keyed(tmp_path / "t", {"id": [1], "v": ["a"], "w": ["b"]})
    table.append(pa.table({"id": [1, 2], "v": ["x", "y"]}), on_conflict=on_conflict)
    rows = table.to_arrow().sort_by("id").to_pydict()
    first = "a" if on_conflict == "ignore" else "x"
    assert rows == {"id": [1, 2], "v": [first, "y"], "w": ["b", None]}
    new = pa.table({"id": [3], "v": ["z"], "more": [1]})
    with pytest.raises(txlog.InvalidInputError, match="no column more"):
        table.append(new, on_conflict=on_conflict)
    table.append(new, on_conflict=on_conflict, schema_mode="merge")
    assert table.to_arrow(where="id = 3").to_pydict()["more"] == [1]


@pytest.mark.spec("UNQ-8")
def test_rows_of_one_append_are_told_apart(tmp_path: Path) -> None:
    table = keyed(tmp_path / "t", {"id": [1], "v": ["a"]})
    with pytest.raises(txlog.InvalidInputError, match="is not one of"):
        table.append(pa.table({"id": [2], "v": ["b"]}), on_conflict="other")  # type: ignore[arg-type]
    with pytest.raises(txlog.DuplicateKeyError, match=r"share a key: id = 2 \(2 rows\)"):
        table.append(pa.table({"id": [2, 2], "v": ["b", "c"]}), on_conflict="update")
    table.append(pa.table({"id": [2, 2, 1], "v": ["b", "c", "d"]}), on_conflict="ignore")
    rows = table.to_arrow().sort_by("id").to_pydict()
    assert rows == {"id": [1, 2], "v": ["a", "b"]}
    plain = txlog.write(str(tmp_path / "plain"), pa.table({"id": [1]}))
    with pytest.raises(txlog.InvalidInputError, match=r"one unique key, .* has none"):
        plain.append(pa.table({"id": [1]}), on_conflict="ignore")


@pytest.mark.spec("UNQ-8")
def test_write_ignores_or_updates_as_append_does(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = keyed(root, {"id": [1], "v": ["a"]})
    new = pa.table({"id": [1, 2], "v": ["x", "y"]})
    with pytest.raises(txlog.DuplicateKeyError, match="id = 1"):
        txlog.write(root, new, mode="append")
    txn = ("job", 1)
    written = txlog.write(root, new, mode="append", on_conflict="ignore", txn=txn)
    assert written.to_arrow().sort_by("id").to_pydict() == {"id": [1, 2], "v": ["a", "y"]}
    txlog.write(root, new, mode="append", on_conflict="update")
    assert table.refresh().to_arrow().sort_by("id")["v"].to_pylist() == ["x", "y"]
    version = table.version
    txlog.write(
        root, pa.table({"id": [3], "v": ["z"]}), mode="append", on_conflict="ignore", txn=txn
    )
    assert table.refresh().version == version  # The job has written this part already.
    for mode in ("error", "ignore", "overwrite"):
        with pytest.raises(txlog.InvalidInputError, match=f"the mode is '{mode}'"):
            txlog.write(root, new, mode=mode, on_conflict="update")
    with pytest.raises(txlog.InvalidInputError, match="is not one of"):
        txlog.write(
            root,
            new,
            mode="append",
            on_conflict="other",  # type: ignore[arg-type]  # It has to be refused.
        )
    with pytest.raises(txlog.InvalidInputError, match="no table yet"):
        txlog.write(tmp_path / "new", new, mode="append", on_conflict="ignore")
    assert not txlog.Table.exists(tmp_path / "new")


@pytest.mark.slow
@pytest.mark.spec("UNQ-2")
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()])
def test_times_after_the_years_of_python_are_keys(
    tmp_path: Path, kind: pa.DataType, small: bool
) -> None:
    """The year is about 29,000."""
    number, values = (
        (pa.int32(), [10_000_000, 10_000_001]) if kind == pa.date32()
        else (pa.int64(), [857_000_000_000_000_000, 857_000_000_000_000_001])
    )  # fmt: skip

    def rows(*given: int) -> pa.Table:
        return pa.table({"k": pa.array(given, number).cast(kind), "n": [1] * len(given)})

    with moved({"txlog.commit.unique_keys:_LISTED": 1} if small else {}):
        table = txlog.write(tmp_path / "t", rows(values[0], 1))
        table.alter.add_constraint({"pk": txlog.unique("k")})
        for again in (rows(values[0]), rows(values[1], values[1]), rows(5, values[0])):
            with pytest.raises(txlog.DuplicateKeyError):
                table.append(again)
        table.append(rows(values[1], 7))
        assert table.lookup(rows(values[0], 7)["k"], on="k").num_rows == 2
        table.upsert(rows(values[1], values[1] + 1), on="k")
    assert table.count() == 5


@pytest.mark.spec("UNQ-7")
@pytest.mark.parametrize("shallow", [False, True])
def test_a_clone_does_not_compare_the_rows_of_its_source(tmp_path: Path, shallow: bool) -> None:
    source = keyed(tmp_path / "t", {"id": [1, 2], "v": ["a", "b"]})
    source.append(pa.table({"id": [3], "v": ["c"]}))
    read: list[str] = []
    compare = UniqueCheck._require

    def counted(*args: Any) -> None:
        read.append(args[1].key.name)
        compare(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UniqueCheck, "_require", counted)
        target = source.clone(tmp_path / "c", shallow)
        older = source.clone(tmp_path / "c", shallow, version=1, replace=True)
        assert read == []
        with pytest.raises(txlog.DuplicateKeyError, match="id = 2"):
            older.append(pa.table({"id": [2], "v": ["z"]}))
        assert read == ["pk"]
    assert older.count() == 2
    assert target.refresh().version == older.version
