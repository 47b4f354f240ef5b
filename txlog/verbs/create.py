"""Create a table, empty or with data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from txlog.actions.file import Add
from txlog.actions.table import DomainMetadata, Metadata, Protocol
from txlog.base.effects import Effects
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
    require_texts,
    warn_caller,
)
from txlog.base.observe import creating
from txlog.commit.app_versions import (
    AnyAppVersion,
    is_recorded,
    require_app_version,
)
from txlog.commit.context import Context
from txlog.commit.intent import Intent, UserMetadata
from txlog.commit.operation import Companion, Done, Operation, Outcome, execute
from txlog.data_files.constraints import constraints_of
from txlog.data_files.definition import PLAIN, Definition
from txlog.data_files.identity import (
    require_identities,
    require_not_given,
)
from txlog.data_files.incoming import incoming
from txlog.data_files.options import WriteOptions, as_names, as_options
from txlog.data_files.write import (
    discard_files,
    partitioning,
)
from txlog.data_files.write_plan import WritePlan, plan_write
from txlog.expressions.tree import Expression
from txlog.protocol.access import (
    DELETION_VECTORS,
    VECTORS_ON_USE,
    at_least,
    new_protocol,
    with_features,
)
from txlog.protocol.form import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from txlog.protocol.iceberg import completed
from txlog.protocol.mapping import (
    MAPPING_MODE,
    mapped,
    odd_names,
    unmapped,
    with_schema,
)
from txlog.protocol.properties import (
    Properties,
    asked_versions,
    compatibilities,
    split_features,
)
from txlog.schema.storable import require_storable
from txlog.schema.types import (
    StructType,
    require_columns,
    require_known_changes,
)
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.store.branches import branch_name
from txlog.verbs.append import write_metrics
from txlog.verbs.properties import Asked

if TYPE_CHECKING:
    from txlog.data_files.sieve import Rejects

NO_TABLE = ""
"""The table id in fragments that are written before the table exists."""


@dataclass(frozen=True)
class NewTable:
    """The definition of a new table.

    The properties of `metadata` are those of the caller, including those that ask for features.
    """

    metadata: Metadata
    schema: StructType
    cluster_by: tuple[str, ...] = ()

    @property
    def domains(self) -> tuple[DomainMetadata, ...]:
        """The domain with the clustering columns; errors as for `clustering_domain`."""
        if not self.cluster_by:
            return ()
        from txlog.verbs.features import clustering_domain

        return (clustering_domain(self.metadata, self.schema, self.cluster_by, "cluster_by"),)

    def plan(
        self, options: WriteOptions | None = None, *, replaced: Expression | None = None
    ) -> WritePlan:
        """Return the plan for writing its first files; errors as for `plan_write`."""
        mode = Properties(self.metadata.configuration).get(MAPPING_MODE)
        return plan_write(
            self.metadata,
            self.schema,
            as_options(options),
            mapping_mode=mode,
            protocol=None,
            replaced=replaced,
        )

    def intent(self, adds: Sequence[Add] = ()) -> Intent:
        """Return the intent of version 0, without the fields that `execute` adds."""
        protocol, kept = _protocol(self)
        metadata = self.metadata.model_copy(update={"configuration": kept})
        return Intent(
            operation=_operation(adds),
            read_version=-1,
            kind="append",  # Never judged: if a table exists, creating fails (CON-1).
            protocol=protocol,
            metadata=metadata,
            adds=tuple(adds),
            domains=self.domains,
            parameters=_parameters(metadata, self.cluster_by),
            metrics=write_metrics(adds) if adds else {},
        )


def _operation(adds: Sequence[Add]) -> str:
    return "CREATE TABLE AS SELECT" if adds else "CREATE TABLE"


FirstFiles: TypeAlias = Callable[[NewTable], list[Add]]
"""A function that returns the first files of a table if they were written for it."""


def new_table(
    declared: StructType,
    definition: Definition = PLAIN,
    *,
    of_files: bool = False,
    effects: Effects,
) -> NewTable:
    """Check the arguments for a new table, and return its definition.

    Column mapping is on if a property sets it, or if a name needs it and no property forbids it.
    The first delete that writes a deletion vector enables them, unless the properties forbid it
    (rule CON-22). With row tracking, the columns for ids and versions of moved rows get unique
    names.

    Parameters
    ----------
    of_files
        The files exist already, so columns keep their names in them.

    Raises
    ------
    InvalidInputError
        The schema, the partitioning, the clustering or a property is wrong.
    """
    require_columns(declared)
    schema = definition.schema_of(declared)
    properties = definition.properties or {}
    require_texts(name=definition.name, description=definition.description)
    partition_by = partitioning(schema, as_names(definition.partition_by))
    require_storable(schema, partition_by)
    require_identities(schema, partition_by)
    asked = Asked.of(properties, has_rows=False)
    configuration = completed({**_vectors(properties), **properties})
    odd = odd_names(schema)
    if odd and MAPPING_MODE not in configuration:
        configuration[MAPPING_MODE] = "name"
        warn_caller(
            f"the table gets {MAPPING_MODE}=name, because the column name {odd[0]!r} has a "
            "character that Delta allows only with column mapping. polars.scan_delta, and "
            "to_pandas and to_pyarrow_dataset of deltalake, refuse such tables. Rename it, or "
            f'pass the property {MAPPING_MODE} with the value "name", which ends this warning'
        )
    if Properties(configuration).get("delta.enableRowTracking"):
        configuration |= row_columns(effects)
    metadata = Metadata(
        id=effects.uuid(),
        name=definition.name,
        description=definition.description,
        partition_columns=list(partition_by),
        created_time=effects.now_ms(),
        configuration=configuration,
    )
    if Properties(configuration).get(MAPPING_MODE) != "none":
        if of_files:
            _require_fit_for_files(metadata)
        schema = mapped(unmapped(schema), metadata, legacy=of_files)
    mode = Properties(configuration).get(MAPPING_MODE)
    asked.require_columns(configuration, schema, partition_by, mode)
    metadata = with_schema(metadata, schema)
    require_known_changes(schema, path="schema")
    new = NewTable(metadata, schema, definition.clustering())
    new.intent()  # Raise before files are written if txlog cannot write such a table.
    try:
        constraints_of(metadata, schema)
    except UnsupportedFeatureError as error:
        argument, remedy = "properties", "Correct the constraint"
        if error.field is not None:  # It is about a column.
            is_own = error.field in (definition.generated or {})
            argument, remedy = ("generated" if is_own else "schema"), "Correct the column"
        raise InvalidInputError(
            argument=argument, field=error.field, reason=error.reason, remedy=remedy
        ) from error
    return new


def _require_fit_for_files(metadata: Metadata) -> None:
    """Raise if properties need column ids in files that exist already without them."""
    if compatibilities(metadata.configuration):
        reason = "Iceberg compatibility needs column ids, which these files do not have"
    elif Properties(metadata.configuration).get(MAPPING_MODE) == "id":
        reason = f"{MAPPING_MODE}=id needs column ids, which these files do not have"
    else:
        return
    remedy = "Omit the property, or write the rows to a new table"
    raise InvalidInputError(argument="properties", reason=reason, remedy=remedy)


def row_columns(effects: Effects) -> dict[str, str]:
    """Return the properties with the names of the columns for ids and versions of moved rows."""
    return {
        ROW_ID_COLUMN: f"_row-id-col-{effects.uuid()}",
        ROW_VERSION_COLUMN: f"_row-commit-version-col-{effects.uuid()}",
    }


def _vectors(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a new table's default property for deletion vectors."""
    if {DELETION_VECTORS, VECTORS_ON_USE} & properties.keys():
        return {}
    if Properties(properties).get("txlog.deletionFormat") == "lance":
        return {DELETION_VECTORS: "true"}
    return {VECTORS_ON_USE: "auto"}


