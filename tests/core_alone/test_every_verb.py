"""Every public verb that needs no extra, with only the core's dependencies and pytest.

`.ci/environments` runs this folder in an environment of its own, without the suite's conftest.
"""

import ast
import json
import pickle
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import txlog
from txlog import col, lit
from txlog.extend import context_of
from txlog.scan.scan import Scan
from txlog.table.fragment import TableFragment

ROWS = pa.table({"n": pa.array([1, 2, 3, 4], pa.int64()), "p": ["x", "x", "y", None]})
NEEDS_EXTRA = {"Catalog", "to_polars", "to_pandas", "sql", "progress"}  # See test_extras.py.


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    return txlog.write(tmp_path / "table", ROWS, partition_by="p")


def numbers(table: txlog.Table | Scan) -> list[int]:
    return sorted(table.to_arrow()["n"].to_pylist())


def test_create_write_and_open(tmp_path: Path) -> None:
    uri = tmp_path / "table"
    assert not txlog.Table.exists(uri)
    table = txlog.Table.create(uri, ROWS.schema, name="flights", description="of a test")
    assert txlog.Table.exists(uri)
    assert (table.version, table.count(), table.metadata.name) == (0, 0, "flights")
    with pytest.raises(txlog.AlreadyExistsError):
        txlog.Table.create(uri, ROWS.schema)
    for mode in ("append", "overwrite", "ignore"):
        table = txlog.write(uri, ROWS, mode)
    assert (table.version, table.count(), table.outcome) == (2, 4, None)
    memory = txlog.write("memory://core-alone", ROWS, mode="overwrite")
    assert numbers(memory) == [1, 2, 3, 4]


def test_what_a_table_says_of_itself(table: txlog.Table) -> None:
    assert table.schema.names == ["n", "p"]
    assert [field.name for field in table.snapshot.schema.fields] == ["n", "p"]
    assert table.partition_columns == ["p"]
    assert table.properties == {"txlog.deletionVectors": "auto"}
    assert table.protocol.writer_features is None
    assert table.snapshot.version == table.version == 0
    assert txlog.Table(table.uri, timestamp=table.timestamp_ms).version == 0
    assert context_of(table).store is not None
    assert table.history(1)[0]["version"] == 0
    assert table.files()["num_records"].to_pylist() == [2, 1, 1]
    assert len(table.scan(where="n < 3").file_uris()) == 1
    assert table.capabilities()["append"].can is True
    assert isinstance(table.capabilities()["append"], txlog.Capability)
    assert isinstance(table.maintenance.verify_checksum(), txlog.ChecksumReport)
    assert pickle.loads(pickle.dumps(table)).count() == 4


def test_reading(table: txlog.Table) -> None:
    assert numbers(table.scan(where="n > 1 AND p = 'x'")) == [2]
    assert table.to_arrow(["n"], where=(col("n") + lit(1)) > 4).to_pylist() == [{"n": 4}]
    assert sum(batch.num_rows for batch in table.to_batches()) == 4
    assert table.head(2).num_rows == 2
    assert table.count("p IS NULL") == 1
    with_address = table.to_arrow(["n", "_rowaddr", "_rowid"])
    assert table.take(addresses=with_address["_rowaddr"][:2]).num_rows == 2
    assert table.take([0]).num_rows == 1
    assert table.scan().slice(1, 2) == table.take([1, 2])
    assert table.sample(2).num_rows == 2
    assert table.scan().deletion_vectors().read_all().num_rows == 0


def test_scans(table: txlog.Table) -> None:
    scan = table.scan(where="p = 'y'")
    assert scan.schema == table.schema
    assert len(scan.fragments()) == len(scan.file_uris()) == 1
    assert scan.to_table() == scan.to_arrow() == pa.table(scan)
    assert sum(batch.num_rows for batch in scan.to_batches()) == 1
    assert scan.to_reader().read_all() == scan.to_arrow()
    assert scan.head(1).num_rows == scan.count() == scan.count_rows() == 1
    explanation = scan.explain()
    assert isinstance(explanation, txlog.Explanation)
    assert "1 of 3" in str(explanation) or explanation.files_to_read == 1


def test_converting(tmp_path: Path) -> None:
    (tmp_path / "p=1").mkdir()
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "p=1" / "a.parquet")
    table = txlog.convert_to_delta(tmp_path)
    assert table.to_arrow().to_pylist() == [{"n": 1, "p": 1}, {"n": 2, "p": 1}]


