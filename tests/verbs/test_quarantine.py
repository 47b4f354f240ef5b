"""Rows that do not fit go to a quarantine: none is lost, none is twice, and the others are written.

The oracle writes each row alone, in the usual way: a row is good if that succeeds.
"""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.effects import rehearsing
from txlog.data_files import sieve
from txlog.verbs import quarantine as module

FRESH = count()
WIDE = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("n", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("st", pa.struct([pa.field("a", pa.int64())])),
        pa.field("d", pa.decimal128(20, 4)),
        pa.field("p", pa.string()),
    ]
)
"""The columns of the data, which are wider than those of the table."""
NARROW = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("n", pa.int16(), nullable=False),
        pa.field("x", pa.float32()),
        pa.field("s", pa.string(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}),
        pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
        pa.field("st", pa.struct([pa.field("a", pa.int8(), nullable=False)])),
        pa.field("d", pa.decimal128(6, 2)),
        pa.field("p", pa.string(), nullable=False),
    ]
)
RULES = {"ratio": "n = 0 OR 100 / n < 60", "no_seven": "x IS NULL OR x <> 7", "div": "10 % k >= 0"}

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from([1, 2, 3, None, 0]),
            "n": st.sampled_from([None, 0, 1, 2, 3, 70_000, -5]),
            "x": st.sampled_from([None, 1.0, 0.5, 0.1, 7.0, float("nan"), float("inf"), 1e300]),
            "s": st.sampled_from([None, "a", "abc", "abcd", 'q"\\\n\x01é', ""]),
            "tags": st.sampled_from([None, [], ["a"], ["a", None]]),
            "st": st.sampled_from([None, {"a": 1}, {"a": None}, {"a": 300}]),
            "d": st.sampled_from([None, "1.00", "1.001", "99999.00", "9999.99"]),
            "p": st.sampled_from(["a", "b", "", None]),
        }
    ),
    min_size=1,
    max_size=12,
)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    from decimal import Decimal

    fixed = [{**one, "d": None if one["d"] is None else Decimal(one["d"])} for one in rows]
    return pa.Table.from_pylist(fixed, WIDE)


def fresh(**more: Any) -> txlog.Table:
    table = txlog.Table.create(
        f"memory://quarantine-{next(FRESH)}", NARROW, partition_by="p", **more
    )
    table.alter.add_constraint(RULES)
    return table


JUDGE = fresh()


def is_good(row: pa.Table) -> bool:
    """Return whether a row alone can be written in the usual way."""
    try:
        with JUDGE.transaction() as changes:
            changes.append(row)
            raise StopIteration
    except StopIteration:
        return True
    except txlog.InvalidInputError:
        return False


def as_text(row: dict[str, Any]) -> str:
    return repr(sorted((name, str(value)) for name, value in row.items()))


def texts_of(table: pa.Table) -> list[str]:
    """Return rows as texts in order, with values as the narrow table has them."""
    return sorted(as_text(row) for row in table.to_pylist())


def expected(data: pa.Table) -> tuple[list[int], list[int]]:
    good = [place for place in range(data.num_rows) if is_good(data.slice(place, 1))]
    return good, [place for place in range(data.num_rows) if place not in good]


def kept_texts(kept: txlog.Table | None) -> list[Any]:
    rows = [] if kept is None else kept.to_arrow()["row"].to_pylist()
    return sorted((json.loads(row) for row in rows), key=repr)