def _protocol(new: NewTable) -> tuple[Protocol, dict[str, str | None]]:
    """Return the protocol of a new table, and the properties to store.

    Raises
    ------
    InvalidInputError
        txlog cannot write such a table.
    """
    configuration = new.metadata.configuration
    features, kept = split_features(configuration)
    if new.cluster_by:
        features |= {"clustering"}
    least = asked_versions(configuration)
    protocol = new_protocol(new.schema, Properties(kept))
    protocol = with_features(protocol, features) if features else protocol
    return at_least(protocol, least), kept


def _parameters(metadata: Metadata, cluster_by: Sequence[str]) -> dict[str, Any]:
    return {
        "partitionBy": metadata.partition_columns,
        "clusterBy": list(cluster_by) or None,
        "properties": metadata.configuration,
        "description": metadata.description,
        "isManaged": "false",
    }


class CreateTable(Operation):
    """Make version 0 of a table from its intent."""

    def __init__(
        self,
        make: Callable[[], Intent],
        *,
        name: str | None = None,
        owned: Sequence[Add] = (),
        quarantine: Rejects | None = None,
    ) -> None:
        """Take the function that returns the intent of version 0.

        Parameters
        ----------
        name
            The operation's name for observers. Default: that of `NewTable.intent` for the files
            `owned`.
        owned
            The files that are deleted if the intent cannot be made, or is not committed.
        quarantine
            Has the rows that did not fit.
        """
        self.name = name or _operation(owned)
        self._make = make
        self._owned = owned
        self._quarantine = quarantine

    def creation(self) -> Intent:
        """Return the intent."""
        return self._make()

    def intent(self, base: Snapshot) -> Intent:
        """Raise `AlreadyExistsError`: another writer made the table first."""
        raise already_exists(self.context.store)

    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return the commit of rows to the quarantine."""
        return () if self._quarantine is None else self._quarantine.companions(txn)

    def side_metrics(self) -> Mapping[str, int]:
        """Return the number of rows in the quarantine, if there is one."""
        return {} if self._quarantine is None else self._quarantine.metrics

    def discard(self) -> None:
        """Delete the files that are owned."""
        discard_files(self.context.store, self._owned)


@creating("CREATE TABLE")
def create(
    context: Context,
    schema: StructType,
    definition: Definition = PLAIN,
    *,
    first: FirstFiles | None = None,
    txn: AnyAppVersion | None = None,
    user_metadata: UserMetadata | None = None,
) -> Done:
    """Create version 0 of a table, empty or with the files that `first` returns.

    If the table exists and records `txn`, nothing is done. The files are never deleted.

    Raises
    ------
    AlreadyExistsError
        The table exists already, or another writer created it first.
    InvalidInputError
        The schema, the partitioning or a property is wrong.
    """
    context.store.require_writable()
    require_app_version(txn)
    new = new_table(schema, definition, effects=context.effects)
    latest = existing(context.store)
    if latest is not None:
        if is_recorded(latest, txn):
            return Done(Outcome("CREATE TABLE", None, skipped=True), latest)
        raise already_exists(context.store)
    adds = [] if first is None else first(new)
    operation = CreateTable(partial(new.intent, adds), name="CREATE TABLE")
    return execute(operation, context, None, txn=txn, user_metadata=user_metadata)


def table_of_rows(
    data: Any, definition: Definition, *, effects: Effects, options: WriteOptions | None = None
) -> tuple[NewTable, pa.RecordBatchReader]:
    """Return the definition of a table for data, and its rows; otherwise as `new_table`."""
    truncates = as_options(options).encoding.allow_truncated_timestamps
    rows = incoming(data, None, nanos=definition.keeps_nanos, truncates=truncates)
    return table_for(rows.schema, definition, effects=effects), rows.reader


def table_for(data: StructType, definition: Definition, *, effects: Effects) -> NewTable:
    """Return the definition of a table for rows of a schema; otherwise as `new_table`.

    Raises
    ------
    SchemaMismatchError
        The rows have values for an identity column that takes none.
    """
    new = new_table(data, definition, effects=effects)
    if definition.identity is not None:
        require_not_given(new.schema, data.names())
    return new


@creating("CREATE TABLE AS SELECT")
def write_new_table(
    context: Context,
    data: Any,
    definition: Definition = PLAIN,
    *,
    options: WriteOptions | None = None,
    allow_existing: bool,
    where: Expression | None = None,
    quarantine: Rejects | None = None,
    txn: AnyAppVersion | None = None,
    user_metadata: UserMetadata | None = None,
) -> Done | None:
    """Create a table with data in its version 0.

    Each row must satisfy `where`, if given. `quarantine` takes the rows that do not fit. The result
    is None if another writer created the table meanwhile and `allow_existing` is set. Then the data
    is not written yet, and a stream is already used up.

    Raises
    ------
    AlreadyExistsError
        Another writer created the table meanwhile.
    """
    require_app_version(txn)
    context.store.require_writable()
    new, rows = table_of_rows(data, definition, effects=context.effects, options=options)
    sieve = None if quarantine is None else quarantine.sieve("CREATE TABLE AS SELECT", None)
    adds = new.plan(options, replaced=where).write(context, rows, sieve=sieve)
    operation = CreateTable(partial(new.intent, adds), owned=adds, quarantine=quarantine)
    try:
        return execute(operation, context, None, txn=txn, user_metadata=user_metadata)
    except AlreadyExistsError:
        if quarantine is not None and not is_recorded(load_snapshot(context.store), txn):
            quarantine.withdraw(txn)  # The rules of the other table count for all rows.
        if allow_existing:
            return None
        raise


def existing(store: Store) -> Snapshot | None:
    """Return the latest snapshot of the table in a store, or None if there is none.

    Raises
    ------
    NotFoundError
        The store shows a branch, and there is none. A write makes no branch.
    """
    try:
        return load_snapshot(store)
    except NotFoundError:
        if branch_name(store) is not None:
            raise
        return None


def already_exists(store: Store) -> AlreadyExistsError:
    """Return the error for a table that exists already."""
    return AlreadyExistsError(
        path=store.root,
        reason="a Delta table exists already",
        remedy='Open it with txlog.Table, or write with mode="append" or mode="overwrite"',
    )
