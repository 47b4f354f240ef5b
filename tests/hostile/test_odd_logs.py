"""Unusual logs are read according to the protocol, or refused with a reason."""

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog import col
from txlog.base.effects import REAL, Effects
from txlog.commit.context import Context
from txlog.snapshot.time_travel import snapshot_at
from txlog.store.open import open_store

ROWS = pa.table({"a": [1, 2, 3], "s": ["x", "y", "z"]})
VECTORS = {
    "minReaderVersion": 3, "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"],
}  # fmt: skip
MAPPED = {"minReaderVersion": 2, "minWriterVersion": 5}
TRACKED = {"delta.enableRowTracking": "true"}
_CPU_S = 8.0


def field(name: str, kind: Any = "long", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


def metadata(**changes: Any) -> dict[str, Any]:
    plain = {
        "id": "x", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
        "schemaString": schema(field("a"), field("s", "string")), "configuration": {},
    }  # fmt: skip
    return {name: value for name, value in {**plain, **changes}.items() if value is not ...}


def log(root: Path, version: int, *lines: str | dict[str, Any]) -> None:
    """Write one commit; text is written as it is."""
    folder = root / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / f"{version:020d}.json").write_text("\n".join(texts) + "\n")


def begin(
    root: Path, *lines: str | dict[str, Any], protocol: dict[str, Any] | None = None, **changes: Any
) -> None:
    protocol = protocol or {"minReaderVersion": 1, "minWriterVersion": 2}
    log(root, 0, {"protocol": protocol}, {"metaData": metadata(**changes)}, *lines)


def add(root: Path, name: str = "f", **fields: Any) -> dict[str, Any]:
    pq.write_table(ROWS, root / name)
    plain = {
        "path": name, "partitionValues": {}, "size": (root / name).stat().st_size,
        "modificationTime": 0, "dataChange": True,
    }  # fmt: skip
    return {"add": {**plain, **fields}}


@pytest.mark.parametrize(
    "name",
    [
        "99999999999999999999.json",
        "00000000000000000000.99999999999999999999.compacted.json",
        "99999999999999999999.checkpoint.parquet",
    ],
)
def test_a_number_above_63_bits_is_no_version(tmp_path: Path, name: str) -> None:
    txlog.write(tmp_path, ROWS)
    (tmp_path / "_delta_log" / name).write_text("{}\n")
    assert txlog.Table(tmp_path).version == 0


@pytest.mark.parametrize(
    "name",
    [
        "09223372036854775807.json",
        "00000000000900000000.json",
        "00000000000000000002.00000000900000000000.compacted.json",
    ],
)
def test_a_stray_file_far_away_costs_no_time(tmp_path: Path, name: str) -> None:
    txlog.write(tmp_path, ROWS)
    (tmp_path / "_delta_log" / name).write_text("{}\n")
    with pytest.raises(txlog.LogCorruptError):  # It never ended.
        txlog.Table(tmp_path).to_arrow()
    assert txlog.Table(tmp_path, version=0).count() == 3


def test_twenty_thousand_partition_columns(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(20_000)]
    tmp_path.mkdir(exist_ok=True)
    file = add(tmp_path, partitionValues=dict.fromkeys(names, "1"))
    begin(
        tmp_path, file,
        schemaString=schema(field("a"), *map(field, names)), partitionColumns=names,
    )  # fmt: skip
    began = time.process_time()
    table = txlog.Table(tmp_path)
    assert table.scan(columns=["a", "c9"]).to_arrow()["c9"].to_pylist() == [1, 1, 1]
    assert time.process_time() - began < _CPU_S  # It was quadratic: 16 s for opening alone.


