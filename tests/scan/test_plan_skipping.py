"""Statistics never lie: a scan that skips returns the rows of one that reads everything.

Tables are written as others write them: Parquet by pyarrow, commits and checkpoints by hand, and
statistics by a plain writer with the habits, legal and odd, of other engines.
"""

import json
import math
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, localcontext
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

import txlog
from tests.examples import examples
from txlog.expressions.bind import bind
from txlog.expressions.evaluate import mask
from txlog.expressions.sql import parse_sql, to_sql
from txlog.expressions.tree import (
    And,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
)
from txlog.fragments.deletion_vector import encode_vector, inline_descriptor
from txlog.store.base import Store
from txlog.store.open import open_store

Path = tuple[str, ...]

# Types and values -------------------------------------------------------------------------------


def short(value: float) -> float:
    """Return the nearest 32-bit float."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


ARROW: dict[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(5,2)": pa.decimal128(5, 2),
    "decimal(20,0)": pa.decimal128(20, 0),
    "decimal(38,10)": pa.decimal128(38, 10),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
OLDER: dict[str, list[str]] = {  # What a column's type may have been before it was widened.
    "short": ["byte"],
    "integer": ["byte", "short"],
    "long": ["integer", "short"],
    "double": ["float", "integer"],
    "decimal(20,0)": ["integer", "long"],
    "decimal(38,10)": ["decimal(5,2)", "long"],
    "timestamp_ntz": ["date"],
}
INTEGERS = ["byte", "short", "integer", "long"]
FLOATS = ["float", "double"]
DECIMALS = [kind for kind in ARROW if kind.startswith("decimal")]
X = "x" * 32
MOMENTS = [
    datetime(2020, 1, 1, 12, 0, 0, 1_000),
    datetime(2020, 1, 1, 12, 0, 0, 1_001),
    datetime(2020, 1, 1, 12, 0, 0, 1_999),
    datetime(2020, 1, 1, 12, 0, 0, 2_000),
    datetime(1969, 12, 31, 23, 59, 59, 998_500),
    datetime(1850, 6, 1, 3, 4, 5, 6),
    datetime(1850, 6, 1, 3, 4, 25, 6),
    datetime(1, 1, 2),
    datetime(9999, 12, 30, 23, 59, 59, 999_999),
]
_NEAR = Decimal("12345678901234567890.1234567890")
_NEXT = Decimal("12345678901234567890.1234567891")
_FEW = [-1, 0, 1]
POOLS: dict[str, list[Any]] = {
    "byte": [-128, *_FEW, 127],
    "short": [-300, *_FEW, 300],
    "integer": [-(2**31), *_FEW, 2**31 - 1],
    "long": [-(2**63), *_FEW, 2**53, 2**53 + 1, 2**63 - 1],
    "float": [short(0.7), short(-0.1), 1.5, -0.0, 0.0, math.inf, -math.inf, math.nan,
              short(3e38), short(1e-40), 16777216.0],
    "double": [0.7, 0.1, -0.0, 0.0, 1e300, -1e300, math.nan, math.inf, -math.inf, 5e-324,
               16777217.0, 2.0**53],
    "decimal(5,2)": [Decimal(text) for text in ("-999.99", "0.00", "0.01", "1.10", "999.99")],
    "decimal(20,0)": [Decimal(n) for n in (-1, 0, 12345678901234567890, 12345678901234567891,
                                           2**53, 2**53 + 1, 10**20 - 1)],
    "decimal(38,10)": [_NEAR, _NEXT, Decimal(10**23),
                       Decimal(10**23 + 1), Decimal("0.1000000000"), Decimal("0.1000000001"),
                       _NEAR.copy_negate(), Decimal(0)],
    "string": ["", "a", "A", "ab", "b", "ü", "é\uffff", "\uffff", "\U0001f600", X, X + "x" * 8,
               X + "\x7f", X + "\x7fa", X + "\U0001f600", X + "\uffff", X[1:] + "\U0001f600a",
               X + "\U0010ffff" * 3 + "z", X + "\U0010ffff" * 40, "a%", "a%b", "a_b", "a\\", "a\n"],
    "binary": [b"", b"a", b"\xff"],
    "boolean": [True, False],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(2020, 1, 1), date(2020, 1, 2),
             date(9999, 12, 31)],
    "timestamp": [moment.replace(tzinfo=UTC) for moment in MOMENTS],
    "timestamp_ntz": [*MOMENTS, datetime(2020, 1, 1)],
}  # fmt: skip
PARTITION_KINDS = ["string", "integer", "double", "decimal(5,2)", "boolean", "date", "timestamp",
                   "timestamp_ntz"]  # fmt: skip


def widened(value: Any, kind: str) -> Any:
    """Return a value of an older type as one of a column's type."""
    if type(value) is date and kind == "timestamp_ntz":
        return datetime.combine(value, time())
    if type(value) is int and kind == "double":
        return float(value)
    return Decimal(value) if type(value) is int and kind in DECIMALS else value


