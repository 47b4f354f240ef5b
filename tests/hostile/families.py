"""Families of parsers for foreign bytes; each runs one case of changed input.

A case is right if it ends, or raises a `TxlogError`; where more is known, it is asserted. Every
case is named by a family and a number, and is the same each time::

    python tests/hostile/families.py commits 17
"""

import contextlib
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFileSystem
from mutate import bent, bent_json, bent_lines, bent_parquet
from pyroaring import BitMap64

import txlog
from txlog.actions.bulk import decode_large
from txlog.actions.columns import decode_rows
from txlog.actions.ndjson import rows as rows_of
from txlog.actions.stats_text import quick_document
from txlog.base.arrow import arrow_array
from txlog.checkpoint.hint import decode_hint
from txlog.expressions.bind import bind
from txlog.expressions.sql import parse_sql, to_sql
from txlog.fragments import deletion_vector
from txlog.fragments.deletion_file import decode_deletions, encode_deletions
from txlog.fragments.deletion_vector import decode_vector, encode_file, encode_vector
from txlog.log.names import LogFile, commit_name, parse_name
from txlog.log.paths import canonical_key, canonical_keys, decode_path
from txlog.log.segment import choose_segment
from txlog.parquet.footer import parse_footer, parse_offset_indexes
from txlog.parquet.thrift import ThriftError
from txlog.schema.arrow import arrow_schema
from txlog.schema.json import parse_schema, schema_json
from txlog.schema.types import StructType
from txlog.snapshot.checksum import decode_checksum
from txlog.snapshot.commits import file_rows, parse_commit
from txlog.stats.json_bounds import json_bounds, parsed_bounds
from txlog.store.memory import MemoryStore
from txlog.testing import open_table, unsealed
from txlog.variant.arrays import decode_variant, variant_from_python

CPU_S = 5.0  # Of one case.
MEMORY = 1 << 30  # Bytes, of one case.

Files = dict[str, bytes]


class HangError(BaseException):
    """A case took too long."""


class WrongError(Exception):
    """A case gave an answer that is not right."""


# --- tables -----------------------------------------------------------------------------------


ROWS = pa.table(
    {
        "id": pa.array(range(12), pa.int64()),
        "name": [f"n{number % 5}" for number in range(12)],
        "price": [number / 4 for number in range(12)],
        "tags": [[number, None] for number in range(12)],
        "place": [{"x": number, "y": "z"} for number in range(12)],
        "p": ["a", "b"] * 6,
    }
)


def _stored(root: str) -> Files:
    prefix = f"/{root}/"
    held = MemoryFileSystem.store
    return {k.removeprefix(prefix): v.getvalue() for k, v in held.items() if k.startswith(prefix)}


def _put(root: str, files: Mapping[str, bytes]) -> None:
    system = MemoryFileSystem()
    for key in [key for key in MemoryFileSystem.store if key.startswith(f"/{root}/")]:
        del MemoryFileSystem.store[key]
    for path, data in files.items():
        system.pipe_file(f"/{root}/{path}", data)


def _foreign(files: Files) -> Files:
    """Return a table as one without checksums of ours, so that changes get further."""
    made = {}
    for path, data in files.items():
        if path.endswith(".json") and path.startswith("_delta_log/"):
            data = unsealed(data)
        elif path.startswith("_delta_log/") and path.endswith(".parquet"):
            sink = pa.BufferOutputStream()
            pq.write_table(pq.read_table(pa.BufferReader(data)), sink)
            data = sink.getvalue().to_pybytes()
        made[path] = data
    return made


def _several_commits(uri: str, **options: Any) -> txlog.Table:
    table = txlog.write(uri, ROWS.slice(0, 8), **options)
    table = txlog.Table(uri)
    table.append(ROWS.slice(8), txn=("job", 3))
    table.delete("id = 2")
    table.update({"name": "'new'"}, where="id = 9")
    return table


def _classic(uri: str) -> None:
    table = _several_commits(uri, partition_by=["p"])
    table.maintenance.checkpoint()
    table.append(ROWS.slice(0, 2))


def _plain(uri: str) -> None:
    _several_commits(
        uri,
        partition_by=["p"],
        properties={"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true",
                    "delta.enableInCommitTimestamps": "true", "txlog.writeChecksums": "true"},
    )  # fmt: skip


