"""`Table.alter`: other columns, other features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txlog.table.handle import checked
from txlog.table.protocol import AlterProtocol

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.commit.app_versions import AppVersion
    from txlog.commit.context import Context
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.expressions.tree import Expression
    from txlog.schema.types import DataType
    from txlog.verbs.metadata import SetProperties


@checked
class TableAlter(AlterProtocol):
    """Commits that change which columns or features a table has."""

    def add_columns(
        self,
        columns: Any,
        *,
        read_columns: Sequence[str] | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Add columns, with values for all rows or null, in one commit that rewrites no data file.

        Columns without values (types, a schema) change the metadata alone, of any table. For
        values each fragment gets one new file with the columns. The table needs the feature
        `txlog.fragments` for that (see `add_features`), and can then be read by txlog alone.

        Parameters
        ----------
        columns
            Names and their values, `{"score": …}`: SQL text (`"2 * a"`), an expression
            (`col("a") + 1`), a function that gets a RecordBatch and returns an array, a pyarrow
            type (nulls), or Arrow data with a value for each row in the table's order. Or a
            function that returns a batch, a pyarrow schema or fields (nulls), or Arrow data, of
            several columns. Functions run for several fragments at once, in no order. A name such
            as `st.b` adds a field, null in all rows, to a struct.
        read_columns
            The columns that functions get. Default: all.

        Raises
        ------
        InvalidInputError
            A column is there already, or values do not fit; nothing was committed.
        CommitConflictError
            Another writer added the same column, or rows that the data has no values for.
        """
        from txlog.data_files.options import new_fields
        from txlog.fragments.rows import FEATURE
        from txlog.verbs.columns import GiveValues
        from txlog.verbs.schema import AddFields

        context, held = self._table._context, self._table._snapshot
        fields = new_fields(columns, nanos=held.supports("timestampNanos"))
        nested = any(path for path, _ in fields or ())
        if fields and (nested or not held.supports(FEATURE)):
            return self._table._run(AddFields(context, fields), txn, user_metadata)
        operation = GiveValues(context, "add columns", columns, read_columns=read_columns)
        return self._table._run(operation, txn, user_metadata)

    def replace_columns(
        self,
        columns: Any,
        *,
        read_columns: Sequence[str] | None = None,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Give columns other values in all rows; as `add_columns` otherwise.

        Raises
        ------
        UnsupportedFeatureError
            The table tracks rows, records changes, or is append-only.
        """
        from txlog.verbs.columns import GiveValues

        operation = GiveValues(
            self._table._context, "replace columns", columns, read_columns=read_columns
        )
        return self._table._run(operation, txn, user_metadata)

    def drop_columns(
        self,
        columns: Sequence[str] | str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Take columns out of the table, in one commit that rewrites no data file.

        The values stay in the files, for older versions. The table needs column mapping, or the
        feature `txlog.fragments`; with the former fields of structs go too (`st.b`).

        Raises
        ------
        InvalidInputError
            There is no such column; a constraint, a generated column, the partitioning or the
            clustering needs it; or none is left.
        UnsupportedFeatureError
            The table has neither.
        """
        from txlog.data_files.options import as_names
        from txlog.verbs.mapped_columns import DropColumns

        return self._table._run(
            DropColumns(self._table._context, as_names(columns, argument="columns")),
            txn,
            user_metadata,
        )

    def drop_column(
        self,
        column: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Take one column, or a field of a struct, out of the table, as `drop_columns` does."""
        return self.drop_columns(column, txn=txn, user_metadata=user_metadata)

    def rename_column(
        self,
        column: str,
        new_name: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Give a column, or a field of a struct (`st.b`), another name; no file is rewritten.

        Older versions keep the old name; the change data feed has the new one. The table needs
        column mapping: `set_properties({"delta.columnMapping.mode": "name"})`.

        Parameters
        ----------
        new_name
            The name alone, without what the field is in.

        Raises
        ------
        InvalidInputError
            There is no such column, the name is taken, or a constraint or a generated column
            needs the one that it has.
        UnsupportedFeatureError
            The table has no column mapping.
        """
        from txlog.verbs.mapped_columns import RenameColumn

        operation = RenameColumn(self._table._context, column, new_name)
        return self._table._run(operation, txn, user_metadata)

    def set_properties(
        self,
        properties: Mapping[str, str],
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Set table properties; the protocol gets the features that they turn on.

        Names and values are those of `Table.create`. `delta.columnMapping.mode=none` ends column
        mapping: all rows are written again, by the columns' own names.

        Raises
        ------
        InvalidInputError
            A property is unknown or its value wrong.
        UnsupportedFeatureError
            It cannot be turned on for a table that is there.
        """
        operation = _properties(self._table._context, properties)
        return self._table._run(operation, txn, user_metadata)

    def unset_properties(
        self,
        names: Sequence[str] | str,
        *,
        if_exists: bool = False,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Take table properties away, so that they have their defaults.

        Raises
        ------
        InvalidInputError
            The table has no such property, and `if_exists` is not set.
        """
        from txlog.data_files.options import as_names

        unset = as_names(names)
        operation = _properties(self._table._context, {}, unset=unset, if_exists=if_exists)
        return self._table._run(operation, txn, user_metadata)

    def add_constraint(
        self,
        constraints: Mapping[str, str | Expression],
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Add CHECK constraints, such as `{"positive": "x > 0"}`, that all rows must satisfy.

        The rows that are there are checked first; files whose statistics show that no row breaks
        a constraint are not read.

        Raises
        ------
        SchemaMismatchError
            Rows that are there break a constraint. They are counted, and one is shown.
        InvalidInputError
            There is a constraint of this name, or it does not fit the table.
        """
        from txlog.verbs.metadata import AddConstraints

        return self._table._run(
            AddConstraints(self._table._context, constraints), txn, user_metadata
        )

    def drop_constraint(
        self,
        name: str,
        *,
        raise_if_not_exists: bool = True,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Drop a CHECK constraint.

        Raises
        ------
        InvalidInputError
            There is no such constraint, and `raise_if_not_exists` is set.
        """
        from txlog.verbs.metadata import DropConstraint

        operation = DropConstraint(self._table._context, name, if_exists=not raise_if_not_exists)
        return self._table._run(operation, txn, user_metadata)

    def set_description(
        self,
        description: str | None,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Give the table another description; None takes it away."""
        from txlog.verbs.metadata import Describe

        operation = Describe(self._table._context, description=description)
        return self._table._run(operation, txn, user_metadata)

    def set_name(
        self,
        name: str | None,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Give the table another name in its metadata; None takes it away."""
        from txlog.verbs.metadata import Describe

        return self._table._run(Describe(self._table._context, name=name), txn, user_metadata)

    def set_column_metadata(
        self,
        column: str,
        metadata: Mapping[str, str | None],
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Set texts of a column's metadata, such as `{"comment": "in minutes"}`.

        Parameters
        ----------
        column
            Its name; fields of structs with dots, those in lists and maps as `l.element.x`.
        metadata
            Texts by name; None takes one away.

        Raises
        ------
        InvalidInputError
            There is no such column, or a name has a meaning of its own in Delta.
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
        """Let a column be null, or forbid it; then the rows that are there are checked first.

        Raises
        ------
        SchemaMismatchError
            Rows that are there are null.
        InvalidInputError
            There is no such column.
        """
        return self._change_column(column, txn, user_metadata, nullable=nullable)

    def widen_type(
        self,
        column: str,
        type: pa.DataType | DataType,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Give a column a wider type, such as int64 for int32; data files stay as they are.

        The table gets the feature `typeWidening`; engines without it can no longer read it.

        Raises
        ------
        InvalidInputError
            Values could be lost, a constraint needs the column, or there is no such column.
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
        """Move a column, or a field of a struct, among those beside it. Default: to the end.

        Parameters
        ----------
        after
            The field that it is to come after.
        first
            Move it to the beginning.

        Raises
        ------
        InvalidInputError
            There is no such column, or `after` and `first` are both given.
        """
        from txlog.errors import InvalidInputError
        from txlog.schema.edit import Place

        if after is not None and first:
            raise InvalidInputError(
                argument="after", reason="after and first both say where", remedy="Pass one of them"
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
        """Give a column a default, for rows that are written without the column from now on.

        Rows that are there stay as they are. The table gets the feature `allowColumnDefaults`.

        Parameters
        ----------
        default
            SQL of constants: `"0"`, `"'none'"`, `"DATE '2030-01-01'"`.

        Raises
        ------
        InvalidInputError
            There is no such column, it is nested, identity or generated, or the default cannot be
            evaluated as its type.
        """
        from txlog.verbs.schema import SetDefault

        operation = SetDefault(self._table._context, column, default)
        return self._table._run(operation, txn, user_metadata)

    def drop_default(
        self,
        column: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Take a column's default away: rows that leave it out then have nulls there."""
        from txlog.verbs.schema import SetDefault

        return self._table._run(SetDefault(self._table._context, column, None), txn, user_metadata)

    def sync_identity(
        self,
        column: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Let an identity column count on after the furthest value that a row has in it.

        Rows may have values of their own where the column is `BY DEFAULT AS IDENTITY`. The column
        never counts back.

        Raises
        ------
        InvalidInputError
            There is no such identity column.
        """
        from txlog.verbs.schema import SyncIdentity

        return self._table._run(SyncIdentity(self._table._context, column), txn, user_metadata)

    def _change_column(
        self,
        column: str,
        txn: AppVersion | None,
        user_metadata: UserMetadata | None,
        **changes: Any,
    ) -> Outcome:
        from txlog.verbs.schema import ChangeColumn

        operation = ChangeColumn(self._table._context, column, **changes)
        return self._table._run(operation, txn, user_metadata)


def _properties(context: Context, properties: Mapping[str, str], **more: Any) -> SetProperties:
    """Return the operation that sets properties; the end of column mapping is another one."""
    from txlog.protocol.mapping import MAPPING_MODE
    from txlog.verbs.metadata import SetProperties

    names = {*properties, *more.get("unset", ())}
    if MAPPING_MODE not in names:
        return SetProperties(context, properties, **more)
    from txlog.verbs.mapped_columns import SetMapping

    return SetMapping(context, properties, **more)