LINES: dict[str, tuple[str, str]] = {
    "5,000 digits": ('{"add":{"path":"f","size":' + "9" * 5000 + "}}", "digits"),
    "a path twice": ('{"add":{"path":"g","path":"f"}}', "'path' occurs twice"),
    "an action twice": ('{"txn":{"appId":"a","version":1},"txn":{}}', "'txn' occurs twice"),
    "half of a pair of UTF-16": (
        '{"remove":{"path":"\\ud800","dataChange":true,"deletionTimestamp":1}}',
        "surrogates|unicode",
    ),
    "too deep": ('{"add":' * 100_000 + "1" + "}" * 100_000, "recursion"),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_is_no_action(tmp_path: Path, name: str) -> None:
    line, says = LINES[name]
    begin(tmp_path, line)
    with pytest.raises(txlog.LogCorruptError, match=f"(?s){says}.*line=3"):
        txlog.Table(tmp_path).files()


FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "a negative size": ({"size": -5}, "add.size"),
    "an empty vector": ({"deletionVector": {}}, "add.deletionVector"),
    "a negative cardinality": (
        {"deletionVector": {
            "storageType": "i", "pathOrInlineDv": "00000", "sizeInBytes": 4, "cardinality": -5,
        }},
        "add.deletionVector.cardinality",
    ),
}  # fmt: skip


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_is_wrong(tmp_path: Path, name: str, many: bool) -> None:
    fields, says = FIELDS[name]
    begin(tmp_path, protocol=VECTORS)
    others = [add(tmp_path, f"g{number}") for number in range(200 if many else 0)]
    log(tmp_path, 1, *others, add(tmp_path, **fields))
    with pytest.raises(txlog.LogCorruptError, match=says):
        txlog.Table(tmp_path).to_arrow()


@pytest.mark.parametrize("form", ["delta", "lance"])
def test_a_vector_that_should_hold_no_row_brings_none_back(tmp_path: Path, form: str) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    if form == "lance":
        properties = {
            "txlog.deletionFormat": "lance", "delta.feature.txlog.fragments": "supported",
        }  # fmt: skip
    txlog.write(tmp_path, ROWS, properties=properties).delete("a = 2")
    commit = tmp_path / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).get("deletionVector", {})["cardinality"] = 0
    log(tmp_path, 1, *actions)  # Spaced like this, the commit has no checksum of txlog.
    table = txlog.Table(tmp_path)
    for ask in (table.to_arrow, lambda: table.take([1]), lambda: table.delete("a = 3")):
        with pytest.raises(txlog.BadDeletionVectorError, match="holds 1 rows, but the log says 0"):
            ask()


@pytest.mark.parametrize("form", ["delta", "lance"])
@pytest.mark.parametrize("stated", [5, 2**63 - 1])
def test_more_deleted_rows_than_rows_are_no_negative_number(
    tmp_path: Path, form: str, stated: int
) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    if form == "lance":
        properties = {
            "txlog.deletionFormat": "lance", "delta.feature.txlog.fragments": "supported",
        }  # fmt: skip
    written = txlog.write(
        tmp_path, ROWS, options=txlog.WriteOptions(max_rows_per_file=3), properties=properties
    )
    written.append(ROWS)
    written.delete("a = 2")
    commit = tmp_path / "_delta_log" / f"{2:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        vector = (action.get("add") or {}).get("deletionVector", {})
        vector.update(cardinality=stated, **({"offset": None} if form == "lance" else {}))
    log(tmp_path, 2, *actions)
    table = txlog.Table(tmp_path)
    held = table.fragments()
    assert [one.num_rows for one in held] == [None, None]
    assert [one.metadata.num_rows for one in held] == [None, None]
    assert [one.num_deletions for one in held] == [stated, stated]
    asks: list[Callable[[], object]] = [
        table.to_arrow, table.count, lambda: table.scan().slice(5), lambda: table.scan().head(1),
        lambda: table.scan().slice(2, 1), lambda: table.optimize.compact(), held[0].count_rows,
        lambda: table.delete("a = 3"),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(txlog.BadDeletionVectorError):
            ask()
    gone = table.delete(None)  # All of it goes, whatever it held.
    assert (gone.metrics["numDeletedRows"], table.count()) == (0, 0)


def test_a_negative_size_in_a_checkpoint(tmp_path: Path) -> None:
    begin(tmp_path)
    log(tmp_path, 1, add(tmp_path))
    txlog.Table(tmp_path).maintenance.checkpoint()
    (file,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(file).to_pylist()
    for row in rows:
        if row["add"] is not None:
            row["add"]["size"] = -1
    pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(file)), file)
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(txlog.LogCorruptError, match="size is below 0"):
        txlog.Table(tmp_path).files()


