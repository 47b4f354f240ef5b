"""Add table features to a table, and raise its protocol versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import orjson

from txlog.actions.columns import files_at
from txlog.actions.file import Add
from txlog.actions.stats_text import StatsText
from txlog.actions.table import DomainMetadata, Metadata, Protocol
from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation
from txlog.data_files.deletions import adds_of
from txlog.expressions.bind import column_path
from txlog.fragments.fragment import DataFile, Fragment
from txlog.fragments.ids import ID_TAG
from txlog.fragments.rows import FEATURE, needs_fragments_feature
from txlog.protocol.access import (
    READERS,
    WRITERS,
    at_least,
    features_of,
    require_writable,
    upgraded,
    with_features,
)
from txlog.protocol.features import CLUSTERING, FEATURES
from txlog.protocol.form import physical_path
from txlog.protocol.mapping import MAPPING_MODE
from txlog.protocol.properties import Properties
from txlog.scan.plan import plan_scan
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan, read_plan
from txlog.schema.types import StructType
from txlog.snapshot.live_files import load_files, require_sound
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.collect import has_bounds, stats_leaves
from txlog.store.base import Store


@dataclass(frozen=True)
class ProtocolChange:
    """The effect of a protocol change: the features that engines need afterwards.

    `versions_lost` is the number of older versions that can no longer be opened.
    """

    before: Protocol
    after: Protocol
    features_added: tuple[str, ...] = ()
    features_dropped: tuple[str, ...] = ()
    files_rewritten: int = 0
    bytes_rewritten: int = 0
    versions_lost: int = 0

    @classmethod
    def between(
        cls, before: Protocol, after: Protocol, *, versions_lost: int = 0
    ) -> ProtocolChange:
        """Return the effect of a change from one protocol to another."""
        then, now = features_of(before), features_of(after)
        return cls(
            before,
            after,
            tuple(sorted(now - then)),
            tuple(sorted(then - now)),
            versions_lost=versions_lost,
        )

    @property
    def readers_need(self) -> tuple[str, ...]:
        """The features that engines newly need to read the table."""
        return tuple(n for n in self.features_added if FEATURES[n].kind == "reader-writer")

    def __str__(self) -> str:
        lines = [f"{_versions(self.before)} becomes {_versions(self.after)}"]
        if self.readers_need:
            lines.append(f"to read it, engines need {', '.join(self.readers_need)} from now on")
        if self.features_added:
            lines.append(f"to write it, they need {', '.join(self.features_added)}")
        if self.features_dropped:
            lines.append(f"they no longer need {', '.join(self.features_dropped)}")
        if self.files_rewritten:
            lines.append(
                f"{self.files_rewritten} files ({self.bytes_rewritten} bytes) are rewritten"
            )
        if self.versions_lost:
            lines.append(f"{self.versions_lost} older versions can no longer be opened")
        return "; ".join(lines)


def _versions(protocol: Protocol) -> str:
    return f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}"


class UpgradeProtocol(Operation):
    """Raise the versions of a table's protocol; nothing is dropped."""

    name = "UPGRADE PROTOCOL"

    def __init__(self, reader: int, writer: int) -> None:
        for argument, value, known in (("reader", reader, READERS), ("writer", writer, WRITERS)):
            if type(value) is not int or value not in known:
                raise InvalidInputError(
                    argument=argument,
                    reason=f"{value!r} is not a version of the protocol",
                    remedy=f"Choose from {', '.join(map(str, known))}",
                )
        self._wanted = reader, writer

    def change_of(self, base: Snapshot) -> ProtocolChange:
        """Return the effect of the upgrade, without a commit; errors as for `intent`."""
        reader, writer = self._wanted
        now = base.protocol
        if reader < now.min_reader_version or writer < now.min_writer_version:
            raise InvalidInputError(
                argument="reader" if reader < now.min_reader_version else "writer",
                reason=f"the table has {_versions(now)}: versions cannot be lowered",
                remedy="Drop the features that need them with alter.drop_feature",
            )
        return ProtocolChange.between(now, at_least(now, self._wanted))

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the protocol with the versions; None if the table already has them.

        Raises
        ------
        InvalidInputError
            The table has higher versions.
        UnsupportedFeatureError
            txlog could not write the table then.
        """
        change = self.change_of(base)
        if change.after == base.protocol:
            return None
        require_writable(change.after, base.metadata, path=base.root, managed=base.is_managed)
        return Intent(
            operation=self.name,
            kind="protocol",
            read_version=base.version,
            protocol=change.after,
            parameters={"newProtocol": _versions(change.after)},
        )


class AddFeatures(Operation):
    """Add table features to a table's protocol; features that it has are ignored.

    With `txlog.fragments`, the same commit gives each fragment a durable id (rule FRG-19).
    """

    name = "ADD FEATURE"

    def __init__(self, names: Sequence[str]) -> None:
        if not names or not all(isinstance(name, str) for name in names):
            raise InvalidInputError(
                argument="features",
                reason=f"names of features were expected, not {list(names)!r}",
                remedy='Write alter.add_features("txlog.fragments")',
            )
        self._names = tuple(names)

    def change_of(self, base: Snapshot) -> ProtocolChange:
        """Return the effect of adding the features, without a commit; errors as for `intent`."""
        return ProtocolChange.between(base.protocol, with_features(base.protocol, self._names))

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the protocol with the features.

        Raises
        ------
        InvalidInputError
            txlog cannot write tables with one of them.
        """
        protocol = with_features(base.protocol, self._names)
        added = features_of(protocol) - features_of(base.protocol)
        _require_no_backlog(base, added)
        adds = adopted(self.context, base) if FEATURE in features_of(protocol) else ()
        if not added and not adds:
            return None
        return Intent(
            operation=self.name,
            kind="protocol",
            read_version=base.version,
            protocol=protocol if added else None,
            adds=adds,
            parameters={"featureName": sorted(added)},
        )