def order(value: Any) -> Any:
    """Return what sorts as Spark does: NaN last, text by its bytes."""
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    return value.encode() if isinstance(value, str) else value


# Statistics, as others write them ---------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """A bound as JSON says it, and as a reader such as Spark would put it in a struct."""

    text: Any
    typed: Any


class Raw(str):
    """A number's own digits."""

    __slots__ = ()


def dumped(node: Any) -> str:
    if isinstance(node, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dumped(v)}" for k, v in node.items()) + "}"
    return str(node) if isinstance(node, Raw) else json.dumps(node)


@dataclass(frozen=True)
class Habits:
    """How one writer states one column's bounds."""

    text: str = "spark"  # How a long greatest text is cut: spark, legacy, none, full.
    nan: str = "spark"  # spark, ignored, or omitted.
    decimal: str = "digits"  # digits, float, or string.
    zone: str = "Z"
    cut: str = "floor"  # Of timestamps to milliseconds: floor, zero, or micros for not at all.
    wide: bool = False
    struct_float: str = "parsed"
    flip_zero: bool = False


ZONES: dict[str, timedelta] = {  # By what is written; local mean times had seconds too.
    "Z": timedelta(),
    "+02:00": timedelta(hours=2),
    "-08:00": timedelta(hours=-8),
    "+01:24": timedelta(hours=1, minutes=24),
    "+00:53": timedelta(minutes=53, seconds=28),
    "-07:52": -timedelta(hours=7, minutes=52, seconds=58),
}
HABITS = st.builds(
    Habits,
    text=st.sampled_from(["spark", "legacy", "none", "full"]),
    nan=st.sampled_from(["spark", "ignored", "omitted"]),
    decimal=st.sampled_from(["digits", "float", "string"]),
    zone=st.sampled_from(list(ZONES)),
    cut=st.sampled_from(["floor", "zero", "micros"]),
    wide=st.booleans(),
    struct_float=st.sampled_from(["parsed", "exact"]),
    flip_zero=st.booleans(),
)


def bounds_of(values: list[Any], kind: str, habits: Habits) -> tuple[Bound | None, Bound | None]:
    """Return the bounds of a file's values, whose type in the file is `kind`."""
    known = [value for value in values if value is not None]
    if kind in FLOATS and habits.nan == "ignored":
        known = [value for value in known if value == value]
    if not known or kind in ("binary", "boolean"):
        return None, None
    low, high = min(known, key=order), max(known, key=order)
    if habits.wide:
        low, high = loosened(low, kind, -1), loosened(high, kind, 1)
    return stated(low, kind, habits, up=False), stated(high, kind, habits, up=True)


def loosened(value: Any, kind: str, by: int) -> Any:
    with suppress(OverflowError):
        if kind == "date":
            return value + timedelta(by)
        if kind in ("timestamp", "timestamp_ntz"):
            return value + timedelta(milliseconds=by)
    if kind == "string":
        return value[:3] if by < 0 else value + "~"
    if kind in INTEGERS and -128 < value < 127:
        return value + by
    return value


def stated(value: Any, kind: str, habits: Habits, *, up: bool) -> Bound | None:
    if kind in FLOATS:
        return float_bound(value, kind, habits)
    if kind in DECIMALS:
        return decimal_bound(value, kind, habits)
    if kind == "string":
        text = upper(value, habits.text) if up and len(value) > 32 else value
        text = text if up or habits.text == "full" else value[:32]
        return None if text is None else Bound(text, text)
    if kind == "date":
        return Bound(value.isoformat(), value)
    if kind in ("timestamp", "timestamp_ntz"):
        return moment_bound(value, kind, habits)
    return Bound(value, value)


def upper(text: str, habit: str) -> str | None:
    if habit == "full":
        return text
    if habit == "none":
        return None
    if habit == "legacy":
        return text[:32] + "\ufffd"
    for end in range(32, 64):
        if end >= len(text):
            return text
        if text[end] != "\U0010ffff":
            return text[:end] + ("\x7f" if text[end] < "\x7f" else "\U0010ffff")
    return None


def float_bound(value: float, kind: str, habits: Habits) -> Bound | None:
    if not math.isfinite(value):
        name = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return None if habits.nan == "omitted" else Bound(name, value)
    if value == 0 and habits.flip_zero:
        value = -value
    text = value
    if kind == "float":  # The shortest decimal that reads back to the same 32 bits.
        text = next(n for d in range(1, 10) if short(n := float(f"{value:.{d}g}")) == value)
    return Bound(text, text if habits.struct_float == "parsed" else value)


def decimal_bound(value: Decimal, kind: str, habits: Habits) -> Bound | None:
    precision, scale = map(int, kind[8:-1].split(","))
    if habits.decimal == "float":
        with localcontext() as context:
            context.prec = 80
            near = float(int(value.scaleb(scale))) / 10.0**scale
            typed = Decimal(repr(near)).quantize(Decimal(1).scaleb(-scale))
            fits = abs(typed) < 10 ** (precision - scale)
        return Bound(near, typed if fits else None)
    digits = format(value, "f")
    return Bound(Raw(digits) if habits.decimal == "digits" else digits, value)


