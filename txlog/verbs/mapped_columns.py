"""Rename and drop columns without changing data files; end column mapping.

Rules: the Delta protocol, "Column Mapping"; spec/fragments.md, FRG-23.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from txlog.actions.file import Add
from txlog.actions.table import DomainMetadata, Metadata
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Reads
from txlog.data_files.bloom_columns import BLOOM_COLUMNS, bloom_columns
from txlog.data_files.constraints import generated_columns, rules_of
from txlog.data_files.deletions import adds_of
from txlog.data_files.lengths import declared_type
from txlog.data_files.options import WriteOptions
from txlog.data_files.rewrite import RewritePlan, plan_rewrite, rewrite_all
from txlog.data_files.sort_order import SORT_BY, sort_columns
from txlog.expressions.bind import column_path, columns_of
from txlog.expressions.tree import quote_name
from txlog.fragments.rows import FEATURE
from txlog.protocol.access import require_writable
from txlog.protocol.features import CLUSTERING
from txlog.protocol.form import logged_otherwise, logged_partition_value, physical_path
from txlog.protocol.mapping import HIGHEST_ID, MAPPING_MODE, odd_names, unmapped
from txlog.protocol.properties import (
    INDEX_PREFIX,
    UNIQUE_PREFIX,
    Properties,
    definitions_of_columns,
    dropped_columns,
    index_definitions,
    unique_keys,
    with_dropped,
)
from txlog.scan.plan import plan_scan
from txlog.schema.arrow import with_metadata_of, with_renamed_metadata
from txlog.schema.edit import FieldPath, find_field, renamed, without_field
from txlog.schema.json import schema_json
from txlog.schema.types import DataType, StructType
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.collect import LISTED, require_stats_columns
from txlog.verbs.metadata import Changed, SetProperties
from txlog.verbs.rewrite import Rewrite
from txlog.verbs.schema import ChangeSchema


class RenameColumn(ChangeSchema):
    """Rename a column, or a field of a struct; data files do not change."""

    name = "RENAME COLUMN"

    def __init__(self, column: str, new_name: str) -> None:
        self._column = column
        self._new_name = new_name

    def schema(self, base: Snapshot) -> StructType:
        """Return the schema with the new name.

        Raises
        ------
        InvalidInputError
            There is no such column, the new name exists, or a constraint or a generated column
            needs the old name.
        UnsupportedFeatureError
            The table has no column mapping.
        """
        if base.mapping_mode == "none":
            raise _needs_mapping(base, "data files have the names of its columns")
        path = self._path(base)
        _require_unneeded(base, path)
        schema = renamed(base.schema, path, self._new_name)
        return with_renamed_metadata(schema, path[0], self._new_name) if len(path) == 1 else schema

    def _path(self, base: Snapshot) -> FieldPath:
        return find_field(base.schema, column_path(base.schema, self._column))[0]

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata with the new name, also in partitioning and statistics."""
        changed, path = super().change(base), self._path(base)
        metadata = changed.metadata
        if len(path) == 1:
            names = [self._new_name if n == path[0] else n for n in base.partition_columns]
            metadata = metadata.model_copy(update={"partition_columns": names})
        return replace(changed, metadata=metadata)

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the metadata; errors are those of `schema` and `ChangeMetadata.intent`.

        Files whose partition value has the old logical name are logged again, with the physical
        name: nobody would find the old one.
        """
        intent = super().intent(base)
        adds = _named_for_good(self.context, base, self._path(base))
        if intent is None or not adds:
            return intent
        return replace(intent, kind="overwrite", adds=adds, reads=Reads(everything=True))

    def configuration(self, base: Snapshot) -> Mapping[str, str | None]:
        """Return the properties; one of them may list the column."""
        path = self._path(base)

        def other(listed: FieldPath) -> FieldPath:
            below = _is_in(listed, path)
            return (*path[:-1], self._new_name, *listed[len(path) :]) if below else listed

        changed = _with_stats_columns(base, other)
        return _with_listed(base, changed, SORT_BY, other)

    def parameters(self, base: Snapshot) -> Mapping[str, Any]:
        """Return both names as Delta's parameters."""
        path = self._path(base)
        new = (*path[:-1], self._new_name)
        return {"oldColumnPath": ".".join(path), "newColumnPath": ".".join(new)}


