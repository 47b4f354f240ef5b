"""Fragments that workers wrote, passed on as JSON, and committed by one driver."""

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import txlog
from txlog import FragmentMetadata, FragmentOperation

FEATURE = {"delta.feature.txlog.fragments": "supported"}
WORKER = """
import json, sys
import pyarrow as pa, txlog
start = int(sys.argv[2])
found = txlog.write_fragments(pa.table({"x": range(start, start + 5)}), sys.argv[1])
print(json.dumps([fragment.to_json() for fragment in found]))
"""


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    schema = pa.schema([("x", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties=FEATURE)
    table.append(pa.table({"x": range(10)}), options=txlog.WriteOptions(max_rows_per_file=5))
    return table


def over_the_wire(found: list[FragmentMetadata]) -> list[FragmentMetadata]:
    return [FragmentMetadata.from_json(json.dumps(held.to_json())) for held in found]


def rows(table: txlog.Table) -> list[int]:
    return sorted(txlog.Table(table.uri).to_arrow()["x"].to_pylist())


def data_files(table: txlog.Table) -> set[str]:
    return {path.name for path in Path(table.uri).rglob("*.parquet")}


@pytest.mark.spec("FRG-24")
def test_a_held_handle_knows_what_others_committed(table: txlog.Table) -> None:
    """A handle that failed looks again from where it stood, with other commits as one part."""
    other = txlog.Table(table.uri)
    one, two, three = (
        txlog.write_fragments(pa.table({"x": range(start, start + 5)}), table.uri)
        for start in (100, 200, 300)
    )
    table.commit(FragmentOperation.Append(one))
    other.commit(FragmentOperation.Append(two))
    with pytest.raises(txlog.InvalidInputError, match="committed before"):
        table.commit(FragmentOperation.Append(two))
    other.commit(FragmentOperation.Append(three))
    other.append(pa.table({"x": range(400, 500)}), options=txlog.WriteOptions(max_rows_per_file=1))
    with pytest.raises(txlog.InvalidInputError, match="committed before"):
        table.commit(FragmentOperation.Append(three))
    assert rows(table) == [*range(10), *range(100, 105), *range(200, 205), *range(300, 305),
                           *range(400, 500)]  # fmt: skip


@pytest.mark.slow
@pytest.mark.spec("FRG-24")
def test_workers_write_and_one_driver_commits(table: txlog.Table) -> None:
    found = []
    for start in (100, 200):
        done = subprocess.run(
            [sys.executable, "-c", WORKER, table.uri, str(start)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found += [FragmentMetadata.from_json(json.dumps(one)) for one in json.loads(done.stdout)]
    assert rows(table) == [*range(10)]  # Nothing is there before the commit.
    assert [(f.id, f.physical_rows, f.num_deletions) for f in found] == [(None, 5, 0)] * 2
    outcome = table.commit(FragmentOperation.Append(found))
    assert outcome.version == 2
    assert outcome.metrics["numOutputRows"] == 10
    assert rows(table) == [*range(10), *range(100, 105), *range(200, 205)]
    assert [f.id for f in table.fragments()] == [0, 1, 2, 3]


@pytest.mark.spec("FRG-24")
def test_a_commit_that_is_repeated(table: txlog.Table) -> None:
    found = txlog.write_fragments(pa.table({"x": [50]}), table)
    table.commit(FragmentOperation.Append(found), txn=("job", 1))
    assert table.commit(FragmentOperation.Append(found), txn=("job", 1)).skipped
    with pytest.raises(txlog.InvalidInputError, match="committed before"):
        table.commit(FragmentOperation.Append(found))
    assert rows(table) == [*range(10), 50]
    assert table.to_arrow(where="x = 50").num_rows == 1  # Its file is still there.


@pytest.mark.spec("FRG-24")
def test_overwrite(table: txlog.Table) -> None:
    found = over_the_wire(txlog.write_fragments(pa.table({"x": [7, 8]}), table.uri))
    table.append(pa.table({"x": [99]}))  # It goes too, though it came later.
    table.commit(FragmentOperation.Overwrite(found))
    assert rows(table) == [7, 8]
    assert [f.id for f in table.fragments()] == [3]


@pytest.mark.spec("FRG-24")
def test_fragments_of_before_a_change(table: txlog.Table) -> None:
    found = txlog.write_fragments(pa.table({"x": [50]}), table)
    table.append(pa.table({"x": [51], "y": ["a"]}), schema_mode="merge")
    table.commit(FragmentOperation.Append(found))  # Another nullable column does no harm.
    assert rows(table) == [*range(10), 50, 51]
    late = txlog.write_fragments(pa.table({"x": [60]}), table)
    table.overwrite(pa.table({"x": ["text"]}), schema_mode="overwrite")
    with pytest.raises(txlog.CommitConflictError, match="columns x"):
        table.commit(FragmentOperation.Append(late))
    assert late[0].files[0].path in data_files(table)  # It is the worker's, not ours to delete.


@pytest.mark.spec("FRG-25")
def test_a_delete_in_two_steps(table: txlog.Table) -> None:
    first, second = table.fragments()
    part = first.delete("x IN (1, 2)")
    assert part is not None
    assert (part.num_deletions, part.num_rows) == (2, 3)
    assert second.delete("x >= 0") is None
    unchanged = second.delete("x = 77")
    assert unchanged == second.metadata
    assert rows(table) == [*range(10)]
    (sent,) = over_the_wire([part])
    outcome = table.commit(
        FragmentOperation.Delete([sent], deleted_fragment_ids=[1], predicate="x IN (1, 2) OR x > 4")
    )
    assert outcome.metrics["numDeletedRows"] == 7
    assert rows(table) == [0, 3, 4]
    assert [f.id for f in table.fragments()] == [0]


@pytest.mark.spec("FRG-25", "CON-10")
def test_other_rows_unite_and_the_same_row_is_a_conflict(table: txlog.Table) -> None:
    seen = txlog.Table(table.uri)
    (mine, other), path = seen.fragments(), seen.fragments()[0].files[0].path
    first = [mine.delete_rows([0]), mine.delete_rows([3, 4]), mine.delete_rows([4])]
    assert all(first)
    table.delete("x = 1")
    txlog.Table(table.uri).delete("x = 7")
    seen.commit(FragmentOperation.Delete([first[0]]))
    assert rows(table) == [2, 3, 4, 5, 6, 8, 9]
    stale = txlog.Table(table.uri, version=1)
    stale.commit(FragmentOperation.Delete([first[1]]))
    assert rows(table) == [2, 5, 6, 8, 9]
    with pytest.raises(txlog.CommitConflictError, match="position 4") as raised:
        txlog.Table(table.uri, version=1).commit(FragmentOperation.Delete([first[2]]))
    assert raised.value.path == path
    assert raised.value.rule == "CON-10"
    whole = txlog.Table(table.uri, version=1)
    with pytest.raises(txlog.CommitConflictError):  # A row of it was deleted meanwhile.
        whole.commit(FragmentOperation.Delete([], deleted_fragment_ids=[other.id]))
    assert rows(table) == [2, 5, 6, 8, 9]


@pytest.mark.spec("FRG-26")
def test_columns_in_two_steps(table: txlog.Table) -> None:
    table.delete("x = 3")
    found = []
    for fragment in table.fragments():
        sent = pickle.loads(pickle.dumps(fragment))  # A worker has it without the log.
        held, schema = sent.merge_columns({"y": "x * 2"})
        found.append(held)
    assert "y" not in txlog.Table(table.uri).schema.names
    outcome = table.commit(FragmentOperation.Merge(over_the_wire(found), schema))
    assert outcome.metrics["numAddedFiles"] == 2
    expected = {x: 2 * x for x in range(10) if x != 3}
    got = table.to_arrow()
    assert dict(zip(got["x"].to_pylist(), got["y"].to_pylist(), strict=True)) == expected
    with pytest.raises(txlog.CommitConflictError):
        txlog.Table(table.uri, version=2).commit(FragmentOperation.Merge(found, schema))


@pytest.mark.spec("FRG-27")
def test_rewrite(table: txlog.Table) -> None:
    table.delete("x = 3")
    old = [f.metadata for f in table.fragments()]
    new = txlog.write_fragments(table.scan(), table)
    table.commit(
        FragmentOperation.Rewrite([FragmentOperation.RewriteGroup(old, over_the_wire(new))])
    )
    assert rows(table) == [x for x in range(10) if x != 3]
    assert [(f.id, f.num_deletions) for f in table.fragments()] == [(2, 0)]
    log = (Path(table.uri) / "_delta_log" / f"{3:020d}.json").read_text().splitlines()
    changes = [json.loads(line) for line in log]
    files = [body for line in changes for key, body in line.items() if key in ("add", "remove")]
    assert len(files) == 3
    assert not any(body["dataChange"] for body in files)
    less = txlog.write_fragments(pa.table({"x": [1]}), table)
    group = FragmentOperation.RewriteGroup([f.metadata for f in table.fragments()], less)
    with pytest.raises(txlog.InvalidInputError, match="a rewrite must keep all rows"):
        table.commit(FragmentOperation.Rewrite([group]))


@pytest.mark.spec("FRG-27")
def test_a_rewrite_loses_to_a_delete(table: txlog.Table) -> None:
    seen = txlog.Table(table.uri)
    new = txlog.write_fragments(seen.scan(), seen)
    group = FragmentOperation.RewriteGroup([f.metadata for f in seen.fragments()], new)
    table.delete("x = 3")
    with pytest.raises(txlog.CommitConflictError):
        seen.commit(FragmentOperation.Rewrite([group]))
    assert rows(table) == [x for x in range(10) if x != 3]


def test_bad_operations(table: txlog.Table) -> None:
    (new,) = txlog.write_fragments(pa.table({"x": [50]}), table)
    old = table.fragments()[0].metadata
    other = txlog.write("memory://elsewhere", pa.table({"x": [1]}), mode="overwrite")
    (foreign,) = txlog.write_fragments(pa.table({"x": [1]}), other)
    restored = table.fragments()[0].delete("x = 1")
    assert restored is not None
    faults: list[tuple[Any, str]] = [
        (FragmentOperation.Append([new, new]), "given twice"),
        (FragmentOperation.Append([old]), "not a new one"),
        (FragmentOperation.Append([foreign]), "another table"),
        (FragmentOperation.Append(["text"]), "FragmentMetadata was expected"),  # type: ignore[list-item]
        (FragmentOperation.Delete([new]), "has no fragment None"),
        (FragmentOperation.Delete([], deleted_fragment_ids=[7]), "has no fragment 7"),
        (
            FragmentOperation.Delete([restored], deleted_fragment_ids=[0]),
            "both updated and deleted",
        ),
        (FragmentOperation.Merge([old], pa.schema([("x", pa.string())])), "x"),
        ("append", "a FragmentOperation was expected"),
    ]
    for operation, reason in faults:
        with pytest.raises(txlog.InvalidInputError, match=reason):
            table.commit(operation)
    table.delete("x = 2")
    later = table.fragments()[1].metadata
    with pytest.raises(txlog.InvalidInputError, match="read from the versions"):
        table.commit(FragmentOperation.Delete([restored, later]))
    assert txlog.Table(table.uri).version == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[]", "an object"),
        ('{"id": 0, "other": 1}', "an object"),
        ('{"id": -1, "read_version": 0, "files": [{}]}', "fragment id"),
        ('{"id": 0, "read_version": "0", "files": [{}]}', "not a version"),
        ('{"id": 0, "read_version": 0, "files": []}', "list of files"),
        ('{"id": 0, "read_version": 0, "files": [{"path": "a"}]}', "partitionValues"),
        ('{"id": 0, "read_version": 0, "files": [7]}', "dictionary"),
    ],
)
def test_bad_json(text: str, reason: str) -> None:
    with pytest.raises(txlog.InvalidInputError, match=reason):
        FragmentMetadata.from_json(text)


def test_metadata_survives_json(table: txlog.Table) -> None:
    table.delete("x IN (1, 8)")
    table.alter.add_columns({"y": "x"})
    for fragment in table.fragments():
        held = fragment.metadata
        assert FragmentMetadata.from_json(held.to_json()) == held
        assert FragmentMetadata.from_json(json.dumps(held.to_json())) == held
        assert held.files == fragment.files
        assert held.deletion_file == fragment.deletion_file()
        assert (held.id, held.physical_rows, held.num_rows) == (fragment.id, 5, 4)


@pytest.mark.spec("FRG-26")
def test_columns_that_do_not_fit_their_fragment(table: txlog.Table) -> None:
    first, second = table.fragments()
    held, schema = first.merge_columns({"y": "x"})
    other, _ = second.merge_columns({"y": "x"})
    faults = {
        "does not exist": replaced(held, tags={"txlog.fragmentId": "9", "txlog.fields": '["y"]'}),
        "contains column y": replace(held, adds=(*held.adds, other.adds[1].model_copy(
            update={"tags": held.adds[1].tags}))),
        "rows, but the primary": replaced(held, stats='{"numRecords":4}'),
        "is also the primary of fragment 0": replaced(held, tags={"txlog.fragmentId": "0"}),
    }  # fmt: skip
    for reason, found in faults.items():
        with pytest.raises(txlog.InvalidInputError, match=reason):
            table.commit(FragmentOperation.Merge([found], schema))
    with pytest.raises(txlog.InvalidInputError, match="the schema does not"):
        table.commit(FragmentOperation.Merge([held], table.schema))
    assert txlog.Table(table.uri).version == 1
    plain = txlog.write(f"{table.uri}-plain", pa.table({"x": [1]}))
    with pytest.raises(txlog.UnsupportedFeatureError, match="add_feature"):
        plain.commit(FragmentOperation.Merge([plain.fragments()[0].metadata], plain.schema))


def replaced(held: FragmentMetadata, **fields: Any) -> FragmentMetadata:
    """Change the `add` of the column file."""
    return replace(held, adds=(held.adds[0], held.adds[1].model_copy(update=fields)))


@pytest.mark.spec("FRG-25")
def test_deletions_that_the_table_cannot_have(tmp_path: Path) -> None:
    plain = txlog.write(tmp_path / "t", pa.table({"x": range(10)}))
    (fragment,) = plain.fragments()
    held = fragment.delete("x = 1")
    assert held is not None
    vector = held.adds[0].deletion_vector
    assert vector is not None
    lance = vector.model_copy(update={"storage_type": "lance", "path_or_inline_dv": "0-0-1.arrow"})
    sent = replace(held, adds=(held.adds[0].model_copy(update={"deletion_vector": lance}),))
    with pytest.raises(txlog.UnsupportedFeatureError, match="deletion files of this form"):
        plain.commit(FragmentOperation.Delete([sent]))
    assert not plain.commit(
        FragmentOperation.Delete([fragment.metadata])
    )  # Nothing to do: not a version.
    assert plain.commit(FragmentOperation.Delete([held])).version == 1
    assert plain.count() == 9


@pytest.mark.parametrize(
    "operation",
    [
        FragmentOperation.Append(None),  # type: ignore[arg-type]
        FragmentOperation.Delete([], [[1]]),  # type: ignore[list-item]
        FragmentOperation.Delete([], 5),  # type: ignore[arg-type]
        FragmentOperation.Delete([], [0], read_version="x"),  # type: ignore[arg-type]
        FragmentOperation.Merge([], None),  # type: ignore[arg-type]
        FragmentOperation.Rewrite([5]),  # type: ignore[list-item]
        FragmentOperation.Rewrite(None),  # type: ignore[arg-type]
        FragmentOperation.Rewrite([FragmentOperation.RewriteGroup(None, [])]),  # type: ignore[arg-type]
    ],
    ids=map(str, range(8)),
)
def test_operations_of_other_things(table: txlog.Table, operation: Any) -> None:
    with pytest.raises(txlog.InvalidInputError, match="not valid for this field"):
        table.commit(operation)


@pytest.mark.parametrize(
    "features", [(), (None,), (["txlog.fragments"],)], ids=["none", "null", "list"]
)
def test_features_of_other_things(table: txlog.Table, features: Any) -> None:
    with pytest.raises(txlog.InvalidInputError, match="names of features"):
        table.alter.add_features(*features)


@pytest.mark.spec("FRG-24")
def test_fragments_are_written_before_their_table(tmp_path: Path) -> None:
    place, found = tmp_path / "t", list[FragmentMetadata]()
    for start in (0, 10):
        data = pa.table({"x": range(start, start + 3), "p": ["a", "b", "b"]})
        found += txlog.write_fragments(data, place, partition_by="p")
    assert not txlog.Table.exists(place)
    schema = pa.schema([("x", pa.int64()), ("p", pa.string())])
    other = pa.schema([("x", pa.int32()), ("p", pa.string())])
    for columns, partitions in ((other, ["p"]), (schema, [])):
        with pytest.raises(txlog.InvalidInputError, match="partitioning or constraints"):
            txlog.Table.create(place, columns, partitions, fragments=over_the_wire(found))
    with pytest.raises(txlog.InvalidInputError, match="given twice"):
        txlog.Table.create(place, schema, ["p"], fragments=[*found, found[0]])
    assert not txlog.Table.exists(place)
    table = txlog.Table.create(place, schema, ["p"], fragments=over_the_wire(found[:3]))
    assert table.version == 0
    assert len(data_files(table)) == 4  # What was refused is still there.
    table.commit(FragmentOperation.Append(over_the_wire(found[3:])))
    assert rows(table) == [0, 1, 2, 10, 11, 12]
    assert deltalake.DeltaTable(place).to_pyarrow_table().num_rows == 6
    with pytest.raises(txlog.InvalidInputError, match="committed before"):
        table.commit(FragmentOperation.Append(found))
    with pytest.raises(txlog.InvalidInputError, match="partition"):
        txlog.write_fragments(data, place, partition_by="x")
    with pytest.raises(txlog.AlreadyExistsError):
        txlog.Table.create(place, schema, ["p"], fragments=found)
    with pytest.raises(txlog.InvalidInputError, match="for a new table"):
        txlog.Table.create(place, schema, ["p"], fragments=found, mode="overwrite")
    assert len(data_files(table)) == 4