def moment_bound(value: datetime, kind: str, habits: Habits) -> Bound | None:
    plain = value.replace(tzinfo=None)
    if habits.cut != "micros":
        up = habits.cut == "zero" and plain < datetime(1970, 1, 1) and plain.microsecond % 1000
        cut = timedelta(microseconds=plain.microsecond % 1000)
        plain += timedelta(milliseconds=1 if up else 0) - cut
    digits = "microseconds" if habits.cut == "micros" else "milliseconds"
    if kind == "timestamp_ntz":
        return Bound(plain.isoformat(timespec=digits), plain)
    offset = ZONES[habits.zone]
    written = habits.zone
    if plain.year > 1900 and offset % timedelta(minutes=15):
        offset, written = timedelta(), "Z"  # Local mean time ended before.
    with suppress(OverflowError):
        local = plain + offset
        parsed = local
        if written != "Z":
            hours, minutes = int(written[1:3]), int(written[4:])
            shift = timedelta(hours=hours, minutes=minutes)
            parsed = local - (shift if written[0] == "+" else -shift)
        return Bound(local.isoformat(timespec=digits) + written, parsed.replace(tzinfo=UTC))
    return None


JUNK: dict[str, list[Any]] = {
    "number": ["x", "", True, [], {"x": 1}, "NaN"],
    "string": [7, True, [], {"x": "a"}, 1.5],
    "moment": ["soon", "", 5, "2020-13-01", True, [], "2020-01-01T25:00:00Z"],
}


def junk(kind: str) -> list[Any]:
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return JUNK["moment"]
    return JUNK["string"] if kind in ("string", "binary", "boolean") else JUNK["number"]


# Tables, as others write them -------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A column or field: a leaf with a kind, or a struct with children."""

    name: str
    physical: str
    id: int
    kind: str = ""
    children: tuple["Node", ...] = ()

    def json(self, mapped: bool) -> dict[str, Any]:
        names = {
            "delta.columnMapping.id": self.id,
            "delta.columnMapping.physicalName": self.physical,
        }
        kind: Any = self.kind
        if self.children:
            kind = {"type": "struct", "fields": [c.json(mapped) for c in self.children]}
        return {
            "name": self.name, "type": kind, "nullable": True, "metadata": names if mapped else {},
        }  # fmt: skip

    def leaves(self, above: Path = ()) -> Iterator[tuple[Path, "Node"]]:
        path = (*above, self.name)
        if not self.children:
            yield path, self
        for child in self.children:
            yield from child.leaves(path)


@dataclass
class File:
    """A data file: its rows by leaf paths, and what its writer says of them."""

    rows: list[dict[Path, Any]]  # As `as_nested` takes them; values of the file's types.
    kinds: dict[Path, str]  # Of each leaf that the file has.
    partition: Any = None
    text: str | None = None  # Of the partition value.
    deleted: list[int] = field(default_factory=list)
    group: int = 1_000  # Rows of a row group.
    stats: str | None = None
    parsed: dict[str, Any] | None = None

    @property
    def alive(self) -> list[dict[Path, Any]]:
        return [row for at, row in enumerate(self.rows) if at not in self.deleted]


@dataclass
class Layout:
    nodes: tuple[Node, ...]
    mode: str = "none"
    partition: Node | None = None
    files: list[File] = field(default_factory=list)
    in_checkpoint: bool = False
    as_structs: bool = True  # The statistics in it.
    large: bool = False  # Whether it is to be planned as a large one is.

    @property
    def leaves(self) -> dict[Path, Node]:
        return {path: leaf for node in self.nodes for path, leaf in node.leaves()}

    def physical(self, path: Path) -> Path:
        if self.mode == "none":
            return path
        found, nodes = [], self.nodes
        for name in path:
            node = next(node for node in nodes if node.name == name)
            found.append(node.physical)
            nodes = node.children
        return tuple(found)


def put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def as_nested(row: dict[Path, Any], node: Node, above: Path, names: str, held: Any) -> Any:
    """Return a row's value of a column; a path of a struct in `row` says that it is null."""
    path = (*above, node.name)
    if not node.children:
        return held(path, row.get(path))
    if row.get(path) == "null":
        return None
    return {
        getattr(child, names): as_nested(row, child, path, names, held)
        for child in node.children
        if any(leaf in row for leaf, _ in child.leaves(path)) or names == "name"
    }


def expected_rows(layout: Layout) -> list[dict[str, Any]]:
    """Return the table's rows, as the test made them."""
    found = []
    for file in layout.files:
        for row in file.alive:
            out: dict[str, Any] = {}
            for node in layout.nodes:
                out[node.name] = logical(row, node, (), file)
            if layout.partition:
                out[layout.partition.name] = file.partition
            found.append(out)
    return found