def _named_for_good(context: Context, base: Snapshot, path: FieldPath) -> tuple[Add, ...]:
    """Return the live files whose value of a partition column lacks its physical name, with it."""
    column = next((one for one in base.partition_fields if (one.name,) == path), None)
    if column is None:
        return ()
    mode = base.mapping_mode
    live = load_files(context.store, base).live
    adds = []
    for add in adds_of(live.filter(logged_otherwise(flat(live["partition_values"]), column, mode))):
        others = {k: v for k, v in add.partition_values.items() if k != column.name}
        value = logged_partition_value(add.partition_values, column, mode)
        values = {**others, column.name_in_files(mode): value}
        adds.append(add.model_copy(update={"partition_values": values, "data_change": False}))
    return tuple(adds)


def require_columns_droppable(base: Snapshot) -> None:
    """Raise `UnsupportedFeatureError` unless columns can be dropped by metadata alone."""
    if base.mapping_mode == "none" and not base.supports(FEATURE):
        raise _needs_mapping(base, "a new column with this name would get the old values")


class DropColumns(ChangeSchema):
    """Drop columns and fields of structs from the schema; data files do not change."""

    name = "DROP COLUMNS"

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(dict.fromkeys(columns))

    def schema(self, base: Snapshot) -> StructType:
        """Return the schema without the columns.

        Raises
        ------
        InvalidInputError
            There is no such column; a constraint, a generated column, the partitioning or the
            clustering needs it; or no column would be left.
        UnsupportedFeatureError
            The table has neither column mapping nor the feature `txlog.fragments`.
        """
        require_columns_droppable(base)
        schema, paths = base.schema, self._paths(base)
        for path in paths:
            if base.mapping_mode == "none" and len(path) > 1:
                raise _needs_mapping(base, f"{'.'.join(path)} is nested")
            _require_kept_apart(base, path)
            schema = without_field(schema, path)
        for path in paths:
            _require_unneeded(base, path, without=paths)
        if not any(field.name not in base.partition_columns for field in schema.fields):
            raise InvalidInputError(
                argument="columns",
                reason="only partition columns would remain",
                remedy="Keep one, or delete the table",
            )
        schema = with_metadata_of(schema, base.schema)
        for path in paths:
            schema = with_renamed_metadata(schema, path[0], None) if len(path) == 1 else schema
        return schema

    def _paths(self, base: Snapshot) -> list[FieldPath]:
        given = [column_path(base.schema, column) for column in self._columns]
        return [find_field(base.schema, path)[0] for path in given]

    def configuration(self, base: Snapshot) -> Mapping[str, str | None]:
        """Return the properties without the columns, and with names that files still have."""
        paths = self._paths(base)
        properties = _with_stats_columns(
            base, lambda listed: None if any(_is_in(listed, path) for path in paths) else listed
        )
        if base.mapping_mode != "none" or not paths:  # New columns must not get these names.
            return properties
        metadata = base.metadata.model_copy(update={"configuration": dict(properties)})
        names = dropped_columns(metadata) | {path[0] for path in paths}
        return with_dropped(metadata, names).configuration

    def parameters(self, base: Snapshot) -> Mapping[str, Any]:
        """Return the columns."""
        return {"columns": sorted(".".join(path) for path in self._paths(base))}


@dataclass(frozen=True)
class Unmapped:
    """A table without column mapping: its metadata, and the plan to write its rows again."""

    metadata: Metadata
    domains: tuple[DomainMetadata, ...]
    rewrite: RewritePlan


