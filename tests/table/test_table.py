"""The public interface: one name for each thing, pickled values, versions by number and by time."""

import copy
import dataclasses
import inspect
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.base import errors
from txlog.extend import context_of
from txlog.scan.files import FILES
from txlog.table.hints import OF_TABLE

DATA = pa.table({"x": list(range(10)), "p": ["a", "b"] * 5})


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    table = txlog.write(tmp_path / "t", DATA, partition_by="p")
    table.append(DATA, txn=("job", 3), user_metadata="a note")
    table.delete("x = 3")
    return table


def kinds() -> list[type[errors.TxlogError]]:
    return [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.TxlogError)
    ]


VALUES: dict[str, Any] = {
    "path": "a/b", "version": 7, "argument": "where", "field": "s.a", "line": 3, "rule": "CON-3",
    "features": ("x", "y"), "operation": "read", "txn_id": "me", "reason": "why", "remedy": "Do it",
    "visible": True, "table": "/t", "key": (5, "x"), "branch": "audit", "failed": ("volume",),
    "figures": {"volume": {"count(*)": 3}},
}  # fmt: skip


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_errors_cross_process_borders(kind: type[errors.TxlogError]) -> None:
    facts = {name: VALUES[name] for name in inspect.signature(kind).parameters}
    error = kind(**facts)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert {name: getattr(copy, name) for name in facts} == facts
    text = str(error)
    assert text.startswith(f"[{kind.code}] why")
    assert text.index("why") < min(text.index("="), text.index("Do it")) if "=" in text else True
    assert all(text.count(part) == 1 for part in (kind.code, "why", "Do it"))
    assert str(dataclasses.replace(error, reason="")).startswith(f"[{kind.code}] {kind.summary}")
    assert text.endswith(". Do it")
    assert all(repr(v) in text for n, v in facts.items() if n not in ("reason", "remedy"))
    assert getattr(txlog, kind.__name__) is kind
    assert isinstance(error, txlog.TxlogError)
    assert kind.retry in ("never", "as_is", "after_refresh")


def test_codes_are_of_one_class_each() -> None:
    codes = [kind.code for kind in kinds()]
    assert len(set(codes)) == len(codes)


def test_errors_are_those_of_python_too() -> None:
    assert issubclass(txlog.NotFoundError, FileNotFoundError)
    assert issubclass(txlog.AlreadyExistsError, FileExistsError)
    assert issubclass(txlog.InvalidInputError, ValueError)
    assert issubclass(txlog.RetriesExhaustedError, txlog.CommitConflictError)
    assert issubclass(txlog.BadDeletionVectorError, txlog.LogCorruptError)


def test_every_name_is_there_and_says_what_it_is() -> None:
    assert sorted(txlog.__all__) == list(txlog.__all__)
    for name in set(txlog.__all__) - {"__version__"}:
        assert inspect.getdoc(getattr(txlog, name)), name
        assert getattr(txlog, name).__doc__, name
    for name, member in vars(txlog.Table).items():
        if name.startswith("_"):
            continue
        member = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        assert member.__doc__, name


def test_every_verb_takes_txn_and_user_metadata_by_keyword(table: txlog.Table) -> None:
    faces = [table, table.alter, table.optimize, table.maintenance, table.pins]
    methods = [one for face in faces for _, one in inspect.getmembers(face, inspect.ismethod)]
    verbs = {}
    for method in [txlog.write, txlog.Table.create, *methods]:
        parameters = inspect.signature(method).parameters
        runs = "._run(" in inspect.getsource(method) or "user_metadata" in parameters
        if runs and not method.__name__.startswith("_"):
            verbs[method.__name__] = [parameters.get(name) for name in ("txn", "user_metadata")]
    # A vacuum commits only notes, and a repair is several operations: they cannot be recorded once.
    without_txn = [name for name, found in verbs.items() if found[0] is None]
    assert sorted(without_txn) == ["repair", "vacuum"]
    assert {"append", "delete", "merge", "restore", "compact", "rename_column"} <= verbs.keys()
    kinds = {one.kind for found in verbs.values() for one in found if one is not None}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    assert all(found[1] is not None for found in verbs.values())


