"""Changes of a table's metadata that change no row: properties, constraints, columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txlog.actions.file import Add
from txlog.actions.table import Metadata
from txlog.base.arrow import pc
from txlog.base.columns import python_values
from txlog.base.errors import (
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    require_texts,
)
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Kind, Reads
from txlog.commit.operation import Operation
from txlog.data_files.deletions import adds_of
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression, IsNull, Not, Or
from txlog.fragments.rows import FEATURE
from txlog.protocol.access import (
    at_least,
    features_of,
    materializes_partitions,
    needed_features,
    require_writable,
    upgraded,
)
from txlog.protocol.iceberg import feature_of
from txlog.protocol.mapping import MAPPING_MODE, mapped, with_schema
from txlog.protocol.properties import (
    Properties,
    compatibilities,
    without_old_stamps,
)
from txlog.scan.plan import plan_scan
from txlog.scan.scan import Scan
from txlog.schema.json import parse_schema
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.files import num_records
from txlog.verbs.create import row_columns
from txlog.verbs.features import adopted, with_counts
from txlog.verbs.properties import Asked, require_kept_form


@dataclass(frozen=True)
class Changed:
    """The new metadata of an operation, and its other effects."""

    metadata: Metadata
    parameters: Mapping[str, Any]
    features: frozenset[str] = frozenset()  # Additional features that the protocol must list.
    checks: Expression | None = None  # They must be true for every existing row.
    versions: tuple[int, int] = (1, 1)  # The lowest versions for readers and writers.
    numbers_rows: bool = False  # Existing rows get ids.


class ChangeMetadata(Operation):
    """Change the metadata; the protocol gets the features that the change needs, and no others."""

    @abstractmethod
    def change(self, base: Snapshot) -> Changed:
        """Return the changed metadata."""

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the metadata and protocol, or None if nothing changes.

        Raises
        ------
        InvalidInputError
            The change does not fit the table.
        SchemaMismatchError
            Existing rows break a new rule.
        UnsupportedFeatureError
            txlog could not write the table afterwards.
        """
        changed = self.change(base)
        schema = parse_schema(changed.metadata.schema_string or "")
        maps = _maps_columns(base, changed.metadata.configuration)
        turned_on = _turns_on_iceberg(self.context, base, changed.metadata.configuration)
        if maps or turned_on:
            schema = mapped(schema, changed.metadata, legacy=maps)
            changed = replace(changed, metadata=with_schema(changed.metadata, schema))
        needed = needed_features(schema, Properties(changed.metadata.configuration))
        protocol = at_least(upgraded(base.protocol, needed | changed.features), changed.versions)
        if changed.metadata == base.metadata and protocol == base.protocol:
            return None
        require_writable(protocol, changed.metadata, path=base.root, managed=base.is_managed)
        if changed.checks is not None:
            require_true(self.context, base, changed.checks)
        kind: Kind = "metadata" if protocol == base.protocol else "protocol"
        adds = _unnumbered(self.context, base) if changed.numbers_rows else ()
        if FEATURE in features_of(protocol) - features_of(base.protocol):
            again = {add.path: add for add in adds}
            adds = tuple(adopted(self.context, base, again))
        return Intent(
            operation=self.name,
            # Rows of winners need ids, too, and their files must satisfy Iceberg compatibility.
            kind="overwrite" if changed.numbers_rows or turned_on else kind,
            read_version=base.version,
            adds=adds,
            metadata=None if changed.metadata == base.metadata else changed.metadata,
            protocol=None if protocol == base.protocol else protocol,
            reads=Reads(everything=changed.checks is not None or changed.numbers_rows or turned_on),
            parameters=changed.parameters,
        )

    def read(self) -> Reads:
        """Return no rows: only the metadata and the protocol show that nothing changes."""
        return Reads()


def _unnumbered(context: Context, base: Snapshot) -> tuple[Add, ...]:
    """Return the live files without row ids, to log them again: the commit assigns ids."""
    live = load_files(context.store, base).live
    without = live.filter(pc.is_null(live["base_row_id"]))
    adds = [a.model_copy(update={"data_change": False}) for a in adds_of(without)]
    return tuple(with_counts(context, base, adds))


def require_true(context: Context, base: Snapshot, predicate: Expression) -> None:
    """Raise if a row breaks a predicate; files are skipped if their statistics show none does.

    Raises
    ------
    SchemaMismatchError
        The error states the number of these rows, and shows one.
    """
    broken = Or((Not(predicate), IsNull(predicate)))
    plan = plan_scan(base, load_files(context.store, base).live, where=broken)
    scan = Scan(context.store, plan, context.engine)
    count = scan.count()
    if not count:
        return
    first = scan.head(1)
    row = {name: python_values(first[name])[0] for name in first.schema.names}
    raise SchemaMismatchError(
        argument="data",
        path=base.root,
        reason=f"{count} rows of the table do not satisfy {to_sql(predicate)}, for example {row}",
        remedy="Nothing was committed; change or delete these rows first",
    )


