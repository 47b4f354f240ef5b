"""Source rows of a merge that do not fit go to a quarantine; the others do what they do alone.

The oracle merges the source rows one by one, each alone, in the usual way: those that are refused
belong into the quarantine, and the merge of all others gives the table.
"""

import json
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.verbs.merge.merge import Merge

FRESH = count()
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("n", pa.int16(), nullable=False),
        pa.field("m", pa.int64()),
        pa.field("st", pa.struct([pa.field("a", pa.int8(), nullable=False)])),
    ]
)
SOURCE = pa.schema(
    {"id": pa.int64(), "n": pa.int64(), "st": pa.struct({"a": pa.int64()}), "at": pa.int64()}
)
HELD = [{"id": n, "n": n, "m": 10 * (n % 3), "st": None} for n in range(4)]
RULES = {"sum": "n + m < 25", "div": "100 / (n + 1) > -1000"}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 7),
            "n": st.sampled_from([None, 0, 5, 14, 24, 25, -1, 70_000]),
            "st": st.sampled_from([None, {"a": 1}, {"a": None}, {"a": 300}]),
        }
    ),
    max_size=8,
    unique_by=lambda row: row["id"],
).map(lambda rows: [{**row, "at": place} for place, row in enumerate(rows)])


def fresh(**properties: str) -> txlog.Table:
    table = txlog.Table.create(
        f"memory://refused-{next(FRESH)}", SCHEMA, properties={"txlog.pageRows": "2", **properties}
    )
    for half in (HELD[:2], HELD[2:]):
        table.append(pa.Table.from_pylist(half, SCHEMA))
    table.alter.add_constraint(RULES)
    return table


def insert_all(merger: Any) -> Any:
    given = {"id": "source.id", "n": "source.n", "m": "0", "st": "source.st"}
    return merger.when_not_matched_insert(given)


def update_all(merger: Any) -> Any:
    given = {"n": "source.n", "st": "source.st"}
    return insert_all(merger.when_matched_update(given))


def mixed(merger: Any) -> Any:
    merger = merger.when_matched_delete("source.n = 24")
    merger = merger.when_matched_update({"n": "source.n + target.n"}, "target.id < 2")
    return insert_all(merger.when_matched_update({"st": "source.st"}))


def by_source(merger: Any) -> Any:
    return update_all(merger).when_not_matched_by_source_delete("target.id > 0")


KINDS = {"insert": insert_all, "update": update_all, "mixed": mixed, "by source": by_source}
FORMS = [{}, {"delta.enableDeletionVectors": "false"}, {"delta.enableChangeDataFeed": "true"}]


def merge(table: txlog.Table, rows: list[dict[str, Any]], kind: str, **given: Any) -> Any:
    source = pa.Table.from_pylist(rows, SOURCE)
    return KINDS[kind](table.merge(source, "target.id = source.id", **given)).execute()


def rows_of(table: txlog.Table) -> list[Any]:
    return sorted(table.to_arrow().to_pylist(), key=repr)


@pytest.mark.slow(cases=2)
@pytest.mark.spec("CON-32")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(40))
@given(rows=ROWS, form=st.sampled_from(FORMS))
def test_good_and_quarantined_rows_are_all_rows(
    kind: str, rows: list[dict[str, Any]], form: dict[str, str]
) -> None:
    good, bad = [], []
    for row in rows:
        try:
            merge(fresh(**form), [row], "update" if kind == "by source" else kind)
            good.append(row)
        except txlog.InvalidInputError:
            bad.append(row)
    table, uri = fresh(**form), f"memory://refused-{next(FRESH)}"
    outcome = merge(table, rows, kind, on_error="quarantine", quarantine=uri)
    assert outcome.metrics["numQuarantinedRows"] == len(bad)
    kept = txlog.Table(uri).to_arrow()["row"].to_pylist() if bad else []
    assert sorted(json.loads(one)["at"] for one in kept) == [row["at"] for row in bad]
    oracle = fresh(**form)
    merge(oracle, good, "update" if kind == "by source" else kind)
    if kind == "by source":  # A row in the quarantine still matches.
        matched = [0, *(row["id"] for row in rows)]
        oracle.delete(f"id NOT IN ({', '.join(map(str, matched))})")
    assert rows_of(table) == rows_of(oracle)