def as_json(data: pa.Table) -> list[Any]:
    """Return rows as a plain writer of JSON makes them."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            if value != value or value in (float("inf"), float("-inf")):
                return str(value)
            return int(value) if value == int(value) and abs(value) < 1e15 else value
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items()}
        if isinstance(value, list):
            return [plain(one) for one in value]
        return float(value) if type(value).__name__ == "Decimal" else value

    return sorted((plain(row) for row in data.to_pylist()), key=repr)


@pytest.mark.slow
@pytest.mark.spec("CON-32")
@pytest.mark.parametrize("verb", ["append", "overwrite", "transaction"])
@settings(max_examples=examples(60))
@given(rows=ROWS, parts=st.integers(1, 3))
def test_good_and_quarantined_rows_are_all_rows(
    verb: str, rows: list[dict[str, Any]], parts: int
) -> None:
    data = table_of(rows)
    good, bad = expected(data)
    table, uri = fresh(), f"memory://quarantine-{next(FRESH)}"
    reader = pa.RecordBatchReader.from_batches(
        WIDE, data.to_batches(max_chunksize=max(1, -(-len(rows) // parts)))
    )
    given: dict[str, Any] = {"on_error": "quarantine", "quarantine": uri}
    if verb == "transaction":
        with table.transaction() as changes:
            changes.append(reader, **given)
        outcome = changes.outcome
        table.refresh()
    else:
        outcome = getattr(table, verb)(reader, **given)
    assert outcome is not None
    assert outcome.metrics["numQuarantinedRows"] == len(bad)
    oracle = fresh()
    if good:
        oracle.append(data.take(good))
    assert texts_of(table.to_arrow()) == texts_of(oracle.to_arrow())
    assert txlog.Table.exists(uri) == bool(bad)
    kept = txlog.Table(uri) if bad else None
    assert repr(kept_texts(kept)) == repr(as_json(data.take(pa.array(bad, pa.int64()))))


def test_what_a_quarantine_says(tmp_path: Path) -> None:
    table = fresh()
    data = pa.table({"k": [1, 2, 0], "n": [2, None, 2], "x": [1.0, 2.0, 3.0], "p": ["a", "b", "a"]})
    outcome = table.append(data, on_error="quarantine", quarantine=tmp_path / "q", txn=("job", 4))
    assert outcome.metrics["numQuarantinedRows"] == 2
    assert outcome.version is not None
    assert table.history(1)[0]["operationMetrics"]["numQuarantinedRows"] == "2"
    rows = txlog.Table(tmp_path / "q").to_arrow().sort_by("rule").to_pylist()
    assert [(one["rule"], one["name"]) for one in rows] == [("NOT NULL", "n"), ("VALUE", "div")]
    assert rows[0]["reason"] == "column n must not be null"
    assert "% by 0" in rows[1]["reason"]
    assert {one["table"] for one in rows} == {table.uri}
    assert {one["version"] for one in rows} == {1}
    assert {one["operation"] for one in rows} == {"WRITE"}
    assert {one["batch"] for one in rows} == {json.dumps(["job", 4, table.metadata.id])}
    assert json.loads(rows[0]["row"]) == {"k": 2, "n": None, "x": 2, "p": "b"}


def test_a_batch_without_faults_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(sieve, "_Sifting", never)
    monkeypatch.setattr(module, "existing", never)
    data = table_of([ROW] * 5)
    uri = f"memory://quarantine-{next(FRESH)}"
    table = fresh()
    table.append(data, on_error="quarantine", quarantine=uri)
    assert table.count() == 5
    assert not txlog.Table.exists(uri)


ROW = {"k": 1, "n": 2, "x": 1.0, "s": "a", "tags": None, "st": None, "d": None, "p": "a"}


def test_without_a_quarantine_all_rows_are_refused() -> None:
    table = fresh()
    with pytest.raises(txlog.SchemaMismatchError):
        table.append(table_of([ROW, {**ROW, "n": None}]))
    assert table.refresh().count() == 0


@pytest.mark.parametrize(
    "given",
    [{"on_error": "quarantine"}, {"quarantine": "memory://q"}, {"on_error": "drop"}],
    ids=str,
)
def test_arguments_that_contradict_each_other(given: Any) -> None:
    with pytest.raises(txlog.InvalidInputError):
        fresh().append(table_of([ROW]), **given)


def test_a_table_is_not_its_own_quarantine() -> None:
    table = fresh()
    with pytest.raises(txlog.InvalidInputError, match="its own quarantine"):
        table.append(table_of([ROW]), on_error="quarantine", quarantine=table)


def test_a_quarantine_of_other_columns_is_refused_before_anything_is_committed() -> None:
    other = txlog.write(f"memory://quarantine-{next(FRESH)}", pa.table({"z": [1]}))
    table = fresh()
    rows = table_of([ROW, {**ROW, "n": None}])
    with rehearsing(), pytest.raises(txlog.SchemaMismatchError):
        table.append(rows, on_error="quarantine", quarantine=other)
    with pytest.raises(txlog.SchemaMismatchError, match="that a quarantine has made") as caught:
        table.append(rows, on_error="quarantine", quarantine=other)
    assert (caught.value.argument, caught.value.table) == ("quarantine", other.uri)
    assert table.refresh().count() == 0


@pytest.mark.spec("CON-33")
@pytest.mark.parametrize("fixed", [False, True], ids=["same rules", "other rules"])
def test_a_run_that_stopped_between_the_commits_is_repeated_exactly_once(
    fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if another run finds other rows at fault, because the table's rules changed."""
    table, uri = fresh(), f"memory://quarantine-{next(FRESH)}"
    data = table_of([ROW, {**ROW, "n": None}, {**ROW, "x": 7.0}])
    given: dict[str, Any] = {"on_error": "quarantine", "quarantine": uri, "txn": ("job", 1)}

    class Stopped(BaseException):
        pass

    def stop(*_: Any, **__: Any) -> Any:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("txlog.commit.operation._Attempts._committed", only_for(uri, stop))
        with pytest.raises(Stopped):
            table.append(data, **given)
    assert txlog.Table(uri).count() == 2
    assert table.refresh().count() == 0
    if fixed:
        table.alter.drop_constraint("no_seven")
    assert table.append(data, **given).metrics["numQuarantinedRows"] == 2 - fixed
    assert table.append(data, **given).skipped
    assert table.count() == 1 + fixed
    kept = txlog.Table(uri).to_arrow()
    assert kept.num_rows == 2 - fixed
    assert "NOT NULL" in kept["rule"].to_pylist()
    table.append(data, **{**given, "txn": ("job", 2)})
    assert txlog.Table(uri).count() == 2 * (2 - fixed)