def test_table_pickles_at_its_version(table: txlog.Table) -> None:
    old = txlog.Table(table.uri, 1)
    copy = pickle.loads(pickle.dumps(old))
    assert (copy.version, copy.uri) == (1, table.uri)
    assert copy.to_arrow() == old.to_arrow()
    assert copy.refresh().version == 2
    assert pickle.loads(pickle.dumps(table)).to_arrow() == table.to_arrow()


def test_values_pickle(table: txlog.Table) -> None:
    snapshot = pickle.loads(pickle.dumps(table.snapshot))
    assert snapshot == table.snapshot
    scan = table.scan(["x"], "p = 'a' and x > 4")
    copy = pickle.loads(pickle.dumps(scan))
    assert copy.to_arrow() == scan.to_arrow()
    assert copy.explain() == scan.explain()
    plan = pickle.loads(pickle.dumps(scan.plan))
    assert list(plan.fragments) == list(scan.plan.fragments)
    assert plan.reading.schema == scan.schema
    for fragment in table.fragments():
        assert pickle.loads(pickle.dumps(fragment)) == fragment
    outcome = table.append(DATA)
    assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_a_table_says_what_it_is(table: txlog.Table, tmp_path: Path) -> None:
    assert table.uri == str(tmp_path / "t")
    assert repr(table) == f"txlog.Table({table.uri!r}, version=2)"
    assert table.schema == DATA.schema
    assert table.snapshot.schema.names() == ["x", "p"]
    assert table.partition_columns == ["p"]
    assert table.properties["delta.enableDeletionVectors"] == "true"
    assert table.metadata.partition_columns == ["p"]
    assert table.protocol.min_reader_version == 3
    assert table.snapshot.version == table.version == 2
    assert abs(table.timestamp_ms - datetime.now(UTC).timestamp() * 1000) < 60_000
    assert table.transaction_version("job") == 3
    assert table.transaction_version("other") is None
    assert txlog.Table.exists(table.uri)
    assert not txlog.Table.exists(tmp_path / "none")
    assert context_of(table).store.root == table.uri


def test_files_and_fragments(table: txlog.Table) -> None:
    files = table.files()
    assert files.schema == FILES
    assert files.num_rows == 4
    assert sum(files["num_records"].to_pylist()) == 20
    assert sum(files["num_deleted"].to_pylist()) == 2
    assert {dict(values)["p"] for values in files["partition_values"].to_pylist()} == {"a", "b"}
    for file in files.to_pylist():
        assert Path(table.uri, file["path"]).stat().st_size == file["size_bytes"]
    ids = [fragment.id for fragment in table.fragments()]
    assert ids == sorted(ids) == files["fragment_id"].to_pylist() == [0, 1, 2, 3]
    assert [f.num_rows for f in table.fragments()] == [
        n - d
        for n, d in zip(
            files["num_records"].to_pylist(), files["num_deleted"].to_pylist(), strict=True
        )
    ]
    assert all(fragment.is_durable for fragment in table.fragments())
    # The ids of the first version mean the same rows still.
    first = {f.id: f.files for f in txlog.Table(table.uri, 0).fragments()}
    assert first.items() <= {f.id: f.files for f in table.fragments()}.items()


@pytest.mark.parametrize(
    "names",
    [["path"], ["stats", "path"], ["fields"], ["fragment_id", "path", "fragment_id"], [], None],
)
def test_some_columns_of_the_files_are_those_of_all(
    table: txlog.Table, names: list[str] | None
) -> None:
    found = table.files(names)
    assert found.equals(table.files().select(FILES.names if names is None else names))


