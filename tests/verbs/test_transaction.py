"""Several changes in one version."""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.losing import losing
from txlog import InvalidInputError
from txlog.protocol.access import needed_features, supports
from txlog.store.open import open_store
from txlog.testing import Fault, FaultyStore, open_table

FORMS: dict[str, dict[str, str]] = {
    "vectors": {},
    "rewritten": {"delta.enableDeletionVectors": "false"},
    "tracked": {"delta.enableRowTracking": "true"},
    "lance": {"txlog.deletionFormat": "lance"},
    "stamped": {"delta.enableInCommitTimestamps": "true"},
    "feed": {"delta.enableChangeDataFeed": "true"},
}

Change = tuple[str, Any, Any]


def rows(*values: int) -> pa.Table:
    numbers = pa.array(values, pa.int64())
    return pa.table({"x": numbers, "p": pa.array([v % 3 for v in values], pa.int64())})


def make(path: Path, form: str, partitioned: bool = False) -> txlog.Table:
    table = txlog.Table.create(path, rows().schema, ["p"] if partitioned else (), FORMS[form])
    table.append(rows(*range(10)))
    table.append(rows(*range(10, 20)))
    return table


def values(table: txlog.Table) -> list[int]:
    return sorted(table.to_arrow()["x"].to_pylist())


def counted(found: pa.Table, columns: list[str]) -> Counter[tuple[Any, ...]]:
    """Count rows in the columns of a later version."""
    return Counter(tuple(row.get(name) for name in columns) for row in found.to_pylist())


def require_feed(table: txlog.Table, base: int) -> None:
    """Hold the changes since a version against the rows of it and of the latest version."""
    columns = table.schema.names
    rows = counted(txlog.Table(table.uri, version=base).to_arrow(), columns)
    feed = table.changes(base + 1).to_arrow()
    kinds = feed["_change_type"]
    gone = pc.is_in(kinds, value_set=pa.array(["delete", "update_preimage"]))
    rows.update(counted(feed.filter(pc.invert(gone)), columns))
    rows.subtract(counted(feed.filter(gone), columns))
    assert {row: n for row, n in rows.items() if n} == counted(table.to_arrow(), columns)


def files_of(table: txlog.Table) -> set[str]:
    root = Path(table.uri)
    return {
        str(Path(folder, name).relative_to(root))
        for folder, _, names in os.walk(root)
        if "_delta_log" not in folder
        for name in names
    }


def apply(target: Any, change: Change) -> None:
    kind, argument, where = change
    if kind == "append":
        target.append(rows(*argument))
    elif kind == "widen":  # The column is null in older rows.
        wider = rows(*argument)
        target.append(wider.append_column(where, wider["x"]), schema_mode="merge")
    elif kind == "delete":
        target.delete(where)
    elif kind == "merge":
        merger = target.merge(rows(*set(argument)), on="x")
        merger.when_matched_delete().when_not_matched_insert_all().execute()
    elif kind == "overwrite":
        target.overwrite(rows(*argument))
    elif kind == "replace":
        low, high = where
        kept = [value for value in argument if low <= value < high]
        target.overwrite(rows(*kept), f"x >= {low} AND x < {high}")
    else:
        target.overwrite(rows(*argument), partition_mode="dynamic")


def replaces_1000(change: Change) -> bool:
    kind, argument, _ = change
    return kind == "overwrite" or (kind == "dynamic" and any(v % 3 == 1 for v in argument))


NUMBERS = st.lists(st.integers(0, 30), min_size=1, max_size=4)
RANGES = st.tuples(st.integers(0, 15), st.integers(16, 31))
CHANGES = st.one_of(
    st.tuples(st.just("append"), NUMBERS, st.none()),
    st.tuples(st.just("widen"), NUMBERS, st.sampled_from("yz")),
    st.tuples(st.just("delete"), st.none(), RANGES.map(lambda r: f"x >= {r[0]} AND x < {r[1]}")),
    st.tuples(st.just("delete"), st.none(), st.integers(0, 30).map(lambda x: f"x = {x}")),
    st.tuples(st.just("replace"), NUMBERS, RANGES),
    st.tuples(st.just("overwrite"), NUMBERS, st.none()),
    st.tuples(st.just("dynamic"), NUMBERS, st.none()),
    st.tuples(st.just("merge"), NUMBERS, st.none()),
)


