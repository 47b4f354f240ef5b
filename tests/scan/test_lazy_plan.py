"""Plans that read the log as far as they must, against those that read all of it."""

import operator
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from corpus import Case, cases, require_corpus
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog import TxlogError, col
from txlog.fragments.fragment import Fragment
from txlog.scan.files import FILES
from txlog.scan.lazy_plan import LoggedPlan

LARGE = "txlog.snapshot.live_files._LARGE_BYTES"
QUICK = [name for name in FILES.names if name not in ("fragment_id", "fields")]


@pytest.fixture(name="all_deferred")
def fixture_all_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LARGE, 0)


def sorted_rows(files: pa.Table) -> list[dict[str, Any]]:
    return sorted(files.to_pylist(maps_as_pydicts="strict"), key=lambda row: row["path"])


def as_read(fragment: Fragment) -> tuple[Any, ...]:
    """Return the facts of a fragment that reading needs: no id, and a count only with deletions."""
    rows = fragment.physical_rows if fragment.deletion is not None else None
    return fragment.files, fragment.deletion, fragment.partition_values, rows


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
    uris = sorted(table.scan().file_uris())
    everything = [table.scan().explain(), table.scan().fragments(), list(table.scan().plan.to_read)]
    plans = {}
    try:
        found = list(predicates(table))
    except TxlogError:  # Its rows cannot be read; the log can.
        found = []
    for where in found:
        try:
            scan = table.scan(where=where)
            plans[where] = (scan.explain(), scan.fragments(), scan.plan.count(), scan.file_uris())
        except TxlogError:
            continue
    with monkeypatch.context() as patch:
        patch.setattr(LARGE, 0)
        table = txlog.Table(path)
        assert sorted_rows(table.files(QUICK)) == sorted_rows(whole)
        assert sorted(table.scan().file_uris()) == uris
        scan = table.scan()
        assert [scan.explain(), scan.fragments(), list(scan.plan.to_read)] == everything
        assert sorted(scan.file_uris()) == uris
        assert [one._fragment for one in table.fragments()] == everything[1]
        for where, (explanation, fragments, count, files) in plans.items():
            assert sorted(table.scan(where=where).file_uris()) == sorted(files)
            to_read = table.scan(where=where).plan.to_read
            assert list(map(as_read, to_read)) == list(map(as_read, fragments))
            for one, other in zip(to_read, fragments, strict=True):
                known = one.physical_rows is not None or one.deletion is not None
                assert one.physical_rows == (other.physical_rows if known else None)
            scan = table.scan(where=where)
            is_logged = isinstance(scan.plan, LoggedPlan)
            assert is_logged is not table.snapshot.supports("txlog.fragments")
            assert scan.explain() == explanation
            assert sorted(scan.file_uris()) == sorted(files)
            assert scan.fragments() == fragments
            assert sorted(scan.file_uris()) == sorted(files)
            assert scan.plan.count() == count
        assert table.scan().plan.count() == unfiltered
    return len(plans)