def test_versions(table: txlog.Table) -> None:
    assert [txlog.Table(table.uri, version).count() for version in range(3)] == [10, 20, 18]
    with pytest.raises(txlog.NotFoundError, match="3"):
        txlog.Table(table.uri, 3)
    odd: list[Any] = [-1, 1.0, "1", True]
    for version in odd:
        with pytest.raises(txlog.InvalidInputError, match="version"):
            txlog.Table(table.uri, version)
    with pytest.raises(txlog.InvalidInputError, match="only one"):
        txlog.Table(table.uri, 1, "2024-01-01")
    with pytest.raises(txlog.NotFoundError):
        txlog.Table(Path(table.uri).parent / "none")


def test_moments(table: txlog.Table) -> None:
    import os

    log = Path(table.uri, "_delta_log")
    for version in range(3):  # A day apart.
        at = datetime(2024, 1, 1 + version, tzinfo=UTC).timestamp()
        os.utime(log / f"{version:020d}.json", (at, at))

    def at(moment: Any, **options: Any) -> int:
        return txlog.Table(table.uri, timestamp=moment, **options).version

    assert at("2024-01-01") == at("2024-01-01T23:59:59.999Z") == 0
    assert at("2024-01-02 00:00:00") == at("2024-01-02T01:00:00+01:00") == 1
    assert at(datetime(2024, 1, 3)) == at(datetime(2024, 1, 3, tzinfo=UTC)) == 2
    assert at(int(datetime(2024, 1, 2, 5, tzinfo=UTC).timestamp() * 1000)) == 1
    for moment in ("2023-12-31", "2024-01-03 00:00:01"):
        with pytest.raises(txlog.NotFoundError):
            at(moment)
    assert at("2023-12-31", out_of_range="nearest") == 0
    assert at("2030-01-01", out_of_range="nearest") == 2
    for odd in ("yesterday", "2024-13-01"):
        with pytest.raises(txlog.InvalidInputError, match="timestamp"):
            at(odd)


def test_history(table: txlog.Table) -> None:
    entries = table.history()
    assert [entry["version"] for entry in entries] == [2, 1, 0]
    assert [entry["operation"] for entry in entries] == [
        "DELETE", "WRITE", "CREATE TABLE AS SELECT",
    ]  # fmt: skip
    assert entries[1]["userMetadata"] == "a note"
    assert entries[0]["operationMetrics"]["numDeletedRows"] == "2"
    assert entries[0]["engineInfo"] == f"txlog/{txlog.__version__}"
    assert entries[0]["timestamp"] >= entries[1]["timestamp"] >= entries[2]["timestamp"]
    assert table.history(1) == entries[:1]
    assert table.history(0) == []
    assert txlog.Table(table.uri, 1).history() == entries[1:]
    odd: list[Any] = [-1, 1.5, "1"]
    for limit in odd:
        with pytest.raises(txlog.InvalidInputError, match="limit"):
            table.history(limit)


def test_a_table_stands_still_until_it_is_told(table: txlog.Table) -> None:
    other = txlog.Table(table.uri)
    held = other.snapshot
    table.append(DATA)
    assert (other.version, other.count()) == (2, 18)
    assert other.refresh() is other
    assert (other.version, other.count()) == (3, 28)
    assert held.version == 2


def test_writes_from_an_old_version_go_on_top(table: txlog.Table) -> None:
    old = txlog.Table(table.uri, 0)
    assert old.append(DATA).version == 3
    assert (old.version, old.count()) == (3, 28)


def test_an_outcome_says_what_was_done(table: txlog.Table) -> None:
    outcome = table.delete("x = 4")
    assert (outcome.operation, outcome.version, outcome.skipped) == ("DELETE", 3, False)
    assert outcome
    nothing = table.delete("x = 4")
    assert (nothing.version, nothing.skipped) == (None, False)
    assert not nothing
    assert not table.append(DATA, txn=("job", 3))
    assert table.version == 3