@pytest.mark.slow
@pytest.mark.spec("CON-21", "FED-7")
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(12))
@example(changes=[("widen", [50, 53], "y"), ("delete", None, "x = 50")], meets_a_winner=False)
@given(changes=st.lists(CHANGES, min_size=1, max_size=5), meets_a_winner=st.booleans())
def test_together_is_as_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, form: str, changes: list[Change], meets_a_winner: bool
) -> None:
    root = tmp_path_factory.mktemp("t")
    plain = make(root / "plain", form, partitioned=True)
    table = make(root / "table", form, partitioned=True)
    for change in changes:
        apply(plain, change)
    before = table.version
    with table.transaction() as tx:
        for change in changes:
            apply(tx, change)
        if meets_a_winner:
            txlog.Table(table.uri).append(rows(1000))
    expected = values(plain)
    if meets_a_winner and not any(replaces_1000(change) for change in changes):
        expected.append(1000)
    assert table.version <= before + 2
    opened = txlog.Table(table.uri)
    assert values(opened) == expected
    paths = opened.files()["path"].to_pylist()
    assert len(set(paths)) == len(paths)
    if form == "rewritten":
        assert (
            sorted(deltalake.DeltaTable(table.uri).to_pyarrow_table()["x"].to_pylist()) == expected
        )
    ids = opened.to_arrow(columns=["_rowid"])["_rowid"].to_pylist()
    assert len(set(ids)) == len(ids)
    if form == "feed":
        require_feed(opened, before)
    for feature in needed_features(opened.snapshot.schema, opened.snapshot.properties):
        assert supports(opened.protocol, feature), feature


KINDS: dict[str, Any] = {"long": 7, "text": "seven", "flag": True}
STEPS = st.one_of(
    st.tuples(st.just("retype"), st.sampled_from([*KINDS])),
    st.tuples(st.sampled_from(["append", "update", "delete", "replace"]), st.integers(0, 5)),
)


@pytest.mark.slow
@pytest.mark.spec("CON-21", "FED-6", "FED-7")
@settings(max_examples=examples(40), deadline=None)
@given(steps=st.lists(STEPS, min_size=1, max_size=6), mapped=st.booleans())
@example(  # The feed could not read what was done to the texts.
    steps=[("retype", "text"), ("retype", "long"), ("delete", 1)], mapped=False
)
@example(steps=[("retype", "text"), ("delete", 2), ("retype", "long")], mapped=False)
@example(steps=[("delete", 0), ("retype", "text"), ("update", 1)], mapped=True)
def test_a_column_may_have_several_types_within_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]], mapped: bool
) -> None:
    properties = {**FORMS["feed"], "delta.columnMapping.mode": "name" if mapped else "none"}
    root = tmp_path_factory.mktemp("t")
    plain, table = (
        txlog.write(root / name, pa.table({"x": [0, 1, 2]}), properties=properties)
        for name in ("plain", "table")
    )

    def run(target: Any) -> None:
        others: dict[str, Any] = {}
        for step, value in steps:
            if step == "retype":
                others = {"y": KINDS[value]}
            numbers = [0, 1, 2] if step == "retype" else [value]
            new = pa.table({"x": numbers, **{k: [one] * len(numbers) for k, one in others.items()}})
            if step == "retype":
                target.overwrite(new, schema_mode="overwrite")
            elif step == "append":
                target.append(new)
            elif step == "update":
                target.update({"x": "x + 1"}, f"x = {value}")
            elif step == "delete":
                target.delete(f"x = {value}")
            else:
                target.overwrite(new, f"x = {value}")

    run(plain)
    base = table.version
    with table.transaction() as tx:
        run(tx)
    if table.version == base:
        return
    opened = txlog.Table(table.uri)
    assert opened.schema.remove_metadata() == plain.schema.remove_metadata()
    columns = opened.schema.names
    assert counted(opened.to_arrow(), columns) == counted(plain.to_arrow(), columns)
    require_feed(opened, base)
    commit = Path(table.uri, "_delta_log", f"{opened.version:020}.json").read_text()
    changes = {name for name in files_of(table) if name.startswith("_change_data")}
    assert all(name in commit for name in changes)


