"""Create DataFrames over the Parquet files that txlog chose."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it
from pyspark.sql.types import StructType as SparkStruct

from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError, OutOfMemoryError, StoreError
from txlog.base.thresholds import Threshold
from txlog.base.uris import file_path, is_file_uri, scheme_of
from txlog.expressions.tree import quote_name
from txlog.fragments.rows import FragmentRows
from txlog.scan.columns import ROW_ADDRESS, ROW_ID
from txlog.scan.read_plan import ReadPlan
from txlog.spark_ext.engine import is_on
from txlog.spark_ext.reads.parquet_columns import (
    ReadColumn,
    has_inner_floats,
    partition_name,
    project,
)
from txlog.spark_ext.reads.places import (
    Constant,
    Volume,
    locations,
    parse_volume,
    partition_text,
    real_uris,
    virtual_uris,
    volume_of,
)
from txlog.spark_ext.reads.vectors import Vectors, alive, vector_constants
from txlog.spark_ext.session_settings import Reads
from txlog.stats.files import partition_values
from txlog.store.base import Store

_REST = (
    ',"isDir":false,"modificationTime":0,"blockReplication":1,"blockSize":134217728,"action":"add"}'
)

_LINES: Threshold = 1_000_000  # Of a manifest, which are made together.


def manifest_parts(uris: pa.Array, sizes: pa.Array) -> list[bytes | pa.Buffer]:
    """Return the parts of a manifest of files, with their URIs (percent-encoded) and sizes."""
    parts: list[bytes | pa.Buffer] = [b"v1"]
    for start in range(0, len(uris), _LINES):
        lines = pc.binary_join_element_wise(
            '\n{"path":"',
            uris.slice(start, _LINES),
            '","size":',
            sizes.slice(start, _LINES).cast(pa.string()),
            _REST,
            "",
        )
        # The values of a new array lie one after another in its buffer: no line is copied.
        parts.append(lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py()))
    return parts


def write_manifest(parts: Sequence[bytes | pa.Buffer], folder: str | None) -> str:
    """Write a manifest unless it exists, and return the path of the folder that Spark reads.

    Parameters
    ----------
    folder
        The folder of manifests. None: a temporary folder, until this process ends.

    Raises
    ------
    InvalidInputError
        The folder is not local.
    StoreError
        The manifest cannot be written.
    """
    if folder is not None and scheme_of(folder) not in (None, "file"):
        raise InvalidInputError(
            argument="manifests",
            reason=f"{folder!r} is not a local folder",
            remedy="Name a folder that this process can write to and Spark's driver can read",
        )
    if folder is not None and is_file_uri(folder):
        folder = file_path(folder, decode=True)
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    digest = hashed.hexdigest()[:32]
    try:
        parent = Path(folder).absolute() if folder is not None else _temporary()
        written = parent / digest
        metadata = written / "_spark_metadata"
        if not (metadata / "0").exists():
            metadata.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=parent, prefix="_", delete=False) as file:
                file.writelines(parts)
            Path(file.name).chmod(0o644)
            Path(file.name).replace(metadata / "0")  # Another process may be reading it.
    except OSError as error:
        raise StoreError(
            path=folder or tempfile.gettempdir(),
            operation="write",
            reason=f"a list of files cannot be written: {error}",
        ) from error
    return str(written)


# Bytes in Spark's driver for each file of a list, and for each byte of its URI. They were measured
# with lists of 500,000 and 1,000,000 files, with and without constants.
_HELD_BY_FILE, _HELD_BY_BYTE = 350, 3
_UNASKED_FILES: Threshold = 50_000  # For so few files, the driver is not asked for its memory.
_USABLE = 0.8  # Of the driver's memory. Fuller, it collects garbage for minutes.


def require_room(spark: SparkSession, lists: Sequence[pa.Array], path: str) -> None:
    """Raise if the memory of Spark's driver is too small for lists of files with these URIs.

    The memory of a server of Spark Connect is unknown.

    Raises
    ------
    OutOfMemoryError
        The error names the number of files, the memory that they need, and that of the driver.
    """
    files = sum(map(len, lists))
    jvm = getattr(spark, "_jvm", None) if files > _UNASKED_FILES else None
    if jvm is None:
        return
    texts = sum(pc.sum(pc.binary_length(uris)).as_py() or 0 for uris in lists)
    need = _HELD_BY_FILE * files + _HELD_BY_BYTE * texts
    have = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    if need > _USABLE * have:
        raise OutOfMemoryError(
            path=path,
            reason=f"Spark's driver needs about {need >> 20:,} MB for a list of {files:,} "
            f"files, and it has {have >> 20:,} MB for everything",
            remedy='Select fewer files with `where`, use spark.read.format("txlog"), write fewer '
            "files with optimize.compact, or start Spark with more `spark.driver.memory`",
        )


@cache
def _temporary() -> Path:
    made = Path(tempfile.mkdtemp(prefix="txlog-"))
    made.chmod(0o755)  # A Spark server may run as another user.
    atexit.register(_remove, made, os.getpid())
    return made


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # Not in a forked child.
        shutil.rmtree(folder, ignore_errors=True)


# Files may lack a note of the calendar that their writer used. Their values are not rebased.
_READING = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
# Bounds in footers may ignore NaN; see `has_inner_floats`.
_NO_BOUNDS = {
    "parquet.filter.stats.enabled": "false",
    "parquet.filter.columnindex.enabled": "false",
}
# Spark has these settings only for a session, not for a read. They affect schemas with field ids.
_BY_FIELD_ID = {
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "true",
}


def reads_of(spark: SparkSession, plan: ReadPlan) -> Reads | None:
    """Return the reads of a plan; None if the session cannot read its files by field id.

    A session of Spark Connect can only do so if it has both settings of Spark for it.
    """
    if plan.form.mapping_mode != "id" or all(is_on(spark, name) for name in _BY_FIELD_ID):
        return Reads(spark)
    return Reads.with_settings(spark, _BY_FIELD_ID)


@dataclass(frozen=True)
class Part:
    """Fragments with, or without, deleted rows."""

    rows: FragmentRows
    vectors: Vectors | None = None  # The deleted rows, by fragment id. None: no row is deleted.


def frame(
    reads: Reads,
    store: Store,
    plan: ReadPlan,
    parts: Sequence[Part],
    *,
    where: Column | None,
    manifests: str | None,
    not_null: Collection[str] = (),
    marks: Mapping[str, str] = MappingProxyType({}),
) -> DataFrame:
    """Return the rows of fragments that a plan selects, with the plan's columns.

    Parameters
    ----------
    not_null
        The columns that have no nulls in these fragments.
    where
        The plan's predicate, if it must be evaluated for each row.
    manifests
        As for `read`.
    marks
        Options that the plan of the frame is to keep.
    """
    options = {**_READING, **marks}
    if has_inner_floats(plan.needed):
        options |= _NO_BOUNDS
    metadata_columns = plan.metadata_columns
    has_deletions = any(part.vectors is not None for part in parts)
    constants = [_constants(plan, part) for part in parts]
    # A part without deletions has the other parts' constants but those of the look-up.
    all_constants: list[Constant] = max(constants, key=len)
    projection = project(
        plan,
        all_constants,
        positions=has_deletions or bool(metadata_columns & {ROW_ADDRESS, ROW_ID}),
        virtual=bool(all_constants) or bool(metadata_columns),
        not_null=not_null,
    )
    lists = []
    for part, in_paths in zip(parts, constants, strict=True):
        has_ids = bool(metadata_columns) or (part.vectors is not None and not part.vectors.is_small)
        lists.append(
            _file_lists(
                store,
                part.rows,
                in_paths if in_paths or metadata_columns else None,
                part.rows.ids if has_ids else None,
            )
        )
    require_room(reads.spark, [one.uris for of_part in lists for one in of_part], store.root)
    frames = []
    for part, of_part in zip(parts, lists, strict=True):
        found = _scan(reads, of_part, projection.read, options, manifests)
        if part.vectors is not None:
            found = alive(reads.spark, found, part.vectors, part.rows.ids)
        frames.append(found)
    # Spark applies its rules to each node of a plan. So columns are converted after the union, once
    # for all parts.
    found = reduce(DataFrame.unionAll, frames)
    names = [column.name for column in projection.columns]
    by_id = (
        plan.form.mapping_mode == "id"
    )  # Columns have field ids as metadata; `_cast` removes them.
    if by_id or any(column.cast is not None for column in projection.columns):
        found = found.select(*map(_cast, projection.columns))
    else:  # SQL text needs one call to Spark, and not several for each column.
        found = found.selectExpr(*(f"{c.sql} AS {quote_name(c.name)}" for c in projection.columns))
    if where is not None:
        found = found.where(where)
    chosen = [column.name for column in plan.columns]
    return found if chosen == names else found.selectExpr(*map(quote_name, chosen))


def _cast(column: ReadColumn) -> Column:
    value = F.expr(column.sql)
    value = value if column.cast is None else value.cast(column.cast)
    return value.alias(column.name, metadata={})


def _constants(plan: ReadPlan, part: Part) -> list[Constant]:
    """Return the constants that the virtual paths of a part's files contain.

    The constants for look-ups of deleted rows are first. The paths of a part without deleted rows
    do not contain them. Spark's schema has their columns nevertheless, so that both parts have the
    same columns. Spark fills them with nulls, as all columns that a file lacks, and no expression
    reads them there.
    """
    files = part.rows.primaries
    found = [] if part.vectors is None else vector_constants(part.vectors, part.rows.ids)
    return found + [
        partition_text(
            partition_name(at), partition_values(files, column, plan.form.mapping_mode), column
        )
        for at, column in enumerate(plan.needed)
        if column.name in plan.form.partition_columns
    ]


@dataclass(frozen=True)
class _FileList:
    """Files of one volume, which Spark reads by a manifest."""

    volume: Volume
    is_virtual: bool  # Whether the URIs are virtual.
    uris: pa.Array
    sizes: pa.Array


def _file_lists(
    store: Store, rows: FragmentRows, constants: list[Constant] | None, ids: pa.Array | None
) -> list[_FileList]:
    """Return the lists of files, one for each volume.

    Parameters
    ----------
    constants
        The constants in the virtual paths. None: files are read by their real paths.
    ids
        The ids in the virtual paths. None: no expression reads them.
    """
    files_at = locations(rows.primaries["path"].combine_chunks(), store)
    sizes = flat(rows.primaries["size"])
    volumes = files_at["volume"].combine_chunks()
    found = []
    table_volume = volume_of(store.root)[0].uri
    for at, uri in enumerate(volumes.dictionary.to_pylist() or [table_volume]):
        in_volume = pc.equal(volumes.indices, at)
        volume, files = parse_volume(uri), files_at.filter(in_volume)
        if constants is None:
            uris = real_uris(files, volume)
        else:
            of_files = [replace(one, texts=one.texts.filter(in_volume)) for one in constants]
            of_volume = None if ids is None else ids.filter(in_volume)
            uris = virtual_uris(files, volume, of_volume, of_files)
        found.append(_FileList(volume, constants is not None, flat(uris), sizes.filter(in_volume)))
    return found


def _scan(
    reads: Reads,
    lists: Sequence[_FileList],
    schema: SparkStruct,
    options: Mapping[str, str],
    manifests: str | None,
) -> DataFrame:
    """Return all rows of files, as Spark reads them."""
    frames = []
    for one in lists:
        reader = reads.reader().schema(schema).options(**options)
        if one.is_virtual:
            for name, value in one.volume.settings.items():
                reads.set(name, value)
            reader = reader.option("basePath", one.volume.root)
        else:
            reader = reader.option("recursiveFileLookup", "true")
        folder = write_manifest(manifest_parts(one.uris, one.sizes), manifests)
        # Without a scheme, the path would be in `fs.defaultFS`, which may be another file system.
        path = one.volume.local(folder) if one.is_virtual else f"file://{folder}"
        frames.append(reads.of_session(reader.format("parquet").load(path)))
    return reduce(DataFrame.unionAll, frames)