def _sidecars(uri: str) -> None:
    table = _several_commits(uri, properties={"delta.checkpointPolicy": "v2"})
    table.maintenance.checkpoint()
    table.append(ROWS.slice(0, 2))


def _lance(uri: str) -> None:
    table = _several_commits(
        uri,
        properties={"txlog.deletionFormat": "lance", "delta.feature.txlog.fragments": "supported"},
    )
    table.delete("id = 5")


def _mapped(uri: str) -> None:
    table = _several_commits(uri, properties={"delta.columnMapping.mode": "name"})
    table.alter.add_constraint({"c": "id >= 0 AND length(name) < 90"})
    table.maintenance.compact_log(0)


TABLES: dict[str, Callable[[str], None]] = {
    "plain": _plain, "classic": _classic, "sidecars": _sidecars, "lance": _lance, "mapped": _mapped,
}  # fmt: skip


@cache
def _table(name: str, foreign: bool) -> Files:
    root = f"hostile-{name}-{os.getpid()}"
    with contextlib.suppress(KeyError):
        _put(root, {})
    TABLES[name](f"memory://{root}")
    files = _stored(root)
    _put(root, {})
    return _foreign(files) if foreign else files


Call = Callable[[txlog.Table], object]
READS: tuple[Call, ...] = (
    lambda t: t.count(),
    lambda t: t.count("id > 3 AND name <> 'n1'"),
    lambda t: t.scan(["id", "_rowid", "_rowaddr"], where="p = 'a' OR price > 1").to_arrow(),
    lambda t: t.files(),
    lambda t: list(t.fragments()),
    lambda t: t.history(),
    lambda t: t.head(3),
    lambda t: t.take([0, 1]),
    lambda t: t.lookup({"id": [1, 9]}),
    lambda t: t.maintenance.verify_checksum(),
    lambda t: t.doctor(),
    lambda t: t.capabilities(),
    lambda t: t.changes(0).to_arrow() if hasattr(t.changes(0), "to_arrow") else t.changes(0),
    lambda t: t.scan().file_uris(),
    lambda t: t.files(statistics="struct"),
    lambda t: t.partitions(),
    lambda t: t.protocol,
    lambda t: t.properties if hasattr(t, "properties") else None,
    lambda t: t.scan(where="id in (1, 2)").explain(),
)
WRITES: tuple[Call, ...] = (
    lambda t: t.append(ROWS.slice(0, 2)),
    lambda t: t.append(ROWS.slice(0, 2), txn=("job", 4)),
    lambda t: t.delete("id < 3"),
    lambda t: t.update({"price": "price + 1"}, where="id = 3"),
    lambda t: t.upsert(ROWS.slice(0, 3), on="id"),
    lambda t: t.maintenance.checkpoint(),
    lambda t: t.maintenance.compact_log(0),
    lambda t: t.optimize.compact(),
    lambda t: t.restore(1),
    lambda t: t.vacuum(dry_run=True),
    lambda t: t.alter.set_properties({"my.own": "1"}),
    lambda t: t.alter.add_columns(pa.schema([("more", pa.int64())])),
    lambda t: t.overwrite(ROWS.slice(0, 1)),
    lambda t: t.maintenance.repair(),
)


def _try(call: Callable[[], object]) -> object:
    """Return the result of a call. Return None if the call raises a `TxlogError`."""
    try:
        return call()
    except txlog.TxlogError as error:
        if isinstance(error, MemoryError):
            raise  # Its bound is one of what is tested.
        return None


def _use(chance: Random, files: Files) -> None:
    """Open a table, and do a few things with it."""
    root = f"hostile-case-{os.getpid()}"
    _put(root, files)
    store = MemoryStore(f"memory://{root}")
    version = chance.choice((None, None, None, 0, 2))
    table = _try(lambda: open_table(store, version))
    if isinstance(table, txlog.Table):
        _try(table.to_arrow)
        for call in chance.sample(READS, 2):
            _try(lambda call=call: call(table))  # type: ignore[misc]
        if version is None and chance.random() < 0.5:
            _try(lambda: chance.choice(WRITES)(table))
            _try(lambda: open_table(store).count())


def _chosen(chance: Random, pattern: Callable[[str], bool]) -> tuple[Files, str]:
    """Return the files of a table, and one of them that fits."""
    while True:
        files = _table(chance.choice(list(TABLES)), chance.random() < 0.7)
        found = sorted(filter(pattern, files))
        if found:
            return files, chance.choice(found)