@pytest.mark.spec("CON-21")
def test_metadata_comes_with_the_features_that_it_names(tmp_path: Path) -> None:
    """A delete brings vectors, the metadata of a column states them, and then no file has one."""
    table = txlog.Table.create(tmp_path / "t", rows().schema)
    table.append(rows(*range(5)))
    assert not supports(table.protocol, "deletionVectors")
    with table.transaction() as tx:
        tx.delete("x = 3")
        apply(tx, ("widen", (7,), "y"))
        tx.delete("x < 5")
    assert table.properties["delta.enableDeletionVectors"] == "true"
    assert supports(table.protocol, "deletionVectors")
    table.delete("x = 7")
    assert values(txlog.Table(table.uri)) == []


@pytest.mark.spec("CON-21")
def test_it_is_one_version(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "vectors")
    with table.transaction(user_metadata="monthly") as tx:
        tx.delete("x < 5")
        tx.append(rows(100, 101))
        tx.delete("x = 101")
        assert tx.outcome is None
        assert txlog.Table(table.uri).version == 2
    assert tx.outcome is not None
    assert (tx.outcome.operation, tx.outcome.version) == ("TRANSACTION", 3)
    assert tx.outcome.metrics["numDeletedRows"] == 6
    assert values(table) == [*range(5, 20), 100]
    (entry,) = table.history(1)
    assert entry["userMetadata"] == "monthly"
    assert table.outcome == tx.outcome


def test_a_merge_is_a_part_of_it(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "vectors")
    with table.transaction() as tx:
        merger = tx.merge(rows(3, 50), "t.x = s.x", "s", "t")
        merger.when_matched_update({"p": "-1"}).when_not_matched_insert_all()
        assert not merger.execute()
        tx.delete("x = 50 OR x = 4")
    assert tx.outcome is not None
    assert tx.outcome.version == 3
    assert values(table) == sorted({*range(20)} - {4})
    assert table.to_arrow(where="p = -1")["x"].to_pylist() == [3]


def test_its_verbs_are_those_of_the_table(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1, 2], "p": ["a", "a"]}))
    new = pa.table({"x": [2, 3], "p": ["b", "c"]})
    with table.transaction() as tx:
        told = tx.upsert(new, on="x")
        tx.merge(pa.table({"x": [3], "p": ["d"]}), on="x").when_matched_update_all().execute()
        with pytest.raises(txlog.InvalidInputError, match=r"Pass txn to Table\.transaction"):
            tx.append(new, txn=("job", 1))
        with pytest.raises(txlog.InvalidInputError, match="Pass user_metadata to"):
            tx.delete("x = 1", user_metadata="why")
    assert (told.operation, told.version) == ("MERGE", None)
    assert table.version == 1
    assert table.to_arrow().sort_by("x").to_pydict() == {"x": [1, 2, 3], "p": ["a", "b", "d"]}
    with table.transaction() as tx:
        tx.append(new)
        tx.overwrite(new, partition_by="p", schema_mode="overwrite")
        tx.append(new.slice(1))
    assert table.partition_columns == ["p"]
    assert table.to_arrow()["x"].to_pylist() == [2, 3, 3]


def test_one_change_is_itself(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "vectors")
    with table.transaction() as tx:
        tx.delete("x = 3")
    assert tx.outcome is not None
    assert tx.outcome.operation == "DELETE"


def test_nothing_makes_no_version(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "vectors")
    with table.transaction() as tx:
        tx.delete("x > 1000")
    assert tx.outcome is not None
    assert not tx.outcome
    assert table.version == 2