@pytest.mark.spec("CON-33")
@pytest.mark.parametrize("verb", ["append", "upsert"])
def test_a_run_that_finds_no_fault_any_more_empties_the_quarantine(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, uri = fresh(), f"memory://quarantine-{next(FRESH)}"
    data = table_of([ROW, {**ROW, "k": 2, "x": 7.0}])

    def write() -> Any:
        given: dict[str, Any] = {"on": "k"} if verb == "upsert" else {}
        given |= {"on_error": "quarantine", "quarantine": uri, "txn": ("job", 1)}
        return getattr(table, verb)(data, **given)

    class Stopped(BaseException):
        pass

    def stop(*_: Any, **__: Any) -> Any:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("txlog.commit.operation._Attempts._committed", only_for(uri, stop))
        with pytest.raises(Stopped):
            write()
    assert txlog.Table(uri).count() == 1
    table.alter.drop_constraint("no_seven")
    assert write().metrics["numQuarantinedRows"] == 0
    assert (table.count(), txlog.Table(uri).count()) == (2, 0)


def only_for(uri: str, stop: Any) -> Any:
    """Return a patch: only commits to the quarantine succeed."""
    from txlog.commit.operation import _Attempts

    real = _Attempts._committed

    def committed(self: Any, *given: Any) -> Any:
        if self.operation.context.store.root.rstrip("/") == uri.rstrip("/"):
            return real(self, *given)
        return stop()

    return committed


def test_rows_of_one_transaction_stay_apart() -> None:
    table, uri = fresh(), f"memory://quarantine-{next(FRESH)}"
    given: dict[str, Any] = {"on_error": "quarantine", "quarantine": uri}
    with table.transaction(txn=("job", 1)) as changes:
        changes.append(table_of([ROW, {**ROW, "n": None}]), **given)
        changes.append(table_of([ROW, {**ROW, "x": 7.0}]), **given)
    assert changes.outcome is not None
    assert changes.outcome.metrics["numQuarantinedRows"] == 2
    assert sorted(txlog.Table(uri).to_arrow()["rule"].to_pylist()) == ["CHECK", "NOT NULL"]


def test_identity_columns_number_only_the_good_rows() -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int16(), nullable=False)])
    table = txlog.Table.create(f"memory://quarantine-{next(FRESH)}", schema, identity="id")
    uri = f"memory://quarantine-{next(FRESH)}"
    table.append(pa.table({"n": [1, None, 3]}), on_error="quarantine", quarantine=uri)
    table.append(pa.table({"n": [None, 5]}), on_error="quarantine", quarantine=uri)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert [json.loads(one) for one in txlog.Table(uri).to_arrow()["row"].to_pylist()] == [
        {"n": None}, {"n": None},
    ]  # fmt: skip