def without_mapping(base: Snapshot, metadata: Metadata) -> Unmapped:
    """Return a table whose data files have the names of its columns.

    Parameters
    ----------
    metadata
        The metadata of the table, with its new properties.

    Raises
    ------
    UnsupportedFeatureError
        A column has a name that needs column mapping.
    """
    schema = unmapped(base.schema)
    if odd := odd_names(schema):
        raise UnsupportedFeatureError(
            path=base.root,
            features=("columnMapping",),
            field=odd[0],
            reason=f"{MAPPING_MODE} cannot go from {base.mapping_mode} to none: the name {odd[0]} "
            "needs column mapping",
            remedy="Rename the column first",
        )
    configuration = {
        name: text
        for name, text in metadata.configuration.items()
        if name not in (MAPPING_MODE, HIGHEST_ID)
    }
    columns = {field.name_in_files(base.mapping_mode): field.name for field in base.schema.fields}
    for prefix, definition in definitions_of_columns(configuration):
        names = tuple(columns.get(name, name) for name in definition.columns)
        configuration[f"{prefix}{definition.name}"] = replace(definition, columns=names).text
    made = metadata.model_copy(
        update={"configuration": configuration, "schema_string": schema_json(schema)}
    )
    domains: tuple[DomainMetadata, ...] = ()
    if clustered := clustering_columns(base):
        paths = [logical_path(base, path) for path in clustered]
        text = {"clusteringColumns": paths, "domainName": CLUSTERING}
        domains = (DomainMetadata(domain=CLUSTERING, configuration=orjson.dumps(text).decode()),)
    plan = plan_rewrite(base, WriteOptions())
    layout = replace(
        plan.layout, schema=schema, mapping_mode="none", properties=Properties(configuration)
    )
    return Unmapped(made, domains, replace(plan, layout=layout))


class SetMapping(Rewrite, SetProperties):
    """Set properties, including the mode of column mapping.

    The end of column mapping writes all rows again with the logical names of the columns.
    """

    deadline_s = 3600.0

    def intent(self, base: Snapshot) -> Intent | None:
        """Return files with the logical names of columns, and the new metadata.

        Raises
        ------
        InvalidInputError
            Other properties change too.
        UnsupportedFeatureError
            A column has a name that needs column mapping, or Iceberg compatibility needs it.
        """
        changed = self.change(base)
        then = Properties(changed.metadata.configuration).get(MAPPING_MODE)
        if base.mapping_mode == "none" or then != "none":
            return super().intent(base)
        if changed.numbers_rows or changed.features or changed.versions != (1, 1):
            raise InvalidInputError(
                argument="properties",
                field=MAPPING_MODE,
                reason="the end of column mapping writes all rows again, and other properties need "
                "a separate commit",
                remedy=f"Set {MAPPING_MODE} alone",
            )
        ended = without_mapping(base, changed.metadata)
        require_writable(base.protocol, ended.metadata, path=base.root, managed=base.is_managed)
        rows = load_files(self.context.store, base).live
        fragments = plan_scan(base, rows, columns=[]).fragments
        for _, adds in rewrite_all(self.context, ended.rewrite, [(one,) for one in fragments]):
            self._written.extend(adds)
        return replace(
            # Files that others have written meanwhile have the physical names.
            self._moved(base, rows, "overwrite"),
            metadata=ended.metadata,
            domains=ended.domains,
            reads=Reads(everything=True),
            parameters=changed.parameters,
            metrics={"numRemovedFiles": rows.num_rows, "numAddedFiles": len(self._written)},
        )


def _is_in(path: FieldPath, above: FieldPath) -> bool:
    """Return whether a path equals another one, or is of a field inside it."""
    return [name.lower() for name in path[: len(above)]] == [name.lower() for name in above]


def _needs_mapping(base: Snapshot, reason: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        path=base.root,
        features=("columnMapping",),
        reason=f"the table has no column mapping, so {reason}",
        remedy=f'Call alter.set_properties({{"{MAPPING_MODE}": "name"}}) first; engines without '
        "column mapping can then no longer read the table",
    )