def test_an_audit(table: txlog.Table) -> None:
    with table.audit("nightly", {"c": "max(n) = 4"}) as branch:
        branch.append(ROWS)
    assert table.count() == 8
    with pytest.raises(txlog.AuditFailedError) as caught, table.audit("n", {"c": "min(n) > 1"}):
        pass
    assert caught.value.figures == {"c": {"min(n)": 1}}
    table.branches.discard("n")


def test_following(table: txlog.Table) -> None:
    table.at().delete("n = 1")
    (change,) = table.follow(timeout_s=0)
    assert (change.version, change.operation, change.table.count()) == (1, "DELETE", 3)
    assert list(table.follow(token=change.token, until="latest")) == []


def test_rows_that_do_not_fit(table: txlog.Table) -> None:
    uri, wrong = "memory://core-alone-quarantine", pa.table({"n": [0.5], "p": ["x"]})
    with pytest.raises(txlog.SchemaMismatchError):
        table.append(wrong)
    table.append(wrong, on_error="quarantine", quarantine=uri)
    assert txlog.Table(uri).to_arrow()["rule"].to_pylist() == ["TYPE"]


def test_changing_rows(table: txlog.Table) -> None:
    assert table.append(ROWS.slice(0, 1), txn=("loader", 1)).version == 1
    assert table.append(ROWS.slice(0, 1), txn=("loader", 1)).skipped
    assert table.transaction_version("loader") == 1
    assert table.delete("n = 1").metrics["numDeletedRows"] == 2
    two: txlog.Expression = col("n") == 2
    assert table.delete(two).version == 3
    assert numbers(table) == [3, 4]
    assert table.update({"n": "n + 1"}, "n = 4").metrics["numUpdatedRows"] == 1
    assert table.update(new_values={"n": 4}, where="n = 5").version == 5
    merger = table.merge(pa.table({"n": [4], "p": ["z"]}), "target.n = source.n")
    assert merger.when_matched_delete("source.p = 'none'").execute().version is None
    assert table.upsert(pa.table({"n": [4], "p": ["x"]}), on="n").version == 6
    by_key = table.merge(pa.table({"n": [4], "p": ["x"]}), on="n").when_not_matched_insert_all()
    assert by_key.execute().version is None
    table.overwrite(pa.table({"n": [30], "p": ["y"]}), "p = 'y'")
    assert numbers(table) == [4, 30]
    table.overwrite(pa.table({"n": [31], "p": ["y"]}), partition_mode="dynamic")
    table.append(pa.table({"n": [5], "p": ["x"], "q": [1.5]}), schema_mode="merge")
    assert table.schema.names == ["n", "p", "q"]
    assert numbers(table.refresh()) == [4, 5, 31]
    with pytest.raises(txlog.SchemaMismatchError):
        table.append(pa.table({"n": ["text"]}))


def test_several_changes_in_one_version(table: txlog.Table) -> None:
    with table.transaction() as transaction:
        transaction.append(ROWS)
        transaction.delete("n = 1")
    assert (table.version, numbers(table)) == (1, [2, 2, 3, 3, 4, 4])


def test_upkeep(table: txlog.Table) -> None:
    table.append(ROWS)
    table.delete("n = 4")
    assert table.optimize.compact().version == 3
    assert numbers(table) == [1, 1, 2, 2, 3, 3]
    assert table.optimize.compute_statistics(recompute=True).version is None  # The log is right.
    assert table.maintenance.checkpoint() == 3
    assert set(table.vacuum()["decision"].to_pylist()) == {"keep"}
    assert txlog.Table(table.uri).count() == 6
    assert table.restore(version=0).version == 4
    assert numbers(table) == [1, 2, 3, 4]
    assert txlog.Table(table.uri, version=3).count() == 6


def test_changes(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "table", ROWS)
    # Another writer turns the change data feed on, and adds the same rows once more.
    log = tmp_path / "table" / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    (metadata,) = (action["metaData"] for action in actions if "metaData" in action)
    (add,) = (action["add"] for action in actions if "add" in action)
    features = ["changeDataFeed", "deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": features}
    metadata["configuration"]["delta.enableChangeDataFeed"] = "true"
    shutil.copy(tmp_path / "table" / add["path"], tmp_path / "table" / "again.parquet")
    commit = [
        {"protocol": {**protocol, "readerFeatures": ["deletionVectors"]}},
        {"metaData": metadata},
        {"add": {**add, "path": "again.parquet"}},
    ]
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, commit)))
    changes = table.refresh().changes(1, 1)
    assert isinstance(changes, txlog.Changes)
    assert changes.to_arrow()["_change_type"].to_pylist() == ["insert"] * 4


