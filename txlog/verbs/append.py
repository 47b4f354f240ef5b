"""Adding rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txlog.actions.file import Add
from txlog.actions.table import Metadata
from txlog.base.errors import InvalidInputError
from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Companion, Operation
from txlog.data_files.identity import marks_of, with_marks
from txlog.data_files.incoming import merged_schema
from txlog.data_files.modes import SchemaMode, WriteModes
from txlog.data_files.options import WriteOptions
from txlog.data_files.write_plan import AddedFiles, Tap, require_same_mapping, settled
from txlog.protocol.form import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from txlog.protocol.mapping import unmapped, with_schema
from txlog.protocol.properties import require_not_dropped
from txlog.schema.types import StructType
from txlog.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from txlog.commit.app_versions import AnyAppVersion
    from txlog.data_files.sieve import Rejects
    from txlog.data_files.write_plan import Sieve

_ROW_COLUMNS = (ROW_ID_COLUMN, ROW_VERSION_COLUMN)


class Append(Operation):
    """Add rows."""

    name = "WRITE"
    keeps_files = True

    def __init__(
        self,
        data: Any,
        *,
        schema_mode: SchemaMode = None,
        options: WriteOptions | None = None,
        tap: Tap | None = None,
        quarantine: Rejects | None = None,
    ) -> None:
        """Take the rows.

        Parameters
        ----------
        data
            Anything that supports Arrow. It is read once, when the files are written.
        schema_mode, options
            As for `Table.append`.
        tap
            Called with the table's schema after the write, and each batch of rows that is written,
            in its columns and types. Batches are not empty.
        quarantine
            Takes the rows that do not fit. Default: they are an error.

        Raises
        ------
        InvalidInputError
            The schema would be replaced.
        """
        modes = WriteModes(schema_mode=schema_mode)
        self._files = AddedFiles(data, modes=modes, options=options, tap=tap)
        self._quarantine = quarantine

    @classmethod
    def of_files(cls, files: AddedFiles, quarantine: Rejects | None = None) -> Append:
        """Add the rows of files."""
        append = cls(None, schema_mode=files.modes.schema_mode, quarantine=quarantine)
        append._files = files
        return append

    def intent(self, base: Snapshot) -> Intent:
        """Return the files to add; errors as for `AddedFiles.fit` and `evolved`."""
        schema = self._files.fit(self.context, base, sieve_of(self, self._quarantine, base))
        return Intent(
            operation=self.name,
            kind="append",
            read_version=base.version,
            adds=tuple(self._files.adds),
            own_files=self._files.own_files,
            metadata=evolved(base, schema),
            parameters={"mode": "Append", "partitionBy": base.partition_columns},
            metrics=write_metrics(self._files.adds),
        )

    def read(self) -> Reads:
        """Return no rows: an append without rows stays one."""
        return Reads()

    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return the commit of rows to the quarantine."""
        return () if self._quarantine is None else self._quarantine.companions(txn)

    def side_metrics(self) -> Mapping[str, int]:
        """Return the number of rows in the quarantine, if there is one."""
        return {} if self._quarantine is None else self._quarantine.metrics

    def discard(self) -> None:
        """Delete the data files."""
        self._files.discard(self.context.store)


def sieve_of(operation: Operation, quarantine: Rejects | None, base: Snapshot) -> Sieve | None:
    """Return what takes the rows of an operation that do not fit a version, if anything does."""
    return None if quarantine is None else quarantine.sieve(operation.name, base)


def evolved(base: Snapshot, schema: StructType) -> Metadata | None:
    """Return the metadata with new columns and identity values; None if nothing changes.

    Raises
    ------
    SchemaMismatchError
        Another writer has meanwhile added a column of the same name and another type.
    InvalidInputError
        The name of a new column is taken.
    """
    if schema is base.schema:
        return None
    merged = with_marks(merged_schema(base.schema, schema), marks_of(schema))
    if merged == base.schema:
        return None
    require_free_names(base, merged)
    require_not_dropped(base.metadata, set(merged.names()) - set(base.schema.names()))
    require_same_mapping(base, schema, settled(base, merged_schema(base.schema, unmapped(schema))))
    return with_schema(base.metadata, merged)


def require_free_names(base: Snapshot, schema: StructType) -> None:
    """Raise if a column has the name of the hidden columns for row ids or versions.

    Raises
    ------
    InvalidInputError
        The error names the column.
    """
    taken = {(base.metadata.configuration.get(name) or "").lower() for name in _ROW_COLUMNS}
    for name in schema.names():
        if name.lower() in taken:
            raise InvalidInputError(
                argument="schema",
                field=name,
                reason="data files use this name for the ids or versions of rows",
                remedy="Choose another name",
            )


def write_metrics(adds: Sequence[Add]) -> dict[str, int]:
    """Return Delta's usual metrics of written files."""
    return {
        "numFiles": len(adds),
        "numOutputRows": sum(add.num_records or 0 for add in adds),
        "numOutputBytes": sum(add.size for add in adds),
    }
