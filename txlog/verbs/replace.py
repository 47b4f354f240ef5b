"""Replace a table: create a version that equals a newly created table without rows."""

from __future__ import annotations

from txlog.actions.table import DomainMetadata, Metadata
from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Operation
from txlog.data_files.definition import PLAIN, Definition
from txlog.data_files.deletions import removes_of
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
from txlog.verbs.create import new_table
from txlog.verbs.features import clustering_domain
from txlog.verbs.properties import Asked


class ReplaceTable(Operation):
    """Give a table another schema, partitioning and properties, and remove all rows.

    Older versions can still be read and restored. The table keeps its id, and its protocol does not
    become lower. Arguments are those of `create`.
    """

    removes_rows = True

    def __init__(
        self,
        schema: StructType,
        definition: Definition = PLAIN,
        *,
        or_create: bool = False,
    ) -> None:
        """Take the definition; `or_create` names the operation for a caller that may create too."""
        self.name = "CREATE OR REPLACE TABLE" if or_create else "REPLACE TABLE"
        self._schema = schema
        self._definition = definition
        self._asked = Asked.of(definition.properties or {}, has_rows=False, warns=False)

    def intent(self, base: Snapshot) -> Intent:
        """Return the metadata of a new table, and the removal of all files.

        Raises
        ------
        InvalidInputError
            The definition is wrong, as for `new_table`.
        UnsupportedFeatureError
            txlog could not write the table then.
        """
        new = new_table(self._schema, self._definition, effects=self.context.effects)
        created = new.intent()
        wanted, needed = created.metadata, created.protocol
        assert wanted is not None
        assert needed is not None
        current = base.metadata.configuration
        configuration = carried(wanted.configuration, current, self._asked.stored)
        configuration |= highest_id(base.metadata, wanted)
        schema = new.schema
        metadata = wanted.model_copy(
            update={"id": base.metadata.id, "configuration": configuration}
        )
        if Properties(metadata.configuration).get(MAPPING_MODE) != "none":
            # It has the properties of the new table, and the ids that were assigned before.
            known = {**metadata.configuration, HIGHEST_ID: None, **highest_id(base.metadata)}
            counting = metadata.model_copy(update={"configuration": known})
            schema = mapped(unmapped(schema), counting, before=base.schema)
            metadata = with_schema(metadata, schema)
        protocol = merged_protocol(base.protocol, needed)
        require_writable(protocol, metadata, path=base.root)
        rows = load_files(self.context.store, base).live
        return Intent(
            operation=self.name,
            kind="overwrite",
            read_version=base.version,
            removes=tuple(removes_of(rows, self.context.effects.now_ms())),
            protocol=protocol if protocol != base.protocol else None,
            metadata=metadata,
            domains=self._clustering(base, metadata, schema),
            reads=Reads(everything=True),
            parameters=created.parameters,
            metrics={"numRemovedFiles": rows.num_rows},
        )

    def _clustering(
        self, base: Snapshot, metadata: Metadata, schema: StructType
    ) -> tuple[DomainMetadata, ...]:
        """Return the new clustering, or the removal of the old one, which may name lost columns."""
        if columns := self._definition.clustering():
            return (clustering_domain(metadata, schema, columns, "cluster_by"),)
        domain = base.controls.domains.get(CLUSTERING)
        if domain is None or domain.removed:
            return ()
        return (domain.model_copy(update={"removed": True}),)