def logical(row: dict[Path, Any], node: Node, above: Path, file: File) -> Any:
    path = (*above, node.name)
    if not any(leaf in file.kinds for leaf, _ in node.leaves(above)):
        return None
    if not node.children:
        value = row[path]
        return None if value is None else widened(value, node.kind)
    if row.get(path) == "null":
        return None
    return {child.name: logical(row, child, path, file) for child in node.children}


def file_field(node: Node, above: Path, file: File, mode: str) -> pa.Field | None:
    path = (*above, node.name)
    name = node.name if mode == "none" else node.physical
    marks = {b"PARQUET:field_id": str(node.id).encode()} if mode != "none" else None
    if not node.children:
        kind = file.kinds.get(path)
        return pa.field(name, ARROW[kind], metadata=marks) if kind else None
    fields = [file_field(child, path, file, mode) for child in node.children]
    there = [found for found in fields if found is not None]
    return pa.field(name, pa.struct(there), metadata=marks) if there else None


def file_value(row: dict[Path, Any], node: Node, above: Path, file: File, mode: str) -> Any:
    path = (*above, node.name)
    if not node.children:
        return row.get(path)
    if row.get(path) == "null":
        return None
    return {
        child.name if mode == "none" else child.physical: file_value(row, child, path, file, mode)
        for child in node.children
    }


def write_file(store: Store, name: str, layout: Layout, file: File) -> int:
    mode = layout.mode
    pairs = [(node, file_field(node, (), file, mode)) for node in layout.nodes]
    there = [(node, found) for node, found in pairs if found is not None]
    arrays = [
        pa.array([file_value(row, node, (), file, mode) for row in file.rows], found.type)
        for node, found in there
    ]
    schema = pa.schema([found for _, found in there])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays, schema=schema), sink, row_group_size=file.group)
    data = sink.getvalue().to_pybytes()
    store.write_new(name, data)
    return len(data)


def write_table(layout: Layout) -> txlog.Table:
    """Write a table by hand: files, one commit, and with it a checkpoint if one is wanted."""
    store = open_store(f"memory://{uuid4()}")
    mapped = layout.mode != "none"
    partition = [layout.partition] if layout.partition else []
    nodes = [*layout.nodes, *partition]
    kinds = {leaf.kind for leaf in layout.leaves.values()} | {node.kind for node in partition}
    features = ["columnMapping"] if mapped else []
    features += ["timestampNtz"] if "timestamp_ntz" in kinds else []
    features += ["deletionVectors"] if any(file.deleted for file in layout.files) else []
    widens = any(
        file.kinds[p] != layout.leaves[p].kind for file in layout.files for p in file.kinds
    )
    features += ["typeWidening"] if widens else []
    legacy = set(features) <= {"columnMapping"}
    protocol: dict[str, Any] = {"minReaderVersion": 2, "minWriterVersion": 5}
    if not legacy:
        protocol = {
            "minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": features, "writerFeatures": features,
        }  # fmt: skip
    schema = {"type": "struct", "fields": [node.json(mapped) for node in nodes]}
    properties = {"delta.columnMapping.mode": layout.mode} if mapped else {}
    metadata = {
        "id": str(uuid4()), "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema), "partitionColumns": [node.name for node in partition],
        "configuration": properties, "createdTime": 0,
    }  # fmt: skip
    adds = []
    for at, file in enumerate(layout.files):
        name = f"part-{at}.parquet"
        add: dict[str, Any] = {
            "path": name, "size": write_file(store, name, layout, file), "modificationTime": 0,
            "dataChange": True,
            "partitionValues": {node.physical if mapped else node.name: file.text
                                for node in partition},
        }  # fmt: skip
        if file.deleted:
            vector = encode_vector(BitMap64(file.deleted))
            descriptor = inline_descriptor(vector, len(file.deleted))
            add["deletionVector"] = descriptor.model_dump(by_alias=True, exclude_none=True)
        adds.append(add)
    in_json = [
        add if layout.in_checkpoint else {**add, "stats": file.stats}
        for add, file in zip(adds, layout.files, strict=True)
    ]
    actions = [{"protocol": protocol}, {"metaData": metadata}, *({"add": add} for add in in_json)]
    text = "\n".join(json.dumps(action) for action in actions)
    store.write_new("_delta_log/00000000000000000000.json", text.encode())
    if layout.in_checkpoint:
        write_checkpoint(store, layout, protocol, metadata, adds)
    return txlog.Table(store.root)


def tree_type(tree: dict[str, Any]) -> pa.StructType:
    return pa.struct(
        [(name, tree_type(t) if isinstance(t, dict) else t) for name, t in tree.items()]
    )


