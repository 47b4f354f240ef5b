"""Tables that are mostly log: many commits, or many files in a checkpoint, of a fixed seed.

Their data files do not exist, but those of `rows`: what is measured on them is opening, listing and
planning. They are written by hand or by deltalake, except where the name of the table says another
writer, so that no layout of txlog's own makes its reading quick.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

SEED = 20260101
REGIONS, DAYS = 20, 50
"""Two partition columns, 1,000 partitions: one of them is 0.1% of all files."""
ROWS_PER_FILE = 100_000
NUMBERS = [f"n{k}" for k in range(5)]
TEXTS = [f"t{k}" for k in range(3)]
SPAN = 1000
"""`id` and `n0` rise from file to file, this much each: a range of them keeps few files."""


def schema_string() -> str:
    kinds = {"region": "string", "day": "date", "id": "long", "at": "timestamp"}
    kinds |= dict.fromkeys(NUMBERS, "long") | dict.fromkeys(TEXTS, "string")
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in kinds.items()
    ]
    return orjson.dumps({"type": "struct", "fields": fields}).decode()


def first_lines(properties: dict[str, str]) -> list[dict[str, Any]]:
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if properties.get("delta.checkpointPolicy") == "v2":
        named = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **named}
    return [
        {"protocol": protocol},
        {
            "metaData": {
                "id": "5f9f1c1e-6b1f-4d53-9b7e-000000000001",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema_string(),
                "partitionColumns": ["region", "day"],
                "configuration": properties,
                "createdTime": 1_700_000_000_000,
            }
        },
    ]


def day_of(number: int) -> str:
    return str(np.datetime64("2026-01-01") + number % DAYS)


def adds(first: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield `count` actions of 700 to 900 bytes; the same number is always the same file."""
    for number in range(first, first + count):
        dice = (number * 2654435761) % 2**32
        region, day = f"r{dice % REGIONS:02}", day_of(dice // REGIONS)
        low: dict[str, Any] = {"id": number * SPAN, "at": f"2026-01-01T00:{number % 60:02}:00.000Z"}
        high: dict[str, Any] = {
            "id": number * SPAN + SPAN - 1,
            "at": f"2026-01-02T00:{number % 60:02}:59.999Z",
        }
        for k, name in enumerate(NUMBERS):
            low[name] = (number if k == 0 else dice >> k) * SPAN
            high[name] = low[name] + SPAN - 1
        for k, name in enumerate(TEXTS):
            low[name] = f"a{dice >> k:010}"
            high[name] = f"z{dice >> k:010}"
        stats = {
            "numRecords": ROWS_PER_FILE,
            "minValues": low,
            "maxValues": high,
            "nullCount": dict.fromkeys(low, 0),
        }
        yield {
            "path": f"region={region}/day={day}/part-{number:08}-{dice:08x}-c000.snappy.parquet",
            "partitionValues": {"region": region, "day": day},
            "size": 1_000_000 + dice % 1_000_000,
            "modificationTime": 1_700_000_000_000 + number,
            "dataChange": True,
            "stats": orjson.dumps(stats).decode(),
        }


def write_commit(log: Path, version: int, actions: list[dict[str, Any]]) -> None:
    lines = b"\n".join(orjson.dumps(action) for action in actions) + b"\n"
    (log / f"{version:020}.json").write_bytes(lines)


BULK_COMMITS = 20
"""Commits of a table that was loaded in bulk; each has a twentieth of all files."""


def write_bulk(root: Path, files: int, dumps: Callable[[Any], str]) -> None:
    """Write a table of 20 large commits, with statistics of eight columns."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    per_commit = files // BULK_COMMITS
    for version in range(BULK_COMMITS):
        head = [info(version), *(first_lines({}) if version == 0 else ())]
        lines = [dumps(action) for action in head]
        for add in adds(version * per_commit, per_commit):
            stats = orjson.loads(add["stats"])
            for part in ("minValues", "maxValues", "nullCount"):
                del stats[part]["id"], stats[part]["at"]
            lines.append(dumps({"add": add | {"stats": dumps(stats)}}))
        text = "".join(f"{line}\n" for line in lines)
        (log / f"{version:020}.json").write_text(text, encoding="utf-8")


PATH_LENGTH = 120
TYPED = {
    **dict.fromkeys(("t0", "t1"), "string"),
    **dict.fromkeys(("d0", "d1", "d2"), "decimal(18,2)"),
    **dict.fromkeys(("at0", "at1", "at2"), "timestamp"),
}


def long_path(add: dict[str, Any], number: int) -> dict[str, Any]:
    """Return an action whose path has 120 characters, with the name that Spark gives a file."""
    path = f"{add['partitionValues']['region']}/part-{number % 200:05}-"
    path += f"{uuid.UUID(int=number * 2**90 + number)}-c000.snappy.parquet"
    return add | {"path": f"region={'x' * (PATH_LENGTH - len(path) - 7)}{path}"}


def typed(add: dict[str, Any], number: int) -> dict[str, Any]:
    """Return an action with statistics of strings, decimals and timestamps."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for at, (name, kind) in enumerate(TYPED.items()):
        dice = (number * 2654435761) % 2**32 >> at
        if kind == "string":
            low[name], high[name] = f"customer Ä {dice:010}", f"customer ß {dice:010}"
        elif kind == "timestamp":
            low[name], high[name] = (
                f"2026-0{month}-{1 + number % 28:02}T00:{number % 60:02}:{at:02}.123Z"
                for month in (1, 2)
            )
        else:
            low[name], high[name] = dice / 100, dice / 100 + 1000.25
    stats = {"numRecords": ROWS_PER_FILE, "minValues": low, "maxValues": high}
    return add | {"stats": compact(stats | {"nullCount": dict.fromkeys(low, 0)})}


SHAPES: dict[str, Callable[[dict[str, Any], int], dict[str, Any]]] = {
    "long paths": long_path,
    "typed statistics": typed,
}


def write_shape(root: Path, files: int, shape: str) -> None:
    """Write a table of 20 large commits whose actions have another shape."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    per_commit = files // BULK_COMMITS
    head = first_lines({})
    if shape == "typed statistics":
        kinds = {"region": "string", "day": "date", **TYPED}
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in kinds.items()
        ]
        head[1]["metaData"]["schemaString"] = compact({"type": "struct", "fields": fields})
    for version in range(BULK_COMMITS):
        first = version * per_commit
        made = (
            {"add": SHAPES[shape](add, number)}
            for number, add in enumerate(adds(first, per_commit), start=first)
        )
        write_commit(log, version, [info(version), *(head if version == 0 else ()), *made])


def compact(value: Any) -> str:
    """Return JSON without a space, as Spark and deltalake write it."""
    return orjson.dumps(value).decode()


def info(version: int) -> dict[str, Any]:
    told = {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE"}
    return {"commitInfo": told | {"operationParameters": {"mode": "Append"}}}


def write_commits(
    root: Path, commits: int, per_commit: int, properties: dict[str, str] | None = None
) -> None:
    """Write a table of version `commits`, of which each version after 0 adds `per_commit` files."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    write_commit(log, 0, [info(0), *first_lines(properties or {})])
    append_commits(root, 1, commits, per_commit)


def append_commits(root: Path, first: int, count: int, per_commit: int) -> None:
    for version in range(first, first + count):
        files = adds((version - 1) * per_commit, per_commit)
        write_commit(
            root / "_delta_log", version, [info(version), *({"add": add} for add in files)]
        )


TRAILING = 20
"""Commits after the checkpoint, of one file each."""


def write_checkpointed(
    root: Path,
    files: int,
    checkpoint: Callable[[Path], None],
    properties: dict[str, str] | None = None,
) -> None:
    """Write `files` files into a checkpoint (its commits are taken away), and 20 commits."""
    commits = 100
    write_commits(root, commits, files // commits, properties)
    checkpoint(root)
    log = root / "_delta_log"
    for version in range(commits):
        (log / f"{version:020}.json").unlink()
    for number in range(TRAILING):
        version = commits + 1 + number
        (add,) = adds(files + number, 1)
        write_commit(log, version, [info(version), {"add": add}])


def by_deltalake(root: Path) -> None:
    from deltalake import DeltaTable

    DeltaTable(root).create_checkpoint()


def by_txlog(root: Path) -> None:
    import txlog

    txlog.Table(root).maintenance.checkpoint()


PER_SIDECAR = 100_000
REAL = "region=r03/day=2026-01-05/"
"""The partition of which `write_real` writes data files."""


THREE_ROWS = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000625c8Xg000310SSi2",
    "sizeInBytes": 38,
    "cardinality": 3,
}
"""A deletion vector in the log: the first three rows."""


def write_sidecars(root: Path, files: int, *, vectors: bool = False) -> None:
    """Write a V2 checkpoint of version 1 with pyarrow alone, for more files than memory holds.

    With `vectors`, one of 100 files has deleted rows: three of them, in the log.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    sidecars = root / "_delta_log" / "_sidecars"
    sidecars.mkdir(parents=True)
    first = [info(0), *first_lines(V2)]
    if vectors:
        for features in ("readerFeatures", "writerFeatures"):
            first[1]["protocol"][features] = ["v2Checkpoint", "deletionVectors"]
    write_commit(root / "_delta_log", 0, first)
    write_commit(root / "_delta_log", 1, [info(1)])
    descriptor = [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
    kind = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", pa.map_(pa.string(), pa.string())),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
            *([("deletionVector", pa.struct(descriptor))] if vectors else ()),
        ]
    )
    named = []
    for start in range(0, files, PER_SIDECAR):
        name = f"part-{start:09}.parquet"
        held = list(adds(start, min(PER_SIDECAR, files - start)))
        for number, add in enumerate(held):
            add["partitionValues"] = list(add["partitionValues"].items())
            if vectors and number % 100 == 0:
                add["deletionVector"] = THREE_ROWS
        rows = pa.table({"add": pa.array(held, kind)})
        pq.write_table(rows, sidecars / name, compression="zstd", row_group_size=50_000)
        size = (sidecars / name).stat().st_size
        named.append({"sidecar": {"path": name, "sizeInBytes": size, "modificationTime": 0}})
    name = "00000000000000000001.checkpoint.5f9f1c1e-6b1f-4d53-9b7e-000000000002.json"
    lines = [*first[1:], {"checkpointMetadata": {"version": 1}}, *named]
    (root / "_delta_log" / name).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in lines))


def write_real(root: Path, made: Path, chosen: range) -> None:
    """Write a table of `write_sidecars` again, in which some files of one partition exist.

    These are the files of `REAL` whose numbers are in `chosen`. Each has one row, whose `id` is the
    file's number times `SPAN`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    shutil.copytree(made, root)
    (root / REAL).mkdir(parents=True)
    log = root / "_delta_log"
    sizes = {}
    for sidecar in sorted((log / "_sidecars").iterdir()):
        adds = pq.read_table(sidecar)["add"].combine_chunks()
        columns = dict(zip([field.name for field in adds.type], adds.flatten(), strict=True))
        paths = columns["path"].filter(pc.match_substring(columns["path"], REAL)).to_pylist()
        numbers = {path: int(path[len(f"{REAL}part-") :][:8]) for path in paths}
        real = {path: number for path, number in numbers.items() if number in chosen}
        stats, bytes_of = [], []
        for path, number in real.items():
            row = {"id": number * SPAN, **dict.fromkeys(NUMBERS, number)}
            row |= dict.fromkeys(TEXTS, "a")
            pq.write_table(pa.table({name: [value] for name, value in row.items()}), root / path)
            bytes_of.append((root / path).stat().st_size)
            told = {"numRecords": 1, "minValues": row, "maxValues": row}
            stats.append(compact(told | {"nullCount": dict.fromkeys(row, 0)}))
        mask = pc.is_in(columns["path"], pa.array(list(real), pa.string()))
        for name, values in (("stats", stats), ("size", bytes_of)):
            kind = columns[name].type
            columns[name] = pc.replace_with_mask(columns[name], mask, pa.array(values, kind))
        rows = pa.StructArray.from_arrays(list(columns.values()), fields=list(adds.type))
        sidecar.unlink()  # `made` may share it.
        pq.write_table(pa.table({"add": rows}), sidecar, compression="zstd", row_group_size=50_000)
        sizes[sidecar.name] = sidecar.stat().st_size
    (manifest,) = log.glob("*.checkpoint.*.json")
    lines = [orjson.loads(line) for line in manifest.read_bytes().splitlines()]
    for line in lines:
        if "sidecar" in line:
            line["sidecar"]["sizeInBytes"] = sizes[line["sidecar"]["path"]]
    manifest.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


FILE_ROWS = 200_000


def make_rows(root: Path, files: int) -> None:
    """Write 200,000 rows a file, twice: deltalake deletes by rewriting, without vectors."""
    for name in ("vectors", "plain"):
        _write_rows(root / name, files, vectors=name == "vectors")


def _write_rows(root: Path, files: int, *, vectors: bool) -> None:
    import pyarrow as pa

    import txlog

    kinds = {"key": pa.int64(), **{f"n{k}": pa.int64() for k in range(4)}}
    schema = pa.schema([*kinds.items(), ("t0", pa.string()), ("t1", pa.string())])
    properties = {"delta.enableDeletionVectors": str(vectors).lower()}
    table = txlog.Table.create(root, schema, properties=properties)
    dice = np.random.default_rng(SEED)
    for number in range(files):
        keys = dice.permutation(FILE_ROWS) + number * FILE_ROWS
        numbers = [dice.integers(0, 10**9, FILE_ROWS) for _ in range(4)]
        texts = [np.char.add("t", (values % 10_000).astype("U5")) for values in numbers[:2]]
        table.append(pa.table(dict(zip(schema.names, [keys, *numbers, *texts], strict=True))))


SMALL_ROWS, SMALL_COLUMNS = 10, 18


def make_small(root: Path, files: int) -> None:
    """Write files of ten rows, 20 columns and one row group, in 100 partitions, with pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"id": "long", "t": "string", **{f"n{k}": "double" for k in range(SMALL_COLUMNS)}}
    kinds["p"] = "integer"
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in kinds.items()
    ]
    lines = first_lines({})
    lines[1]["metaData"] |= {
        "schemaString": compact({"type": "struct", "fields": fields}),
        "partitionColumns": ["p"],
    }
    (root / "_delta_log").mkdir(parents=True)
    dice = np.random.default_rng(SEED)
    for number in range(files):
        numbers = {f"n{k}": dice.random(SMALL_ROWS) for k in range(SMALL_COLUMNS)}
        ids = np.arange(SMALL_ROWS) + number * SMALL_ROWS
        rows = pa.table({"id": ids, "t": [f"t{at}" for at in ids], **numbers})
        path = root / f"part-{number:06}.parquet"
        pq.write_table(rows, path)
        add = {
            "path": path.name,
            "partitionValues": {"p": str(number % 100)},
            "size": path.stat().st_size,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
            "stats": compact({"numRecords": SMALL_ROWS}),
        }
        lines.append({"add": add})
    write_commit(root / "_delta_log", 0, [info(0), *lines])


STRUCTS = {
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpoint.writeStatsAsJson": "false",
}
V2 = {"delta.checkpointPolicy": "v2"}

TABLES: dict[str, Callable[[Path, int], None]] = {
    "commits": lambda root, files: write_commits(root, files, 1),
    "bulk": lambda root, files: write_bulk(root, files, compact),
    "bulk-spaced": lambda root, files: write_bulk(root, files, json.dumps),
    "commits-of-10": lambda root, files: write_commits(root, files // 10, 10),
    "checkpoint": lambda root, files: write_checkpointed(root, files, by_deltalake),
    "checkpoint-structs": lambda root, files: write_checkpointed(
        root, files, by_deltalake, STRUCTS
    ),
    "sidecars": write_sidecars,
    "checkpoint-v2": lambda root, files: write_checkpointed(root, files, by_txlog, V2),
    "rows": make_rows,
    "small": make_small,
}


def make(folder: Path, name: str, files: int) -> Path:
    """Return the table, made unless it is there."""
    root = folder / f"{name}-{files}"
    if not root.exists():
        print(f"making {root.name} …", flush=True)
        part = root.with_name(root.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        TABLES[name](part, files)
        part.rename(root)
    return root