@pytest.mark.parametrize("form", ["delta", "lance"])
def test_columns(tmp_path: Path, form: str) -> None:
    table = txlog.Table.create(
        tmp_path / "table",
        ROWS.schema,
        properties={"txlog.deletionFormat": form} if form == "lance" else {},
    )
    table.append(ROWS)
    table.alter.add_features("txlog.fragments")
    table.alter.add_columns({"twice": "2 * n"})
    table.alter.add_columns({"next": lambda batch: pc.add(batch["n"], 1)}, read_columns=["n"])
    table.alter.replace_columns({"twice": "3 * n"})
    table.alter.drop_columns("next")
    assert table.delete("n = 1").metrics["numDeletedRows"] == 1
    assert table.to_arrow(["twice"]).to_pylist() == [{"twice": 3 * n} for n in (2, 3, 4)]


def test_fragments(table: txlog.Table) -> None:
    fragment = table.fragments().of_id(0)
    assert isinstance(fragment, TableFragment)
    assert len(table.fragments()) == 3
    assert (fragment.id, fragment.fragment_id, fragment.num_rows) == (0, 0, 2)
    assert (fragment.physical_rows, fragment.num_deletions) == (2, 0)
    assert fragment.value.files == fragment.files == tuple(fragment.data_files())
    assert fragment.deletion is fragment.deletion_file() is None
    assert (fragment.schema, fragment.partition_values) == (table.schema, {"p": "x"})
    assert fragment.is_durable in (True, False)
    assert fragment.count_rows("n > 1") == 1
    assert fragment.to_table().num_rows == fragment.head(2).num_rows == 2
    assert sum(batch.num_rows for batch in fragment.to_batches()) == 2
    assert fragment.scanner(["n"]).to_arrow()["n"].to_pylist() == [1, 2]
    assert fragment.take([1])["n"].to_pylist() == [2]
    assert fragment.take_offsets([1])["n"].to_pylist() == [2]
    fragment.validate()


def test_fragments_of_workers(tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path / "table",
        ROWS.schema,
        properties={"delta.feature.txlog.fragments": "supported"},
    )
    written = [fragment.to_json() for fragment in txlog.write_fragments(ROWS, table.uri)]
    fragments = [txlog.FragmentMetadata.from_json(one) for one in json.loads(json.dumps(written))]
    table.commit(txlog.FragmentOperation.Append(fragments), txn=("nightly", 1))
    assert numbers(table) == [1, 2, 3, 4]
    (fragment,) = table.fragments()
    for updated in (fragment.delete("n = 1"), fragment.delete_rows([0, 1])):
        assert updated is not None
    table.commit(txlog.FragmentOperation.Delete(updated_fragments=[updated]))
    (fragment,) = table.fragments()
    merged, schema = fragment.merge_columns({"twice": "2 * n"})
    table.commit(txlog.FragmentOperation.Merge([merged], schema))
    assert table.to_arrow(["twice"]).to_pylist() == [{"twice": 6}, {"twice": 8}]


def test_columns_that_count_and_are_renamed(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    mapped = {"delta.columnMapping.mode": "name"}
    identity = {"id": txlog.Identity(start=5)}
    table = txlog.Table.create(tmp_path / "t", schema, properties=mapped, identity=identity)
    table.append(pa.table({"n": [1]}))
    table.alter.rename_column("id", "the key")
    assert table.to_arrow().to_pylist() == [{"the key": 5, "n": 1}]


def test_variants() -> None:
    five = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x0c\x05"}])
    assert txlog.variant_to_json(five).to_pylist() == ["5"]
    assert list(txlog.variant_to_python(five)) == [5]


def test_a_catalogs_commits() -> None:
    assert txlog.CatalogCommits(latest_version=3).staged == ()


def test_variants_are_written(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("v", txlog.variant_type())])
    table = txlog.Table.create(tmp_path, schema)
    table.append(pa.table({"v": txlog.variant_from_json(["[1]"])}))
    table.append(pa.table({"v": txlog.variant_from_python([{"a": 2}])}))
    texts = txlog.variant_to_json(table.to_arrow()["v"]).to_pylist()
    assert sorted(texts) == ["[1]", '{"a":2}']