_MOST_CLUSTERING = 4  # The largest number of clustering columns, as in Spark.


class ClusterBy(Operation):
    """Set the clustering columns of a table; without columns, remove them."""

    name = "CLUSTER BY"

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the domain with the columns; None if nothing changes.

        Raises
        ------
        InvalidInputError
            A column is not in the table, is there twice, or has no statistics; or they are more
            than four; or the table is partitioned.
        """
        current = base.controls.domains.get(CLUSTERING)
        domain = clustering_domain(base.metadata, base.schema, self._columns)
        if current == domain or (not self._columns and (current is None or current.removed)):
            return None
        protocol = upgraded(base.protocol, ["clustering", "domainMetadata"])
        return Intent(
            operation=self.name,
            kind="metadata" if protocol == base.protocol else "protocol",
            read_version=base.version,
            protocol=None if protocol == base.protocol else protocol,
            domains=(domain,),
            parameters={"newClusteringColumns": ",".join(self._columns)},
        )


def clustering_domain(
    metadata: Metadata, schema: StructType, columns: Sequence[str], argument: str = "columns"
) -> DomainMetadata:
    """Return the domain with the clustering columns of a table.

    Errors name the caller's argument.

    Raises
    ------
    InvalidInputError
        A column is not in the table, is there twice, or has no statistics; or they are more than
        four; or the table is partitioned.
    """
    properties = Properties(metadata.configuration)
    leaves = stats_leaves(schema, properties)
    known = {tuple(name.lower() for name in path): path for path in leaves}
    asked = [column_path(schema, name) for name in columns]
    paths = [known.get(tuple(name.lower() for name in path), path) for path in asked]
    for path in paths:
        if path not in leaves or not has_bounds(leaves[path]):
            raise _not_clustering(
                argument,
                ".".join(path),
                "the table has no column of this name with bounds in its statistics",
                "Choose another, or list it in delta.dataSkippingStatsColumns",
            )
    if paths and metadata.partition_columns:
        raise _not_clustering(
            argument,
            None,
            "the table is partitioned",
            "Use clustering only for unpartitioned tables",
        )
    if len(paths) > _MOST_CLUSTERING or len(set(paths)) < len(paths):
        reason = f"at most {_MOST_CLUSTERING} different columns are allowed"
        raise _not_clustering(argument, None, reason, "Pass fewer columns")
    mode = properties.get(MAPPING_MODE)
    names = [list(physical_path(schema, path, mode)) for path in paths]
    text = {"clusteringColumns": names, "domainName": CLUSTERING}
    return DomainMetadata(domain=CLUSTERING, configuration=orjson.dumps(text).decode())


def _not_clustering(
    argument: str, field: str | None, reason: str, remedy: str
) -> InvalidInputError:
    return InvalidInputError(argument=argument, field=field, reason=reason, remedy=remedy)


def _require_no_backlog(base: Snapshot, added: frozenset[str]) -> None:
    """Raise if a property would activate a feature whose guarantees existing rows do not meet.

    Raises
    ------
    UnsupportedFeatureError
        The feature is row tracking, and existing rows have no ids.
    """
    if "rowTracking" in added and base.properties.get("delta.enableRowTracking"):
        raise UnsupportedFeatureError(
            path=base.root,
            features=("rowTracking",),
            reason="delta.enableRowTracking is already true, but existing rows have no ids",
            remedy="Turn row tracking on with an engine that assigns ids to existing rows",
        )


def with_counts(context: Context, snapshot: Snapshot, adds: Sequence[Add]) -> list[Add]:
    """Return the adds of files with `numRecords`, read from the footer if the log has none."""
    lacking = [add for add in adds if add.num_records is None]
    fragments = [Fragment(0, (DataFile(add.path, add.size),)) for add in lacking]
    reading = read_plan(snapshot, columns=[])
    rows = context.engine.map(partial(_rows_in, context.store, reading), fragments)
    counted = {add.path: _counted(add, count) for add, count in zip(lacking, rows, strict=True)}
    return [counted.get(add.path, add) for add in adds]


def adopted(
    context: Context, base: Snapshot, again: Mapping[str, Add] | None = None
) -> tuple[Add, ...]:
    """Return the files to log again with durable fragment ids and row counts (FRG-19).

    They are those without one of the two, and those that the caller logs again by path. The files
    may need the feature already, although the protocol of `base` does not list it.
    """
    again = again or {}
    files = load_files(context.store, base, checks=False).live
    listed = replace(base, protocol=with_features(base.protocol, [FEATURE]))
    require_sound(listed, files)
    plan = plan_scan(listed if needs_fragments_feature(files) else base, files, columns=[])
    lacking = [f for f in plan.fragments if not f.is_durable or f.physical_rows is None]
    rows = {f.path: f.physical_rows for f in lacking if f.physical_rows is not None}
    unknown = [fragment for fragment in lacking if fragment.physical_rows is None]
    counts = context.engine.map(partial(_rows_in, context.store, plan.reading), unknown)
    rows |= zip((fragment.path for fragment in unknown), counts, strict=True)
    chosen = files_at(files, rows)
    durable = {fragment.path for fragment in lacking if fragment.is_durable}
    numbered = [
        _logged_again(again.get(add.path, add), rows[add.path], keeps_id=add.path in durable)
        for add in adds_of(chosen)
    ]
    others = (add for path, add in again.items() if path not in rows)
    return (*numbered, *others)


def _rows_in(store: Store, plan: ReadPlan, fragment: Fragment) -> int:
    return FragmentReader(store, plan, fragment).count_rows()


def _logged_again(add: Add, rows: int, *, keeps_id: bool) -> Add:
    """Return a file's `add` with its row count; the commit assigns a missing id."""
    tags = {name: text for name, text in (add.tags or {}).items() if keeps_id or name != ID_TAG}
    return _counted(add, rows).model_copy(update={"tags": tags, "data_change": False})


def _counted(add: Add, rows: int) -> Add:
    """Return a file's `add` with a row count in its statistics."""
    if add.num_records is not None:
        return add
    return add.model_copy(update={"stats": StatsText(add.stats).with_num_records(rows).text})