def test_an_error_in_the_block_leaves_nothing(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "rewritten")
    before = files_of(table)

    def fail() -> None:
        with table.transaction() as tx:
            tx.append(rows(1))
            tx.delete("x = 1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert files_of(table) == before
    assert txlog.Table(table.uri).version == 2


@pytest.mark.parametrize("fails", [False, True])
def test_a_change_behind_the_block_is_refused(tmp_path: Path, fails: bool) -> None:
    """Nothing would commit it, and its files would stay."""
    table = make(tmp_path / "t", "rewritten")
    with suppress(ZeroDivisionError), table.transaction() as tx:
        merger = tx.merge(rows(99), on="x").when_not_matched_insert_all()
        if fails:
            raise ZeroDivisionError
    before = files_of(table)
    for change in (lambda: tx.append(rows(99)), lambda: tx.delete("true"), merger.execute):
        with pytest.raises(InvalidInputError, match="block of the transaction has ended"):
            change()
    assert files_of(table) == before


def test_an_error_of_a_change_leaves_nothing(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "vectors")
    before = files_of(table)

    def fail() -> None:
        with table.transaction() as tx:
            tx.append(rows(1))
            tx.delete("nothing = 1")

    with pytest.raises(txlog.InvalidInputError):
        fail()
    assert files_of(table) == before


@pytest.mark.parametrize("form", ["vectors", "rewritten", "lance"])
def test_files_that_a_later_change_takes_out_are_deleted(tmp_path: Path, form: str) -> None:
    table = make(tmp_path / "t", form)
    before = files_of(table)
    with table.transaction() as tx:
        tx.append(rows(*range(100, 105)))
        tx.delete("x = 101")
        tx.delete("x >= 100")
        tx.append(rows(7))
    assert values(table) == sorted([*range(20), 7])
    assert len(files_of(table) - before) == 1
    assert before <= files_of(table)


@pytest.mark.parametrize(
    ("mine", "theirs", "left"),
    [
        ("x = 3", "x = 4", {3, 4}),  # Other rows of a file: decided anew.
        ("x = 3", "x = 3", {3}),
        ("x = 3", "x < 10", set(range(10))),
    ],
)
def test_a_winner_that_deletes_is_not_undone(
    tmp_path: Path, mine: str, theirs: str, left: set[int]
) -> None:
    table = make(tmp_path / "t", "vectors")
    with table.transaction() as tx:
        tx.delete(mine)
        tx.append(rows(50))
        txlog.Table(table.uri).delete(theirs)
    assert values(table) == sorted({*range(20), 50} - left)


@pytest.mark.parametrize(
    ("form", "theirs"), [("feed", "x = 3"), ("feed", "x < 10"), ("rewritten", "x = 4")]
)
def test_a_lost_race_leaves_no_file(tmp_path: Path, form: str, theirs: str) -> None:
    """The first attempt records changes of a row that the winner may have deleted."""
    table = make(tmp_path / "t", form)
    with losing(tmp_path / "t", [lambda other: other.delete(theirs)]), table.transaction() as tx:
        tx.append(rows(50))
        tx.delete("x = 3")
    log = "".join(one.read_text("utf-8") for one in (tmp_path / "t/_delta_log").glob("*.json"))
    parts = {name for name in files_of(table) if name.endswith(".parquet")}
    assert {name for name in parts if name not in log} == set()


def test_rows_that_a_winner_adds_are_looked_at(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "vectors")
    with table.transaction() as tx:
        tx.append(rows(50))
        tx.delete("x >= 50")
        txlog.Table(table.uri).append(rows(51))
    assert values(table) == [*range(20)]


@pytest.mark.spec("CON-20")
def test_a_recorded_transaction_does_nothing(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "vectors")

    def run() -> txlog.Outcome | None:
        with table.transaction(txn=("job", 1)) as tx:
            tx.append(rows(50))
            tx.delete("x = 1")
        return tx.outcome

    first, before = run(), files_of(table)
    second = run()
    assert first is not None
    assert second is not None
    assert first.version == 3
    assert second.skipped
    assert table.version == 3
    assert files_of(table) == before


@pytest.mark.spec("CON-20")
def test_another_process_that_records_it_meanwhile_wins(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "vectors")
    with table.transaction(txn=("job", 1)) as tx:
        tx.append(rows(50))
        txlog.Table(table.uri).append(rows(60), txn=("job", 1))
    assert tx.outcome is not None
    assert tx.outcome.skipped
    assert values(table) == [*range(20), 60]


NOTHING_TO_DO: dict[str, Callable[[txlog.Table, Any], txlog.Outcome]] = {
    "delete": lambda table, txn: table.delete("x > 1000", txn=txn),
    "compact": lambda table, txn: table.optimize.compact(min_file_bytes=0, txn=txn),
    "compute_statistics": lambda table, txn: table.optimize.compute_statistics(txn=txn),
    "restore": lambda table, txn: table.restore(table.version, txn=txn),
    "add_features": lambda table, txn: table.alter.add_features("deletionVectors", txn=txn),
    "drop_columns": lambda table, txn: table.alter.drop_columns([], txn=txn),
}


@pytest.mark.spec("CON-20")
@pytest.mark.parametrize("verb", NOTHING_TO_DO)
def test_a_txn_is_recorded_even_if_nothing_changes(tmp_path: Path, verb: str) -> None:
    table = txlog.Table.create(
        tmp_path / "t", rows().schema, properties={"delta.feature.txlog.fragments": "supported"}
    )
    table.append(rows(1, 2))
    version = table.version
    outcome = NOTHING_TO_DO[verb](table, ("job", 4))
    assert outcome.version == version + 1
    assert table.transaction_version("job") == 4
    assert table.files().num_rows == 1
    again = NOTHING_TO_DO[verb](table, ("job", 4))
    assert again.skipped
    assert table.version == version + 1


def test_a_table_is_created_once_for_a_txn(tmp_path: Path) -> None:
    made = txlog.Table.create(tmp_path / "t", rows().schema, txn=("job", 0), user_metadata="why")
    made.append(rows(1))
    again = txlog.Table.create(tmp_path / "t", rows().schema, txn=("job", 0))
    assert again.version == 1
    assert again.outcome is not None
    assert again.outcome.skipped
    assert made.history()[-1]["userMetadata"] == "why"
    with pytest.raises(txlog.AlreadyExistsError):
        txlog.Table.create(tmp_path / "t", rows().schema, txn=("job", 1))


def test_a_cleanup_that_fails_leaves_what_was_committed(tmp_path: Path) -> None:
    """The files that are committed must not be taken for those of a failed commit."""
    make(tmp_path / "t", "vectors")
    faulty = FaultyStore(open_store(tmp_path / "t"), [Fault("delete", 1, "not_done")])
    table = open_table(faulty)

    def change() -> txlog.Outcome | None:
        with table.transaction() as tx:
            tx.append(rows(100, 101))
            tx.delete("x = 100 OR x = 101")
            tx.append(rows(102))
        return tx.outcome

    with pytest.warns(txlog.TxlogWarning, match="could not be deleted"):
        outcome = change()
    assert outcome is not None
    assert outcome.version == 3
    assert values(txlog.Table(tmp_path / "t")) == [*range(20), 102]


@pytest.mark.spec("CON-21")
def test_what_was_not_found_was_read(tmp_path: Path) -> None:
    """Two that delete a row, of which there is none, and add it: the second finds the first's."""
    txlog.write(tmp_path / "t", pa.table({"id": [1], "n": [1]}))
    one, other = txlog.Table(tmp_path / "t"), txlog.Table(tmp_path / "t")
    with one.transaction() as mine:
        mine.delete("id = 5")
        mine.append(pa.table({"id": [5], "n": [10]}))
        with other.transaction() as theirs:
            theirs.update({"n": "n + 1"}, "id = 5")
            theirs.append(pa.table({"id": [5], "n": [20]}))
    assert sorted(txlog.Table(tmp_path / "t").to_arrow().to_pylist(), key=str) == [
        {"id": 1, "n": 1},
        {"id": 5, "n": 10},
    ]
    with one.refresh().transaction() as mine:  # Rows that it cannot have meant do not matter.
        mine.delete("id = 7")
        mine.append(pa.table({"id": [7], "n": [0]}))
        other.refresh().append(pa.table({"id": [8], "n": [0]}))
    assert txlog.Table(tmp_path / "t").count("id = 7") == 1


def test_rows_that_it_added_have_no_ids_yet(tmp_path: Path) -> None:
    properties = {"delta.enableRowTracking": "true"}
    table = txlog.write(tmp_path / "t", pa.table({"x": [1, 2]}), properties=properties)
    with table.transaction() as transaction:
        transaction.delete("_rowid = 0")
        transaction.append(pa.table({"x": [7, 8]}))
        for change in (
            lambda: transaction.delete("_rowid < 1"),
            lambda: transaction.update({"x": "0"}, "_rowid <> 5"),
        ):
            with pytest.raises(InvalidInputError, match="get their ids by its commit") as caught:
                change()
            assert caught.value.field == "_rowid"
    assert sorted(table.to_arrow()["x"].to_pylist()) == [2, 7, 8]
    table.delete("_rowid >= 2")
    assert table.to_arrow()["x"].to_pylist() == [2]