def test_upsert_and_appends_over_conflicts() -> None:
    table, uri = fresh(), f"memory://refused-{next(FRESH)}"
    given: dict[str, Any] = {"on_error": "quarantine", "quarantine": uri}
    table.indexes.create("id")
    table.alter.add_constraint({"pk": txlog.unique("id")})
    rows = [{"id": 1, "n": None, "m": 1, "st": None}, {"id": 8, "n": 8, "m": 8, "st": None}]
    wide = pa.schema([field.with_nullable(True) for field in SCHEMA])
    assert table.upsert(pa.Table.from_pylist(rows, wide), on="id", **given).version is not None
    assert table.to_arrow(where="id IN (1, 8)").num_rows == 2
    # Of several new rows with one key, the first that fits is added.
    rows = [{"id": 9, "n": n, "m": 0, "st": None} for n in (None, 3, 4)]
    table.append(pa.Table.from_pylist(rows, wide), on_conflict="ignore", **given)
    assert table.to_arrow(where="id = 9")["n"].to_pylist() == [3]
    rows = [{"id": 9, "n": 24, "m": 9, "st": None}]
    table.append(pa.Table.from_pylist(rows, wide), on_conflict="update", **given)
    assert table.to_arrow(where="id = 9")["n"].to_pylist() == [3]
    assert sorted(txlog.Table(uri).to_arrow()["rule"].to_pylist()) == [
        "CHECK", "NOT NULL", "NOT NULL",
    ]  # fmt: skip


def test_a_merge_of_which_no_row_fits_commits_only_the_quarantine() -> None:
    table, uri = fresh(), f"memory://refused-{next(FRESH)}"
    version = table.version
    outcome = merge(table, [{"id": 1, "n": None}], "update", on_error="quarantine", quarantine=uri)
    assert (outcome.version, outcome.metrics["numQuarantinedRows"]) == (None, 1)
    assert table.refresh().version == version
    assert txlog.Table(uri).to_arrow()["operation"].to_pylist() == ["MERGE"]


@pytest.mark.spec("CON-32")
def test_a_winner_that_lets_another_row_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of both attempts are in the quarantine, in one batch."""
    table, uri = fresh(), f"memory://refused-{next(FRESH)}"
    rows = [{"id": 1, "n": None}, {"id": 2, "n": 4, "st": None}, {"id": 3, "n": 1, "st": None}]
    real, won = Merge.companions, []

    def companions(self: Merge, txn: Any) -> Any:
        found = real(self, txn)
        if not won:
            won.append(txlog.Table(table.uri).update({"m": "22"}, "id = 2"))
        return found

    monkeypatch.setattr(Merge, "companions", companions)
    outcome = merge(table, rows, "update", on_error="quarantine", quarantine=uri, txn=("job", 1))
    assert outcome.metrics["numQuarantinedRows"] == 2
    kept = txlog.Table(uri).to_arrow()
    assert len(set(kept["batch"].to_pylist())) == 1
    assert sorted(json.loads(row)["id"] for row in kept["row"].to_pylist()) == [1, 2]
    assert table.to_arrow(where="id = 3")["n"].to_pylist() == [1]


def test_faults_that_no_source_row_has_are_errors() -> None:
    table = fresh()
    merger = table.merge(
        pa.Table.from_pylist([{"id": 9, "n": 1, "st": None, "at": 0}], SOURCE),
        "target.id = source.id", on_error="quarantine", quarantine=f"memory://r-{next(FRESH)}",
    )  # fmt: skip
    merger.when_not_matched_by_source_update({"n": "target.n + 24"})
    with pytest.raises(txlog.SchemaMismatchError):
        merger.execute()
