"""`Catalog.transaction`: changes of several tables that become visible at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from txlog.base.errors import (
    InvalidInputError,
    UnsupportedFeatureError,
    clean_after,
)
from txlog.catalog.moment import CatalogSnapshot
from txlog.catalog.statements import run_statement
from txlog.commit.app_versions import AppVersion
from txlog.commit.context import Context
from txlog.commit.group import Companions, Member, Terms, commit_group
from txlog.commit.intent import Reads, UserMetadata, united
from txlog.commit.operation import Operation, Outcome
from txlog.expressions.bind import bind
from txlog.expressions.sql import Where, as_expression
from txlog.schema.arrow import arrow_schema
from txlog.snapshot.snapshot import Snapshot
from txlog.store.catalog_database import CatalogDatabase, TableRow
from txlog.table.seam import context_of, settle, table_at
from txlog.table.table import Table
from txlog.table.transaction import TableTransaction, block_has_ended
from txlog.verbs.managed import managed_kind
from txlog.verbs.settle import settle as settled
from txlog.verbs.transaction import Transaction

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from txlog.scan.scan import Scan

Isolation = Literal["snapshot", "serializable"]


@dataclass(frozen=True)
class Options:
    """The catalog of a transaction, and the arguments of `Catalog.transaction`."""

    database: CatalogDatabase
    catalog_id: str
    txn: AppVersion | None
    user_metadata: UserMetadata | None
    isolation: Isolation

    def __post_init__(self) -> None:
        if self.isolation not in ("snapshot", "serializable"):
            raise InvalidInputError(
                argument="isolation",
                reason=f"{self.isolation!r} is not 'snapshot' or 'serializable'",
                remedy="Omit it for 'snapshot'",
            )

    def is_recorded(self) -> bool:
        """Return whether the catalog has recorded the version of the application."""
        return self.txn is not None and self.database.is_recorded(self.txn)


class CatalogTransaction:
    """Several tables of a catalog, which are changed at one moment: `tx["sales.orders"]`.

    `outcomes` has an outcome for each table that was used, by name, after the block. `skipped` is
    true if the catalog had recorded the transaction's `txn`: then changes do nothing.
    """

    def __init__(self, options: Options, cut: CatalogSnapshot) -> None:
        self.outcomes: Mapping[str, Outcome] = {}
        self._options = options
        self.skipped = options.is_recorded()
        self._cut = cut  # The moment of all reads.
        self._tables: dict[str, TransactionTable] = {}  # By id.
        self._is_closed = False

    def __repr__(self) -> str:
        names = ", ".join(table.name for table in self._tables.values())
        return f"<txlog.CatalogTransaction: {names or 'no table'}>"

    def __getitem__(self, name: str) -> TransactionTable:
        """Return a table, to be read and changed in the transaction.

        Raises
        ------
        NotFoundError
            The catalog had no table of this name when the transaction began.
        UnsupportedFeatureError
            The catalog does not manage the table.
        """
        self._require_open()
        row, _ = self._cut.row(name)
        if row.table_id in self._tables:
            return self._tables[row.table_id]
        table = self._cut[name]
        if row.managed is None or managed_kind(table.snapshot) is None:
            raise UnsupportedFeatureError(
                path=row.location,
                features=("transactions over several tables",),
                reason=f"the catalog does not manage {row.name}, so it does not decide which "
                "commits exist",
                remedy="Take it in with the catalog's method manage",
            )
        opened = TransactionTable(row, table, self.skipped, self._options.txn)
        return self._tables.setdefault(row.table_id, opened)

    def sql(self, statement: str) -> pa.Table | Outcome:
        """Run `SELECT`, `DELETE`, `UPDATE` or `INSERT`; names are those of the catalog.

        Returns
        -------
        The rows of a query, or the outcome of a change.

        Raises
        ------
        InvalidInputError
            The text is another statement, or is not SQL.
        """
        self._require_open()
        return run_statement(statement, self.__getitem__, _Names(self))

    def _close(self) -> None:
        self._is_closed = True
        for table in self._tables.values():
            table.is_closed = True

    def _require_open(self) -> None:
        if self._is_closed:
            raise block_has_ended()

    def _give_up(self, error: BaseException) -> None:
        """Delete what was written for the changes, after an error in the block."""
        self._close()
        for table in self._tables.values():
            clean_after(error, table.operation.discard)

    def _commit_all(self) -> None:
        """Commit all tables, or none of them."""
        self._close()
        tables = list(self._tables.values())
        if self.skipped:
            self.outcomes = {
                one.name: Outcome(one.operation.name, None, skipped=True) for one in tables
            }
            return
        is_strict = self._options.isolation == "serializable"
        has_read = any(table.reads for table in tables)
        members = [
            Member(
                table.name,
                table.operation.context,
                table.operation,
                table.base,
                table.reads if is_strict else Reads(),
            )
            for table in tables
        ]
        terms = Terms(
            self._options.database,
            self._options.catalog_id,
            self._options.txn,
            self._options.user_metadata,
            # What was read may be part of the changes.
            redoes=not has_read,
            is_strict=is_strict,
            unite=_united,
        )
        companions = Companions(terms)
        done = commit_group(members, terms, companions)
        self.skipped = done is None
        outcomes = {}
        for number, table in enumerate(tables):
            if done is None:
                table.outcome = Outcome(table.operation.name, None, skipped=True)
            else:
                table.outcome = settle(table.opened, done[number])
            outcomes[table.name] = table.outcome
        self.outcomes = outcomes
        for context, one in companions.done:
            settled(context, one)


def _united(context: Context, base: Snapshot, operations: Sequence[Operation]) -> Operation:
    """Return one operation that does what several do, one after the other."""
    united = Transaction(context, base)
    for operation in operations:
        united.add(operation)
    return united


class TransactionTable(TableTransaction):
    """A table in a transaction over several tables: the verbs of `Table`, and reading.

    It has the rows of the moment when the transaction began, with the changes of the transaction.
    """

    def __init__(
        self, row: TableRow, table: Table, is_recorded: bool, txn: AppVersion | None
    ) -> None:
        super().__init__(context_of(table), table.snapshot, is_recorded, txn)
        self.name = row.name
        self.base = table.snapshot
        self.opened = table
        self.reads = Reads()

    def __repr__(self) -> str:
        return f"<txlog.TransactionTable {self.name}: {self.operation!r}>"

    @property
    def schema(self) -> pa.Schema:
        """The schema, as Arrow."""
        return arrow_schema(self._latest().schema)

    def scan(self, columns: list[str] | None = None, where: Where = None, **options: Any) -> Scan:
        """Scan rows; the arguments are those of `Table.scan`."""
        return self._read(where).scan(columns, where, **options)

    def to_arrow(self, columns: list[str] | None = None, where: Where = None) -> pa.Table:
        """Return rows as Arrow."""
        return self._read(where).to_arrow(columns, where)

    def to_polars(self, columns: list[str] | None = None, where: Where = None) -> pl.DataFrame:
        """Return rows as polars."""
        return self._read(where).to_polars(columns, where)

    def to_pandas(self, columns: list[str] | None = None, where: Where = None) -> pd.DataFrame:
        """Return rows as pandas."""
        return self._read(where).to_pandas(columns, where)

    def count(self, where: Where = None) -> int:
        """Return the number of rows for which a predicate is true."""
        return self._read(where).count(where)

    def _read(self, where: Where = None) -> Table:
        """Return the table with the changes up to now, and note which rows are read."""
        self._require_open()
        state = self._latest()
        given = as_expression(where, self._zone)
        bound = None if given is None else bind(given, state.schema)
        self.reads = united([self.reads, Reads(everything=bound is None, where=bound)])
        return table_at(self._context, state)


class _Names(Mapping[str, Any]):
    """The tables of a transaction by the names of a query; each one that is asked for is read."""

    def __init__(self, changes: CatalogTransaction) -> None:
        self._changes = changes

    def __getitem__(self, name: str) -> Table:
        return self._changes[name]._read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._changes._cut)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._changes._cut else default