def write_checkpoint(
    store: Store,
    layout: Layout,
    protocol: dict[str, Any],
    metadata: dict[str, Any],
    adds: list[dict[str, Any]],
) -> None:
    """Write a classic checkpoint with statistics as structs only, or as JSON."""
    bounded: dict[str, Any] = {}
    counted: dict[str, Any] = {}
    for path, leaf in layout.leaves.items():
        put(bounded, layout.physical(path), ARROW[leaf.kind])
        put(counted, layout.physical(path), pa.int64())
    parsed = pa.struct(
        [
            ("numRecords", pa.int64()),
            ("tightBounds", pa.bool_()),
            ("minValues", tree_type(bounded)),
            ("maxValues", tree_type(bounded)),
            ("nullCount", tree_type(counted)),
        ]
    )
    vector = pa.struct(
        [("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()),
         ("sizeInBytes", pa.int32()), ("cardinality", pa.int64())]
    )  # fmt: skip
    texts = pa.map_(pa.string(), pa.string())
    names = pa.list_(pa.string())
    schema = pa.schema(
        [
            ("protocol", pa.struct([("minReaderVersion", pa.int32()),
                                    ("minWriterVersion", pa.int32()),
                                    ("readerFeatures", names), ("writerFeatures", names)])),
            ("metaData", pa.struct([("id", pa.string()),
                                    ("format", pa.struct([("provider", pa.string()),
                                                          ("options", texts)])),
                                    ("schemaString", pa.string()), ("partitionColumns", names),
                                    ("configuration", texts), ("createdTime", pa.int64())])),
            ("add", pa.struct([("path", pa.string()), ("partitionValues", texts),
                               ("size", pa.int64()), ("modificationTime", pa.int64()),
                               ("dataChange", pa.bool_()), ("deletionVector", vector),
                               ("stats_parsed", parsed) if layout.as_structs
                               else ("stats", pa.string())])),
        ]
    )  # fmt: skip
    as_maps = {**metadata, "configuration": list(metadata["configuration"].items()),
               "format": {"provider": "parquet", "options": []}}  # fmt: skip
    rows: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": as_maps}]
    for add, file in zip(adds, layout.files, strict=True):
        values = list(add["partitionValues"].items())
        told = {"stats_parsed": file.parsed} if layout.as_structs else {"stats": file.stats}
        rows.append({"add": {**add, "partitionValues": values, **told}})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    store.write_new(
        "_delta_log/00000000000000000000.checkpoint.parquet", sink.getvalue().to_pybytes()
    )


# What is generated ------------------------------------------------------------------------------

BROKEN = [None, "", "null", "{", "[]", '"x"', "7", '{"minValues":NaN}', "cut"]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    mode = draw(st.sampled_from(["none", "none", "name", "id"]))
    kinds = [draw(st.sampled_from(list(ARROW))) for _ in range(4)]
    # Names that were exchanged are the worst that renaming can leave.
    names = draw(st.sampled_from([("b", "a", "s"), ("col-1", "col-2", "col-3"), ("s", "b", "a")]))
    inner = draw(st.sampled_from([("t", "a"), ("x", "y"), ("a", "t")]))
    t = Node("t", inner[1], 5, children=(Node("b", "a", 6, kinds[3]),))
    layout = Layout(
        nodes=(
            Node("a", names[0], 1, kinds[0]),
            Node("b", names[1], 2, kinds[1]),
            Node("s", names[2], 3, children=(Node("a", inner[0], 4, kinds[2]), t)),
        ),
        mode=mode,
        partition=draw(
            st.none() | st.sampled_from(PARTITION_KINDS).map(lambda kind: Node("p", "q", 7, kind))
        ),
        in_checkpoint=draw(st.booleans()),
        as_structs=draw(st.booleans()),
        large=draw(st.booleans()),
    )
    for _ in range(draw(st.integers(1, 3))):
        layout.files.append(draw(files(layout)))
    return layout


@st.composite
def files(draw: st.DrawFn, layout: Layout) -> File:
    missing = draw(
        st.sampled_from([(), (), (), (("b",),), (("s", "a"),), (("s", "t", "b"),),
                         (("s", "a"), ("s", "t", "b"))])
    )  # fmt: skip
    widens = draw(st.booleans())
    kinds = {
        path: draw(st.sampled_from(OLDER.get(leaf.kind, [leaf.kind]))) if widens else leaf.kind
        for path, leaf in layout.leaves.items()
        if path not in missing
    }
    few = {
        path: st.none() | st.sampled_from(draw(st.lists(st.sampled_from(POOLS[kind]), min_size=1,
                                                        max_size=3)))
        for path, kind in kinds.items()
    }  # fmt: skip
    cells: dict[Path, st.SearchStrategy[Any]] = {
        path: st.sampled_from(["", "", "", "null"]) for path in (("s",), ("s", "t"))
    }
    rows = draw(st.lists(st.fixed_dictionaries({**cells, **few}), min_size=1, max_size=5))
    file = File(rows, kinds, group=draw(st.integers(1, 3)))
    if draw(st.integers(0, 3)) == 0:
        file.deleted = draw(st.lists(st.integers(0, len(rows) - 1), unique=True, max_size=3))
    if layout.partition:
        file.partition, file.text = draw(partitions(layout.partition.kind))
    draw(statistics(layout, file))
    return file


@st.composite
def partitions(draw: st.DrawFn, kind: str) -> tuple[Any, str | None]:
    value = draw(st.none() | st.sampled_from(POOLS[kind]))
    if value is None or value == "":
        return None, draw(st.sampled_from([None, ""]))
    match kind:
        case "boolean":
            return value, str(value).lower()
        case "double":
            return value, repr(value).replace("inf", "Infinity").replace("nan", "NaN")
        case "timestamp":
            plain = value.replace(tzinfo=None)
            texts = [f"{plain.isoformat(timespec='microseconds')}Z", str(plain)]
            return value, draw(st.sampled_from(texts))
    return value, str(value)


def leaf_value(row: dict[Path, Any], path: Path) -> Any:
    above = [path[:end] for end in range(1, len(path))]
    return None if any(row.get(part) == "null" for part in above) else row[path]


@st.composite
def statistics(draw: st.DrawFn, layout: Layout, file: File) -> None:
    """Set what the writer of a file says of it, as JSON and as a struct."""
    tight = draw(st.sampled_from([None, True, False]))
    count = len(file.rows)
    # After a delete, statistics are those of before, or made anew from the rows that are left.
    rows = file.alive if tight else file.rows
    found: dict[str, Any] = {"numRecords": draw(st.sampled_from([count, count, count, None]))}
    parsed: dict[str, Any] = dict(found)
    if tight is not None or draw(st.booleans()):
        found["tightBounds"] = parsed["tightBounds"] = tight
    for name in ("minValues", "maxValues", "nullCount"):
        found[name], parsed[name] = {}, {}
    odd = draw(st.integers(0, 4)) == 0
    for path, kind in file.kinds.items():
        at = layout.physical(path)
        habits = draw(HABITS)
        values = [leaf_value(row, path) for row in rows]
        low, high = bounds_of(values, kind, habits)
        for name, bound in (("minValues", low), ("maxValues", high)):
            text = bound.text if bound else None
            typed = None if bound is None else widened(bound.typed, layout.leaves[path].kind)
            if odd and draw(st.booleans()):
                text, typed = draw(st.sampled_from([*junk(kind), text, str(text)])), None
                text = text if kind in ("string", "boolean", "binary") or text != "None" else None
                if kind == "string" and bound and text == str(bound.text):
                    text = bound.text
            if text is not None or draw(st.booleans()):
                put(found[name], at, text)
            put(parsed[name], at, typed)
        nulls: Any = sum(value is None for value in values)
        if file.deleted and tight is not True and tight is not None and 0 < nulls < count:
            nulls = draw(st.integers(1, count - 1))  # It only says: some are.
        counted = nulls
        if odd:
            nulls, counted = draw(st.sampled_from([(nulls, counted), (None, None), (-1, -1),
                                                   (str(nulls), None), (float(nulls), None),
                                                   ({}, None)]))  # fmt: skip
        put(found["nullCount"], at, nulls)
        put(parsed["nullCount"], at, counted)
    if odd:
        key = draw(st.sampled_from([*found, "none"]))
        found.pop(key, None)
        if draw(st.booleans()):
            found[key] = draw(st.sampled_from([None, "3", [], "x"]))
    file.stats, file.parsed = dumped(found), parsed
    if draw(st.integers(0, 9)) == 0:
        broken = draw(st.sampled_from(BROKEN))
        file.stats = file.stats[: len(file.stats) // 2] if broken == "cut" else broken
        file.parsed = None


NUMBERS = [-1000, -1, 0, 1, 128, 2**63, -(2**63) - 1, 10**39, 1.5, -0.0, 0.7, 2.0**53, math.inf,
           -math.inf, math.nan, Decimal("1.1"), Decimal("0.7"), Decimal("-0.5"), short(0.7),
           Decimal("12345678901234567890.5"), 10**23, 1e23]  # fmt: skip
PATTERNS = ["%", "", "a", "a%", "a_", "_", "%b", "a%b", "a\\%%", "a\\%", "a\\_%", "\\\\%", "a\\\\",
            X + "%", X + "x%", X + "\x7f%", X + "\U0010ffff%", "x%x", "\uffff%", "é%",
            "\U0001f600%", "%%", "a\\\\%", "b_%", "ü"]  # fmt: skip


def constants(kind: str) -> st.SearchStrategy[Any]:
    own = st.sampled_from(POOLS[kind])
    if kind in [*INTEGERS, *FLOATS, *DECIMALS]:
        return own | st.sampled_from(NUMBERS)
    if kind == "date":
        return own | own.map(lambda value: value.isoformat())
    if kind in ("timestamp", "timestamp_ntz"):
        near = st.tuples(own, st.sampled_from([-1, 1])).map(
            lambda pair: pair[0] + timedelta(microseconds=pair[1])
        )
        texts = st.sampled_from(["2020-01-01", "2020-01-01T12:00:00.001Z", date(2020, 1, 1)])
        return own | near | texts
    return own


def family(kind: str) -> str:
    if kind in [*INTEGERS, *FLOATS, *DECIMALS]:
        return "number"
    return "moment" if kind in ("date", "timestamp", "timestamp_ntz") else kind


COMPARATORS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
FORMS = ["compare", "compare", "flipped", "between", "not between", "in", "not in", "null",
         "not null", "like", "prefix", "pair", "truth", "constant", "struct"]  # fmt: skip


@dataclass(frozen=True)
class Known:
    """A column as predicates see it."""

    kind: str
    held: tuple[Any, ...]  # Values that occur: constants should often meet them.


@st.composite
def leaf_predicates(draw: st.DrawFn, known: dict[Path, Known]) -> Expression:
    path = draw(st.sampled_from(list(known)))
    columns = {at: found.kind for at, found in known.items()}
    kind, column = columns[path], Column(path)
    held = [st.sampled_from(known[path].held)] * 2 if known[path].held else []
    values = st.one_of([st.none(), constants(kind), *held])
    form = draw(st.sampled_from(FORMS))
    if form in ("like", "prefix", "truth"):
        wanted = "boolean" if form == "truth" else "string"
        fitting = [at for at, found in columns.items() if found == wanted]
        if not fitting:
            form = "compare"
        else:
            column = Column(draw(st.sampled_from(fitting)))
    match form:
        case "flipped":
            return Comparison(draw(st.sampled_from(COMPARATORS)), Literal(draw(values)), column)
        case "between":
            return column.between(draw(values), draw(values))
        case "not between":
            return ~column.between(draw(values), draw(values))
        case "in" | "not in":
            found = draw(st.lists(values, min_size=1, max_size=3))
            if draw(st.integers(0, 9)) == 0:
                found = found * 101
            listed = In(column, tuple(Literal(value) for value in found))
            return listed if form == "in" else Not(listed)
        case "null":
            return IsNull(column)
        case "not null":
            return Not(IsNull(column))
        case "like":
            return Like(column, draw(st.sampled_from(PATTERNS)))
        case "prefix":
            return column.startswith(draw(st.sampled_from(POOLS["string"])))
        case "pair":
            other = draw(
                st.sampled_from([at for at, k in columns.items() if family(k) == family(kind)])
            )
            return Comparison(draw(st.sampled_from(COMPARATORS)), column, Column(other))
        case "truth":
            return column
        case "constant":
            return draw(st.sampled_from([Literal(None), Literal(True), Literal(False)]))
        case "struct":
            return IsNull(Column(draw(st.sampled_from([("s",), ("s", "t")]))))
    return Comparison(draw(st.sampled_from(COMPARATORS)), column, Literal(draw(values)))


def predicates(known: dict[Path, Known]) -> st.SearchStrategy[Expression]:
    leaves = leaf_predicates(known)
    return leaves | st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
            st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        ),
        max_leaves=4,
    )


