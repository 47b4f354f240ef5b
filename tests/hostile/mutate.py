"""Random changes of good input: of bytes, of JSON, and of tables.

Everything is decided by a `random.Random`, so that a case is named by its number.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

NUMBERS = (
    0, 1, -1, 2, 7, 127, 128, 255, 256, 4096, 65535, 65536, 2**31 - 1, 2**31, -(2**31) - 1, 2**32,
    2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30, -(10**30), 10**400,
)  # fmt: skip
TEXTS = (
    "", " ", "a", "id", "ID", "0", "-1", "true", "x" * 300, "é", "\x00", "\ud800", "a\nb", "..",
    "../../x", "/etc/hostname", "file:///etc/hostname", "file:/x", "%2e%2e/%2e%2e/x", "s3://b/k",
    "http://127.0.0.1:9/x", "%ZZ", "%00", "%ff", "//x", ".", "a/../../b", "2020-01-01", "name",
    "9" * 5000, "1e999", "NaN", "interval 1 day", "interval 99999999999999 weeks", "struct", "long",
    "decimal(38,38)", "decimal(99,1)", "array", "[]", "{}", "null", '"', "'", "\\", "id > 5", "1/0",
    "(" * 300, "lance", "u", "p", "i", "00000", "parquet", "deletionVectors", "v2Checkpoint",
)  # fmt: skip
ATOMS: tuple[Any, ...] = (*NUMBERS[:-1], *TEXTS, None, True, False, 0.5, -0.0, 1e300)


def bent(chance: Random, data: bytes, other: bytes = b"") -> bytes:
    """Return bytes with one to four changes."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        _bend(chance, changed, other)
    return bytes(changed)


def _bend(chance: Random, data: bytearray, other: bytes) -> None:
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.choice((1, 1, 2, 4, 8, 64)))
    match chance.randrange(9):
        case 0 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(data):
            data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        case 2:
            data[at:at] = chance.randbytes(chance.choice((1, 2, 8)))
        case 3:
            del data[at:end]
        case 4:
            data[at:at] = data[at:end] * chance.choice((1, 2, 50))
        case 5:
            del data[at:]
        case 6:
            size = chance.choice((1, 2, 4, 8))
            number = chance.choice(NUMBERS[:-3]) % (1 << 8 * size)
            data[at : at + size] = number.to_bytes(size, chance.choice(("little", "big")))
        case 7 if other:
            start = chance.randrange(len(other))
            data[at:end] = other[start : start + chance.choice((1, 8, 64, 512))]
        case _:
            there = chance.randrange(len(data) + 1)
            data[at:end], data[there : there + 4] = data[there : there + 4], data[at:end]