def test_looking_into_a_table(table: txlog.Table) -> None:
    table.append(
        ROWS.slice(0, 1),
        options=txlog.WriteOptions(writer_properties=txlog.WriterProperties(compression="gzip")),
    )
    one_column = {"n": txlog.ColumnProperties(dictionary_enabled=False)}
    properties = txlog.WriterProperties(column_properties=one_column)
    table.append(ROWS.slice(1, 1), options=txlog.WriteOptions(writer_properties=properties))
    assert [row["version"] for row in table.versions().to_pylist()] == [0, 1, 2]
    assert {row["p"] for row in table.partitions().to_pylist()} == {"x", "y", None}
    assert table.files(statistics="flat").num_rows == 5
    assert table.to_pyarrow_dataset().count_rows() == 6
    assert table.diff(0, 2).to_arrow()["n"].to_pylist() == [1, 2]
    assert set(table.blame().to_arrow()["_commit_version"].to_pylist()) == {0, 1, 2}
    assert table.doctor() is not None
    assert table.maintenance.repair() is not None
    assert table.lookup([2], on="n").num_rows == 2
    assert table.lookup_counts([2, 9], on="n").to_pylist() == [2, 0]


def test_large_values(tmp_path: Path) -> None:
    made = txlog.Table.create(tmp_path / "b", pa.schema([txlog.blob("b", above=3)]))
    made.append(pa.table({"b": [b"12345", b"1"]}))
    blobs = made.blobs(made.to_arrow()["b"])
    assert all(isinstance(blob, txlog.Blob) for blob in blobs)
    assert sorted(blob.open().read() for blob in blobs if blob is not None) == [b"1", b"12345"]


def test_indexes(table: txlog.Table) -> None:
    table.indexes.create("n", name="by_n", build=False)
    table.indexes.build()
    table.indexes.merge("by_n")
    assert list(table.indexes.list()) == ["by_n"]
    assert table.lookup([2], on="n")["n"].to_pylist() == [2]
    table.indexes.drop("by_n")
    assert table.indexes.list() == {}
    assert table.contains([2, 9], on="n").to_pylist() == [True, False]


def test_keys_and_order(tmp_path: Path) -> None:
    rows = pa.table({"id": [2, 1]})
    table = txlog.write(tmp_path / "t", rows, properties={"txlog.sortBy": "id"})
    assert list(table.sort_columns) == ["id"]
    assert table.to_arrow()["id"].to_pylist() == [1, 2]
    table.alter.add_constraint({"pk": txlog.unique("id")})
    with pytest.raises(txlog.DuplicateKeyError):
        table.append(rows)
    table.append(pa.table({"id": [2, 3]}), on_conflict="ignore")
    assert table.count() == 3


def test_branches(table: txlog.Table) -> None:
    table.branches.create("b", version=0)
    branch = txlog.Table(table.uri, branch="b")
    branch.append(ROWS.slice(0, 1))
    branch.delete("n = 2")
    assert table.branches.list()["name"].to_pylist() == ["b"]
    assert sum(table.branches.diff("b").count().values()) > 1
    rows = branch.count()
    table.branches.publish("b")
    assert table.count() == rows
    table.branches.create("b")
    table.branches.discard("b")


def test_versions_by_name_and_copies(table: txlog.Table, tmp_path: Path) -> None:
    table.pins.create("good", version=0, reason="a test")
    assert txlog.Table(table.uri, version="good").count() == 4
    assert table.at("good").at().version == table.version
    assert list(table.pins.list()) == ["good"]
    assert table.clone(tmp_path / "copy", shallow=False).count() == 4
    assert table.scan().engine is not None


def test_this_file_uses_every_verb() -> None:
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    verbs = {name for kind in (txlog.Table, Scan, TableFragment) for name in dir(kind)}
    verbs |= {name for name in txlog.__all__ if not name.endswith(("Error", "Warning"))}
    values = {"DataFile", "DeletionFile", "Fragment", "Outcome"}  # What verbs return.
    shown = used | values | NEEDS_EXTRA | {"__version__"}
    assert sorted(name for name in verbs - shown if not name.startswith("_")) == []