def _is_commit(path: str) -> bool:
    return path.startswith("_delta_log/") and path.endswith(".json") and "checkpoint" not in path


def _is_checkpoint(path: str) -> bool:
    return path.startswith("_delta_log/") and path.endswith(".parquet")


def _other_file(path: str) -> bool:
    return path.endswith((".crc", "_last_checkpoint", ".bin", ".arrow"))


def _is_data(path: str) -> bool:
    return not path.startswith("_") and path.endswith(".parquet")


def table_commits(chance: Random) -> None:
    """Change a commit or compaction of a table, line by line."""
    files, path = _chosen(chance, _is_commit)
    _use(chance, {**files, path: bent_lines(chance, files[path])})


def table_commit_bytes(chance: Random) -> None:
    """Change a commit by bytes. If its checksum is still there, nothing else may be read of it."""
    files, path = _chosen(chance, _is_commit)
    data = bent(chance, files[path])
    if b'"txlogCrc32":"' not in data.partition(b"\n")[0] or not path.endswith(".json"):
        _use(chance, {**files, path: data})
        return
    root = f"hostile-case-{os.getpid()}"
    _put(root, {**files, path: data})
    answer = _try(lambda: _read(root))
    _put(root, files)
    if answer is not None and answer != _read(root):
        raise WrongError(f"a changed commit was read: {path}")


def _read(root: str) -> list[Any]:
    table = open_table(MemoryStore(f"memory://{root}"))
    return [table.version, *sorted(map(repr, table.to_arrow().to_pylist()))]


def table_checkpoints(chance: Random) -> None:
    """Change rows, columns or types of a checkpoint or sidecar."""
    files, path = _chosen(chance, _is_checkpoint)
    data = bent_parquet(chance, files[path])
    if data is not None:
        if chance.random() < 0.4:  # Nothing can stand for it.
            files = {p: d for p, d in files.items() if not _is_commit(p) or p > path}
        _use(chance, {**files, path: data})