def test_checkpoints_are_written_when_due(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, DATA, properties={"delta.checkpointInterval": "2"})
    for _ in range(4):
        table.append(DATA)
    log = tmp_path / "_delta_log"
    names = sorted(path.name for path in log.glob("*.checkpoint*.parquet"))
    assert [int(name[:20]) for name in names] == [2, 4]
    for version in (0, 1):
        (log / f"{version:020d}.json").unlink()
    assert txlog.Table(tmp_path).to_arrow() == table.to_arrow()
    assert table.maintenance.checkpoint() == 4


def test_tables_in_memory() -> None:
    table = txlog.write("memory://face/a b%20c#1", DATA, "overwrite", partition_by="p")
    table.append(DATA.slice(0, 2))
    table.delete("x < 2")
    table.maintenance.checkpoint()
    again = txlog.Table("memory://face/a b%20c#1")
    assert sorted(again.to_arrow()["x"].to_pylist()) == list(range(2, 10))
    assert again.count("p = 'a'") == 4
    assert txlog.Table.exists("memory://face/a b%20c#1")
    assert not txlog.Table.exists("memory://face")
    with pytest.raises(txlog.AlreadyExistsError):
        txlog.write("memory://face/a b%20c#1", DATA)


def test_one_row_of_a_table_of_flights(tmp_path: Path) -> None:
    """The first lines that anybody types."""
    flights = pa.table({"carrier": ["UA", "AA"], "dep_delay": [90, 5]})
    table = txlog.write(tmp_path / "flights", flights)
    where = (txlog.col("dep_delay") > 60) & (txlog.col("carrier") == "UA")
    assert table.to_arrow(["carrier"], where).to_pylist() == [{"carrier": "UA"}]
    assert table.count("dep_delay > 60 AND carrier = 'UA'") == 1
    assert table.delete(where).metrics["numDeletedRows"] == 1
    assert table.count() == 1


def test_names_of_other_libraries_lead_to_ours(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"n": [1, 2]}))
    odd: Any = table
    with pytest.raises(AttributeError, match=r"'count_rows'\. Instead of .* pylance, use t\.count"):
        odd.count_rows()
    with pytest.raises(AttributeError, match=r"use t\.maintenance\.checkpoint\(\)\."):
        odd.create_checkpoint()
    with pytest.raises(AttributeError, match=r"^'Table' object has no attribute 'flub'$") as caught:
        _ = odd.flub
    assert (caught.value.name, caught.value.obj) == ("flub", table)  # Python looks for like names.
    for name in OF_TABLE:
        assert not hasattr(txlog.Table, name) or name == "__getitem__"
    assert not hasattr(table, "columns")
    with pytest.raises(txlog.InvalidTypeError, match=r'use t\.to_arrow\(\["n"\]\)'):
        table["n"]
    with pytest.raises(TypeError):
        list(odd)
    with pytest.raises(TypeError):
        len(odd)
    assert bool(table)
    assert pickle.loads(pickle.dumps(table)).count() == copy.copy(table).count() == 2
    with pytest.raises(AttributeError, match=r"Instead of dt = DeltaTable\(uri\) of deltalake"):
        _ = txlog.DeltaTable


def test_an_error_inside_a_property_is_not_taken_for_a_missing_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"n": [1]}))

    def broken(table: txlog.Table) -> int:
        return None.version  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setattr(txlog.Table, "version", property(broken))
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'version'"):
        _ = table.version


@pytest.mark.parametrize("below", ["", "/t"])
def test_a_file_is_no_table(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("x")
    place = f"{tmp_path}/file{below}"
    assert not txlog.Table.exists(place)
    with pytest.raises(txlog.NotFoundError):
        txlog.Table(place)
    with pytest.raises(txlog.StoreError):
        txlog.write(place, pa.table({"a": [1]}))
