"""The actions that change rows, and the files that were written for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyroaring import BitMap64

from txlog.actions.file import Add, Cdc, Remove
from txlog.base.errors import tidied
from txlog.data_files.change_files import discard_changes
from txlog.data_files.write import discard_files
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.schema.types import StructType
from txlog.store.base import Store


@dataclass(frozen=True)
class FileDeletes:
    """The rows of one fragment that a change removes."""

    fragment: Fragment
    rows: BitMap64  # Positions that are newly deleted.
    deleted: BitMap64  # Positions that were deleted before.
    physical_rows: int

    @property
    def is_whole(self) -> bool:
        """Whether no row remains."""
        return len(self.rows) + len(self.deleted) == self.physical_rows


@dataclass(frozen=True)
class RowChanges:
    """The actions that remove rows and add new ones, and their metrics.

    Without `removes` and `adds` there is nothing to commit.
    """

    where: Expression | None = None  # Bound: true for all rows that were removed. None: any row.
    removes: tuple[Remove, ...] = ()
    vectored: tuple[Add, ...] = ()  # Files that are added again, with new deletion vectors.
    written: tuple[Add, ...] = ()  # New data files.
    shortened: tuple[Add, ...] = ()  # Column files that are added again, with fewer columns.
    columns: frozenset[str] = frozenset()  # Physical names of columns of new column files.
    vector_files: tuple[str, ...] = ()  # Paths of new files of deletion vectors.
    cdc: tuple[Cdc, ...] = ()  # The changes of rows, if adds and removes do not show them.
    rows: int = 0  # Rows that were removed.
    copied_rows: int = 0  # Rows that did not change, but are in new files.
    files_removed: int = 0
    files: tuple[FileDeletes, ...] = ()  # The files that got vectors.
    schema: StructType | None = None  # The table's schema after the change; None: it stays.

    @property
    def adds(self) -> tuple[Add, ...]:
        """All files that are added."""
        return (*self.vectored, *self.shortened, *self.written)

    @property
    def own_files(self) -> frozenset[str]:
        """The new files, as `Intent.own_files`; a vector within the log is no file."""
        vectors = (add.deletion_vector for add in self.vectored)
        stored = {one.unique_id for one in vectors if one is not None and one.storage_type != "i"}
        return frozenset({add.path for add in self.written} | stored)

    @property
    def row_deletes(self) -> frozenset[str]:
        """The paths of files that only lose rows, as `Intent.row_deletes`."""
        return frozenset(file.fragment.path for file in self.files)

    def with_more(self, more: RowChanges) -> RowChanges | None:
        """Return these changes with those of other files; None if they do not make one commit.

        If one of them records its changes in files, and the other by its adds and removes alone,
        readers of the change feed would miss the latter.
        """
        if any(one.cdc for one in (self, more)) and any(
            not one.cdc and (one.removes or one.adds) for one in (self, more)
        ):
            return None
        return replace(
            self,
            removes=self.removes + more.removes,
            vectored=self.vectored + more.vectored,
            written=self.written + more.written,
            shortened=self.shortened + more.shortened,
            columns=self.columns | more.columns,
            vector_files=self.vector_files + more.vector_files,
            cdc=self.cdc + more.cdc,
            rows=self.rows + more.rows,
            copied_rows=self.copied_rows + more.copied_rows,
            files_removed=self.files_removed + more.files_removed,
            files=self.files + more.files,
            schema=more.schema if self.schema is None else self.schema,
        )

    def extended_by(self, more: RowChanges, store: Store) -> RowChanges | None:
        """Return `with_more`; if that is None, the files of `more` are discarded."""
        both = self.with_more(more)
        if both is None:
            more.discard(store)
        return both

    def discard(self, store: Store) -> None:
        """Delete the new files: no commit refers to them. A failure is a warning."""
        discard_files(store, self.written)
        tidied(lambda: store.delete(list(self.vector_files)))
        discard_changes(store, self.cdc)