def test_many_rows_at_fault_go_through_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MEMORY_BYTES", 1)
    table, uri = fresh(), f"memory://quarantine-{next(FRESH)}"
    data = table_of([ROW, {**ROW, "n": None}] * 10)
    batches = pa.RecordBatchReader.from_batches(WIDE, data.to_batches(max_chunksize=4))
    table.append(batches, on_error="quarantine", quarantine=uri)
    assert (table.count(), txlog.Table(uri).count()) == (10, 10)


def test_a_rehearsal_commits_nothing() -> None:
    from txlog.extend import rehearsing

    table, uri = fresh(), f"memory://quarantine-{next(FRESH)}"
    with rehearsing():
        outcome = table.append(
            table_of([ROW, {**ROW, "n": None}]), on_error="quarantine", quarantine=uri
        )
    assert outcome.rehearsed
    assert outcome.metrics["numQuarantinedRows"] == 1
    assert not txlog.Table.exists(uri)


@pytest.mark.spec("CON-33")
def test_a_branch_and_its_table_keep_their_rows_of_the_same_version_apart() -> None:
    table, uri = fresh(), f"memory://quarantine-{next(FRESH)}"
    table.branches.create("b")
    given: dict[str, Any] = {"on_error": "quarantine", "quarantine": uri, "txn": ("job", 1)}
    for branch, value in (("b", "on b"), (None, "on main")):
        place = txlog.Table(table.uri, branch=branch)
        place.append(table_of([{**ROW, "n": None, "s": value}]), **given)
    kept = txlog.Table(uri).to_arrow()
    assert sorted(json.loads(row)["s"] for row in kept["row"].to_pylist()) == ["on b", "on main"]
    assert len(set(kept["batch"].to_pylist())) == 2


@pytest.mark.spec("CON-33")
def test_an_application_whose_id_ends_in_a_number_keeps_its_rows_apart() -> None:
    table, uri = fresh(), f"memory://quarantine-{next(FRESH)}"
    given: dict[str, Any] = {"on_error": "quarantine", "quarantine": uri}
    with table.transaction(txn=("job", 7)) as changes:
        changes.append(table_of([ROW]))
        changes.append(table_of([{**ROW, "n": None}]), **given)
    table.append(table_of([{**ROW, "n": None}]), txn=("job/1", 7), **given)
    assert txlog.Table(uri).count() == 2


