"""The part of `Table.alter` that is about the protocol: versions and features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txlog.errors import InvalidTypeError
from txlog.table.handle import Handle, checked

if TYPE_CHECKING:
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.verbs.features import ProtocolChange


@checked
class AlterProtocol:
    """Commits that change who can read and write a table."""

    def __init__(self, table: Handle) -> None:
        self._table = table

    def add_features(
        self,
        *features: str,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """List table features in the protocol, in one commit; engines without them are shut out.

        `txlog.fragments` also gives every fragment a durable id, and brings `deletionVectors`.
        `protocol_change(add=…)` says what it would do.

        Raises
        ------
        InvalidInputError
            txlog cannot write tables with one of them.
        """
        from txlog.verbs.features import AddFeatures

        return self._table._run(AddFeatures(self._table._context, features), txn, user_metadata)

    def cluster_by(
        self,
        *columns: str,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Say which columns `optimize.cluster` clusters the table by; without one, none.

        Rows that are there stay where they are until then. Up to four columns, which need bounds
        in statistics; fields of structs with dots. It lists the writer features `clustering` and
        `domainMetadata`; every reader still reads the table.

        Raises
        ------
        InvalidInputError
            A column is not in the table or has no bounds, or the table is partitioned.
        """
        from txlog.verbs.features import ClusterBy

        return self._table._run(ClusterBy(self._table._context, columns), txn, user_metadata)

    def upgrade_protocol(
        self,
        reader: int,
        writer: int,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Raise the versions of the protocol: engines that do not know them are shut out.

        With writer version 7 the protocol lists the features that the lower version implied.

        Raises
        ------
        InvalidInputError
            There are no such versions, or the table has higher ones: see `drop_feature`.
        """
        from txlog.verbs.features import UpgradeProtocol

        operation = UpgradeProtocol(self._table._context, reader, writer)
        return self._table._run(operation, txn, user_metadata)

    def drop_feature(
        self,
        feature: str,
        truncate_history: bool = False,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Drop a table feature: what the table has of it goes, so that others can open the table.

        Deletion vectors are folded into data files, types and columns in files of their own are
        written anew, ids of rows are forgotten, and properties are unset. Columns, constraints and
        domains that need the feature are not touched: they are named, and nothing is done.

        Older versions still have a feature that readers must know. So a checkpoint is written that
        others begin at, and the feature `checkpointProtection` keeps writers from removing it:
        only engines with that can write the table. `truncate_history` deletes the log of all older
        versions instead. `protocol_change(drop=…)` says what it would do.

        Raises
        ------
        InvalidInputError
            The table does not have the feature.
        UnsupportedFeatureError
            Something in the table still needs it, or older versions are pinned.
        """
        from txlog.verbs.drop_feature import DropFeature

        operation = DropFeature(self._table._context, feature, truncate_history=truncate_history)
        outcome = self._table._run(operation, txn, user_metadata)
        if outcome:
            operation.finish(self._table._snapshot)
        return outcome

    def protocol_change(
        self,
        *,
        add: Sequence[str] = (),
        drop: str | None = None,
        truncate_history: bool = False,
        upgrade: tuple[int, int] | None = None,
    ) -> ProtocolChange:
        """Return what one of the three would do, without doing it; errors as theirs.

        Print it to read who can no longer read or write the table, and what is rewritten.
        """
        from txlog.verbs.drop_feature import DropFeature
        from txlog.verbs.features import AddFeatures, UpgradeProtocol

        context, latest = self._table._context, self._table._latest()
        if upgrade is not None:
            if not isinstance(upgrade, tuple) or len(upgrade) != 2:
                raise InvalidTypeError(
                    argument="upgrade",
                    reason=f"{upgrade!r} is no pair of a reader and a writer version",
                    remedy="Pass for example (3, 7)",
                )
            return UpgradeProtocol(context, *upgrade).change_of(latest)
        if drop is not None:
            dropping = DropFeature(context, drop, truncate_history=truncate_history)
            return dropping.change_of(latest)
        return AddFeatures(context, add).change_of(latest)
