"""What a transaction read, and what it wants to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from txlog.actions.file import Add, Cdc, Remove
from txlog.actions.table import DomainMetadata, Metadata, Protocol, Txn
from txlog.expressions.tree import Expression

UserMetadata: TypeAlias = "str | Mapping[str, str]"
"""What a caller lets a commit note: text, or texts by names of their own."""

Isolation = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]

Kind = Literal[
    "append",
    "delete",
    "replace",
    "overwrite",
    "compact",
    "add columns",
    "replace columns",
    "metadata",
    "restore",
    "protocol",
]
"""What a transaction does, as far as conflicts go: its row of the table in spec/commit.md.

`replace`: rows found by a predicate go and others come (update, merge, an overwrite with a
predicate). `metadata`: nothing but the schema or properties. `protocol`: an upgrade.
"""


@dataclass(frozen=True)
class Reads:
    """Which rows decided what the transaction does.

    `everything`: all of them. `where`: those of which this bound predicate may be true. Neither:
    none, as for a blind append.
    """

    everything: bool = False
    where: Expression | None = None

    def __bool__(self) -> bool:
        return self.everything or self.where is not None


@dataclass(frozen=True)
class Intent:
    """A transaction, ready to be committed on top of `read_version` or a later one."""

    operation: str  # By Delta's usual names: WRITE, DELETE, CREATE TABLE, …
    read_version: int  # -1 before the table's first commit.
    kind: Kind
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    cdc: tuple[Cdc, ...] = ()  # If there are some, they tell all that rows went through.
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txn: Txn | None = None
    query_txns: tuple[Txn, ...] = ()  # What goes with `txn` if it is a micro-batch (STR-41).
    domains: tuple[DomainMetadata, ...] = ()  # That of row ids is the commit's own.
    reads: Reads = field(default_factory=Reads)
    # Of `removes`, the paths that come back with more rows deleted, and nothing else changed.
    row_deletes: frozenset[str] = frozenset()
    # Physical names of the columns that "add columns" and "replace columns" give values to.
    columns: frozenset[str] = frozenset()
    # Columns of rows of the files that it touches whose values decided what it does, by name.
    read_columns: frozenset[str] = frozenset()
    isolation: Isolation = "Serializable"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    user_metadata: UserMetadata | None = None

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds rows, whatever the table holds."""
        appends = self.kind == "append" and bool(self.adds)  # Files of columns add no rows.
        return appends and not self.removes and not self.reads and self.metadata is None

    @property
    def txns(self) -> tuple[Txn, ...]:
        """All versions of applications that it records."""
        return self.query_txns if self.txn is None else (self.txn, *self.query_txns)
