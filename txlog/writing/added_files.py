"""The data files that an operation adds: written once, and kept over all its attempts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from txlog.actions.file import Add
from txlog.commit.context import Context
from txlog.expressions.tree import Expression
from txlog.schema.types import StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.writing.data import SchemaMode, incoming
from txlog.writing.files import discard_files
from txlog.writing.options import WriteOptions
from txlog.writing.plan import plan_append, plan_write, require_still_fits

RequireFit = Callable[[Snapshot], None]
"""Raises a `CommitConflictError` for a version that written files do not fit."""


class AddedFiles:
    """Data files, or the data that they are written from when a version asks for them first."""

    def __init__(
        self,
        context: Context,
        *,
        data: Any = None,
        schema_mode: SchemaMode = None,
        options: WriteOptions | None = None,
        replaced: Expression | None = None,
    ) -> None:
        """Take data to write.

        Parameters
        ----------
        replaced
            Every row must satisfy it: the rows that it is true of are replaced.
        """
        self.schema_mode = schema_mode
        self.adds: list[Add] = []
        self.schema: StructType | None = None
        self._context = context
        self._data = data
        self._options = options or WriteOptions()
        self._replaced = replaced
        self._owned = True
        self._require_fit: RequireFit | None = None

    @classmethod
    def written(
        cls,
        context: Context,
        adds: list[Add],
        schema: StructType,
        require_fit: RequireFit,
        *,
        schema_mode: SchemaMode = None,
        owned: bool = True,
    ) -> AddedFiles:
        """Take files that others wrote.

        Parameters
        ----------
        schema
            That of the table after the write.
        require_fit
            Refuses versions of the table that the files do not fit.
        owned
            Delete the files if they are not committed.
        """
        files = cls(context, schema_mode=schema_mode)
        files.adds, files.schema = adds, schema
        files._require_fit, files._owned = require_fit, owned
        return files

    def fit(self, base: Snapshot) -> StructType:
        """Write the files if that is still to be done; return the schema that the table gets.

        Raises
        ------
        SchemaMismatchError
            The data does not fit the table.
        CommitConflictError
            The files were written for other columns, partitions or rules than `base` has.
        """
        if self.schema is None or self._require_fit is None:
            rows = incoming(self._data, base.schema, self.schema_mode)
            if self._replaced is None:
                plan = plan_append(base, rows.schema, self._options)
            else:
                plan = plan_write(
                    base.metadata, rows.schema, self._options, replaced=self._replaced
                )
            self.adds = plan.write(self._context, rows.reader)
            self.schema = rows.schema
            self._require_fit = partial(require_still_fits, written_for=base)
            self._data = None
        self._require_fit(base)
        return self.schema

    def discard(self) -> None:
        """Delete the files: no commit refers to them."""
        if self._owned:
            discard_files(self._context.store, self.adds)