@pytest.mark.spec("CON-33")
@pytest.mark.parametrize("changes", ["a rule is added", "a rule is dropped"])
def test_a_slow_run_leaves_the_rows_of_the_run_that_was_committed(changes: str) -> None:
    table, uri = fresh(), f"memory://quarantine-{next(FRESH)}"
    given: dict[str, Any] = {"on_error": "quarantine", "quarantine": uri, "txn": ("job", 1)}
    data = table_of([ROW, {**ROW, "k": 2, "x": 7.0}])
    if changes == "a rule is added":
        table.alter.drop_constraint("no_seven")

    def slow() -> Any:
        yield from data.slice(0, 1).to_batches()
        other = txlog.Table(table.uri)
        if changes == "a rule is added":
            other.alter.add_constraint({"no_seven": RULES["no_seven"]})
        else:
            other.alter.drop_constraint("no_seven")
        other.append(data, **given)
        yield from data.slice(1).to_batches()

    reader = pa.RecordBatchReader.from_batches(WIDE, slow())
    assert txlog.Table(table.uri).append(reader, **given).skipped
    table.refresh()
    in_quarantine = txlog.Table(uri).count() if txlog.Table.exists(uri) else 0
    added = changes == "a rule is added"
    assert (table.count(), in_quarantine) == ((1, 1) if added else (2, 0))


@pytest.mark.spec("CON-32")
def test_columns_of_views_and_runs_are_sifted() -> None:
    import polars as pl

    schema = pa.schema({"n": pa.int8(), "s": pa.string(), "b": pa.binary(), "r": pa.string()})
    table = txlog.Table.create(f"memory://quarantine-{next(FRESH)}", schema)
    uri = f"memory://quarantine-{next(FRESH)}"
    frame = pl.DataFrame({"n": [1, 300], "s": ["a", "b"], "b": [b"a", b"b"]})
    table.append(frame, on_error="quarantine", quarantine=uri)
    runs = pa.RunEndEncodedArray.from_arrays([1, 2], ["a", "b"])
    table.append(pa.table({"n": [2, 301], "r": runs}), on_error="quarantine", quarantine=uri)
    assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 2]
    assert [json.loads(row)["n"] for row in txlog.Table(uri).to_arrow()["row"].to_pylist()] == [
        300, 301,
    ]  # fmt: skip


def test_identity_values_that_are_taken_again_are_checked_again() -> None:
    """Another writer's rows take the values, so that the second ones break a rule."""
    schema = pa.schema({"id": pa.int64(), "n": pa.int64()})
    table = txlog.Table.create(f"memory://quarantine-{next(FRESH)}", schema, identity="id")
    table.alter.add_constraint({"few": "id < 5"})
    uri = f"memory://quarantine-{next(FRESH)}"

    def slow() -> Any:
        yield pa.record_batch({"n": [1, 2, 3]})
        txlog.Table(table.uri).append(pa.table({"n": [7, 8]}))

    reader = pa.RecordBatchReader.from_batches(pa.schema({"n": pa.int64()}), slow())
    table.append(reader, on_error="quarantine", quarantine=uri)
    written = table.refresh().to_arrow()["n"].to_pylist()
    kept = [json.loads(row)["n"] for row in txlog.Table(uri).to_arrow()["row"].to_pylist()]
    assert sorted(written + kept) == [1, 2, 3, 7, 8]
    assert kept


def test_a_value_that_no_partition_can_have_is_the_fault_of_its_row() -> None:
    schema = pa.schema({"d": pa.date32(), "b": pa.binary(), "x": pa.int64()})
    for name in ("d", "b"):
        table = txlog.Table.create(
            f"memory://quarantine-{next(FRESH)}", schema, partition_by=[name]
        )
        uri = f"memory://quarantine-{next(FRESH)}"
        rows = {"d": pa.array([2**31 - 1, 0], pa.date32()), "b": [b"\xff", b"a"], "x": [1, 2]}
        table.append(pa.table(rows), on_error="quarantine", quarantine=uri)
        assert table.to_arrow()["x"].to_pylist() == [2]
        (kept,) = txlog.Table(uri).to_arrow().to_pylist()
        assert (kept["rule"], kept["name"]) == ("VALUE", name)
        assert json.loads(kept["row"]) == {"d": 2**31 - 1, "b": "/w==", "x": 1}


