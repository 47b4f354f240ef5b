"""Sources of data, places of tables, and the files that remain after a failure."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import arro3.core
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import txlog
from tests.verb_calls import append, delete
from txlog.base.errors import StoreError
from txlog.base.threads import Threads
from txlog.commit.context import Context
from txlog.data_files.modes import SchemaMode
from txlog.data_files.options import WriteOptions, as_schema
from txlog.snapshot.load import load_snapshot
from txlog.store.base import BasicStore
from txlog.store.local.local import LocalStore
from txlog.verbs.create import create, write_new_table

DATA = pa.table({"x": [1, 2, 3], "t": ["a", None, "ü"], "f": [0.5, None, 2.0]})


def _pandas() -> Any:
    import pandas as pd

    return pd.DataFrame({"x": [1, 2, 3], "t": ["a", None, "ü"], "f": [0.5, None, 2.0]})


def _polars() -> Any:
    import polars as pl

    return pl.from_arrow(DATA)


def _duckdb() -> Any:
    import duckdb

    connection = duckdb.connect()
    connection.register("given", DATA)
    return connection.sql("select * from given")


SOURCES: dict[str, Callable[[], Any]] = {
    "table": lambda: DATA,
    "batch": lambda: DATA.to_batches()[0],
    "reader": lambda: DATA.to_reader(1),
    "batches": lambda: DATA.to_batches(1),
    "iterator": lambda: iter(DATA.to_batches(1)),
    "arro3": lambda: [arro3.core.RecordBatch.from_arrow(batch) for batch in DATA.to_batches(1)],
    "dataset": lambda: ds.dataset(DATA),
    "sliced": lambda: pa.concat_tables([DATA, DATA]).slice(3),
    "pandas": _pandas,
    "polars": _polars,
    "duckdb": _duckdb,
    "scan": lambda: txlog.write("memory://source", DATA, "overwrite").scan(),
    "txlog": lambda: txlog.write("memory://source", DATA, "overwrite"),
}


@pytest.mark.parametrize("source", list(SOURCES))
def test_all_that_speaks_arrow_is_taken(tmp_path: Path, source: str) -> None:
    make = SOURCES[source]
    table = txlog.Table.create(tmp_path / "t", DATA.schema)
    table.append(make())
    assert table.to_arrow().to_pylist() == DATA.to_pylist()
    table.overwrite(make())
    assert table.to_arrow().to_pylist() == DATA.to_pylist()
    new = txlog.write(tmp_path / "new", make())
    assert new.to_arrow().to_pylist() == DATA.to_pylist()


@pytest.mark.parametrize("data", [[{"x": 1}], {"x": [1]}, None, 3, "x"])
def test_what_speaks_no_arrow_is_refused(tmp_path: Path, data: Any) -> None:
    with pytest.raises(txlog.InvalidInputError, match="Arrow"):
        txlog.write(tmp_path / "t", data)
    assert not (tmp_path / "t").exists()


def test_a_table_can_be_read_while_it_is_overwritten(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, DATA)
    table.overwrite(table.scan(where="x > 1"))
    assert table.to_arrow() == DATA.slice(1)
    table.append(table)
    assert table.count() == 4


@pytest.mark.parametrize("partition_by", [[], ["t"]])
def test_input_that_fails_half_way_leaves_nothing(tmp_path: Path, partition_by: list[str]) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            yield from DATA.to_batches()
        raise OSError("the source is gone")

    def reader() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(DATA.schema, broken())

    with pytest.raises(OSError, match="source is gone"):
        txlog.write(
            tmp_path / "new",
            reader(),
            partition_by=partition_by,
            options=txlog.WriteOptions(max_rows_per_file=2),
        )
    assert not txlog.Table.exists(tmp_path / "new")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

    table = txlog.write(tmp_path / "t", DATA, partition_by=partition_by)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    for act in (
        lambda: table.append(reader(), options=txlog.WriteOptions(max_rows_per_file=2)),
        lambda: table.overwrite(reader(), options=txlog.WriteOptions(max_rows_per_file=2)),
        lambda: table.overwrite(reader(), "x < 9", options=txlog.WriteOptions(max_rows_per_file=2)),
    ):
        with pytest.raises(OSError, match="source is gone"):
            act()
        assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    assert table.refresh().version == 0


def test_a_bad_row_late_in_the_stream_leaves_nothing(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("x", pa.int32(), False)])
    table = txlog.Table.create(tmp_path, schema)
    batches = [pa.record_batch({"x": pa.array([v])}) for v in (1, 2, 2**40)]
    data = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    with pytest.raises(txlog.SchemaMismatchError, match="x"):
        table.append(data, options=txlog.WriteOptions(max_rows_per_file=1))
    assert not list(tmp_path.rglob("*.parquet"))


class _Full(BasicStore):
    """A disk on which only so many files have room."""

    def __init__(self, inner: LocalStore, room: int) -> None:
        self._inner = inner
        self.room = room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _take(self, path: str) -> None:
        if self.room == 0:
            raise StoreError(path=path, operation="write", reason="No space left on device")
        self.room -= 1

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        with self._inner.open_output(path) as sink:
            yield sink
            self._take(path)

    def write_new(self, path: str, data: bytes) -> None:
        self._take(path)
        self._inner.write_new(path, data)

    def put_if_absent(self, path: str, data: bytes) -> str:
        self._take(path)
        return self._inner.put_if_absent(path, data)


def files_below(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("room", range(4))
def test_a_full_disk_leaves_nothing(tmp_path: Path, room: int) -> None:
    root = tmp_path / "t"
    plain = Context(LocalStore(str(root)), engine=Threads(1))
    store: Any = _Full(LocalStore(str(root)), room)
    place = Context(store, engine=Threads(1))
    options = WriteOptions(max_rows_per_file=1)  # Three files, and the commit.

    def make() -> None:
        write_new_table(
            place, DATA, txn=None, options=options, allow_existing=False,
        )  # fmt: skip

    with pytest.raises(StoreError, match="No space"):
        make()
    assert files_below(tmp_path) == set()

    create(plain, as_schema(DATA.schema))
    before = files_below(tmp_path)
    store.room = room
    with pytest.raises(StoreError, match="No space"):
        append(place, load_snapshot(place.store), DATA, options=options)
    assert files_below(tmp_path) == before
    store.room = 4
    append(place, load_snapshot(place.store), DATA, options=options)
    assert txlog.Table(root).count() == 3


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("room", range(2))
def test_a_full_disk_while_deleting_leaves_nothing(tmp_path: Path, room: int, vectors: str) -> None:
    data = pa.table({"x": list(range(20_000))})
    properties = {"delta.enableDeletionVectors": vectors}
    txlog.write(tmp_path, data, properties=properties)
    before = files_below(tmp_path)
    store: Any = _Full(LocalStore(str(tmp_path)), room)
    with pytest.raises(StoreError, match="No space"):
        delete(Context(store, engine=Threads(1)), load_snapshot(store), "x % 3 = 0 or x % 7 = 0")
    assert files_below(tmp_path) == before
    assert txlog.Table(tmp_path).count() == 20_000


ROOTS = [
    "with space",
    "50%",
    "a%20b",
    "#1",
    "a+b",
    "ü/日本語",
    "q?x=1",
    "~tilde",
    "semi;colon",
    "a'b",
]


@pytest.mark.parametrize("name", ROOTS)
def test_a_table_may_be_anywhere(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    table = txlog.write(root, DATA, partition_by="t")
    table.delete("x = 1")
    table.append(DATA)
    assert sorted(table.to_arrow()["x"].to_pylist()) == [1, 2, 2, 3, 3]
    assert (root / "_delta_log").is_dir()
    assert txlog.Table(root.as_uri()).to_arrow() == table.to_arrow()


def test_a_relative_path_is_of_this_moment(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    table = txlog.write("here", DATA)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert table.count() == table.to_arrow().num_rows == 3


def test_modes(tmp_path: Path) -> None:
    one, two = DATA.slice(0, 1), DATA.slice(1)
    assert txlog.write(tmp_path / "a", one, "append").to_arrow() == one
    assert txlog.write(tmp_path / "o", one, "overwrite").to_arrow() == one
    assert txlog.write(tmp_path / "i", one, "ignore").to_arrow() == one
    assert txlog.write(tmp_path / "e", one).to_arrow() == one
    for name in "aoie":
        assert txlog.write(tmp_path / name, two, "append").count() == 3
        assert txlog.write(tmp_path / name, one, "ignore").version == 1
        with pytest.raises(txlog.AlreadyExistsError):
            txlog.write(tmp_path / name, one, "error")
        assert txlog.write(tmp_path / name, one, "overwrite").to_arrow() == one
        assert txlog.Table(tmp_path / name).version == 2
    wrong: Any = "replace"
    with pytest.raises(txlog.InvalidInputError, match="mode"):
        txlog.write(tmp_path / "a", one, wrong)


def test_partitioning_is_of_new_tables_only(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, DATA, partition_by="t")
    assert table.partition_columns == ["t"]
    txlog.write(tmp_path, DATA, "append", partition_by=["t"])
    txlog.write(tmp_path, DATA, "append")
    with pytest.raises(txlog.InvalidInputError, match="partitioned by"):
        txlog.write(tmp_path, DATA, "append", partition_by=["x"])
    with pytest.raises(txlog.InvalidInputError, match="partitioned by"):
        txlog.write(tmp_path, DATA, "append", partition_by=[])
    assert txlog.Table(tmp_path).version == 2


def test_create_refuses_a_table_that_is_there(tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path, DATA.schema, name="n", description="d", properties={"custom": "1"}
    )
    assert (table.metadata.name, table.metadata.description) == ("n", "d")
    assert table.properties["custom"] == "1"
    assert table.count() == 0
    with pytest.raises(txlog.AlreadyExistsError):
        txlog.Table.create(tmp_path, DATA.schema)
    assert isinstance(txlog.AlreadyExistsError(), FileExistsError)


@pytest.mark.parametrize("verb", ["append", "overwrite", "delete", "write"])
def test_a_transaction_is_done_once(tmp_path: Path, verb: str) -> None:
    table = txlog.write(tmp_path, DATA)

    def act(version: int) -> Any:
        txn = ("job", version)
        if verb == "write":
            before = txlog.Table(tmp_path).version
            after = txlog.write(tmp_path, DATA, "append", txn=txn).version
            return after != before
        if verb == "delete":
            return table.delete("x = 99", txn=txn)
        return getattr(table, verb)(DATA, txn=txn)

    assert act(5)
    files = files_below(tmp_path)
    for version in (5, 4, 0):
        outcome = act(version)
        assert not outcome
        if verb != "write":
            assert outcome.skipped
    assert files_below(tmp_path) == files
    assert act(6)
    assert txlog.Table(tmp_path).transaction_version("job") == 6


@pytest.mark.parametrize(
    "txn", ["job", ("job",), ("job", "1"), ("", 1), (1, 1), ("job", True), ("job", -1),
            ("job", 2**63), ("txlog.fragments", 1)],
)  # fmt: skip
def test_what_is_no_transaction_is_refused(tmp_path: Path, txn: Any) -> None:
    table = txlog.write(tmp_path, DATA)
    for act in (
        lambda: table.append(DATA, txn=txn),
        lambda: table.overwrite(DATA, txn=txn),
        lambda: table.delete(None, txn=txn),
        lambda: txlog.write(tmp_path / "new", DATA, txn=txn),
    ):
        with pytest.raises(txlog.InvalidInputError, match="txn"):
            act()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1"])
def test_odd_sizes_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(txlog.InvalidInputError, match="max_rows_per_file"):
        txlog.write(tmp_path / "t", DATA, options=txlog.WriteOptions(max_rows_per_file=value))
    with pytest.raises(txlog.InvalidInputError, match="target_file_bytes"):
        txlog.write(tmp_path / "t", DATA, options=txlog.WriteOptions(target_file_bytes=value))


def test_files_are_cut_as_told(tmp_path: Path) -> None:
    data = pa.table({"x": list(range(10))})
    table = txlog.write(tmp_path, data, options=txlog.WriteOptions(max_rows_per_file=4))
    assert table.files()["num_records"].to_pylist() == [4, 4, 2]
    assert table.to_arrow() == data
    assert table.history()[0]["operationMetrics"]["numFiles"] == "3"


def test_nothing_to_append_is_a_commit_without_files(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, DATA.slice(0, 0))
    assert (table.version, table.count(), table.files().num_rows) == (0, 0, 0)
    assert table.append(DATA.slice(0, 0)).version == 1
    assert table.to_arrow() == DATA.slice(0, 0)


def test_dynamic_partitions_go_by_value_whoever_spelled_it(tmp_path: Path) -> None:
    import json

    moment = pa.array([0, 1_000_000], pa.timestamp("us", "UTC"))
    table = txlog.write(tmp_path, pa.table({"x": [1, 2], "p": moment}), partition_by="p")
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if "add" in line:
            second = line["add"]["partitionValues"]["p"][17:19]
            line["add"]["partitionValues"]["p"] = f"1970-01-01 00:00:{second}"
    log.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    table = txlog.Table(tmp_path)
    table.overwrite(pa.table({"x": [3], "p": moment.slice(1)}), partition_mode="dynamic")
    assert sorted(table.to_arrow()["x"].to_pylist()) == [1, 3]


def _pl_frame(kind: str) -> Any:
    import polars as pl

    texts = pl.Enum(["x", "y"]) if kind == "enum" else pl.Categorical()
    series = {
        "t": pl.Series(["x", None, "y"], dtype=texts),
        "l": pl.Series([["x"], None, ["y", "x"]], dtype=pl.List(texts)),
        "s": pl.Series([{"b": "x"}, {"b": None}, {"b": "y"}], dtype=pl.Struct({"b": texts})),
    }
    return pl.DataFrame(series)


@pytest.mark.parametrize("kind", ["categorical", "enum"])
def test_categories_of_polars_are_texts(tmp_path: Path, kind: str) -> None:
    frame = _pl_frame(kind)
    table = txlog.write(tmp_path, frame)
    assert table.to_arrow().to_pylist() == frame.to_dicts()
    assert table.schema.field("t").type == pa.string()


@pytest.mark.parametrize("kind", [pa.list_view, pa.large_list_view, pa.large_list])
def test_list_views_are_lists(tmp_path: Path, kind: Any) -> None:
    data = pa.table({"l": pa.array([[1], [2, 3], None, []], kind(pa.int64()))})
    table = txlog.write(tmp_path, data)
    table.append(data.slice(1, 2))
    assert table.schema.field("l").type.value_type == pa.int64()
    assert table.to_arrow()["l"].to_pylist() == [[1], [2, 3], None, [], [2, 3], None]


def test_objects_of_polars_are_refused(tmp_path: Path) -> None:
    import polars as pl

    objects = pl.Series([object()], dtype=pl.Object)
    frame = pl.DataFrame({"a": [1], "o": objects})
    table = txlog.Table.create(tmp_path / "t", pa.schema([("a", pa.int64()), ("o", pa.binary())]))
    for act in (table.append, lambda data: txlog.write(tmp_path / "new", data)):
        with pytest.raises(
            txlog.InvalidInputError, match="column o holds Python objects"
        ) as caught:
            act(frame)
        assert caught.value.field == "o"
    table.append(frame.drop("o"))
    assert txlog.Table(tmp_path / "t").count() == 1


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        ([{"x": 1}], "pa.Table.from_pylist(data)"),
        ({"x": [1]}, "pa.table(data)"),
        (3, "pyarrow Table"),
        ("x", "pyarrow Table"),
    ],
)
def test_the_remedy_makes_arrow_data(tmp_path: Path, data: Any, remedy: str) -> None:
    with pytest.raises(TypeError) as caught:
        txlog.write(tmp_path / "t", data)
    assert isinstance(caught.value, txlog.InvalidTypeError)
    assert f"Pass {remedy}" in str(caught.value) or f"Pass a {remedy}" in str(caught.value)
    if remedy.startswith("pa."):
        made = eval(remedy, {"pa": pa, "data": data})
        assert txlog.write(tmp_path / "t", made).count() == 1


def test_a_lazy_frame_is_to_be_collected(tmp_path: Path) -> None:
    import polars as pl

    with pytest.raises(txlog.InvalidTypeError, match=r"data\.collect\(\)"):
        txlog.write(tmp_path / "t", pl.LazyFrame({"x": [1]}))


def test_an_index_of_pandas_without_a_name_is_no_column(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"x": [1, 2, 3, 4]})
    kept = frame[frame["x"].isin([1, 2, 4])]
    assert pa.RecordBatchReader.from_stream(kept).schema.names == ["x", "__index_level_0__"]
    table = txlog.write(tmp_path, kept)
    table.append(kept)
    assert table.schema.names == ["x"]
    assert table.to_arrow()["x"].to_pylist() == [1, 2, 4, 1, 2, 4]
    with pytest.raises(txlog.SchemaMismatchError, match=r"reset_index\(drop=True\)") as caught:
        table.append(pa.Table.from_pandas(kept))
    assert "schema_mode" not in str(caught.value)
    named = kept.rename_axis("n")
    assert txlog.write(tmp_path / "named", named).schema.names == ["x", "n"]


@pytest.mark.spec("FRG-46")
def test_types_that_do_not_come_back_are_named_when_columns_are_made(tmp_path: Path) -> None:
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((1, 2, 2), "float32"))
    kinds: dict[str, tuple[Any, str]] = {
        "h": (tensor, r"arrow\.fixed_shape_tensor as fixed_size_list<\w+: float>\[4\]"),
        "a": (pa.array([1], pa.uint8()), "uint8 as int16"),
        "b": (pa.array([b"x" * 3], pa.binary(3)), r"fixed_size_binary\[3\] as binary"),
        "c": (pa.array([b"x" * 16], pa.uuid()), r"arrow\.uuid as binary"),
        "d": (pa.array([{"e": [1]}], pa.struct([("e", pa.list_(pa.uint32()))])), "uint32 as int64"),
        "f": (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.uint16())), "uint16 as int32"),
        "g": (pa.array([1], pa.uint8()).dictionary_encode(), "uint8 as int16"),
    }
    for name, (values, told) in kinds.items():
        rows = pa.table({"id": [1], name: values})
        with pytest.warns(txlog.TxlogWarning, match=f"{name}: .*{told}"):
            table = txlog.write(tmp_path / name, rows)
        table.append(rows)  # Said once.
        kind = table.to_arrow().schema.field(name).type
        if pa.types.is_fixed_size_list(kind):
            assert kind.list_size == 4
        elif not pa.types.is_nested(kind):
            assert told.endswith(f" as {kind}")
        with pytest.warns(txlog.TxlogWarning, match=told):
            txlog.Table.create(tmp_path / f"{name}2", rows.schema)
    layouts = {
        "s": pa.array(["x"], pa.large_string()),
        "v": pa.array([[1]], pa.large_list(pa.int8())),
    }
    txlog.write(tmp_path / "layouts", pa.table(layouts))  # These lose nothing.
    equal = {
        "d": pa.array([0, 86_400_000], pa.date64()),
        "s": pa.array([0, 1], pa.timestamp("s")),
        "z": pa.array([0, 1], pa.timestamp("us", "Europe/Berlin")),
        "n": pa.array([Decimal("1.50"), None], pa.decimal256(20, 2)),
    }
    found = txlog.write(tmp_path / "equal", pa.table(equal)).to_arrow()
    assert found.schema.types == [
        pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(20, 2),
    ]  # fmt: skip
    assert found.to_pylist() == pa.table(equal).to_pylist()


def test_unsigned_columns_say_what_becomes_of_them(tmp_path: Path) -> None:
    large = pa.table({"x": pa.array([1, 2**63 + 5], pa.uint64())})
    with pytest.warns(txlog.TxlogWarning, match=r"x: Delta has no uint64.*decimal\(20,0\)"):
        table = txlog.write(tmp_path / "t", large)
    assert table.schema.field("x").type == pa.decimal128(20, 0)
    assert [int(x) for x in table.to_arrow()["x"].to_pylist()] == [1, 2**63 + 5]
    table.append(large)  # Said once: the column is known now.
    with pytest.warns(txlog.TxlogWarning, match="y: Delta has no uint64"):
        table.append(pa.table({"x": [1], "y": pa.array([1], pa.uint64())}), schema_mode="merge")
    for add in (pa.schema([("z", pa.uint64())]), {"z2": pa.uint64()}):
        with pytest.warns(txlog.TxlogWarning, match="uint64"):
            table.alter.add_columns(add)
    with pytest.warns(txlog.TxlogWarning, match="uint64"):
        txlog.Table.create(tmp_path / "u", large.schema)


@pytest.mark.parametrize("schema_mode", [None, "merge"])
def test_unsigned_values_fit_signed_columns_one_by_one(
    tmp_path: Path, schema_mode: SchemaMode
) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([("x", pa.int64())]))
    table.append(pa.table({"x": pa.array([1, 2**63 - 1], pa.uint64())}), schema_mode=schema_mode)
    with pytest.raises(txlog.SchemaMismatchError, match="9223372036854775808"):
        table.append(pa.table({"x": pa.array([2**63], pa.uint64())}), schema_mode=schema_mode)
    assert table.to_arrow() == pa.table({"x": [1, 2**63 - 1]})
