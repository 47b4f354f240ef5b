"""The part of `Table.alter` for the protocol: versions and features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txlog.base.errors import InvalidTypeError, require_flags
from txlog.table.handle import Namespace

if TYPE_CHECKING:
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.verbs.features import ProtocolChange


class AlterProtocol(Namespace):
    """Commits that change the protocol, and so which engines can read and write a table."""

    _name = "alter"

    def add_features(
        self,
        *features: str,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Add table features to the protocol; engines without them can no longer use the table.

        `txlog.fragments` also gives each fragment a durable id, and adds `deletionVectors`.
        `protocol_change(add=…)` returns the effect without a commit.

        Raises
        ------
        InvalidInputError
            txlog cannot write tables with one of them.
        """
        from txlog.verbs.features import AddFeatures

        return self._table._run(AddFeatures(features), txn, user_metadata)

    def cluster_by(
        self,
        *columns: str,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Set the clustering columns for `optimize.cluster`; without columns, remove them.

        Existing rows do not move until then. Up to four columns are possible, and they need bounds
        in statistics; write fields of structs with dots. This adds the writer features `clustering`
        and `domainMetadata`; all readers can still read the table.

        Raises
        ------
        InvalidInputError
            A column is not in the table or has no bounds, or the table is partitioned.
        """
        from txlog.verbs.features import ClusterBy

        return self._table._run(ClusterBy(columns), txn, user_metadata)

    def upgrade_protocol(
        self,
        reader: int,
        writer: int,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Raise the protocol versions; engines without them can no longer use the table.

        With writer version 7, the protocol lists the features that the lower version implied.

        Raises
        ------
        InvalidInputError
            The versions do not exist, or the table has higher ones: see `drop_feature`.
        """
        from txlog.verbs.features import UpgradeProtocol

        operation = UpgradeProtocol(reader, writer)
        return self._table._run(operation, txn, user_metadata)

    def drop_feature(
        self,
        feature: str,
        truncate_history: bool = False,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Drop a table feature and its uses, so that engines without it can open the table.

        Files with deletion vectors, widened types or column files are rewritten, row ids are
        removed, and properties are unset. If columns, constraints or domains need the feature, the
        error names them, and nothing is done.

        Older versions still use a feature that readers must know. So a checkpoint is written from
        which other engines start, and the feature `checkpointProtection` prevents its removal: only
        engines with that feature can write the table. `truncate_history` deletes the log of all
        older versions, and then drops that protection in a second commit. If a version was pinned
        meanwhile, its log and the protection stay, with a warning. `protocol_change(drop=…)`
        returns the effect without a commit.

        Raises
        ------
        InvalidInputError
            The table does not have the feature.
        UnsupportedFeatureError
            Something in the table still needs it, or older versions are pinned.
        """
        require_flags(truncate_history=truncate_history)
        from txlog.verbs.drop_feature import drop_feature

        done = drop_feature(
            self._table._context,
            self._table._latest(),
            feature,
            truncate_history=truncate_history,
            txn=txn,
            user_metadata=user_metadata,
        )
        return self._table._finish(done)

    def protocol_change(
        self,
        *,
        add: Sequence[str] = (),
        drop: str | None = None,
        truncate_history: bool = False,
        upgrade: tuple[int, int] | None = None,
    ) -> ProtocolChange:
        """Return the effect of one of the three methods, without a commit; errors are the same.

        Print it to see which engines can no longer use the table, and what is rewritten.
        """
        require_flags(truncate_history=truncate_history)
        from txlog.verbs.drop_feature import DropFeature
        from txlog.verbs.features import AddFeatures, UpgradeProtocol

        latest = self._table._latest()
        if upgrade is not None:
            if not isinstance(upgrade, tuple) or len(upgrade) != 2:
                raise InvalidTypeError(
                    argument="upgrade",
                    reason=f"{upgrade!r} is not a pair of a reader and a writer version",
                    remedy="Pass a pair such as (3, 7)",
                )
            return UpgradeProtocol(*upgrade).change_of(latest)
        if drop is not None:
            dropping = DropFeature(drop, truncate_history=truncate_history)
            dropping.context = self._table._context
            return dropping.change_of(latest)
        return AddFeatures(add).change_of(latest)
