"""Restoring: the new version equals an older one, and the log keeps all commits."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import ROOT as CORPUS
from corpus import rows_sha256
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.verb_calls import append, delete, restore
from txlog.actions.table import DomainMetadata, Metadata, Protocol
from txlog.base.effects import REAL
from txlog.base.errors import (
    DataFileError,
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.commit.intent import Intent
from txlog.commit.loop import commit
from txlog.data_files.deletions import adds_of
from txlog.extend import context_of
from txlog.fragments.ids import ID_APP
from txlog.fragments.rows import FEATURE
from txlog.protocol.access import features_of, merged_protocol
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.testing import unsealed

SCHEMA = pa.schema([("x", pa.int64()), ("p", pa.string())])


def xs(*values: int) -> pa.Table:
    return pa.table({"x": list(values), "p": ["ab"[x % 2] for x in values]}, schema=SCHEMA)


def values(table: txlog.Table) -> list[int]:
    return sorted(int(x) for x in table.to_arrow(["x"])["x"].to_pylist())


def last_commit(table: txlog.Table) -> list[dict[str, Any]]:
    path = Path(table.uri) / "_delta_log" / f"{table.version:020d}.json"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def changed(table: txlog.Table, **actions: Any) -> None:
    """Commit other metadata, another protocol or a domain, as another writer would."""
    base = load_snapshot(context_of(table).store)
    intent = Intent("CHANGE", base.version, "metadata", **actions)
    commit(context_of(table).store, base, intent, effects=REAL)
    table.refresh()


def with_properties(table: txlog.Table, **properties: str) -> Metadata:
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return table.metadata.model_copy(
        update={"configuration": {**table.metadata.configuration, **named}}
    )


@pytest.mark.spec("FRG-35")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_come_back_and_go(tmp_path: Path, vectors: str) -> None:
    table = txlog.write(tmp_path, xs(1, 2, 3), properties={"delta.enableDeletionVectors": vectors})
    table.append(xs(4))
    table.delete("x = 2")
    table.append(xs(5))
    table.delete("x >= 4")
    outcome = table.restore(1, user_metadata="oops")
    assert (outcome.operation, outcome.version) == ("RESTORE", 5)
    assert values(table) == [1, 2, 3, 4]
    info, *actions = last_commit(table)
    said = info["commitInfo"]
    assert said["operation"] == "RESTORE"
    assert said["operationParameters"] == {"version": "1"}
    assert (said["isBlindAppend"], said["userMetadata"]) == (False, "oops")
    then = txlog.Table(tmp_path, version=1).files()
    assert said["operationMetrics"] == {name: str(v) for name, v in outcome.metrics.items()}
    assert outcome.metrics["numOfFilesAfterRestore"] == then.num_rows == 2
    assert outcome.metrics["tableSizeAfterRestore"] == sum(then["size_bytes"].to_pylist())
    assert outcome.metrics["numRestoredFiles"] == 2
    assert outcome.metrics["numRemovedFiles"] == 1
    bodies = [body for line in actions for kind, body in line.items() if kind in ("add", "remove")]
    assert all(body["dataChange"] is True for body in bodies)
    for version, held in enumerate([[1, 2, 3], [1, 2, 3, 4], [1, 3, 4], [1, 3, 4, 5], [1, 3]]):
        assert values(txlog.Table(tmp_path, version=version)) == held
    assert table.restore(4).version == 6
    assert values(table) == [1, 3]


@pytest.mark.spec("FRG-35")
def test_one_path_with_another_vector_is_removed_and_added(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(*range(10)))
    table.delete("x = 1")
    table.delete("x = 2")
    table.restore(1)
    assert values(table) == [0, *range(2, 10)]
    found = {
        kind: body
        for line in last_commit(table)
        for kind, body in line.items()
        if kind in ("add", "remove")
    }
    assert found["add"]["path"] == found["remove"]["path"]
    assert found["add"]["deletionVector"] != found["remove"]["deletionVector"]
    assert json.loads(found["add"]["stats"])["numRecords"] == 10


def test_a_version_that_is_so_already_makes_no_commit(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2))
    assert table.restore(0).version is None
    table.append(xs(3))
    table.delete("x = 3")
    assert table.restore(0).version is None
    assert table.version == 2


@pytest.mark.spec("FRG-36")
def test_ids_come_back_and_are_never_given_again(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path, xs(1, 2), properties={"delta.enableRowTracking": "true"}, partition_by="p"
    )
    columns = ["x", "_rowid", "_fragid", "_row_last_updated_at_version"]
    first = table.to_arrow(columns).sort_by("x")
    table.append(xs(3, 4))
    second = table.to_arrow(columns).sort_by("x")
    table.optimize.compact()
    table.overwrite(xs(9))
    table.restore(0)
    assert table.to_arrow(columns).sort_by("x") == first
    assert table.transaction_version(ID_APP) == 6
    table.restore(1)
    assert table.to_arrow(columns).sort_by("x") == second
    table.append(xs(5))
    new = table.to_arrow(columns, "x = 5").to_pylist()[0]
    ever = {number for v in range(table.version) for number in ids_at(tmp_path, v)}
    assert new["_rowid"] > max(ever)
    assert new["_fragid"] == 7


def ids_at(root: Path, version: int) -> list[int]:
    return [
        int(x)
        for x in txlog.Table(root, version=version).to_arrow(["_rowid"])["_rowid"].to_pylist()
    ]


@pytest.mark.spec("FRG-36")
def test_ids_come_back_though_row_tracking_was_dropped(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2, 3), properties={"delta.enableRowTracking": "true"})
    first = table.to_arrow(["x", "_rowid", "_row_last_updated_at_version"])
    (add,) = adds_of(load_files(context_of(table).store, table.snapshot).live)
    plain = add.model_copy(update={"base_row_id": None, "default_row_commit_version": None})
    mark = table.snapshot.controls.domains["delta.rowTracking"]
    changed(
        table,
        protocol=Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=["deletionVectors"],
            writer_features=["deletionVectors"],
        ),
        metadata=table.metadata.model_copy(update={"configuration": {}}),
        adds=(plain,),
        domains=(mark.model_copy(update={"removed": True}),),
    )
    table.append(xs(4))
    assert not table.snapshot.has_stable_row_ids
    table.restore(0)
    assert table.to_arrow(first.column_names) == first
    table.append(xs(5))
    assert table.to_arrow(["_rowid"])["_rowid"].to_pylist() == [0, 1, 2, 3]


@pytest.mark.spec("FRG-35")
def test_schema_partitioning_and_properties_come_back(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2), partition_by="p", properties={"mine": "1"})
    table.append(pa.table({"x": [3], "p": ["a"], "more": [1.5]}), schema_mode="merge")
    changed(table, metadata=with_properties(table, mine="2", delta__appendOnly="false"))
    table.overwrite(pa.table({"x": ["now"], "p": ["text"]}), schema_mode="overwrite")
    assert table.restore(0)
    assert (table.schema, table.partition_columns) == (SCHEMA, ["p"])
    assert table.properties == {"txlog.deletionVectors": "auto", "mine": "1"}
    assert values(table) == [1, 2]
    table.append(xs(7))
    assert values(table) == [1, 2, 7]
    table.restore(1)
    assert table.to_arrow().sort_by("x").to_pylist() == [
        {"x": 1, "p": "b", "more": None},
        {"x": 2, "p": "a", "more": None},
        {"x": 3, "p": "a", "more": 1.5},
    ]


@pytest.mark.spec("FRG-35")
def test_in_commit_timestamps_go_on(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1))
    stamped = with_properties(
        table,
        delta__enableInCommitTimestamps="true",
        delta__inCommitTimestampEnablementVersion="1",
        delta__inCommitTimestampEnablementTimestamp=str(REAL.now_ms()),
    )
    protocol = table.protocol.model_copy(
        update={"writer_features": ["deletionVectors", "inCommitTimestamp"]}
    )
    changed(table, metadata=stamped, protocol=protocol)
    table.append(xs(2))
    before = table.timestamp_ms
    table.restore(0)
    assert values(table) == [1]
    assert table.properties["delta.inCommitTimestampEnablementVersion"] == "1"
    assert "inCommitTimestamp" in (table.protocol.writer_features or [])
    assert last_commit(table)[0]["commitInfo"]["inCommitTimestamp"] > before


@pytest.mark.spec("FRG-36")
def test_the_protocol_is_not_downgraded(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2), properties={"delta.enableDeletionVectors": "false"})
    assert table.protocol.min_writer_version == 2
    later = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=["deletionVectors"],
        writer_features=["appendOnly", "deletionVectors", "invariants"],
    )
    changed(
        table,
        protocol=later,
        metadata=with_properties(table, delta__enableDeletionVectors="true"),
    )
    table.delete("x = 1")
    table.restore(0)
    assert values(table) == [1, 2]
    assert table.protocol == later
    assert table.properties == {"delta.enableDeletionVectors": "false"}
    kinds = [next(iter(line)) for line in last_commit(table)]
    assert "protocol" not in kinds
    table.delete("x = 1")  # No vectors any more.
    assert table.files()["num_records"].to_pylist() == [1]


@pytest.mark.spec("FRG-36")
def test_a_feature_that_was_dropped_comes_back(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2))
    table.delete("x = 1")
    without = table.metadata.model_copy(update={"configuration": {}})
    table.overwrite(xs(7))
    changed(table, protocol=Protocol(min_reader_version=1, min_writer_version=2), metadata=without)
    table.restore(1)
    assert values(table) == [2]
    assert table.protocol.reader_features == ["deletionVectors"]
    assert features_of(table.protocol) == {"appendOnly", "deletionVectors", "invariants"}


listed = st.builds(
    lambda reader, names: Protocol(
        min_reader_version=3 if reader else 1,
        min_writer_version=7,
        reader_features=["deletionVectors"] if reader else None,
        writer_features=sorted(names | ({"deletionVectors"} if reader else set())),
    ),
    st.booleans(),
    st.sets(st.sampled_from(["appendOnly", "rowTracking", "zebra", "domainMetadata"])),
)
legacy = st.builds(
    lambda versions: Protocol(min_reader_version=versions[0], min_writer_version=versions[1]),
    st.sampled_from([*((1, writer) for writer in range(1, 7)), (2, 5), (2, 6)]),
)


@pytest.mark.spec("FRG-36")
@given(listed | legacy, listed | legacy)
def test_a_merged_protocol_backs_both_and_no_more(one: Protocol, other: Protocol) -> None:
    merged = merged_protocol(one, other)
    both = features_of(one) | features_of(other)
    assert features_of(merged) >= both
    if merged.min_writer_version == 7:
        assert features_of(merged) == both
    assert merged.min_reader_version == max(one.min_reader_version, other.min_reader_version)
    assert merged.min_writer_version == max(one.min_writer_version, other.min_writer_version)
    assert (merged.reader_features is None) == (merged.min_reader_version != 3)
    assert (merged.writer_features is None) == (merged.min_writer_version != 7)
    assert set(merged.reader_features or ()) <= set(merged.writer_features or ())
    assert merged_protocol(one, one) is one
    assert merged_protocol(merged, other) is merged


@pytest.mark.spec("FRG-36")
def test_of_domains_only_clustering_goes_back(tmp_path: Path) -> None:
    properties = {"delta.enableRowTracking": "true"}
    table = txlog.write(tmp_path, xs(1), properties=properties)
    mine = DomainMetadata(domain="mine", configuration="1")
    columns = DomainMetadata(domain="delta.clustering", configuration='{"clusteringColumns":[]}')
    changed(table, domains=(columns, mine))
    other = columns.model_copy(update={"configuration": '{"clusteringColumns":[["x"]]}'})
    changed(table, domains=(other, mine.model_copy(update={"configuration": "2"})))
    table.append(xs(2))
    table.restore(1)
    domains = table.snapshot.controls.domains
    assert domains["delta.clustering"] == columns
    assert domains["mine"].configuration == "2"
    assert domains["delta.rowTracking"].configuration == '{"rowIdHighWaterMark":1}'
    table.restore(0)
    assert table.snapshot.controls.domains["delta.clustering"].removed
    assert table.restore(0).version is None
    table.restore(2)
    assert table.snapshot.controls.domains["delta.clustering"] == other


# What stands in the way --------------------------------------------------------------------------


@pytest.mark.spec("FRG-37")
def test_data_files_that_are_gone_are_named(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(*range(8)), options=txlog.WriteOptions(max_rows_per_file=1))
    paths = table.files()["path"].to_pylist()
    table.delete(None)
    for path in paths[:7]:
        (tmp_path / path).unlink()
    with pytest.raises(DataFileError, match="and 2 more") as caught:
        table.restore(0)
    assert caught.value.version == 0
    assert sum(path in str(caught.value) for path in paths[:7]) == 5
    assert paths[7] not in str(caught.value)
    assert table.refresh().version == 1


@pytest.mark.spec("FRG-37")
@pytest.mark.parametrize("form", ["delta", "lance"])
def test_deletion_files_that_are_gone_are_named(tmp_path: Path, form: str) -> None:
    properties = {"txlog.deletionFormat": "lance"} if form == "lance" else {}
    table = txlog.write(tmp_path, xs(*range(20_000)), properties=properties)
    table.delete("x % 7 = 3 or x % 11 = 5 or x * x % 13 = 4")
    (stored,) = [path for path in tmp_path.rglob("*") if path.suffix in (".bin", ".arrow")]
    table.overwrite(xs(1))
    assert table.restore(1).version == 3
    table.overwrite(xs(1))
    stored.unlink()
    with pytest.raises(DataFileError, match=stored.name):
        table.restore(1)
    assert table.refresh().version == 4
    assert table.restore(0).version == 5  # That one needs no vector.
    assert table.count() == 20_000


def test_a_file_that_stays_needs_no_look(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1))
    (path,) = table.files()["path"].to_pylist()
    table.append(xs(2))
    (tmp_path / path).unlink()
    assert table.restore(0).metrics["numRestoredFiles"] == 0


BAD: dict[str, tuple[type[TxlogError], str, Callable[[txlog.Table], object]]] = {
    "nothing": (InvalidInputError, "either a version or a timestamp", lambda t: t.restore()),
    "both": (InvalidInputError, "either", lambda t: t.restore(0, "2024-01-01")),
    "below zero": (InvalidInputError, "version", lambda t: t.restore(-1)),
    "a truth": (InvalidInputError, "version", lambda t: t.restore(True)),
    "a text": (InvalidInputError, "version", lambda t: t.restore("1")),  # type: ignore[arg-type]
    "the future": (NotFoundError, "latest is 1", lambda t: t.restore(2)),
    "no time": (InvalidInputError, "soon", lambda t: t.restore(timestamp="soon")),
    "too early": (NotFoundError, "before the first", lambda t: t.restore(timestamp=0)),
    "too late": (NotFoundError, "after the last", lambda t: t.restore(timestamp="9999-01-01")),
    "a note": (InvalidInputError, "user_metadata", lambda t: t.restore(0, user_metadata=5)),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_do_nothing(tmp_path: Path, case: str) -> None:
    kind, says, call = BAD[case]
    table = txlog.write(tmp_path, xs(1, 2))
    table.append(xs(3))
    with pytest.raises(kind, match=says):
        call(table)
    assert txlog.Table(tmp_path).version == 1


def test_by_time(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1), properties={"delta.enableInCommitTimestamps": "true"})
    moment = datetime.fromtimestamp(table.timestamp_ms / 1000, UTC)
    table.append(xs(2))
    assert table.restore(timestamp=moment).version == 2
    assert values(table) == [1]
    assert set(table.history(1)[0]["operationParameters"]) == {"timestamp"}


def test_a_version_that_was_cleaned_up(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1))
    table.append(xs(2))
    table.maintenance.checkpoint()
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(NotFoundError):
        table.restore(0)
    assert table.restore(1).version is None


def test_an_append_only_table_is_not_restored(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1), properties={"delta.appendOnly": "true"})
    table.append(xs(2))
    assert not table.capabilities()["restore"]
    with pytest.raises(UnsupportedFeatureError, match="append-only"):
        table.restore(0)


def test_a_version_that_could_not_be_written_is_not_restored(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1), properties={"delta.enableDeletionVectors": "true"})
    path = tmp_path / "_delta_log" / f"{0:020d}.json"
    lines = [orjson.loads(line) for line in unsealed(path.read_bytes()).splitlines()]
    now = table.metadata
    for line in lines:
        if "protocol" in line:
            line["protocol"]["writerFeatures"].append("icebergCompatV2")
        if "metaData" in line:
            line["metaData"]["configuration"]["delta.enableIcebergCompatV2"] = "true"
    path.write_bytes(b"\n".join(map(orjson.dumps, lines)) + b"\n")
    table = txlog.Table(tmp_path)
    changed(table, metadata=now)
    table.append(xs(2))
    with pytest.raises(UnsupportedFeatureError, match="icebergCompatV2"):
        table.restore(0)
    assert table.refresh().version == 2


def test_statistics_that_a_checkpoint_has_as_structs_tell_the_rows(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2, 3))
    table.maintenance.checkpoint()
    path = tmp_path / "_delta_log" / f"{0:020d}.checkpoint.parquet"
    rows = pq.read_table(path)
    adds = rows["add"].to_pylist(maps_as_pydicts="strict")
    for add in adds:
        if add is not None:
            add["stats_parsed"] = {"numRecords": json.loads(add.pop("stats"))["numRecords"]}
            add["partitionValues"], add["tags"] = [], list((add["tags"] or {}).items())
    fields = [f for f in rows.schema.field("add").type if f.name != "stats"]
    kind = pa.struct([*fields, pa.field("stats_parsed", pa.struct([("numRecords", pa.int64())]))])
    at = rows.column_names.index("add")
    pq.write_table(rows.set_column(at, "add", pa.array(adds, kind)), path)
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    table = txlog.Table(tmp_path)
    table.delete(None)
    table.restore(0)
    assert table.files()["stats"].to_pylist() == ['{"numRecords":3}']
    assert values(table) == [1, 2, 3]


# Winners -----------------------------------------------------------------------------------------


@pytest.mark.spec("FRG-35")
def test_what_winners_did_is_undone_too(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1, 2), options=txlog.WriteOptions(max_rows_per_file=1))
    table.append(xs(3))
    place, seen = context_of(table), load_snapshot(context_of(table).store)
    append(place, seen, xs(4))
    delete(place, seen, "x = 1")  # A file that the restore would have left as it is.
    outcome = restore(place, seen, 0).outcome
    assert outcome.version == 4
    assert values(txlog.Table(tmp_path)) == [1, 2]


def test_a_delete_that_lost_to_a_restore_is_done_again(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(*range(6)))
    table.delete("x = 1")
    place, seen = context_of(table), load_snapshot(context_of(table).store)
    restore(place, seen, 0)
    assert delete(place, seen, "x < 3").outcome.metrics["numDeletedRows"] == 3
    assert values(txlog.Table(tmp_path)) == [3, 4, 5]


# A plain model -----------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("delete"), st.integers(0, 4)),
    st.tuples(st.just("overwrite"), st.integers(1, 3)),
    st.tuples(st.just("compact"), st.integers(0, 1)),
    st.tuples(st.just("restore"), st.integers(0, 9)),
    st.tuples(st.just("restore"), st.integers(0, 9)),
    st.tuples(st.just("checkpoint"), st.just(0)),
)


@pytest.mark.spec("FRG-33", "FRG-35", "FRG-36")
@settings(max_examples=examples(25))
@given(st.booleans(), st.booleans(), st.lists(STEPS, min_size=3, max_size=9))
def test_any_order_of_verbs(vectors: bool, tracked: bool, steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        properties = {
            "delta.enableDeletionVectors": str(vectors).lower(),
            "delta.enableRowTracking": str(tracked).lower(),
        }
        table = txlog.Table.create(root, SCHEMA, ["p"], properties)
        # Of each version its rows; with tracking each row's id and version go along.
        model: list[set[int]] = [set()]
        ids: list[dict[int, tuple[int, int]]] = [{}]
        following, given = 0, dict[int, int]()
        for name, number in steps:
            held, kept = model[-1], ids[-1]
            if name == "append":
                fresh = range(following, following + number)
                following += number
                table.append(xs(*fresh), options=txlog.WriteOptions(max_rows_per_file=2))
                held = held | set(fresh)
            elif name == "delete":
                table.delete(f"x % 5 = {number}")
                held = {x for x in held if x % 5 != number}
            elif name == "overwrite":
                held = set(range(following, following + number))
                following += number
                table.overwrite(xs(*held))
            elif name == "compact":
                table.optimize.compact(max_deleted_fraction=number)
            elif name == "restore":
                table.restore(number % len(model))
                held, kept = model[number % len(model)], ids[number % len(model)]
            else:
                table.maintenance.checkpoint()
            assert set(values(table)) == held
            assert table.count() == len(held)
            if table.version == len(model):
                model.append(held)
                ids.append({})
            assert table.version == len(model) - 1
            if tracked:
                found = table.to_arrow(["x", "_rowid", "_row_last_updated_at_version"])
                ids[-1] = {r["x"]: tuple(list(r.values())[1:]) for r in found.to_pylist()}
                for x, pair in ids[-1].items():
                    assert kept.get(x, pair) == pair
                    assert given.setdefault(pair[0], x) == x  # No id is ever another row's.
        for version, held in enumerate(model):
            assert set(values(txlog.Table(root, version=version))) == held


# Others ------------------------------------------------------------------------------------------


def test_others_read_a_restored_table(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = txlog.write(
        tmp_path, xs(*range(20)), partition_by="p", options=txlog.WriteOptions(max_rows_per_file=3)
    )
    table.delete("x % 7 = 2")
    table.overwrite(xs(50))
    table.restore(1)
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    found = pa.table(query.execute("select x from t"))
    assert sorted(found["x"].to_pylist()) == values(table) == [x for x in range(20) if x % 7 != 2]


@pytest.mark.slow
@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not here")
@pytest.mark.parametrize(
    "name",
    [
        "delta_prs/streaming-dv-rt-append",
        "delta_prs/streaming-row-tracking-append",
        "delta_rs/delta-0.8.0-partitioned",
        "delta_rs/delta-1.2.1-only-struct-stats",
        "delta_rs/partition-type-primitives",
        "delta_spark_fixed/partitioned-table-with-dv-large",
    ],
)
@pytest.mark.filterwarnings("ignore:.*its checkpoint failed:txlog.TxlogWarning")
def test_tables_of_others_are_restored_version_by_version(tmp_path: Path, name: str) -> None:
    root = tmp_path / "t"
    shutil.copytree(CORPUS / "tables" / name, root)
    table = txlog.Table(root)
    last = table.version
    expected = []
    for version in range(last + 1):
        try:
            expected.append(rows_sha256(txlog.Table(root, version=version).to_arrow()))
        except TxlogError:
            expected.append("")
    for version, rows in enumerate(expected):
        if not rows:
            continue
        table.restore(version)
        assert rows_sha256(table.to_arrow()) == rows
        table.optimize.compact()
        assert rows_sha256(table.to_arrow()) == rows


def test_the_nearest_version_of_a_moment_outside(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1))
    table.append(xs(2))
    for moment in ("2001-01-01", "2999-01-01"):
        with pytest.raises(NotFoundError, match="version"):
            table.restore(timestamp=moment)
    with pytest.raises(InvalidInputError, match="error or nearest"):
        table.restore(timestamp="2001-01-01", out_of_range="near")  # type: ignore[arg-type]
    table.restore(timestamp="2001-01-01", out_of_range="nearest")
    assert values(table) == [1]
    assert table.restore(timestamp="2999-01-01", out_of_range="nearest").version is None


def test_files_that_are_gone_may_be_left_out(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, xs(1))
    table.append(xs(2))
    (lost,) = (f.files[0].path for f in table.fragments() if f.count_rows("x = 1"))
    table.delete(None)
    (tmp_path / lost).unlink()
    with pytest.raises(DataFileError, match="are missing"):
        table.restore(1)
    outcome = table.restore(1, ignore_missing_files=True)
    assert values(table) == [2]
    assert outcome.metrics["numRestoredFiles"] == 1


@pytest.mark.spec("FRG-35")
@pytest.mark.parametrize("form", ["delta", "lance"])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_version_whose_files_may_not_be_read_is_restored_away(
    tmp_path: Path, form: str, checkpointed: bool
) -> None:
    """Another writer left out the feature that column files and Lance's deletion files need."""
    properties = {"txlog.deletionFormat": form, "delta.enableChangeDataFeed": "true"}
    table = txlog.write(tmp_path, xs(1, 2, 3), properties=properties)
    listed = table.snapshot.protocol
    table.append(xs(4))
    before = table.version
    if form == "lance":
        table.delete("x = 2")
    else:
        table.alter.add_features("txlog.fragments")
        table.alter.add_columns({"y": "x + 1"})
        listed = table.snapshot.protocol
    if checkpointed:
        table.maintenance.checkpoint()
    names = {
        "reader_features": [one for one in listed.reader_features or () if one != FEATURE],
        "writer_features": [one for one in listed.writer_features or () if one != FEATURE],
    }
    changed(table, protocol=listed.model_copy(update=names))
    with pytest.raises(LogCorruptError, match=r"does not list it.* restore a version without"):
        table.to_arrow()
    with pytest.raises(LogCorruptError, match="does not list it"):
        table.restore(table.version)
    table.restore(before)
    opened = txlog.Table(tmp_path)
    assert values(opened) == [1, 2, 3, 4]
    assert opened.schema.names == ["x", "p"]
    assert [one for one in opened.doctor() if one.severity == "error"] == []
    opened.append(xs(5))
    assert values(opened) == [1, 2, 3, 4, 5]
    last = opened.changes(opened.version, opened.version).to_arrow()
    assert last["x"].to_pylist() == [5]
