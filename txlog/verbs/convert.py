"""Convert existing Parquet files to a table; the files do not change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import and_
from typing import Literal
from urllib.parse import unquote

import pyarrow as pa

from txlog.actions.file import Add
from txlog.actions.stats_text import stats_json
from txlog.base.arrow import arrow_array
from txlog.base.errors import (
    DataFileError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    TxlogError,
)
from txlog.base.observe import creating
from txlog.commit.app_versions import (
    AnyAppVersion,
    is_recorded,
    require_app_version,
)
from txlog.commit.context import Context
from txlog.commit.intent import Intent, UserMetadata
from txlog.commit.operation import Done, Outcome, execute, planned
from txlog.data_files.constraints import rules_of
from txlog.data_files.definition import Definition
from txlog.log.paths import encode_path
from txlog.parquet.file_footer import FileFooter, footer_bytes
from txlog.parquet.stated import SPARK_SCHEMA, stated_schema
from txlog.protocol.properties import asks_for
from txlog.schema.types import (
    GENERATION,
    NANOS,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    same_names,
    type_name,
    types_in,
)
from txlog.stats.partition import NULL_FOLDER, parse_partition_values
from txlog.store.base import ObjectInfo, Store
from txlog.verbs.create import CreateTable, already_exists, existing, new_table
from txlog.verbs.metadata import require_true
from txlog.verbs.statistics import ComputeStatistics

_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")
_NANOS = frozenset(map(PrimitiveType, NANOS))
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


Nanoseconds = Literal["keep", "cut", "refuse"]
PartitionStrategy = Literal["hive", "directory"]


@dataclass(frozen=True)
class FoundFile:
    """A Parquet file below the folder, and its partition from the folder names."""

    info: ObjectInfo
    partition: tuple[tuple[str, str | None], ...]


@creating("CONVERT")
def convert(
    context: Context,
    *,
    partition_by: StructType | None,
    strategy: PartitionStrategy = "hive",
    properties: Mapping[str, str] | None,
    name: str | None,
    description: str | None,
    txn: AnyAppVersion | None,
    user_metadata: UserMetadata | None,
    collect_stats: bool = True,
    truncates: bool = False,
) -> Done:
    """Commit version 0 of a table with the Parquet files below the store's root.

    Parameters
    ----------
    partition_by
        The partition columns with their types. Default: those of folders such as `day=1`, as
        integers, dates or strings.
    strategy
        `directory` means that folders are only the values of these columns, in order.
    truncates
        Allow a table without the feature `timestampNanos` to lose the last digits of nanoseconds.
    collect_stats
        Compute the files' statistics from their footers or rows.

    If the table exists and records `txn`, nothing is done.

    Raises
    ------
    AlreadyExistsError
        There is a table already.
    NotFoundError
        There is no Parquet file.
    InvalidInputError
        Folders have other partition columns than those given, or differ from each other.
    SchemaMismatchError
        A column has two types; the error names both files. Or it has nanoseconds, and the
        properties do not list `timestampNanos`. Or a row breaks a constraint of the properties.
    DataFileError
        A file is not Parquet.
    """
    context.store.require_writable()
    require_app_version(txn)
    snapshot = existing(context.store)
    if snapshot is not None:
        if is_recorded(snapshot, txn):
            return Done(Outcome("CONVERT", None, skipped=True), snapshot)
        raise already_exists(context.store)
    steps = None
    if strategy == "directory":
        steps = () if partition_by is None else partition_by.names()
    files = found_files(context.store.list_tree(""), context.store.root, steps)
    partitions = _partition_columns(files, partition_by)
    footers = list(context.engine.map(partial(_footer, context.store), [f.info for f in files]))
    keeps = asks_for("timestampNanos", properties)
    nanos: Nanoseconds = "keep" if keeps else "cut" if truncates else "refuse"
    schema = _schema(files, footers, partitions, nanos=nanos)
    new = new_table(
        schema,
        Definition(
            partition_by=partitions.names(),
            properties=properties,
            name=name,
            description=description,
        ),
        of_files=True,
        effects=context.effects,
    )
    now_ms = context.effects.now_ms()
    adds = [
        Add(
            path=encode_path(file.info.name),
            partition_values=dict(file.partition),
            size=file.info.size,
            modification_time=file.info.modified_ms or now_ms,
            data_change=True,
            stats=stats_json({"numRecords": footer.num_rows}),
        )
        for file, footer in zip(files, footers, strict=True)
    ]
    intent = _converting(new.intent(adds), len(files), collect_stats)
    if collect_stats:
        intent = _with_statistics(context, intent)
    rules = [rule.predicate for rule in rules_of(new.metadata, new.schema)]
    if rules:
        require_true(context, planned(context, intent), reduce(and_, rules))
    # The files belong to the caller, so none is ever deleted.
    operation = CreateTable(lambda: intent, name=intent.operation)
    return execute(operation, context, None, txn=txn, user_metadata=user_metadata)


def _with_statistics(context: Context, intent: Intent) -> Intent:
    """Return the intent with the statistics of its files."""
    statistics = ComputeStatistics()
    statistics.context = context
    computed = statistics.intent(planned(context, intent))
    stats = {} if computed is None else {add.path: add.stats for add in computed.adds}
    adds = (a.model_copy(update={"stats": stats.get(a.path, a.stats)}) for a in intent.adds)
    return replace(intent, adds=tuple(adds))


def _converting(intent: Intent, files: int, collect_stats: bool) -> Intent:
    return replace(
        intent,
        operation="CONVERT",
        parameters={
            "numFiles": files,
            "partitionedBy": intent.parameters["partitionBy"],
            "collectStats": collect_stats,
        },
        metrics={"numConvertedFiles": files},
    )


def found_files(
    infos: Iterable[ObjectInfo], root: str, columns: Sequence[str] | None = None
) -> list[FoundFile]:
    """Return the Parquet files below a folder, with their partitions. Pure.

    Files and folders whose names begin with `_` or `.` are ignored, except partition folders.

    Parameters
    ----------
    columns
        The partition columns, in order, whose values are the folder names. Default: folders such as
        `day=1` name them.

    Raises
    ------
    InvalidInputError
        The number of a file's folders differs from the number of columns.
    NotFoundError
        There is none.
    """
    found = []
    for info in infos:
        *folders, file = info.name.split("/")
        plain = [step for step in folders if "=" not in step and step != NULL_FOLDER]
        hidden = any(step[0] in "_." for step in (*plain, file))
        if info.size and not hidden and file.endswith((".parquet", ".parq", ".pq")):
            pairs = _pairs(folders) if columns is None else _in_order(columns, folders, info.name)
            found.append(FoundFile(info, tuple(pairs)))
    if not found:
        raise NotFoundError(
            path=root,
            reason="there is no Parquet file below the folder",
            remedy="Check the path. The names of files must end in .parquet",
        )
    return found


def _pairs(folders: Sequence[str]) -> Iterable[tuple[str, str | None]]:
    for step in folders:
        column, equals, text = step.partition("=")
        if equals:
            value = unquote(text)
            yield unquote(column), None if value in (NULL_FOLDER, "") else value


def _in_order(
    columns: Sequence[str], folders: Sequence[str], file: str
) -> Iterable[tuple[str, str | None]]:
    if len(columns) != len(folders):
        raise InvalidInputError(
            argument="partition_by",
            field=file,
            reason=f"the file is in {len(folders)} folders, but there are {len(columns)} "
            "partition columns",
            remedy="Pass one column for each level of folders",
        )
    values = map(unquote, folders)
    return [(c, None if v == NULL_FOLDER else v) for c, v in zip(columns, values, strict=True)]


def _partition_columns(files: Sequence[FoundFile], given: StructType | None) -> StructType:
    """Return the partition columns with their types; each value must have the type."""
    names = [column for column, _ in files[0].partition]
    for file in files:
        own = [column for column, _ in file.partition]
        if own != names or len(set(own)) < len(own):
            raise InvalidInputError(
                argument="partition_by",
                field=file.info.name,
                reason=f"its folders have the partition columns {own}, but those of "
                f"{files[0].info.name} have {names}",
                remedy="Convert a folder in which all files have the same partition columns",
            )
    if given is not None and sorted(given.names()) != sorted(names):
        raise InvalidInputError(
            argument="partition_by",
            reason=f"the folders have the columns {names}, not {given.names()}",
            remedy="Omit the argument to use the columns of the folder names",
        )
    fields = []
    for place, name in enumerate(names):
        texts = list(dict.fromkeys(file.partition[place][1] for file in files))
        known = None if given is None else given.get(name)
        kind = _kind_of(texts) if known is None else known.type
        _require_parsed(name, texts, kind)
        fields.append(StructField(name, kind))
    return StructType(tuple(fields))


def _kind_of(texts: Sequence[str | None]) -> DataType:
    """Return a type that fits all values of a partition column."""
    known = [text for text in texts if text is not None]
    if known and all(_WHOLE.fullmatch(text) for text in known):
        return PrimitiveType("long")
    if known and all(_DATE.fullmatch(text) for text in known):
        return PrimitiveType("date")
    return PrimitiveType("string")


def _require_parsed(name: str, texts: Sequence[str | None], kind: DataType) -> None:
    try:
        parse_partition_values(arrow_array(texts, pa.string()), kind)
    except (TxlogError, pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            argument="partition_by",
            field=name,
            reason=f"the value of {name} in a folder name is not of type {type_name(kind)}: "
            f"{error}",
            remedy="Give the column another type",
        ) from error


def _footer(store: Store, info: ObjectInfo) -> FileFooter:
    """Return the footer of a Parquet file."""
    try:
        with store.open_input(info.name, size=info.size) as source:
            return FileFooter.parse(footer_bytes(source, info.size))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataFileError(
            path=info.name,
            version=0,
            reason=f"the file cannot be read as Parquet: {error}",
            remedy="Nothing was committed. Move the file away, or write it again",
        ) from error


def _schema(
    files: Sequence[FoundFile],
    footers: Sequence[FileFooter],
    partitions: StructType,
    *,
    nanos: Nanoseconds,
) -> StructType:
    """Return the columns of all files, followed by the partition columns.

    Raises
    ------
    SchemaMismatchError
        A column has two types, is also a partition column, or has nanoseconds that the table cannot
        hold.
    """
    columns: dict[str, tuple[StructField, str]] = {}
    seen = set()
    for file, footer in zip(files, footers, strict=True):
        stated = (
            footer.schema.remove_metadata(),
            footer.physical_types,
            footer.pairs.get(SPARK_SCHEMA),
        )
        if stated in seen:
            continue
        seen.add(stated)
        given = stated_schema(footer, nanos=nanos != "cut")
        for one, other in same_names(given):
            raise SchemaMismatchError(
                argument="data",
                path=file.info.name,
                field=other,
                reason=f"columns {one} and {other} of {file.info.name} have one name, or names "
                "that differ only in case: readers would find one",
                remedy="Nothing was committed. Write the file again with other names",
            )
        for field in given.fields:
            if nanos == "refuse" and any(kind in _NANOS for kind in types_in(StructType((field,)))):
                raise SchemaMismatchError(
                    argument="data",
                    path=file.info.name,
                    field=field.name,
                    reason=f"column {field.name} has nanoseconds in {file.info.name}, and a table "
                    "without the feature timestampNanos would lose digits",
                    remedy='Pass properties={"delta.feature.timestampNanos": "supported"}, or '
                    "allow_truncated_timestamps=True to read microseconds. Nothing was committed",
                )
            metadata = {k: v for k, v in field.metadata.items() if k != GENERATION}  # Not checked.
            known, first = columns.setdefault(
                field.name.lower(),
                (replace(field, nullable=True, metadata=metadata), file.info.name),
            )
            united = _united(known.type, field.type)
            if united is not None and united != known.type:
                columns[field.name.lower()] = replace(known, type=united), first
            if united is None or partitions.get(field.name) is not None:
                other = f"{type_name(known.type)} in {first}"
                raise SchemaMismatchError(
                    argument="data",
                    path=file.info.name,
                    field=field.name,
                    reason=f"column {field.name} is {type_name(field.type)} in {file.info.name}, "
                    f"and {other if united is None else 'a partition column'}",
                    remedy="Nothing was committed. Write one of the files again",
                )
    return StructType((*(field for field, _ in columns.values()), *partitions.fields))


def _united(one: DataType, other: DataType) -> DataType | None:
    """Return the type for the values of two types that differ only in what may be null, or None."""
    match one, other:
        case ArrayType(element, null), ArrayType(theirs, their_null):
            inner = _united(element, theirs)
            return None if inner is None else ArrayType(inner, null or their_null)
        case MapType(key, value, null), MapType(their_key, their_value, their_null):
            keys, values = _united(key, their_key), _united(value, their_value)
            if keys is None or values is None:
                return None
            return MapType(keys, values, null or their_null)
        case StructType(fields), StructType(theirs) if one.names() == other.names():
            found = []
            for field, their in zip(fields, theirs, strict=True):
                inner = _united(field.type, their.type)
                if inner is None:
                    return None
                found.append(replace(field, type=inner, nullable=field.nullable or their.nullable))
            return StructType(tuple(found))
    return one if one == other else None
