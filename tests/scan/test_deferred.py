"""Plans that read the log as far as they must, against those that read all of it."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import Case, cases, require_corpus
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from txlog import TxlogError, col
from txlog.scan import DeferredPlan
from txlog.scan.listing import FILES

DEFERRED = import_module("txlog.scan.deferred")
LISTING = import_module("txlog.scan.listing")
QUICK = [name for name in FILES.names if name not in ("fragment_id", "fields")]


@pytest.fixture(name="all_deferred")
def fixture_all_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DEFERRED, "LARGE_BYTES", 0)
    monkeypatch.setattr(LISTING, "LARGE_BYTES", 0)


def sorted_rows(files: pa.Table) -> list[dict[str, Any]]:
    return sorted(files.to_pylist(maps_as_pydicts="strict"), key=lambda row: row["path"])


def predicates(table: txlog.Table) -> Iterator[txlog.Expression]:
    """Yield predicates that tell the files of a table apart, by values that they have."""
    held = table.head(50)
    for field in table.schema:
        if field.name not in held.column_names or pa.types.is_nested(field.type):
            continue
        yield col(field.name).is_not_null()
        known = [value for value in held[field.name].to_pylist() if value is not None]
        # Truth values have bounds in structs, but not in JSON.
        if known and not (pa.types.is_binary(field.type) or pa.types.is_boolean(field.type)):
            yield col(field.name) == known[0]
            yield col(field.name) > known[-1]


def check(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare the two ways; return how many plans were compared."""
    table = txlog.Table(path)
    whole = table.files(QUICK)
    unfiltered = table.scan().plan.count()
    plans = {}
    try:
        found = list(predicates(table))
    except TxlogError:  # Its rows cannot be read; the log can.
        found = []
    for where in found:
        try:
            scan = table.scan(where=where)
            plans[where] = (scan.explain(), scan.fragments(), scan.plan.count())
        except TxlogError:
            continue
    with monkeypatch.context() as patch:
        patch.setattr(DEFERRED, "LARGE_BYTES", 0)
        patch.setattr(LISTING, "LARGE_BYTES", 0)
        table = txlog.Table(path)
        assert sorted_rows(table.files(QUICK)) == sorted_rows(whole)
        for where, (explanation, fragments, count) in plans.items():
            scan = table.scan(where=where)
            assert isinstance(scan.plan, DeferredPlan)
            assert (scan.plan.live is None) is not table.snapshot.supports("txlog.fragments")
            assert scan.explain() == explanation
            assert scan.fragments() == fragments
            assert scan.plan.count() == count
        assert table.scan().plan.count() == unfiltered
    return len(plans)


def checkpointed() -> list[Case]:
    return [
        case
        for case in cases()
        if case.is_plain and any((case.path / "_delta_log").glob("*.checkpoint*"))
    ]


@pytest.mark.parametrize("case", checkpointed()[::6], ids=lambda case: case.name)
def test_tables_of_others(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    require_corpus()
    check(case.path, monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", checkpointed(), ids=lambda case: case.name)
def test_all_tables_of_others(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    require_corpus()
    check(case.path, monkeypatch)


histories = st.lists(
    st.sampled_from(["append", "delete rows", "delete", "checkpoint", "overwrite"]), max_size=8
)


@settings(max_examples=40)
@given(histories, st.sampled_from(["classic", "v2"]), st.booleans())
def test_any_history(steps: list[str], policy: str, partitioned: bool) -> None:
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        make_history(Path(root), steps, policy, partitioned)
        assert check(Path(root), patch)


def make_history(path: Path, steps: list[str], policy: str, partitioned: bool) -> None:
    properties = {"delta.checkpointPolicy": policy, "delta.enableDeletionVectors": "true"}
    schema = pa.schema([("n", pa.int64()), ("p", pa.string())])
    table = txlog.Table.create(
        path, schema, partition_by=["p"] if partitioned else [], properties=properties
    )
    for at, step in enumerate(["append", *steps]):
        match step:
            case "append" | "overwrite":
                rows = [{"n": 10 * at + k, "p": "ab%"[k % 3]} for k in range(6)]
                data = pa.Table.from_pylist(rows, schema)
                (table.append if step == "append" else table.overwrite)(data)
            case "delete rows":
                table.delete("n % 5 = 1")
            case "delete":
                table.delete(f"n < {10 * at - 15}")
            case _:
                table.checkpoint()


def test_a_file_that_a_checkpoint_has_twice(tmp_path: Path, all_deferred: None) -> None:
    """Some writers leave it; it counts once."""
    table = txlog.Table.create(tmp_path, pa.schema([("n", pa.int64())]))
    for at in range(3):
        table.append(pa.table({"n": [at]}))
    table.checkpoint()
    (name,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(name)
    pq.write_table(pa.concat_tables([rows, rows]), name)
    table = txlog.Table(tmp_path)
    assert table.files(["path"]).num_rows == 3
    assert table.scan(where="n = 1").explain().files_to_read == 1
    assert table.to_arrow(where="n = 1").to_pydict() == {"n": [1]}


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, all_deferred: None) -> None:
    table = txlog.Table.create(tmp_path, pa.schema([("n", pa.int64())]))
    table.append(pa.table({"n": [1]}))
    table.checkpoint()
    table = txlog.Table(tmp_path)
    (name,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    name.write_bytes(b"PAR1 and no more")
    with pytest.warns(txlog.TxlogWarning, match="damaged"):
        assert table.files(["path"]).num_rows == 1