def _with_stats_columns(
    base: Snapshot, other: Callable[[FieldPath], FieldPath | None]
) -> Mapping[str, str | None]:
    """Return the properties with changed columns of statistics and Bloom filters; None: no more."""
    changed = _with_listed(base, base.metadata.configuration, LISTED, other)
    return _with_listed(base, changed, BLOOM_COLUMNS, other)


def _with_listed(
    base: Snapshot,
    current: Mapping[str, str | None],
    name: str,
    other: Callable[[FieldPath], FieldPath | None],
) -> Mapping[str, str | None]:
    """Return properties with changed columns in one of them; None removes a column."""
    listed: Sequence[FieldPath] | None = base.properties.get(name)
    if listed is None or current.get(name) is None:
        return current
    changed = [other(path) for path in listed]
    if changed == list(listed):
        return current
    texts = [".".join(map(quote_name, path)) for path in changed if path is not None]
    return {**current, name: ",".join(texts)}


def without_lost_columns(
    base: Snapshot, metadata: Metadata, schema: StructType
) -> tuple[Metadata, tuple[DomainMetadata, ...]]:
    """Return the metadata and the changed domains of a table whose rows and columns are replaced.

    What names a column that is gone, or is a partition column now, ends: its statistics, the
    indexes over it, the clustering by it.
    """
    partition_by = metadata.partition_columns
    configuration = dict(metadata.configuration)
    listed: Sequence[FieldPath] = Properties(configuration).get(LISTED) or ()
    texts = [".".join(map(quote_name, path)) for path in listed]
    kept = [text for text in texts if _has_statistics(schema, partition_by, text)]
    if len(kept) < len(texts):
        configuration[LISTED] = ",".join(kept)
    if configuration.get(BLOOM_COLUMNS) is not None:
        filtered = bloom_columns(Properties(configuration), schema, partition_by)
        if len(filtered) < len(Properties(configuration).get(BLOOM_COLUMNS) or ()):
            configuration[BLOOM_COLUMNS] = ",".join(quote_name(one.name) for one in filtered)
            if not filtered:
                del configuration[BLOOM_COLUMNS]
    if configuration.get(SORT_BY) is not None:
        ordered = sort_columns(Properties(configuration), schema, partition_by)
        if len(ordered) < len(Properties(configuration).get(SORT_BY) or ()):
            configuration[SORT_BY] = ",".join(map(quote_name, ordered))
            if not ordered:
                del configuration[SORT_BY]
    stored = [column for column in schema.fields if column.name not in partition_by]
    there = {column.name_in_files(base.mapping_mode) for column in stored}
    for name, index in index_definitions(configuration).items():
        if not there.issuperset(index.columns):
            del configuration[f"{INDEX_PREFIX}{name}"]
    columns = {column.name_in_files(base.mapping_mode) for column in schema.fields}
    before = {column.name_in_files(base.mapping_mode): column.name for column in base.schema.fields}
    for name, key in unique_keys(configuration).items():
        lost = [before.get(column, column) for column in key.columns if column not in columns]
        if lost:
            raise InvalidInputError(
                argument="schema",
                field=name,
                reason=f"the unique key {name} is over {', '.join(lost)}, and the new columns lack "
                "it, or have another one of this name",
                remedy=f"Call alter.drop_constraint({name!r}) first",
            )
    domains: tuple[DomainMetadata, ...] = ()
    clustered = clustering_columns(base)
    if clustered and (partition_by or any(not _is_at(schema, path, base) for path in clustered)):
        domain = base.controls.domains[CLUSTERING]
        domains = (domain.model_copy(update={"removed": True}),)
    if configuration == metadata.configuration:
        return metadata, domains
    return metadata.model_copy(update={"configuration": configuration}), domains


def _has_statistics(schema: StructType, partition_by: Sequence[str], column: str) -> bool:
    try:
        require_stats_columns(schema, partition_by, Properties({LISTED: column}))
    except InvalidInputError:
        return False
    return True


