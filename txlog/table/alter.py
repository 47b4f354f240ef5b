"""`Table.alter`: change columns, properties and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txlog.base.errors import InvalidTypeError, TxlogError, require_flags, warn_committed
from txlog.table.handle import Namespace

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.expressions.tree import Expression
    from txlog.schema.types import DataType
    from txlog.verbs.constraints import Unique
    from txlog.verbs.features import ProtocolChange
    from txlog.verbs.metadata import SetProperties


class TableAlter(Namespace):
    """Commits that change the columns, properties or features of a table."""

    _name = "alter"

    def add_columns(
        self,
        columns: Any,
        *,
        read_columns: Sequence[str] | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Add columns, with values or nulls, in one commit that rewrites no data file.

        Columns without values (types, a schema) only change the metadata, and work for each table.
        For values, each fragment gets one new file with the columns. This needs the feature
        `txlog.fragments` (see `add_features`), and then only txlog can read the table.

        Parameters
        ----------
        columns
            Names and their values, `{"score": …}`: SQL text (`"2 * a"`), an expression
            (`col("a") + 1`), a function that gets a RecordBatch and returns an array, a pyarrow
            type (nulls), or Arrow data with a value for each row in the table's order. For several
            columns together: a function that returns a batch, a schema or fields (nulls) of
            pyarrow or of a library that exports them, such as deltalake, or Arrow data. Functions
            run for several fragments concurrently, in any order. A name such as `st.b` adds a
            field, null in all rows, to a struct.
        read_columns
            The columns that functions receive. Default: all.

        Raises
        ------
        InvalidInputError
            A column exists already, or values do not fit. Nothing was committed.
        CommitConflictError
            Another writer added the same column, or rows for which the data has no values.
        """
        from txlog.data_files.options import new_fields
        from txlog.fragments.rows import FEATURE
        from txlog.schema.arrow import arrow_field
        from txlog.verbs.columns import GiveValues
        from txlog.verbs.schema import AddFields

        snapshot = self._table._snapshot
        fields = new_fields(columns, nanos=snapshot.supports("timestampNanos"))
        nested = any(path for path, _ in fields or ())
        if fields and (nested or not snapshot.supports(FEATURE)):
            return self._table._run(AddFields(fields), txn, user_metadata)
        if fields:
            columns = pa.schema([arrow_field(field, texts=True) for _, field in fields])
        operation = GiveValues("add columns", columns, read_columns=read_columns)
        return self._table._run(operation, txn, user_metadata)

    def replace_columns(
        self,
        columns: Any,
        *,
        read_columns: Sequence[str] | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Replace the values of columns in all rows; otherwise as `add_columns`.

        All rows count as changed: if the table tracks rows they get the version of the commit, and
        if it records changes the commit has the old and new values of all rows.

        Raises
        ------
        UnsupportedFeatureError
            The table is append-only, or tracks rows but names no columns for their ids and
            versions.
        """
        from txlog.verbs.columns import GiveValues

        operation = GiveValues("replace columns", columns, read_columns=read_columns)
        return self._table._run(operation, txn, user_metadata)

    def drop_columns(
        self,
        columns: Sequence[str] | str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Drop columns in one commit that rewrites no data file.

        The values stay in the files for older versions. The table needs column mapping or the
        feature `txlog.fragments`. With column mapping, fields of structs (`st.b`) can be dropped
        too.

        Raises
        ------
        InvalidInputError
            A column does not exist; a constraint, a generated column, the partitioning or the
            clustering needs it; or no column would remain.
        UnsupportedFeatureError
            The table has neither column mapping nor the feature.
        """
        from txlog.data_files.options import as_names
        from txlog.verbs.mapped_columns import DropColumns

        return self._table._run(
            DropColumns(as_names(columns, argument="columns")),
            txn,
            user_metadata,
        )

    def rename_column(
        self,
        column: str,
        new_name: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Rename a column or a field of a struct (`st.b`); no file is rewritten.

        Older versions keep the old name; the change data feed uses the new one. The table needs
        column mapping: `set_properties({"delta.columnMapping.mode": "name"})`.

        Parameters
        ----------
        new_name
            The new name without the path of the struct.

        Raises
        ------
        InvalidInputError
            The column does not exist, the name is taken, or a constraint or a generated column uses
            the old name.
        UnsupportedFeatureError
            The table has no column mapping.
        """
        from txlog.verbs.mapped_columns import RenameColumn

        operation = RenameColumn(column, new_name)
        return self._table._run(operation, txn, user_metadata)

    def set_properties(
        self,
        properties: Mapping[str, str],
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Set table properties; the protocol gets the features that the properties need.

        Names and values are those of `Table.create`. `delta.columnMapping.mode=none` ends column
        mapping: all rows are rewritten with the logical column names.

        Raises
        ------
        InvalidInputError
            A property is unknown, or its value is wrong.
        UnsupportedFeatureError
            The property cannot be turned on for an existing table.
        """
        operation = _properties(properties)
        return self._table._run(operation, txn, user_metadata)

    def unset_properties(
        self,
        names: Sequence[str] | str,
        *,
        if_exists: bool = False,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Remove table properties, so that their defaults apply.

        Raises
        ------
        InvalidInputError
            The table has no such property, and `if_exists` is not set.
        """
        require_flags(if_exists=if_exists)
        from txlog.data_files.options import as_names

        unset = as_names(names)
        operation = _properties({}, unset=unset, if_exists=if_exists)
        return self._table._run(operation, txn, user_metadata)

    def add_constraint(
        self,
        constraints: Mapping[str, str | Expression | Unique],
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Add constraints such as `{"positive": "x > 0"}`, which all rows must satisfy.

        Existing rows are checked first. Files whose statistics show that no row breaks a CHECK
        constraint are not read.

        `{"pk": txlog.unique("country", "id")}` or `{"pk": "PRIMARY KEY (country, id)"}` adds a
        unique key: from now on each write compares the keys of its new rows with those of all
        others, also with those of writers that commit at the same time. An index finds them; if
        none has columns of the key, one is made and built. The table gets the
        writer feature `txlog.uniqueKeys`: all engines read it, and those that would not check keys
        do not write it.

        Raises
        ------
        SchemaMismatchError
            Existing rows break a constraint. The error has their number and an example.
        DuplicateKeyError
            Existing rows share a unique key. The error has their number and examples.
        InvalidInputError
            A constraint with this name exists, or the constraint does not fit the table.
        """
        from txlog.table.indexes import TableIndexes
        from txlog.verbs.constraints import AddConstraints

        operation = AddConstraints(constraints)
        outcome = self._table._run(operation, txn, user_metadata)
        for name in operation.indexes if outcome else ():
            try:
                TableIndexes(self._table).build(name)
            except TxlogError as error:
                warn_committed(f"the constraint is added, but its index is not built: {error}")
        return outcome

    def drop_constraint(
        self,
        name: str,
        *,
        if_exists: bool = False,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Drop a constraint: CHECK, or a unique key. An index over the key stays.

        Raises
        ------
        InvalidInputError
            The constraint does not exist, and `if_exists` is not set.
        """
        require_flags(if_exists=if_exists)
        from txlog.verbs.constraints import DropConstraint

        operation = DropConstraint(name, if_exists=if_exists)
        return self._table._run(operation, txn, user_metadata)

    def set_description(
        self,
        description: str | None,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Set the table's description; None removes it."""
        from txlog.verbs.metadata import Describe

        operation = Describe(description=description)
        return self._table._run(operation, txn, user_metadata)

    def set_name(
        self,
        name: str | None,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Set the table's name in its metadata; None removes it."""
        from txlog.verbs.metadata import Describe

        return self._table._run(Describe(name=name), txn, user_metadata)

    def set_column_metadata(
        self,
        column: str,
        metadata: Mapping[str, str | None],
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Set text metadata of a column, such as `{"comment": "in minutes"}`.

        Parameters
        ----------
        column
            The column's name. Write fields of structs with dots, and fields in lists and maps as
            `l.element.x`.
        metadata
            Texts by name; None removes an entry.

        Raises
        ------
        InvalidInputError
            The column does not exist, or Delta reserves a name.
        """
        return self._change_column(column, txn, user_metadata, metadata=metadata)

    def set_nullable(
        self,
        column: str,
        nullable: bool = True,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Allow or forbid nulls in a column. To forbid them, existing rows are checked first.

        Raises
        ------
        SchemaMismatchError
            Existing rows have nulls.
        InvalidInputError
            There is no such column.
        """
        require_flags(nullable=nullable)
        return self._change_column(column, txn, user_metadata, nullable=nullable)

    def widen_type(
        self,
        column: str,
        type: pa.DataType | DataType,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Widen a column's type, such as int32 to int64; data files do not change.

        The table gets the feature `typeWidening`; engines without it can no longer read it. A
        column of type void may get any type, which needs no feature.

        Raises
        ------
        InvalidInputError
            Values could be lost, a constraint uses the column, or the column does not exist.
        """
        from txlog.data_files.options import as_type

        return self._change_column(column, txn, user_metadata, kind=as_type(type))

    def move_column(
        self,
        column: str,
        after: str | None = None,
        *,
        first: bool = False,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Move a column, or a field inside its struct. Default: to the end.

        Parameters
        ----------
        after
            The field that it should follow.
        first
            Move it to the beginning.

        Raises
        ------
        InvalidInputError
            The column does not exist, or `after` and `first` are both given.
        """
        require_flags(first=first)
        from txlog.base.errors import InvalidInputError
        from txlog.schema.edit import Place

        if after is not None and first:
            raise InvalidInputError(
                argument="after", reason="after and first are both given", remedy="Pass one of them"
            )
        place: Place = "first" if first else "last" if after is None else ("after", after)
        return self._change_column(column, txn, user_metadata, place=place)

    def set_default(
        self,
        column: str,
        default: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Set a column's default value, for future rows that are written without the column.

        Existing rows do not change. The table gets the feature `allowColumnDefaults`.

        Parameters
        ----------
        default
            SQL of constants: `"0"`, `"'none'"`, `"DATE '2030-01-01'"`.

        Raises
        ------
        InvalidInputError
            The column does not exist or is nested, identity or generated, or the default cannot be
            evaluated as its type.
        """
        from txlog.verbs.schema import SetDefault

        operation = SetDefault(column, default)
        return self._table._run(operation, txn, user_metadata)

    def drop_default(
        self,
        column: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Drop a column's default: future rows that are written without the column get null."""
        from txlog.verbs.schema import SetDefault

        return self._table._run(SetDefault(column, None), txn, user_metadata)

    def sync_identity(
        self,
        column: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Continue an identity column after the furthest value that any row has.

        If the column is `BY DEFAULT AS IDENTITY`, data may bring its own values. The next value
        never moves back.

        Raises
        ------
        InvalidInputError
            The identity column does not exist.
        """
        from txlog.verbs.schema import SyncIdentity

        return self._table._run(SyncIdentity(column), txn, user_metadata)

    def add_features(
        self,
        *features: str,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Add table features to the protocol; engines without them can no longer use the table.

        `txlog.fragments` also gives each fragment a durable id, and adds `deletionVectors`.
        `protocol_change(add=…)` returns the effect without a commit.

        Raises
        ------
        InvalidInputError
            txlog cannot write tables with one of them.
        """
        from txlog.verbs.features import AddFeatures

        return self._table._run(AddFeatures(features), txn, user_metadata)

    def cluster_by(
        self,
        *columns: str,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Set the clustering columns for `optimize.cluster`; without columns, remove them.

        Existing rows do not move until then. Up to four columns are possible, and they need bounds
        in statistics; write fields of structs with dots. This adds the writer features `clustering`
        and `domainMetadata`; all readers can still read the table.

        Raises
        ------
        InvalidInputError
            A column is not in the table or has no bounds, or the table is partitioned.
        """
        from txlog.verbs.features import ClusterBy

        return self._table._run(ClusterBy(columns), txn, user_metadata)

    def upgrade_protocol(
        self,
        reader: int,
        writer: int,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Raise the protocol versions; engines without them can no longer use the table.

        With writer version 7, the protocol lists the features that the lower version implied.

        Raises
        ------
        InvalidInputError
            The versions do not exist, or the table has higher ones: see `drop_feature`.
        """
        from txlog.verbs.features import UpgradeProtocol

        operation = UpgradeProtocol(reader, writer)
        return self._table._run(operation, txn, user_metadata)

    def drop_feature(
        self,
        feature: str,
        truncate_history: bool = False,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Drop a table feature and its uses, so that engines without it can open the table.

        Files with deletion vectors, widened types or column files are rewritten, row ids are
        removed, and properties are unset. If columns, constraints or domains need the feature, the
        error names them, and nothing is done.

        Older versions still use a feature that readers must know. So a checkpoint is written from
        which other engines start, and the feature `checkpointProtection` prevents its removal: only
        engines with that feature can write the table. `truncate_history` deletes the log of all
        older versions, and then drops that protection in a second commit. If a version was pinned
        meanwhile, its log and the protection stay, with a warning. `protocol_change(drop=…)`
        returns the effect without a commit.

        Raises
        ------
        InvalidInputError
            The table does not have the feature.
        UnsupportedFeatureError
            Something in the table still needs it, or older versions are pinned.
        """
        require_flags(truncate_history=truncate_history)
        from txlog.verbs.drop_feature import drop_feature

        done = drop_feature(
            self._table._context,
            self._table._latest(),
            feature,
            truncate_history=truncate_history,
            txn=txn,
            user_metadata=user_metadata,
        )
        return self._table._finish(done)

    def protocol_change(
        self,
        *,
        add: Sequence[str] = (),
        drop: str | None = None,
        truncate_history: bool = False,
        upgrade: tuple[int, int] | None = None,
    ) -> ProtocolChange:
        """Return the effect of one of the three methods, without a commit; errors are the same.

        Print it to see which engines can no longer use the table, and what is rewritten.
        """
        require_flags(truncate_history=truncate_history)
        from txlog.verbs.drop_feature import DropFeature
        from txlog.verbs.features import AddFeatures, UpgradeProtocol

        latest = self._table._latest()
        if upgrade is not None:
            if not isinstance(upgrade, tuple) or len(upgrade) != 2:
                raise InvalidTypeError(
                    argument="upgrade",
                    reason=f"{upgrade!r} is not a pair of a reader and a writer version",
                    remedy="Pass a pair such as (3, 7)",
                )
            return UpgradeProtocol(*upgrade).change_of(latest)
        if drop is not None:
            dropping = DropFeature(drop, truncate_history=truncate_history)
            dropping.context = self._table._context
            return dropping.change_of(latest)
        return AddFeatures(add).change_of(latest)

    def _change_column(
        self,
        column: str,
        txn: AppVersion | None,
        user_metadata: UserMetadata | None,
        **changes: Any,
    ) -> Outcome:
        from txlog.verbs.schema import ChangeColumn

        operation = ChangeColumn(column, **changes)
        return self._table._run(operation, txn, user_metadata)


def _properties(properties: Mapping[str, str], **more: Any) -> SetProperties:
    """Return the operation that sets properties, or the one that ends column mapping."""
    from txlog.protocol.mapping import MAPPING_MODE
    from txlog.verbs.metadata import SetProperties

    names = {*properties, *more.get("unset", ())}
    if MAPPING_MODE not in names:
        return SetProperties(properties, **more)
    from txlog.verbs.mapped_columns import SetMapping

    return SetMapping(properties, **more)