def table_checkpoint_bytes(chance: Random) -> None:
    """Change a checkpoint or sidecar by bytes, its end more often."""
    files, path = _chosen(chance, _is_checkpoint)
    data = files[path]
    cut = chance.choice((0, 0, len(data) // 2, len(data) - 200, len(data) - 12))
    data = data[: max(cut, 0)] + bent(chance, data[max(cut, 0) :], data)
    if chance.random() < 0.4:
        files = {p: d for p, d in files.items() if not _is_commit(p) or p > path}
    _use(chance, {**files, path: data})


def table_other_files(chance: Random) -> None:
    """Change a checksum, the hint, or a file of deletions, by bytes or as JSON."""
    files, path = _chosen(chance, _other_file)
    data = files[path]
    if data[:1] == b"{" and chance.random() < 0.7:
        text = json.dumps(bent_json(chance, json.loads(data)))
        data = text.encode("utf-8", "surrogatepass")
    else:
        data = bent(chance, data)
    _use(chance, {**files, path: data})


def table_data_files(chance: Random) -> None:
    """Change a data file."""
    files, path = _chosen(chance, _is_data)
    data = files[path]
    cut = chance.choice((0, 0, 4, len(data) // 2, len(data) - 300, len(data) - 12))
    changed = data[: max(cut, 0)] + bent(chance, data[max(cut, 0) :], data)
    if chance.random() < 0.2:
        changed = bent_parquet(chance, data) or changed
    _use(chance, {**files, path: changed})


def table_names(chance: Random) -> None:
    """Rename, copy or take out files of the log."""
    files = dict(_table(chance.choice(list(TABLES)), True))
    log = sorted(path for path in files if path.startswith("_delta_log/"))
    path = chance.choice(log)
    name = path.removeprefix("_delta_log/")
    digits = f"{chance.choice((0, 1, 2, 9, 2**31, 2**63 - 1, 2**63, 10**20 - 1)):020d}"
    other = chance.choice(
        (f"{digits}.json", f"{digits}.checkpoint.parquet", f"{digits}.crc", digits + name[20:],
         f"{name[:20]}.{digits}.compacted.json",
         f"{digits}.checkpoint.0000000001.0000000002.parquet",
         f"{digits}.checkpoint.{'0' * 8}-0000-0000-0000-{'0' * 12}.json", "_last_checkpoint", "x")
    )  # fmt: skip
    files[f"_delta_log/{other}"] = files[path]
    if chance.random() < 0.5:
        del files[path]
    _use(chance, files)


# --- parsers ----------------------------------------------------------------------------------


def _some_commit(chance: Random) -> bytes:
    files, path = _chosen(chance, _is_commit)
    return files[path]


def commits(chance: Random) -> None:
    """Parse a changed commit; the quick way for large files says the same as the slow one."""
    data = _some_commit(chance)
    data = bent(chance, data) if chance.random() < 0.3 else bent_lines(chance, data)
    read_commit(data)


def read_commit(data: bytes) -> None:
    file = LogFile(commit_name(3), "commit", 3)
    commit = _try(lambda: parse_commit(data, file))
    slow = None if commit is None else _try(lambda: file_rows([commit]))  # type: ignore[list-item]
    if commit is not None:
        _try(lambda: commit.info)  # type: ignore[attr-defined]
    quick = decode_large(data, version=3)
    if quick is None:
        return
    found, others = quick
    lines = _try(lambda: rows_of(data, path="f"))
    if lines is None:
        raise WrongError("only the quick way reads it")
    plain = decode_rows([(3, lines, "f")]) if slow is None else slow
    # The quick way may put adds before removes.
    if sorted(map(repr, found.to_pylist())) != sorted(map(repr, plain.to_pylist())):
        raise WrongError("the quick way reads other file actions")
    if [row for row in lines if not {"add", "remove"} & row.keys()] != others:  # type: ignore[attr-defined]
        raise WrongError("the quick way reads other actions")


def hints(chance: Random) -> None:
    """A hint is never an error."""
    data = b'{"version":3,"size":9,"parts":2,"sizeInBytes":77,"numOfAddFiles":4,"x":{"y":[1,"z"]}}'
    if chance.random() < 0.5:
        text = json.dumps(bent_json(chance, json.loads(data)))
        decode_hint(text.encode("utf-8", "surrogatepass"))
    else:
        decode_hint(bent(chance, data))


def checksums(chance: Random) -> None:
    """Read a changed version checksum."""
    files, path = _chosen(chance, lambda name: name.endswith(".crc"))
    node = json.loads(files[path])
    text = json.dumps(bent_json(chance, node)).encode("utf-8", "surrogatepass")
    data = bent(chance, files[path]) if chance.random() < 0.3 else text
    _try(lambda: decode_checksum(data, path=path))


SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":'
    '{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"c","delta.identity.step":1}},'
    '{"name":"l","type":{"type":"array","elementType":{"type":"map","keyType":"string",'
    '"valueType":"decimal(10,2)","valueContainsNull":true},"containsNull":true},"nullable":false,'
    '"metadata":{"delta.typeChanges":[{"fromType":"integer","toType":"long"}]}},{"name":"v","type":'
    '"variant","nullable":true,"metadata":{}},{"name":"t","type":"timestamp_ntz","nullable":true,'
    '"metadata":{"delta.generationExpression":"CAST(id AS TIMESTAMP)","comment":"c"}}]}'
)


def schemas(chance: Random) -> None:
    """Parse a changed schema; one that is read is written back as it is."""
    if chance.random() < 0.7:
        text = json.dumps(bent_json(chance, json.loads(SCHEMA)))
    else:
        text = bent(chance, SCHEMA.encode()).decode("utf-8", "surrogateescape")
    read_schema(text)


def read_schema(text: str) -> None:
    schema = _try(lambda: parse_schema(text))
    if not isinstance(schema, StructType):
        return
    _try(lambda: arrow_schema(schema))
    text = _try(lambda: schema_json(schema))
    if isinstance(text, str) and parse_schema(text) != schema:
        raise WrongError("a schema changes when it is written")


def _positions(chance: Random) -> BitMap64:
    chosen = chance.choice(
        (
            lambda: [1, 5, 9],
            lambda: range(chance.choice((10, 5000, 70_000))),
            lambda: [0, 2**32 - 1, 2**32, 2**40, 2**63 - 1][: chance.randrange(1, 6)],
            lambda: range(0, 200_000, 3),
        )
    )
    return BitMap64(chosen())


def vectors(chance: Random) -> None:
    """Decode a changed deletion vector: inline, of a file, or the bitmap alone."""
    positions = _positions(chance)
    data = encode_vector(positions)
    match chance.randrange(3):
        case 0:
            read_vector(bent(chance, data), len(positions))
        case 1:
            text = deletion_vector.encode(data[:400])
            text = bent(chance, text.encode()).decode("latin-1")
            descriptor = deletion_vector.inline_descriptor(data[:400], 3)
            held = descriptor.model_copy(update={"path_or_inline_dv": text})
            _try(lambda: deletion_vector.inline_vector(held, path="f"))
        case _:
            block, (offset,) = encode_file([data])
            descriptor = deletion_vector.stored_descriptor(
                "0" * 32, offset=offset, size=len(data), cardinality=len(positions)
            )
            changed = bent(chance, block)
            found = _try(
                lambda: deletion_vector.vector_in_block(
                    changed[:1], changed[offset : offset + len(data) + 8], descriptor, path="f"
                )
            )
            if found not in (None, data):
                raise WrongError("a vector with a wrong checksum was taken")


def read_vector(data: bytes, cardinality: int) -> None:
    found = _try(lambda: decode_vector(data, cardinality=cardinality, path="f"))
    if isinstance(found, BitMap64):
        _use_bitmap(found, cardinality)


def _use_bitmap(found: BitMap64, cardinality: int) -> None:
    if len(found) != cardinality:
        raise WrongError("another number of rows than the log says")
    deletion_vector.alive_mask(found, 0, 1000)
    if found and not found.min() <= found.max():
        raise WrongError("a bitmap out of order")


def lance_deletions(chance: Random) -> None:
    """Decode a changed deletion file of Lance's."""
    kind = chance.choice(("arrow", "bin"))
    positions = BitMap64([one for one in _positions(chance) if one < 2**32])
    if not positions:
        return
    data = bent(chance, encode_deletions(positions, kind=kind))  # type: ignore[arg-type]
    read_deletions(data, kind, len(positions))


def read_deletions(data: bytes, kind: Any, cardinality: int) -> None:
    rows = 1 << 20
    found = _try(
        lambda: decode_deletions(data, kind=kind, cardinality=cardinality, rows=rows, path="f")
    )
    if isinstance(found, BitMap64):
        _use_bitmap(found, cardinality)


@cache
def _parquet() -> bytes:
    sink = pa.BufferOutputStream()
    table = ROWS.select(["id", "name", "tags", "place"])
    pq.write_table(
        table, sink, write_page_index=True, row_group_size=5, write_page_checksum=True,
        data_page_size=16, write_batch_size=2,
    )  # fmt: skip
    return bytes(sink.getvalue().to_pybytes())


def footers(chance: Random) -> None:
    """Parse a changed footer, and changed offset indexes."""
    data = _parquet()
    size = int.from_bytes(data[-8:-4], "little")
    read_footer(bent(chance, data[-8 - size : -8]), bent(chance, data[: -8 - size]))


def read_footer(data: bytes, file: bytes) -> None:
    try:
        footer = parse_footer(data)
        for group in range(footer.num_row_groups):
            rows = footer.row_group(group).rows
            chunks, indexes = [], []
            for chunk in footer.row_group(group).chunks:
                if chunk.index is not None:
                    start, size = chunk.index
                    chunks.append(chunk)
                    indexes.append(file[start : start + size])
                    with contextlib.suppress(ThriftError):
                        parse_offset_indexes(indexes[-1:], rows, [chunk])
            parse_offset_indexes(indexes, rows, chunks)
    except ThriftError:
        pass


VARIANTS = variant_from_python(
    [{"a": 1, "b": [1.5, None, "x" * 80, True]}, [], "s", 2**40, {"z": {"y": [{"x": b"12"}]}}]
).storage.to_pylist()


def variants(chance: Random) -> None:
    """Decode a changed variant."""
    one = chance.choice(VARIANTS)
    metadata, value = one["metadata"], one["value"]
    if chance.random() < 0.4:
        metadata = bent(chance, metadata)
    else:
        value = bent(chance, value)
    read_variant(metadata, value)


def read_variant(metadata: bytes, value: bytes) -> None:
    _try(lambda: decode_variant(metadata, value))


PREDICATES = (
    "id > 5 AND name LIKE 'n%' OR price BETWEEN 1 AND 2",
    "tags[0] = 1 AND place.x + 2 * id - 1 <> 4 / 2 % 3",
    "CASE WHEN id IS NULL THEN upper(name) ELSE concat(name, '\\'', p) END IN ('a', NULL)",
    "try_cast(name AS INT) <=> -1 OR NOT (price < 1e-3 AND id = 0x1F)",
    "regexp_like(name, '^n[0-9]+$') OR substring(name, 1, 2) = 'n1'",
    "date_add(CAST('2020-01-01' AS DATE), id) > DATE'2020-01-05' + INTERVAL '2' DAY",
    "size(array_distinct(tags)) = 2 AND coalesce(price, 0.5) >= 1.25 AND hash(id) <> 7",
    "format_string('%d', id) = '1' OR split(name, ',')[0] = name OR round(price, 1) = 2.5",
)
WORDS = (
    "id", "name", "price", "tags", "place", "p", "NULL", "TRUE", "1", "-1", "9223372036854775807",
    "1e400", "0.1", "'x'", "'2020-01-01'", "(", ")", ",", "AND", "OR", "NOT", "=", "<", "+", "-",
    "*", "/", "%", "IN (1, 2)", "IS NULL", "LIKE", "CAST(id AS STRING)", "[", "]", ".", "::",
    "x'0'",
    "INTERVAL 1 DAY", "SELECT 1", "(SELECT id)", "--", "/*", ";", "CASE", "WHEN", "END", "||", "->",
    "count(*)", "rand()", "upper(", "date_trunc('day', ", "element_at(tags, 9)", "\x00", "\ud800",
)  # fmt: skip


def predicates(chance: Random) -> None:
    """Read, bind and evaluate a changed predicate; one that is read means the same as text."""
    text = chance.choice(PREDICATES)
    if chance.random() < 0.5:
        parts = text.split(" ")
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(parts) + 1)
            parts[at : at + chance.randrange(3)] = [chance.choice(WORDS)]
        text = " ".join(parts)
    else:
        text = bent(chance, text.encode()).decode("utf-8", "replace")
    read_predicate(text)


@cache
def _schema() -> StructType:
    return parse_schema(json.loads(_some_metadata())["schemaString"])


@cache
def _some_metadata() -> str:
    for line in _table("classic", True)["_delta_log/00000000000000000000.json"].splitlines():
        if b'"metaData"' in line:
            return json.dumps(json.loads(line)["metaData"])
    raise AssertionError


@cache
def _held_table() -> txlog.Table:
    root = f"hostile-held-{os.getpid()}"
    _put(root, _table("classic", False))
    return open_table(MemoryStore(f"memory://{root}"))


def read_predicate(text: str) -> None:
    tree = _try(lambda: parse_sql(text))
    if tree is None:
        return
    bound = _try(lambda: bind(tree, _schema()))  # type: ignore[arg-type]
    if bound is None:
        return
    _try(lambda: _held_table().scan(["id"], where=text).to_arrow())
    _try(lambda: to_sql(bound))  # type: ignore[arg-type]


STATS = (
    '{"numRecords":3,"minValues":{"id":1,"name":"a","price":0.5,"place":{"x":-3}},"maxValues":'
    '{"id":9,"name":"z","price":1e3,"place":{"x":7}},"nullCount":{"id":0,"name":1,"place":{"x":0}},'
    '"tightBounds":true}'
)
PATHS = [("id",), ("name",), ("price",), ("place", "x")]


def statistics(chance: Random) -> None:
    """Statistics read off their bytes are those that parsing gives."""
    texts = []
    for _ in range(chance.choice((1, 3, 9))):
        if chance.random() < 0.5:
            text = json.dumps(bent_json(chance, json.loads(STATS)), separators=(",", ":"))
        else:
            text = bent(chance, STATS.encode()).decode("utf-8", "replace")
        texts.append(text.encode("utf-8", "replace").decode())
    texts = [text for text in texts if quick_document(text)]
    if texts:
        read_statistics(texts)


def read_statistics(texts: list[str]) -> None:
    stats = pa.chunked_array([arrow_array(texts, pa.string())])
    physical = {path: path for path in PATHS}
    quick = json_bounds(stats, _schema(), PATHS, physical)
    plain = parsed_bounds(stats, _schema(), PATHS, physical)
    if repr(quick.rows.to_pylist()) != repr(plain.rows.to_pylist()):
        raise WrongError(f"other counts: {texts}")
    for path in plain.columns:
        for side in ("low", "high", "nulls"):
            one = getattr(quick.columns[path], side).to_pylist()
            other = getattr(plain.columns[path], side).to_pylist()
            if repr(one) != repr(other):
                raise WrongError(f"{side} of {path} is {one}, not {other}: {texts}")


def paths(chance: Random) -> None:
    """A path of a log stays in the table, or says that it does not."""
    text = chance.choice(("a/b.parquet", "p=1/x%20y", "file:///t/x", "s3://b/k", "/abs/x", "../x"))
    text = bent(chance, text.encode(), b"..//%2e%2e%2F../file:/%00/").decode("utf-8", "replace")
    read_path(text)


def read_path(text: str) -> None:
    found = _try(lambda: decode_path(text))
    key = canonical_key(text)
    if canonical_keys(arrow_array([text], pa.string())).to_pylist() != [key]:
        raise WrongError(f"two keys of {text!r}")
    if isinstance(found, str) and not found.startswith("/") and "://" not in found:
        steps = found.split("/")
        if steps[0] == "..":
            raise WrongError(f"{text!r} leads out: {found!r}")


def names(chance: Random) -> None:
    """Choose a segment among files with any names."""
    made = []
    for _ in range(chance.randrange(1, 9)):
        digits = [
            f"{chance.choice((0, 1, 2, 3, 4, 9, 2**40, 2**63 - 1, 2**63)):020d}" for _ in range(2)
        ]
        name = chance.choice(
            (f"{digits[0]}.json", f"{digits[0]}.json", f"{digits[0]}.checkpoint.parquet",
             f"{digits[0]}.{digits[1]}.compacted.json",
             f"{digits[0]}.checkpoint.000000000{chance.randrange(3)}.0000000002.parquet")
        )  # fmt: skip
        made.append(parse_name(name))
    files = [file for file in made if file is not None]
    version = chance.choice((None, 0, 3, 2**40, 2**63 - 1))
    segment = _try(lambda: choose_segment(files, version=version))
    if segment is not None:
        at = segment.checkpoint_version  # type: ignore[attr-defined]
        for file in segment.deltas:  # type: ignore[attr-defined]
            if file.version != at + 1:
                raise WrongError(f"a gap before {file.name}")
            at = file.last_version
        if at != segment.version:  # type: ignore[attr-defined]
            raise WrongError("the segment ends elsewhere")


# --- running ----------------------------------------------------------------------------------


FAMILIES: dict[str, tuple[Callable[[Random], None], int]] = {
    "commits": (commits, 15_000),
    "schemas": (schemas, 10_000),
    "hints": (hints, 5_000),
    "checksums": (checksums, 5_000),
    "vectors": (vectors, 8_000),
    "lance_deletions": (lance_deletions, 6_000),
    "footers": (footers, 10_000),
    "variants": (variants, 10_000),
    "predicates": (predicates, 5_000),
    "statistics": (statistics, 4_000),
    "paths": (paths, 6_000),
    "names": (names, 4_000),
    "table_commits": (table_commits, 4_000),
    "table_commit_bytes": (table_commit_bytes, 1_500),
    "table_checkpoints": (table_checkpoints, 2_000),
    "table_checkpoint_bytes": (table_checkpoint_bytes, 1_500),
    "table_other_files": (table_other_files, 1_000),
    "table_data_files": (table_data_files, 1_500),
    "table_names": (table_names, 500),
}
"""Each family, and how many cases of it make up its part of 100,000."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Raise `HangError` in a block that takes more than `CPU_S` of the processor."""

    def stop(number: int, frame: object) -> None:
        raise HangError(f"more than {CPU_S} s of the processor")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run_case(family: str, number: int) -> str | None:
    """Return the fault in the outcome of a case, or None without a fault."""
    case, _ = FAMILIES[family]
    chance = Random(f"{family} {number}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with bounded():
                case(chance)
        except (Exception, HangError) as error:
            lines = "".join(traceback.format_exception(error)[-6:])
            return f"{family} {number}: {type(error).__name__}: {error}\n{lines}"
    return None


def bound_memory(more: int = MEMORY) -> None:
    """Have this process fail, not swap, if it takes so much more memory than now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(family: str, first: int, end: int) -> None:
    """Run cases of a family, and print a JSON line for each violation, and one at the end."""
    run_case(family, first)  # What it imports and builds once is no case's.
    if sys.platform == "linux":
        bound_memory()
    began = time.monotonic()
    for number in range(first, end):
        print(json.dumps({"at": number}), flush=True)
        if (wrong := run_case(family, number)) is not None:
            print(json.dumps({"wrong": wrong}), flush=True)
    print(json.dumps({"done": end - first, "seconds": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(run_case(sys.argv[1], int(sys.argv[2])))
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