class SetProperties(ChangeMetadata):
    """Set properties of a table, and unset others."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        unset: Sequence[str] = (),
        if_exists: bool = False,
    ) -> None:
        """Take the properties.

        Parameters
        ----------
        unset
            Names of properties to unset.
        if_exists
            Whether to ignore properties in `unset` that do not exist.
        """
        self._properties = dict(properties)
        self._unset = tuple(unset)
        self._if_exists = if_exists

    @property
    def name(self) -> str:  # type: ignore[override]
        """The operation's name in Delta."""
        return "UNSET TBLPROPERTIES" if self._unset else "SET TBLPROPERTIES"

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata with the changed properties."""
        asked = Asked.of(self._properties, has_rows=True, unset=self._unset)
        current = base.metadata.configuration
        missing = [name for name in self._unset if name not in current]
        if missing and not self._if_exists:
            raise InvalidInputError(
                argument="properties",
                field=missing[0],
                reason=f"the table has no property {missing[0]}",
                remedy="Pass if_exists=True to skip it",
            )
        kept = {name: text for name, text in current.items() if name not in asked.unset}
        configuration = without_old_stamps({**kept, **asked.stored})
        require_kept_form(current, configuration, path=base.root)
        asked.require_columns(configuration, base.schema, base.partition_columns, base.mapping_mode)
        tracks = bool(Properties(configuration).get("delta.enableRowTracking"))
        numbers_rows = tracks and not base.has_stable_row_ids
        if numbers_rows:
            configuration = {**row_columns(self.context.effects), **configuration}
        parameters: dict[str, Any] = {"properties": dict(self._properties)}
        if self._unset:
            parameters = {"properties": list(self._unset), "ifExists": self._if_exists}
        return Changed(
            base.metadata.model_copy(update={"configuration": configuration}),
            parameters,
            asked.features,
            versions=asked.versions,
            numbers_rows=numbers_rows,
        )


def _maps_columns(base: Snapshot, configuration: Mapping[str, str | None]) -> bool:
    """Return whether the columns of an existing table get ids and physical names.

    Raises
    ------
    UnsupportedFeatureError
        Column mapping would change in another way than from `none` to `name`; existing files forbid
        this.
    """
    now, then = base.mapping_mode, Properties(configuration).get(MAPPING_MODE)
    if now == then:
        return False
    if (now, then) == ("none", "name"):
        return True
    raise UnsupportedFeatureError(
        path=base.root,
        features=("columnMapping",),
        reason=f"{MAPPING_MODE} cannot go from {now} to {then}: "
        + (
            "existing files have no column ids"
            if now == "none"
            else "existing files have other column names or ids"
        ),
        remedy="Turn on the mode name, or write the rows to a new table",
    )


def _turns_on_iceberg(
    context: Context, base: Snapshot, configuration: Mapping[str, str | None]
) -> bool:
    """Return whether another version of Iceberg compatibility is turned on.

    Raises
    ------
    UnsupportedFeatureError
        Existing files do not fit it.
    """
    now, then = compatibilities(base.metadata.configuration), compatibilities(configuration)
    if now == then or not then:
        return False
    live = load_files(context.store, base).live
    has_vectors = live.num_rows > live["deletion_vector"].null_count
    if not live.num_rows or (now and now >= then and not has_vectors):
        return True
    reason = "have deletion vectors" if has_vectors else ""
    if then[0] > 1 and now < then:
        reason = "have no ids for elements of lists and maps, or store timestamps in another way"
    elif base.mapping_mode == "none":
        reason = "have no column ids"
    elif base.partition_columns and not materializes_partitions(base.protocol, base.properties):
        reason = "lack the partition columns"
    elif num_records(live).null_count:
        reason = "have no row counts in the log"
    if reason:
        raise UnsupportedFeatureError(
            path=base.root,
            features=(feature_of(then[0]),),
            reason=f"{feature_of(then[0])} cannot be turned on: existing files {reason}",
            remedy="Write the rows to a new table that is created with the property",
        )
    return True


class Describe(ChangeMetadata):
    """Change the name or the description of a table."""

    name = "UPDATE TABLE METADATA"

    def __init__(self, **texts: str | None) -> None:
        self._texts = texts

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata with the new texts."""
        require_texts(**self._texts)
        return Changed(base.metadata.model_copy(update=dict(self._texts)), dict(self._texts))