def test_long_rows_at_fault_are_kept_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txlog.data_files.row_json._PART_BYTES", 1)
    table, uri = fresh(), f"memory://quarantine-{next(FRESH)}"
    data = table_of([ROW, {**ROW, "n": None}, {**ROW, "x": 7.0, "k": 3}])
    table.append(data, on_error="quarantine", quarantine=uri)
    kept = txlog.Table(uri).to_arrow().to_pylist()
    assert {(one["rule"], json.loads(one["row"])["k"]) for one in kept} == {
        ("NOT NULL", 1), ("CHECK", 3),
    }  # fmt: skip


@pytest.mark.spec("CON-33")
def test_rows_of_a_run_under_other_rules_that_came_first_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That run puts its rows into the quarantine after this one has looked there, and stops."""
    table, uri = fresh(), f"memory://quarantine-{next(FRESH)}"
    given: dict[str, Any] = {"on_error": "quarantine", "quarantine": uri, "txn": ("job", 1)}
    data = table_of([ROW, {**ROW, "n": None}, {**ROW, "x": 7.0}])
    table.alter.drop_constraint("no_seven")
    txlog.Table.create(uri, module.COLUMNS)

    class Stopped(BaseException):
        pass

    def stop(*_: Any, **__: Any) -> Any:
        raise Stopped

    real, seen = module.existing, []

    def look(store: Any) -> Any:
        found = real(store)
        if not seen:
            seen.append(True)
            with monkeypatch.context() as patch:
                patch.setattr("txlog.commit.operation._Attempts._committed", only_for(uri, stop))
                with pytest.raises(Stopped):
                    table.append(data, **given)
            assert txlog.Table(uri).count() == 1
        return found

    monkeypatch.setattr(module, "existing", look)
    other = txlog.Table(table.uri)
    other.alter.add_constraint({"no_seven": RULES["no_seven"]})
    with monkeypatch.context() as patch:
        patch.setattr(table, "_latest", lambda: table._snapshot)
        other.append(data, **given)
    assert other.refresh().count() == 1
    assert sorted(txlog.Table(uri).to_arrow()["rule"].to_pylist()) == ["CHECK", "NOT NULL"]


POSITIVE = {"delta.constraints.positive": "n > 0"}
NUMBERS = pa.table({"n": [1, -2, 3, None]})


@pytest.mark.spec("CON-32")
@pytest.mark.parametrize("mode", ["append", "overwrite", "error"])
def test_the_rows_of_a_new_table_are_judged_by_its_rules(tmp_path: Path, mode: Any) -> None:
    given: dict[str, Any] = {"on_error": "quarantine", "quarantine": tmp_path / "q"}
    given["properties"] = POSITIVE
    made = txlog.write(tmp_path / "t", NUMBERS, mode=mode, txn=("job", 1), **given)
    assert made.outcome is not None
    assert made.outcome.metrics["numQuarantinedRows"] == 2
    for _ in range(2 if mode != "error" else 0):  # It is recorded.
        txlog.write(tmp_path / "t", NUMBERS, mode=mode, txn=("job", 1), **given)
    kept = txlog.Table(tmp_path / "q").to_arrow().to_pylist()
    assert sorted(one["row"] for one in kept) == ['{"n": -2}', '{"n": null}']
    assert [one["version"] for one in kept] == [None, None]
    assert sorted(made.refresh().to_arrow()["n"].to_pylist()) == [1, 3]
    if mode == "error":
        return
    txlog.write(tmp_path / "t", pa.table({"n": [-5, 6]}), mode=mode, **given)
    assert txlog.Table(tmp_path / "q").count("row = '{\"n\": -5}' AND version = 0") == 1
    expected = [6] if mode == "overwrite" else [1, 3, 6]
    assert sorted(made.refresh().to_arrow()["n"].to_pylist()) == expected


@pytest.mark.spec("CON-32")
@pytest.mark.parametrize("txn", [None, ("job", 1)])
def test_a_lost_race_to_make_a_table_leaves_no_row_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, txn: Any
) -> None:
    kept = module.Quarantine.kept

    def other_table_is_made(self: module.Quarantine) -> None:
        kept(self)
        monkeypatch.setattr(module.Quarantine, "kept", kept)
        schema = pa.schema([("n", pa.int64())])
        txlog.Table.create(tmp_path / "t", schema, properties={"delta.constraints.few": "n < 3"})

    monkeypatch.setattr(module.Quarantine, "kept", other_table_is_made)
    with pytest.raises(txlog.InvalidInputError, match="properties"):  # The other table has others.
        write_positive(tmp_path, txn)
    assert txlog.Table(tmp_path / "q").count() == 0
    txlog.write(
        tmp_path / "t", NUMBERS, mode="append", txn=txn, on_error="quarantine",
        quarantine=tmp_path / "q",
    )  # fmt: skip
    rows = txlog.Table(tmp_path / "q").to_arrow()["row"].to_pylist()
    assert sorted(rows) == ['{"n": 3}', '{"n": null}']
    assert sorted(txlog.Table(tmp_path / "t").to_arrow()["n"].to_pylist()) == [-2, 1]


@pytest.mark.spec("CON-33")
@pytest.mark.parametrize("breaks", [0, 1])
def test_a_table_made_by_hand_after_a_broken_run_has_no_row_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: int
) -> None:
    """The run broke before it made the table, and perhaps once more before it wrote to it."""

    class Broken(BaseException):
        pass

    def broken(self: module.Quarantine) -> None:
        kept(self)
        raise Broken

    def write(number: int) -> None:
        txlog.write(
            tmp_path / "t", NUMBERS, mode="append", txn=("job", number), on_error="quarantine",
            quarantine=tmp_path / "q", properties=None if txlog.Table.exists(tmp_path / "t")
            else POSITIVE,
        )  # fmt: skip

    kept = module.Quarantine.kept
    with monkeypatch.context() as patch:
        patch.setattr(module.Quarantine, "kept", broken)
        with pytest.raises(Broken):
            write(1)
        assert txlog.Table(tmp_path / "q").count() == 2
        schema = pa.schema([("n", pa.int64())])
        txlog.Table.create(tmp_path / "t", schema, properties={"delta.constraints.few": "n < 3"})
        for _ in range(breaks):
            with pytest.raises(Broken):
                write(1)
    write(1)
    rows = ['{"n": 3}', '{"n": null}']
    assert sorted(txlog.Table(tmp_path / "q").to_arrow()["row"].to_pylist()) == rows
    assert sorted(txlog.Table(tmp_path / "t").to_arrow()["n"].to_pylist()) == [-2, 1]
    write(2)  # The rows of the first version stay.
    assert sorted(txlog.Table(tmp_path / "q").to_arrow()["row"].to_pylist()) == sorted(rows * 2)


def write_positive(path: Path, txn: Any) -> None:
    txlog.write(
        path / "t", NUMBERS, mode="append", properties=POSITIVE, txn=txn, on_error="quarantine",
        quarantine=path / "q",
    )  # fmt: skip


def test_a_write_without_a_place_for_wrong_rows_is_refused(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [{"on_error": "quarantine"}, {"quarantine": tmp_path / "q"}]
    for one in wrong:
        with pytest.raises(txlog.InvalidInputError, match="quarantine"):
            txlog.write(tmp_path / "t", NUMBERS, **one)
    with pytest.raises(txlog.InvalidInputError, match="its own quarantine"):
        txlog.write(tmp_path / "t", NUMBERS, on_error="quarantine", quarantine=tmp_path / "t")
    assert not (tmp_path / "t").exists()