@st.composite
def questions(draw: st.DrawFn) -> tuple[Layout, list[Expression]]:
    layout = draw(layouts())
    known = {}
    for path, leaf in layout.leaves.items():
        rows = [row for file in layout.files if path in file.kinds for row in file.rows]
        values = [widened(row[path], leaf.kind) for row in rows if row[path] is not None]
        known[path] = Known(leaf.kind, tuple(values))
    if layout.partition:
        values = [file.partition for file in layout.files if file.partition is not None]
        known[layout.partition.name,] = Known(layout.partition.kind, tuple(values))
    return layout, draw(st.lists(predicates(known), min_size=3, max_size=6))


# The property -----------------------------------------------------------------------------------


def as_texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def check(layout: Layout, wheres: list[Expression]) -> None:
    table = write_table(layout)
    everything = table.to_arrow()
    made = pa.Table.from_pylist(expected_rows(layout), table.schema)
    assert as_texts(everything.to_pylist()) == as_texts(made.to_pylist())
    for where in wheres:
        kept = pc.fill_null(mask(bind(where, table.snapshot.schema), made), False)
        wanted = made.filter(kept)
        with pytest.MonkeyPatch.context() as patch:
            if layout.large:
                patch.setattr("txlog.snapshot.live_files._LARGE_BYTES", 0)
            fresh = txlog.Table(table.uri)  # What a table has listed, it does not look for again.
            found = fresh.to_arrow(where=where)
            assert as_texts(found.to_pylist()) == as_texts(wanted.to_pylist()), to_sql(where)
            uris = set(fresh.scan(where=where).file_uris())
            assert len(uris) == txlog.Table(table.uri).scan(where=where).explain().files_to_read
            assert txlog.Table(table.uri).count(where) == wanted.num_rows, to_sql(where)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(questions())
