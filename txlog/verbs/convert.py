"""Convert existing Parquet files to a table; the files do not change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import and_
from typing import Literal

import pyarrow as pa

from txlog.actions.file import Add
from txlog.actions.stats_text import stats_json
from txlog.base.errors import (
    DataFileError,
    SchemaMismatchError,
    reason_of,
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
from txlog.data_files.row_files import RowFile, partition_columns, row_files
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
from txlog.store.base import ObjectInfo, Store
from txlog.store.open import links_in
from txlog.verbs.create import CreateTable, already_exists, existing, new_table
from txlog.verbs.metadata import require_true
from txlog.verbs.statistics import ComputeStatistics

_NANOS = frozenset(map(PrimitiveType, NANOS))


Nanoseconds = Literal["keep", "cut", "refuse"]
PartitionStrategy = Literal["hive", "directory"]


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
        Folders have other partition columns than those given, or differ from each other. Or there
        is a symbolic link to a folder or Parquet file, whose rows would be missing.
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
    infos = {info.name: info for info in context.store.list_tree("") if info.size}
    files = row_files(infos, context.store.root, steps, parquet=True, links=links_in(context.store))
    partitions = partition_columns(files, partition_by)
    sizes = [infos[file.name] for file in files]
    footers = list(context.engine.map(partial(_footer, context.store), sizes))
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
            path=encode_path(file.name),
            partition_values=dict(
                zip(partitions.names(), (value for _, value in file.partition), strict=True)
            ),
            size=info.size,
            modification_time=info.modified_ms or now_ms,
            data_change=True,
            stats=stats_json({"numRecords": footer.num_rows}),
        )
        for file, info, footer in zip(files, sizes, footers, strict=True)
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


def _footer(store: Store, info: ObjectInfo) -> FileFooter:
    """Return the footer of a Parquet file."""
    try:
        with store.open_input(info.name, size=info.size) as source:
            footer = FileFooter.parse(footer_bytes(source, info.size))
        footer.require_sound()
        return footer
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataFileError(
            path=info.name,
            version=0,
            reason=f"the file cannot be read as Parquet: {reason_of(error)}",
            remedy="Nothing was committed. Move the file away, or write it again",
        ) from error


def _schema(
    files: Sequence[RowFile],
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
                path=file.name,
                field=other,
                reason=f"columns {one} and {other} of {file.name} have one name, or names "
                "that differ only in case: readers would find one",
                remedy="Nothing was committed. Write the file again with other names",
            )
        for field in given.fields:
            if nanos == "refuse" and any(kind in _NANOS for kind in types_in(StructType((field,)))):
                raise SchemaMismatchError(
                    argument="data",
                    path=file.name,
                    field=field.name,
                    reason=f"column {field.name} has nanoseconds in {file.name}, and a table "
                    "without the feature timestampNanos would lose digits",
                    remedy='Pass properties={"delta.feature.timestampNanos": "supported"}, or '
                    "allow_truncated_timestamps=True to read microseconds. Nothing was committed",
                )
            metadata = {k: v for k, v in field.metadata.items() if k != GENERATION}  # Not checked.
            known, first = columns.setdefault(
                field.name.lower(),
                (replace(field, nullable=True, metadata=metadata), file.name),
            )
            united = _united(known.type, field.type)
            if united is not None and united != known.type:
                columns[field.name.lower()] = replace(known, type=united), first
            partition = partitions.get(field.name)
            if united is None or partition is not None:
                other = f"{type_name(known.type)} in {first}"
                if partition is not None:
                    other = f"the folders have the partition column {partition.name}"
                raise SchemaMismatchError(
                    argument="data",
                    path=file.name,
                    field=field.name,
                    reason=f"column {field.name} is {type_name(field.type)} in {file.name}, "
                    f"and {other}",
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
