"""Replace a table: create a version that equals a newly created table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txlog.actions.file import Add
from txlog.actions.table import DomainMetadata, Metadata, Protocol
from txlog.base.effects import Effects
from txlog.base.errors import CommitConflictError
from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Operation
from txlog.data_files.definition import PLAIN, Definition
from txlog.data_files.deletions import removes_of
from txlog.data_files.write import discard_files
from txlog.protocol.access import merged_protocol, require_writable
from txlog.protocol.features import CLUSTERING
from txlog.protocol.mapping import (
    HIGHEST_ID,
    MAPPING_MODE,
    highest_id,
    mapped,
    unmapped,
    with_schema,
)
from txlog.protocol.properties import Properties, carried
from txlog.schema.types import StructType
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.append import write_metrics
from txlog.verbs.create import new_table
from txlog.verbs.features import clustering_domain
from txlog.verbs.properties import Asked
from txlog.verbs.same_rows import EVERY_FILE, has_other_rows


@dataclass(frozen=True)
class Replacement:
    """What a table becomes by a definition, as if it were created now. It pickles.

    It keeps its id, and its protocol does not become lower.
    """

    before: Metadata  # Of the version that is replaced.
    metadata: Metadata
    schema: StructType
    protocol: Protocol
    domains: tuple[DomainMetadata, ...]
    parameters: Mapping[str, Any]


def replacement(
    base: Snapshot, declared: StructType, definition: Definition, *, effects: Effects
) -> Replacement:
    """Return what a version of a table becomes.

    Raises
    ------
    InvalidInputError
        The definition is wrong, as for `new_table`.
    UnsupportedFeatureError
        txlog could not write the table then.
    """
    asked = Asked.of(definition.properties or {}, has_rows=False, warns=False)
    new = new_table(declared, definition, effects=effects)
    created = new.intent()
    wanted, needed = created.metadata, created.protocol
    assert wanted is not None
    assert needed is not None
    configuration = carried(wanted.configuration, base.metadata.configuration, asked.stored)
    configuration |= highest_id(base.metadata, wanted)
    schema = new.schema
    metadata = wanted.model_copy(update={"id": base.metadata.id, "configuration": configuration})
    if Properties(metadata.configuration).get(MAPPING_MODE) != "none":
        # It has the properties of the new table, and the ids that were assigned before.
        known = {**metadata.configuration, HIGHEST_ID: None, **highest_id(base.metadata)}
        counting = metadata.model_copy(update={"configuration": known})
        schema = mapped(unmapped(schema), counting, before=base.schema)
        metadata = with_schema(metadata, schema)
    protocol = merged_protocol(base.protocol, needed)
    require_writable(protocol, metadata, path=base.root, managed=base.is_managed)
    domains = _clustering(base, metadata, schema, definition.clustering())
    return Replacement(base.metadata, metadata, schema, protocol, domains, created.parameters)


def _clustering(
    base: Snapshot, metadata: Metadata, schema: StructType, columns: Sequence[str]
) -> tuple[DomainMetadata, ...]:
    """Return the new clustering, or the removal of the old one, which may name lost columns."""
    if columns:
        return (clustering_domain(metadata, schema, columns, "cluster_by"),)
    domain = base.controls.domains.get(CLUSTERING)
    if domain is None or domain.removed:
        return ()
    return (domain.model_copy(update={"removed": True}),)


def _changed(base: Snapshot, when: str) -> CommitConflictError:
    return CommitConflictError(
        version=base.version,
        rule="CON-2",
        path=base.root,
        reason=f"another writer changed the table {when}",
        remedy="Nothing was committed; write again",
    )


class ReplaceTable(Operation):
    """Give a table another schema, partitioning and properties, and other rows or none.

    Older versions can still be read and restored. Arguments are those of `create`.
    """

    removes_rows = True
    keeps_files = True  # The next attempt commits the same files, or ends with a conflict.

    def __init__(
        self,
        schema: StructType,
        definition: Definition = PLAIN,
        *,
        or_create: bool = False,
        only_version: int | None = None,
    ) -> None:
        """Take the definition; `or_create` names the operation for a caller that may create too.

        With `only_version`, another latest version than this one is a conflict.
        """
        self.name = "CREATE OR REPLACE TABLE" if or_create else "REPLACE TABLE"
        self._schema = schema
        self._definition = definition
        self._only_version = only_version
        self._planned: Replacement | None = None
        self._written_for: int | None = None
        self._adds: Sequence[Add] = ()

    @classmethod
    def of_files(
        cls,
        planned: Replacement,
        adds: Sequence[Add],
        *,
        written_for: int | None,
        or_create: bool = False,
    ) -> ReplaceTable:
        """Take files that were written for a table as it is planned; they are its new rows.

        They were computed from rows of the version `written_for`, so a later change of rows is a
        conflict: it would be undone. None: they are from no rows of the table.
        """
        made = cls(planned.schema, or_create=or_create)
        made.name += " AS SELECT"
        made._planned, made._adds, made._written_for = planned, adds, written_for
        return made

    def intent(self, base: Snapshot) -> Intent:
        """Return the metadata of a new table, the removal of all files, and the new files.

        Raises
        ------
        InvalidInputError, UnsupportedFeatureError
            As for `replacement`.
        CommitConflictError
            The files were written for another definition, or other rows, than those of `base`.
        """
        if self._only_version not in (None, base.version):
            raise _changed(base, "before it was replaced")
        rows = load_files(self.context.store, base).live
        new = self._planned
        if new is None:
            effects = self.context.effects
            new = replacement(base, self._schema, self._definition, effects=effects)
        elif new.before != base.metadata or self._has_other_rows(base):
            raise _changed(base, "while the rows were written")
        protocol = merged_protocol(base.protocol, new.protocol)
        return Intent(
            operation=self.name,
            kind="overwrite",
            read_version=base.version,
            removes=tuple(removes_of(rows, self.context.effects.now_ms())),
            adds=tuple(self._adds),
            own_files=frozenset(add.path for add in self._adds),
            protocol=protocol if protocol != base.protocol else None,
            metadata=new.metadata,
            domains=new.domains,
            reads=Reads(everything=True),
            parameters=new.parameters,
            metrics={
                **(write_metrics(self._adds) if self._adds else {}),
                "numRemovedFiles": rows.num_rows,
            },
        )

    def _has_other_rows(self, base: Snapshot) -> bool:
        """Return whether a version may have other rows than the one that was written for."""
        if self._written_for is None:
            return False
        return has_other_rows(self.context.store, base, self._written_for, EVERY_FILE)

    def discard(self) -> None:
        """Delete the files that were written for the table."""
        discard_files(self.context.store, self._adds)