def checkpointed() -> list[Case]:
    return [
        case
        for case in cases()
        if case.is_plain and any((case.path / "_delta_log").glob("*.checkpoint*"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("case", checkpointed()[::6], ids=lambda case: case.name)
def test_tables_of_others(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    require_corpus()
    check(case.path, monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", checkpointed(), ids=lambda case: case.name)
def test_all_tables_of_others(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    require_corpus()
    check(case.path, monkeypatch)


IN_PARTITIONS = pa.schema([("n", pa.int64()), ("p", pa.string())])


def of_two_partitions(root: Path) -> tuple[txlog.Table, Path]:
    """Make a table with a file in each of two partitions; return where its checkpoint is, too."""
    table = txlog.Table.create(root, IN_PARTITIONS, partition_by=["p"])
    for at, part in enumerate("ab", start=1):
        table.append(pa.table({"n": [at], "p": [part]}))
    table.maintenance.checkpoint()
    (path,) = (root / "_delta_log").glob("*.checkpoint.parquet")
    return table, path


histories = st.lists(
    st.sampled_from(["append", "delete rows", "delete", "checkpoint", "overwrite"]), max_size=8
)


@pytest.mark.slow
@settings(max_examples=examples(40))
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
                table.maintenance.checkpoint()


def test_a_file_that_a_checkpoint_has_twice(tmp_path: Path, all_deferred: None) -> None:
    """Some writers leave it; it counts once."""
    table = txlog.Table.create(tmp_path, pa.schema([("n", pa.int64())]))
    for at in range(3):
        table.append(pa.table({"n": [at]}))
    table.maintenance.checkpoint()
    (name,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(name)
    pq.write_table(pa.concat_tables([rows, rows]), name)
    table = txlog.Table(tmp_path)
    assert table.files(["path"]).num_rows == 3
    assert table.scan(where="n = 1").explain().files_to_read == 1
    assert table.to_arrow(where="n = 1").to_pydict() == {"n": [1]}


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 1_000], ids=["row groups", "one row group"])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize(
    ("name", "said", "predicates"),
    [
        ("partitionValues", [("p", "z")], ["p = 'a'", "p = 'z'", "p <> 'b'", "p = 'b'"]),
        (
            "stats",
            '{"numRecords":7,"minValues":{"n":70},"maxValues":{"n":79},"nullCount":{"n":0}}',
            ["n >= 2", "n > 69", "n < 2", "n = 75"],
        ),
    ],
    ids=["partition values", "statistics"],
)
def test_a_checkpoint_that_contradicts_itself_is_passed_over(
    tmp_path: Path,
    all_deferred: None,
    name: str,
    said: Any,
    predicates: list[str],
    behind: bool,
    groups: int,
) -> None:
    _, path = of_two_partitions(tmp_path)
    rows = pq.read_table(path)
    (own,) = (
        row
        for row in rows.to_pylist(maps_as_pydicts=None)
        if row["add"] and dict(row["add"]["partitionValues"])["p"] == "a"
    )
    other = pa.Table.from_pylist([own | {"add": own["add"] | {name: said}}], rows.schema)
    both = [rows, other] if behind else [other, rows]
    pq.write_table(pa.concat_tables(both), path, row_group_size=groups)
    whole = [{"n": 1, "p": "a"}, {"n": 2, "p": "b"}]
    for where in predicates:
        wanted = pa.Table.from_pylist(whole, IN_PARTITIONS).filter(mask_of(where, IN_PARTITIONS))
        noticed = pytest.warns(txlog.TxlogWarning, match="damaged")
        # For the other file alone, nobody compares the rows of this one.
        with nullcontext() if where == "p = 'b'" else noticed:
            found = txlog.Table(tmp_path).to_arrow(where=where).sort_by("n")
        assert found.to_pylist() == wanted.to_pylist(), where
        with pytest.warns(txlog.TxlogWarning, match="damaged"):
            assert txlog.Table(tmp_path).scan(where=where).count() == wanted.num_rows, where


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "live"])
@pytest.mark.parametrize("where", ["p = 'b'", "n = 2"])
def test_a_file_without_partition_values_counts_if_it_is_live(
    tmp_path: Path, all_deferred: None, where: str, gone: bool
) -> None:
    table, path = of_two_partitions(tmp_path)
    held = pq.read_table(path)
    rows = held.to_pylist(maps_as_pydicts=None)
    for row in rows:
        if row["add"] and dict(row["add"]["partitionValues"])["p"] == "a":
            row["add"]["partitionValues"] = None
    if gone:
        table.delete("p = 'a'")
    pq.write_table(pa.Table.from_pylist(rows, held.schema), path)
    for version in range(table.version if gone else table.version + 1):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    scan = txlog.Table(tmp_path).scan(where=where)
    if gone or where == "n = 2":  # There nobody asks for partition values.
        assert len(scan.file_uris()) == 1
    else:
        with pytest.raises(txlog.LogCorruptError, match="no partition values"):
            scan.file_uris()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize(
    ("columns", "where", "all_of_it"),
    [
        (["n"], "n > 19", False),
        (["n", "p"], "n > 19", False),
        (["p"], "p <> 'b'", False),
        (["n"], "n > 100", False),
        (["n", "_rowid"], "n > 19", True),
        (["n"], "n < 9", False),  # A file with deletions, but the predicate needs its counts too.
        (["n"], "p = 'b'", True),
    ],
)
def test_reading_takes_no_more_of_the_log_than_it_needs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    columns: list[str],
    where: str,
    all_of_it: bool,
) -> None:
    make_history(tmp_path, ["delete rows", "append", "checkpoint", "append"], policy, True)
    expected = txlog.Table(tmp_path).to_arrow(columns, where)
    monkeypatch.setattr(LARGE, 0)
    scan = txlog.Table(tmp_path).scan(columns, where)
    assert scan.to_arrow() == expected
    assert ("files" in vars(scan.plan)) == all_of_it


def mask_of(where: str, schema: pa.Schema) -> pc.Expression:
    """Return a predicate of one comparison, for pyarrow."""
    name, sign, text = where.split()
    value = pa.scalar(text.strip("'")).cast(schema.field(name).type)
    compared = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, ">": operator.gt}
    return (compared | {">=": operator.ge})[sign](pc.field(name), value)


def appended(path: Path, commits: int, *, checkpoints: tuple[int, ...]) -> txlog.Table:
    table = txlog.Table.create(path, pa.schema([("n", pa.int64())]))
    for at in range(1, commits + 1):
        table.append(pa.table({"n": [at]}))
        if at in checkpoints:
            table.maintenance.checkpoint()
    return txlog.Table(path)


def test_a_damaged_column_leads_to_an_older_checkpoint(tmp_path: Path, all_deferred: None) -> None:
    """Where that has its row groups says nothing of the damaged one."""
    table = appended(tmp_path, 9, checkpoints=(4, 8))
    name = tmp_path / "_delta_log" / f"{8:020}.checkpoint.parquet"
    footer = pq.read_metadata(name)
    (column,) = (
        column
        for group in map(footer.row_group, range(footer.num_row_groups))
        for column in map(group.column, range(group.num_columns))
        if column.path_in_schema == "add.size" and column.statistics.null_count < group.num_rows
    )
    data = bytearray(name.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    end = start + column.total_compressed_size
    data[end - 4 : end] = bytes(255 ^ byte for byte in data[end - 4 : end])
    name.write_bytes(data)
    with pytest.warns(txlog.TxlogWarning, match="damaged"):
        assert table.scan(where="n >= 0").to_arrow().num_rows == 9


@pytest.mark.parametrize("per_group", [1, 100])
def test_a_checkpoint_that_is_replaced_meanwhile(
    tmp_path: Path, all_deferred: None, per_group: int
) -> None:
    table = appended(tmp_path, 6, checkpoints=(6,))
    (name,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(name)
    pq.write_table(rows, name, row_group_size=101 - per_group)
    scan = txlog.Table(tmp_path).scan(where="n >= 3")
    assert scan.explain().files_to_read == 4
    pq.write_table(rows, name, row_group_size=per_group)
    assert sorted(scan.to_arrow()["n"].to_pylist()) == [3, 4, 5, 6]
    assert table.count() == 6


def test_statistics_as_structs_of_different_types(tmp_path: Path, all_deferred: None) -> None:
    appended(tmp_path, 4, checkpoints=(4,))
    (name,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(name).to_pylist(maps_as_pydicts="strict")
    adds = [row["add"] for row in rows if row["add"]]
    others = [row for row in rows if not row["add"]]
    for part, value, found in ((1, 1, adds[:2]), (2, "1", adds[2:])):
        bounds = pa.struct([("n", pa.int64() if part == 1 else pa.string())])
        stats = [("numRecords", pa.int64()), ("minValues", bounds), ("maxValues", bounds)]
        kinds = {
            "path": pa.string(),
            "partitionValues": pa.map_(pa.string(), pa.string()),
            "size": pa.int64(),
            "modificationTime": pa.int64(),
            "dataChange": pa.bool_(),
            "stats_parsed": pa.struct(stats),
        }
        parsed = {"numRecords": 1, "minValues": {"n": value}, "maxValues": {"n": value}}
        rows = [{"add": {**add, "partitionValues": [], "stats_parsed": parsed}} for add in found]
        schema = pa.schema([("add", pa.struct(list(kinds.items())))])
        part_name = name.with_name(f"{4:020}.checkpoint.{part:010}.{3:010}.parquet")
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), part_name)
    schema = pq.read_schema(name)
    pq.write_table(
        pa.Table.from_pylist(others, schema=schema),
        name.with_name(f"{4:020}.checkpoint.{3:010}.{3:010}.parquet"),
    )
    name.unlink()
    table = txlog.Table(tmp_path)
    assert table.files(["num_records"])["num_records"].to_pylist() == [1] * 4
    assert table.scan(where="n >= 0 OR n < 0").to_arrow().num_rows == 4
    assert txlog.Table(tmp_path).files()["num_records"].to_pylist() == [1] * 4


def test_structs_of_some_files_in_a_footer_without_counts(
    tmp_path: Path, all_deferred: None
) -> None:
    properties = {"delta.checkpoint.writeStatsAsStruct": "true"}
    table = txlog.Table.create(
        tmp_path / "t", pa.schema([("n", pa.int64())]), properties=properties
    )
    for at in range(4):
        table.append(pa.table({"n": [at]}))
    table.maintenance.checkpoint()
    (name,) = (tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet")
    held = pq.read_table(name)
    rows = held.to_pylist()
    for add in [row["add"] for row in rows if row["add"]][::2]:
        add["stats_parsed"] = None
    pq.write_table(pa.Table.from_pylist(rows, schema=held.schema), name, write_statistics=False)
    table = txlog.Table(tmp_path / "t")
    assert table.files(["num_records"])["num_records"].to_pylist() == [1] * 4
    assert table.scan(where="n = 2").explain().files_to_read == 1


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, all_deferred: None) -> None:
    table = txlog.Table.create(tmp_path, pa.schema([("n", pa.int64())]))
    table.append(pa.table({"n": [1]}))
    table.maintenance.checkpoint()
    table = txlog.Table(tmp_path)
    (name,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    name.write_bytes(b"PAR1 and no more")
    with pytest.warns(txlog.TxlogWarning, match="damaged"):
        assert table.files(["path"]).num_rows == 1


def test_a_path_that_is_live_with_two_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks the protocol mildly; what is planned are the two, in either way."""
    table = txlog.Table.create(
        tmp_path, pa.schema([("n", pa.int64())]), properties={"delta.enableDeletionVectors": "true"}
    )
    table.append(pa.table({"n": list(range(10))}))
    (added,) = (tmp_path / "_delta_log").glob("*1.json")
    table.delete("n < 3")
    (deleted,) = (tmp_path / "_delta_log").glob("*2.json")
    lines = [line for line in deleted.read_text().splitlines() if '{"add"' in line]
    deleted.write_text("\n".join(lines) + "\n")
    assert '"deletionVector"' in deleted.read_text()
    assert '"deletionVector"' not in added.read_text()
    for checkpointed in (False, True):
        if checkpointed:
            txlog.Table(tmp_path).maintenance.checkpoint()
        whole = txlog.Table(tmp_path).scan(where="n < 50").fragments()
        with monkeypatch.context() as patch:
            patch.setattr(LARGE, 0)
            deferred = txlog.Table(tmp_path).scan(where="n < 50").fragments()
        assert {fragment.id for fragment in deferred} == {fragment.id for fragment in whole}
        vectors = [fragment.num_deletions for fragment in deferred]
        assert sorted(vectors) == sorted(fragment.num_deletions for fragment in whole) == [0, 3]


@pytest.mark.parametrize("many", [3, 4])
def test_files_of_many_commits_are_listed_as_those_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    table = txlog.Table.create(tmp_path, pa.schema([("a", pa.int64()), ("p", pa.string())]), ["p"])
    for n in range(4):
        table.append(pa.table({"a": pa.array([n], pa.int64()), "p": [f"p{n % 2}"]}))
    table.delete("a = 2")
    whole = table.files(QUICK)
    monkeypatch.setattr("txlog.scan.files._MANY_FILES", many)
    assert sorted_rows(txlog.Table(tmp_path).files(QUICK)) == sorted_rows(whole)
    assert txlog.Table(tmp_path).files(["path", "fragment_id"]).num_rows == whole.num_rows


def test_paths_of_all_files_need_neither_ids_nor_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1]}))
    table.append(pa.table({"x": [2]}))
    expected = sorted(table.scan(where="x > 0").file_uris())

    def refused(*_: Any) -> Any:
        raise AssertionError("ids and counts are computed")

    monkeypatch.setattr("txlog.scan.lazy_plan.plan_live", refused)
    assert sorted(txlog.Table(tmp_path).scan().file_uris()) == expected