def test_skipping_changes_no_answer(question: tuple[Layout, list[Expression]]) -> None:
    check(*question)


@pytest.mark.exhaustive
@settings(max_examples=4000)
@given(questions())
def test_skipping_changes_no_answer_at_length(question: tuple[Layout, list[Expression]]) -> None:
    check(*question)


# Skipping does skip ---------------------------------------------------------------------------

CLEAN: dict[Path, list[list[Any]]] = {  # By column, the values of three files.
    ("a",): [[1, 2, 3], [4, None, 6], [7, 8, 9]],
    ("b",): [["ab", "ac", "a"], ["ba", "bb", "bc"], [None, None, None]],
    ("s", "a"): [[Decimal(n) for n in part] for part in ((1, 2, 2), (3, 4, 5), (6, 7, 8))],
    ("s", "t", "b"): [[datetime(2020, m, d, tzinfo=UTC) for d in (1, 2, 3)] for m in (1, 2, 3)],
}


def clean(mode: str, in_checkpoint: bool, habits: Habits) -> Layout:
    kinds = ["integer", "string", "decimal(38,10)", "timestamp"]
    t = Node("t", "x", 5, children=(Node("b", "y", 6, kinds[3]),))
    layout = Layout(
        (Node("a", "b", 1, kinds[0]), Node("b", "a", 2, kinds[1]),
         Node("s", "u", 3, children=(Node("a", "v", 4, kinds[2]), t))),
        mode, Node("p", "q", 7, "date"), in_checkpoint=in_checkpoint,
    )  # fmt: skip
    for at in range(3):
        stats: dict[str, Any] = {"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {}}
        parsed: dict[str, Any] = {**stats, "minValues": {}, "maxValues": {}, "nullCount": {}}
        for path, (kind, parts) in zip(CLEAN, zip(kinds, CLEAN.values(), strict=True), strict=True):
            names = layout.physical(path)
            for name, bound in zip(
                ("minValues", "maxValues"), bounds_of(parts[at], kind, habits), strict=True
            ):
                if bound:
                    put(stats[name], names, bound.text)
                    put(parsed[name], names, bound.typed)
            put(stats["nullCount"], names, parts[at].count(None))
            put(parsed["nullCount"], names, parts[at].count(None))
        rows = [{path: parts[at][row] for path, parts in CLEAN.items()} for row in range(3)]
        day = date(2020, 1, 1 + at)
        layout.files.append(
            File(rows, dict(zip(CLEAN, kinds, strict=True)), day,
                 str(day), stats=dumped(stats), parsed=parsed)
        )  # fmt: skip
    return layout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "in_checkpoint"), [("none", False), ("name", False), ("id", True), ("none", True)]
)
@pytest.mark.parametrize(
    ("where", "read", "certain"),
    [
        ("a = 5", 1, 0), ("a < 4", 1, 1), ("a <= 4", 2, 1), ("a > 6", 1, 1), ("a >= 6", 2, 1),
        ("3 >= a", 1, 1), ("a <> 5", 3, 2), ("a <=> 5", 1, 0), ("a <=> NULL", 1, 0),
        ("a = NULL", 0, 0), ("a BETWEEN 2 AND 5", 2, 0), ("a NOT BETWEEN 2 AND 9", 1, 0),
        ("a IN (2, 20, NULL)", 1, 0), ("a NOT IN (2, NULL)", 0, 0), ("a NOT IN (20, 30)", 3, 2),
        ("a < 3.5", 1, 1), ("a > 1e30", 0, 0), ("a < 99999999999999999999", 3, 2),
        ("a IS NULL", 1, 0), ("a IS NOT NULL", 3, 2), ("b IS NULL", 1, 1),
        ("b IS NOT NULL", 2, 2), ("b LIKE 'b%'", 1, 1), ("b LIKE 'ba%'", 1, 0),
        ("b NOT LIKE 'b%'", 1, 1), ("b LIKE '%x'", 2, 0), ("startswith(b, 'c')", 0, 0),
        ("b LIKE 'z!_%' ESCAPE '!'", 0, 0), ("b = 'bb'", 1, 0), ("NOT a < 7", 1, 1),
        ("NOT (a < 7 OR s.a = 7)", 1, 0), ("a < 4 AND b > 'b'", 0, 0), ("a < 4 OR b > 'b'", 2, 2),
        ("s.a = 4", 1, 0), ("s.a > 5.5", 1, 1), ("s.t.b < '2020-02-01'", 1, 1),
        ("s.t.b >= TIMESTAMP '2020-03-01'", 1, 1), ("s.a IS NULL", 0, 0), ("NULL", 0, 0),
        ("FALSE OR a = 1", 1, 0), ("p = '2020-01-02'", 1, 1), ("p > '2020-01-02' OR a = 1", 2, 1),
        ("p IN ('2020-01-01', '2020-01-03') AND a > 3", 1, 1), ("p IS NULL", 0, 0),
        ("p <> '2020-01-02'", 2, 2),
    ],
)  # fmt: skip
def test_files_are_left_out(
    mode: str, in_checkpoint: bool, where: str, read: int, certain: int
) -> None:
    layout = clean(mode, in_checkpoint, Habits())
    check(layout, [parse_sql(where)])
    plan = write_table(layout).scan(where=where).plan
    assert plan.explanation.files_to_read == read
    assert sum(plan.certain) == certain