def test_a_path_in_a_checkpoint_that_is_no_text(tmp_path: Path) -> None:
    begin(tmp_path)
    log(tmp_path, 1, add(tmp_path))
    txlog.Table(tmp_path).maintenance.checkpoint()
    (file,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(file)
    at = rows.schema.get_field_index("add")
    adds = rows.column(at).combine_chunks()
    children = {inner.name: adds.field(inner.name) for inner in adds.type}
    paths = pa.array([b"\xff" if path else None for path in children["path"].to_pylist()])
    children["path"] = pa.Array.from_buffers(pa.string(), len(paths), paths.buffers())
    made = pa.StructArray.from_arrays(
        list(children.values()), names=list(children), mask=adds.is_null()
    )
    pq.write_table(rows.set_column(at, "add", made), file)
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(txlog.LogCorruptError, match=r"UTF8|UTF-8|utf-8"):
        txlog.Table(tmp_path).files()


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "no configuration": ({"configuration": ...}, "metaData.configuration"),
    "no partition columns": ({"partitionColumns": ...}, "metaData.partitionColumns"),
    "a partition column twice": ({"partitionColumns": ["a", "a"]}, "is named twice"),
    "twice but for case": ({"partitionColumns": ["a", "A"]}, "is named twice"),
    "no physical name": (
        {"configuration": {"delta.columnMapping.mode": "name"}},
        "physicalName.*field='a'",
    ),
    "no physical name inside": (
        {
            "configuration": {"delta.columnMapping.mode": "name"},
            "schemaString": schema(
                field("a", {"type": "struct", "fields": [field("b")]},
                      **{"delta.columnMapping.physicalName": "p"})
            ),
        },
        "physicalName.*field='a.b'",
    ),
    "one physical name for two": (
        {
            "configuration": {"delta.columnMapping.mode": "name"},
            "schemaString": schema(
                *(field(n, **{"delta.columnMapping.physicalName": "p"}) for n in "ab")
            ),
        },
        "field='b'",
    ),
    "no id": (
        {
            "configuration": {"delta.columnMapping.mode": "id"},
            "schemaString": schema(field("a", **{"delta.columnMapping.physicalName": "a"})),
        },
        "columnMapping.id.*field='a'",
    ),
    "no schema": ({"schemaString": ...}, "metaData.schemaString"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_metadata_that_do_not_tell_how_to_read(tmp_path: Path, name: str) -> None:
    changes, says = CHANGES[name]
    tmp_path.mkdir(exist_ok=True)
    begin(tmp_path, add(tmp_path), protocol=MAPPED, **changes)
    with pytest.raises(txlog.LogCorruptError, match=f"(?s){says}"):
        txlog.Table(tmp_path).to_arrow()


@pytest.mark.parametrize("lacking", ["protocol", "metaData"])
def test_a_checkpoint_that_lacks_the_state_is_made_good_by_commits(
    tmp_path: Path, lacking: str
) -> None:
    txlog.write(tmp_path, ROWS)
    table = txlog.Table(tmp_path)
    table.append(ROWS)
    table.maintenance.checkpoint()
    (file,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(file)
    pq.write_table(rows.filter(rows[lacking].is_null()), file)
    with pytest.warns(txlog.TxlogWarning, match=f"contains a {lacking} action"):
        assert txlog.Table(tmp_path).count() == 6
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(txlog.LogCorruptError, match=f"contains a {lacking} action"):
        txlog.Table(tmp_path)


def test_counts_that_no_file_has_are_unknown(tmp_path: Path) -> None:
    begin(tmp_path)
    stats = json.dumps({"numRecords": 2**63 - 1})
    log(tmp_path, 1, add(tmp_path, "f", stats=stats), add(tmp_path, "g", stats=stats))
    table = txlog.Table(tmp_path)
    assert table.count() == 6  # It was -2.
    table.maintenance.checkpoint()
    assert txlog.Table(tmp_path).count() == 6


@pytest.mark.parametrize("most", [2**63 - 2, 2**63 - 1])
def test_row_ids_that_do_not_exist(tmp_path: Path, most: int) -> None:
    table = txlog.write(tmp_path, ROWS, properties=TRACKED)
    table = txlog.Table(tmp_path)
    mark = json.dumps({"rowIdHighWaterMark": most})
    domain = {"domain": "delta.rowTracking", "configuration": mark, "removed": False}
    log(tmp_path, 1, {"domainMetadata": domain})
    table = txlog.Table(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(txlog.LogCorruptError, match="not enough ids up to"):
        table.append(ROWS)
    assert sorted(tmp_path.rglob("*")) == before
    stats = '{"numRecords":3}'
    last = add(tmp_path, baseRowId=2**63 - 2, defaultRowCommitVersion=2, stats=stats)
    log(tmp_path, 2, last)
    table = txlog.Table(tmp_path)
    assert table.count() == 6
    with pytest.raises(txlog.LogCorruptError, match=r"above 2\^63 - 1"):
        table.scan(columns=["_rowid"]).to_arrow()


def test_the_end_of_time(tmp_path: Path) -> None:
    stamped = {"delta.enableInCommitTimestamps": "true"}
    txlog.write(tmp_path, ROWS, properties=stamped)
    info = {"commitInfo": {"inCommitTimestamp": 2**63 - 1}}
    log(tmp_path, 1, info)
    table = txlog.Table(tmp_path)
    assert table.count() == 3
    assert table.timestamp_ms == 2**63 - 1
    with pytest.raises(txlog.LogCorruptError, match="largest possible"):
        table.append(ROWS)
    with pytest.raises(txlog.LogCorruptError, match="largest possible"):
        table.delete("a = 1")


Call = Callable[[txlog.Table], object]
ARGUMENTS: dict[str, Call] = {
    "5,000 digits": lambda t: t.count("a = " + "9" * 5000),
    "10 to the power of 5,000": lambda t: t.count(col("a") == 10**5000),
    "a number without an exponent": lambda t: t.count("a < 1e"),
    "bytes that are no hex": lambda t: t.count("s = x'zz'"),
    "half of a pair of UTF-16": lambda t: t.count("s = '\ud800'"),
    "half of a pair, as an expression": lambda t: t.count(col("s") == "\ud800"),
    "half of a pair as a column": lambda t: t.scan(["\ud800"]),
    "half of a pair as metadata": lambda t: t.append(ROWS, user_metadata="\ud800"),
    "half of a pair in metadata": lambda t: t.append(ROWS, user_metadata={"a": ["\ud800"]}),
    "an integer of 70 bits in metadata": lambda t: t.append(ROWS, user_metadata={"a": 2**70}),
    "half of a pair as an application": lambda t: t.append(ROWS, txn=("\ud800", 1)),
    "half of a pair as a property": lambda t: t.alter.set_properties({"my.own": "\ud800"}),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_is_refused(tmp_path: Path, name: str) -> None:
    txlog.write(tmp_path, ROWS)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(txlog.InvalidInputError):
        ARGUMENTS[name](txlog.Table(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_number_of_400_digits_is_an_infinite_double(tmp_path: Path) -> None:
    txlog.write(tmp_path, ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert txlog.Table(tmp_path).count("a < " + "9" * 400 + ".5") == 3


class SkewedClock(Effects):
    def __init__(self, hours: float) -> None:
        object.__setattr__(self, "hours", hours)

    def now_ms(self) -> int:
        return REAL.now_ms() + int(self.hours * 3_600_000)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("writer", "checkpointer"), [(-48, 0), (0, 48), (-48, 48), (48, 0)])
def test_a_skewed_clock_lets_no_transaction_expire_early(
    tmp_path: Path, writer: float, checkpointer: float
) -> None:
    keeps = {"delta.setTransactionRetentionDuration": "interval 1 day"}
    txlog.write(tmp_path, ROWS, properties=keeps)

    def table(hours: float) -> txlog.Table:
        context = Context(open_store(tmp_path), SkewedClock(hours))
        return txlog.Table._of(context, snapshot_at(context.store, None, None))

    table(writer).append(ROWS, txn=("job", 1))
    table(checkpointer).maintenance.checkpoint()
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    assert txlog.Table(tmp_path).append(ROWS, txn=("job", 1)).skipped
    assert txlog.Table(tmp_path).count() == 6


BOMB = """
import sys, warnings
import pyarrow as pa
import txlog
warnings.simplefilter("ignore")
try:
    txlog.Table(sys.argv[1]).count()
except txlog.LogCorruptError as error:
    print(error)
print(pa.default_memory_pool().max_memory())
"""


@pytest.mark.slow
def test_a_small_checkpoint_does_not_unpack_to_gigabytes(tmp_path: Path) -> None:
    """A path of 100,000 bytes is in the file once, and stands for 40,000 of them: 4 GB."""
    begin(tmp_path)
    count = 40_000
    places = pa.array([0] * count, pa.int32())
    paths = pa.DictionaryArray.from_arrays(places, pa.array(["x" * 100_000]))
    numbers = pa.repeat(1, count)
    names = ["path", "size", "modificationTime", "dataChange"]
    adds = pa.StructArray.from_arrays([paths, numbers, numbers, pa.repeat(True, count)], names)
    nothing = [None] * (count - 1)
    rows = {
        "add": adds,
        "metaData": pa.array([{"id": "x", "schemaString": schema(field("a"))}, *nothing]),
        "protocol": pa.array([{"minReaderVersion": 1, "minWriterVersion": 2}, *nothing]),
    }
    file = tmp_path / "_delta_log" / f"{0:020d}.checkpoint.parquet"
    pq.write_table(pa.table(rows), file, compression="zstd")
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    assert file.stat().st_size < 50_000
    command = [sys.executable, "-c", BOMB, str(tmp_path)]
    said, peak = subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert "would need more than" in said
    assert int(peak) < 1 << 30


@pytest.mark.parametrize("stated", [True, False])
def test_a_small_deletion_file_does_not_unpack_to_gigabytes(tmp_path: Path, stated: bool) -> None:
    """Its offsets are one number, again and again: 64 MB in 2 kB, where 5.7 GB had 43.

    The log is the attacker's too. The fragment's rows are the bound, by the log or its footer.
    """
    form = {"txlog.deletionFormat": "lance", "delta.feature.txlog.fragments": "supported"}
    table = txlog.write(tmp_path, pa.table({"a": range(1000)}), properties=form)
    table.delete("a = 3")
    many = 16 << 20
    kind = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, kind, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(
            pa.RecordBatch.from_arrays([pa.repeat(pa.scalar(0, pa.uint32()), many)], schema=kind)
        )
    (file,) = (tmp_path / "_deletions").iterdir()
    file.write_bytes(sink.getvalue())
    assert file.stat().st_size < 5000
    commit = tmp_path / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        change = action.get("add") or {}
        change.get("deletionVector", {}).update(cardinality=many, offset=None)
        if not stated:
            change.pop("stats", None)
    log(tmp_path, 1, *actions)
    hostile = txlog.Table(tmp_path)
    (fragment,) = hostile.fragments()
    for ask in (
        hostile.to_arrow, hostile.count, lambda: hostile.take([0]),
        lambda: hostile.delete("a = 4"), lambda: hostile.take(addresses=[1]),
        fragment.to_table, lambda: fragment.take([1]), lambda: fragment.take_offsets([1]),
        lambda: fragment.delete_rows([1]),
    ):  # fmt: skip
        with pytest.raises(txlog.TxlogError) as caught:
            ask()
        assert "would need 67108864 bytes for at most 1000 rows" in str(caught.value), ask


def test_a_damaged_commit_is_not_written_anew(tmp_path: Path) -> None:
    txlog.write(tmp_path, ROWS)
    table = txlog.Table(tmp_path)
    table.append(ROWS)
    table.maintenance.checkpoint()  # The table opens without its commits.
    commit = tmp_path / "_delta_log" / f"{1:020d}.json"
    commit.write_text(commit.read_text().replace('"dataChange":true', '"dataChange":1234'))
    with pytest.raises(txlog.LogCorruptError, match="checksum"):
        table.maintenance.compact_log(0)
    commit.write_text('{"add":{"path":[],"partitionValues":{},"size":1}}\n')
    with pytest.raises(txlog.LogCorruptError, match="path"):
        table.maintenance.compact_log(0)
    assert not list((tmp_path / "_delta_log").glob("*.compacted.json"))