def _is_at(kind: DataType, physical: FieldPath, base: Snapshot) -> bool:
    """Return whether a schema has a column with these physical names."""
    for name in physical:
        fields = kind.fields if isinstance(kind, StructType) else ()
        found = next((f for f in fields if f.name_in_files(base.mapping_mode) == name), None)
        if found is None:
            return False
        kind = found.type
    return True


def _require_kept_apart(base: Snapshot, path: FieldPath) -> None:
    """Raise if the partitioning or the clustering needs a column that is to be dropped."""
    if path[0] in base.partition_columns:
        raise InvalidInputError(
            argument="columns",
            field=path[0],
            reason="it is a partition column, so its values decide in which files rows are",
            remedy="Choose another column",
        )
    names = physical_path(base.schema, path, base.mapping_mode)
    for prefix, definition in definitions_of_columns(base.metadata.configuration):
        if len(path) == 1 and names[0] in definition.columns:
            is_key = prefix == UNIQUE_PREFIX
            raise InvalidInputError(
                argument="columns",
                field=path[0],
                reason=f"the {'unique key' if is_key else 'index'} {definition.name} is over it",
                remedy=f"Choose another column, or alter.drop_constraint({definition.name!r}) first"
                if is_key
                else f"Choose another column, or indexes.drop({definition.name!r}) first",
            )
    if any(_is_in(ordered, path) for ordered in base.properties.get(SORT_BY) or ()):
        raise InvalidInputError(
            argument="columns",
            field=".".join(path),
            reason=f"rows are sorted by it ({SORT_BY})",
            remedy=f"Choose another column, or alter.unset_properties([{SORT_BY!r}]) first",
        )
    if any(_is_in(clustered, names) for clustered in clustering_columns(base)):
        raise InvalidInputError(
            argument="columns",
            field=".".join(path),
            reason="the table is clustered by it",
            remedy="Choose another column, or cluster the table by others first",
        )


def clustering_columns(base: Snapshot) -> list[FieldPath]:
    """Return the physical names of the columns by which a table is clustered."""
    domain = base.controls.domains.get(CLUSTERING)
    if domain is None or domain.removed:
        return []
    listed = orjson.loads(domain.configuration).get("clusteringColumns") or []
    return [(path,) if isinstance(path, str) else tuple(path) for path in listed]


def logical_path(snapshot: Snapshot, physical: FieldPath) -> FieldPath:
    """Return the logical names of a column and the structs around it, from physical names."""
    kind: DataType = snapshot.schema
    found = []
    for name in physical:
        fields = kind.fields if isinstance(kind, StructType) else ()
        field = next((f for f in fields if f.name_in_files(snapshot.mapping_mode) == name), None)
        found.append(name if field is None else field.name)
        kind = kind if field is None else field.type
    return tuple(found)


def _require_unneeded(
    base: Snapshot, path: FieldPath, *, without: Sequence[FieldPath] = ()
) -> None:
    """Raise if a constraint, a generated column (except `without`) or a length needs a column."""
    column = base.schema.get(path[0])
    if column is not None and len(path) > 1 and (declared := declared_type(column)):
        raise InvalidInputError(
            argument="column",
            field=".".join(path),
            reason=f"the declared type of column {column.name} ({declared}) names it, and limits "
            "the length of texts",
            remedy="Add another column without this limit, and write the values to it",
        )
    needing = [
        (f"the constraint {rule.name} ({rule.text})", rule.predicate)
        for rule in rules_of(base.metadata, base.schema)
        if (rule.column,) not in without
    ]
    needing += [
        (f"the generated column {name}", expression)
        for name, expression in generated_columns(base.schema).items()
        if (name,) not in without
    ]
    for what, expression in needing:
        if any(_is_in(read, path) or _is_in(path, read) for read in columns_of(expression)):
            raise InvalidInputError(
                argument="column",
                field=".".join(path),
                reason=f"{what} needs it",
                remedy="Drop it first",
            )