def bent_json(chance: Random, node: Any) -> Any:
    """Return a JSON value with one to three changes somewhere in it."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        node = _bent_node(chance, node)
    return node


def _bent_node(chance: Random, node: Any) -> Any:
    if isinstance(node, dict) and node and chance.random() < 0.93:
        name = chance.choice(list(node))
        match chance.randrange(12):
            case 0:
                return {key: value for key, value in node.items() if key != name}
            case 1:
                return {**node, name: _replacement(chance)}
            case 2:
                return {**node, chance.choice((*node, "x", "")): node[name]}
            case _:
                return {**node, name: _bent_node(chance, node[name])}
    if isinstance(node, list) and node and chance.random() < 0.93:
        at = chance.randrange(len(node))
        match chance.randrange(8):
            case 0:
                return node[:at] + node[at + 1 :]
            case 1:
                return [*node, node[at]]
            case 2:
                return node[at:] + node[:at]
            case _:
                return [*node[:at], _bent_node(chance, node[at]), *node[at + 1 :]]
    if isinstance(node, str) and node[:1] in ("{", "[") and chance.random() < 0.8:
        try:
            return json.dumps(_bent_node(chance, json.loads(node)))
        except (ValueError, RecursionError):
            return _replacement(chance)
    if isinstance(node, str) and node and chance.random() < 0.4:
        at = chance.randrange(len(node))
        return node[:at] + chance.choice((*TEXTS, node)) + node[at + chance.randrange(3) :]
    if type(node) is int and chance.random() < 0.4:
        return node + chance.choice((-1, 1, 7, 2**31, 2**62))
    return _replacement(chance)


def _replacement(chance: Random) -> Any:
    match chance.randrange(12):
        case 0:
            return []
        case 1:
            return {}
        case 2:
            nested: Any = chance.choice(ATOMS)
            for _ in range(chance.choice((1, 3, 300))):
                nested = [nested] if chance.random() < 0.5 else {"a": nested}
            return nested
        case _:
            return chance.choice(ATOMS)


def bent_lines(chance: Random, data: bytes) -> bytes:
    """Return the text of a log file in which some JSON objects are other ones."""
    lines: list[Any] = [json.loads(line) for line in data.splitlines() if line.strip()]
    texts = []
    at = chance.randrange(len(lines))
    match chance.randrange(10):
        case 0:
            lines.append(lines[at])
        case 1:
            del lines[at]
        case 2:
            lines = lines[at:] + lines[:at]
        case 3:
            lines.append({chance.choice(("add", "remove", "txn", "x")): _replacement(chance)})
        case _:
            lines[at] = bent_json(chance, lines[at])
    space = chance.choice(((",", ":"), (",", ":"), (", ", ": ")))
    for line in lines:
        text = json.dumps(line, separators=space, ensure_ascii=chance.random() < 0.9)
        if chance.random() < 0.03:
            text = text.replace('{"', '{"path":1,"', 1)  # A name may then be there twice.
        texts.append(text)
    return chance.choice(("\n", "\n", "\r\n", "\n\n")).join(texts).encode("utf-8", "surrogatepass")


Rows = list[dict[str, Any]]


def bent_parquet(chance: Random, data: bytes) -> bytes | None:
    """Return a Parquet file with other rows, columns or types; None if it cannot be made."""
    table = pq.read_table(pa.BufferReader(data))
    changes: tuple[Callable[[Random, pa.Table], pa.Table], ...] = (
        _other_rows, _other_rows, _other_rows, _other_types, _other_columns,
    )  # fmt: skip
    try:
        table = chance.choice(changes)(chance, table)
        sink = pa.BufferOutputStream()
        pq.write_table(
            table, sink,
            compression=chance.choice(("none", "zstd", "snappy")),
            use_dictionary=chance.random() < 0.5,
            data_page_version=chance.choice(("1.0", "2.0")),
            row_group_size=chance.choice((1, 3, 1000)),
            write_statistics=chance.random() < 0.7,
        )  # fmt: skip
    except (pa.ArrowException, OverflowError, TypeError, ValueError, KeyError, AttributeError):
        return None
    return bytes(sink.getvalue().to_pybytes())


def _other_rows(chance: Random, table: pa.Table) -> pa.Table:
    rows = table.to_pylist(maps_as_pydicts="lossy")
    if not rows:
        return table
    at = chance.randrange(len(rows))
    match chance.randrange(6):
        case 0:
            del rows[at]
        case 1:
            rows.append(rows[at])
        case _:
            kinds = [kind for kind, body in rows[at].items() if body is not None] or ["x"]
            kind = chance.choice(kinds)
            rows[at] = {**rows[at], kind: bent_json(chance, rows[at].get(kind))}
    return pa.Table.from_pylist(rows, schema=table.schema)


def _other_types(chance: Random, table: pa.Table) -> pa.Table:
    at = chance.randrange(table.num_columns)
    field = table.schema.field(at)
    column = table.column(at).combine_chunks()
    if pa.types.is_struct(field.type) and field.type.num_fields:
        children = {inner.name: column.field(inner.name) for inner in field.type}
        name = chance.choice(list(children))
        children[name] = _cast(chance, children[name])
        made = pa.StructArray.from_arrays(
            list(children.values()), names=list(children), mask=column.is_null()
        )
        return table.set_column(at, field.name, made)
    return table.set_column(at, field.name, _cast(chance, column))


def _cast(chance: Random, column: pa.Array) -> pa.Array:
    kinds = (
        pa.int32(), pa.int64(), pa.string(), pa.float64(), pa.binary(), pa.large_string(),
        pa.timestamp("us"), pa.bool_(), pa.decimal128(20, 2), pa.null(),
    )  # fmt: skip
    kind = chance.choice(kinds)
    if pa.types.is_null(kind):
        return pa.nulls(len(column))
    return column.cast(kind)


def _other_columns(chance: Random, table: pa.Table) -> pa.Table:
    at = chance.randrange(table.num_columns)
    names = list(table.column_names)
    match chance.randrange(4):
        case 0:
            return table.remove_column(at)
        case 1:
            return table.append_column(chance.choice((names[at], "x", "")), table.column(at))
        case 2:
            names[at] = chance.choice((*names, "x", ""))
            return table.rename_columns(names)
        case _:
            return table.select(chance.sample(names, len(names)))
