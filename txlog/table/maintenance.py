"""`Table.maintenance`: the files of the log. `Table.pins`: names that keep versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.base.errors import require_flags, require_whole
from txlog.table.handle import Namespace

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.snapshot.checksum import ChecksumReport
    from txlog.snapshot.references import Pin


class TableMaintenance(Namespace):
    """Methods for the files of a table's log. They do not make a version."""

    _name = "maintenance"

    def checkpoint(self) -> int:
        """Write a checkpoint of this version, and return the version.

        This deletes nothing, unlike a checkpoint that a commit writes (see `expire`).
        """
        from txlog.verbs.checkpoint import checkpoint

        snapshot = self._table._snapshot
        checkpoint(self._table._context, snapshot)
        return snapshot.version

    def expire(self, retention_hours: float | None = None, dry_run: bool = True) -> pa.Table:
        """Delete files of the log that only expired versions need; by default, only list them.

        Each version that was the latest within the retention, and each pinned version, can still be
        opened: the newest checkpoint before the retention replaces the deleted files. Time travel
        to the expired versions is no longer possible. Data files stay: `Table.vacuum` deletes them.

        Commits that write a checkpoint do this too, with the table's own retention, unless its
        property `delta.enableExpiredLogCleanup` is false.

        Parameters
        ----------
        retention_hours
            How long versions are kept. Default: the table's `delta.logRetentionDuration`, or 30
            days, counted back from the last midnight (UTC).
        dry_run
            Delete nothing. If this process's clock is ahead of the store's, a clean-up finds that
            out and keeps more than a dry run says.

        Returns
        -------
        pyarrow.Table
            Each file of the log: `file`, `bytes`, `modified_ms` (null: unknown), `decision` (`keep`
            or `delete`) and `reason`.

        Raises
        ------
        LogCorruptError
            The checkpoint that must replace the deleted files is damaged. Nothing was deleted.
        UnsupportedFeatureError
            The table is managed by a catalog, or cannot be written by txlog.
        """
        require_flags(dry_run=dry_run)
        from txlog.verbs.expire import expire

        table = self._table
        return expire(table._context, table._latest(), hours=retention_hours, dry_run=dry_run)

    def generate(self, mode: str = "symlink_format_manifest") -> int:
        """Write lists of this version's files for engines that read such lists and not the log.

        They are in `_symlink_format_manifest`, one for each partition. They are not updated when
        the table changes.

        Returns
        -------
        int
            The number of lists.

        Raises
        ------
        UnsupportedFeatureError
            A list of files does not describe the rows, because of deletion vectors, column mapping
            or column files.
        """
        from txlog.verbs.generate import generate

        table = self._table
        return generate(table._context, table._snapshot, mode)

    def put_back(self) -> pa.Table:
        """Undo `vacuum(trash=True)`: move the files in the trash back to their paths.

        Returns
        -------
        pyarrow.Table
            As `Table.vacuum`, with the decisions `restore` and `keep`. A file whose path is taken
            stays in the trash, and so do all but the last one of several files with one path.
        """
        from txlog.verbs.trash import put_back

        return put_back(self._table._context)

    def empty_trash(self) -> int:
        """Delete the files in the trash permanently, and return their number."""
        from txlog.verbs.trash import empty_trash

        return empty_trash(self._table._context)

    def clones(self) -> dict[str, str]:
        """Return the registered shallow clones: their URIs by their tables' ids.

        `Table.clone(…, register=True)` registers a clone. Clones that are being made are included.
        """
        from txlog.snapshot.references import clones_of

        return {clone.id: clone.uri for clone in clones_of(self._table._latest_left()[0])}

    def forget_clone(
        self,
        target: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Allow vacuum to delete files that only this clone needs. The clone may break then.

        So may clones of this clone that are not registered here: an earlier release registered
        them in it alone. Make deep clones of them first. A clone of a clone is registered in each
        table whose files it names: forget it in all of them.

        `target` is the clone's folder or URI as given to `Table.clone`, or its table's id.

        Raises
        ------
        NotFoundError
            The clone is not registered.
        """
        from txlog.verbs.references import ForgetClone

        return self._table._run(ForgetClone(target), txn, user_metadata)

    def write_checksum(self) -> None:
        """Write the version checksum (`.crc`) of this version, unless there is one.

        A checkpoint also writes one unless it is large. With the property `txlog.writeChecksums`,
        each commit writes one.
        """
        from txlog.verbs.log_files import write_checksum

        version = self._table._open
        self._table._require_in_place()
        write_checksum(self._table._context.store, version.snapshot, version.files().live)

    def compact_log(self, start_version: int, end_version: int | None = None) -> str:
        """Write one file that replaces the commits of several versions; return its path.

        Readers then read one file instead of many. No version changes, and the commits stay. With
        the property `txlog.logCompactionInterval`, commits do this after that number of versions.

        Parameters
        ----------
        end_version
            The last version. Default: the version of this table.

        Raises
        ------
        InvalidInputError
            The range is not two or more versions of the table.
        NotFoundError
            Commits of the range were cleaned up; the error names the first one that is there.
        """
        from txlog.verbs.log_files import compact_log

        context, snapshot = self._table._context, self._table._snapshot
        start = require_whole("start_version", start_version)
        end = snapshot.version if end_version is None else require_whole("end_version", end_version)
        self._table._require_in_place()
        return compact_log(context, snapshot, start, end)

    def verify_checksum(self) -> ChecksumReport:
        """Compare this version with its checksum (`.crc`), if its writer wrote one.

        The report says which fields were compared and which differ; print it to read it. A checksum
        that is wrong or unreadable is reported and not raised: the log is authoritative, and
        reading the table does not use the checksum.

        Raises
        ------
        LogCorruptError
            The files of this version cannot be read from the log.
        StoreError
            The store failed.
        """
        from txlog.snapshot.checksum import verify_checksum

        version = self._table._open
        self._table._require_in_place()
        return verify_checksum(self._table._context.store, version.snapshot, version.files())

    def repair(
        self,
        dry_run: bool = True,
        missing_files: bool = False,
        *,
        user_metadata: UserMetadata | None = None,
    ) -> pa.Table:
        """Repair the findings of `Table.doctor` in the log; by default, only list the repairs.

        A checkpoint is written if `_last_checkpoint` names a missing one, and a wrong version
        checksum is deleted. Other files never change. If the latest version cannot be opened, the
        newest that can is repaired, and a row says which version `Table.restore` can restore.

        Parameters
        ----------
        dry_run
            Write nothing.
        missing_files
            Also remove files from the table whose data or deletion vectors are missing, in a commit
            `FSCK`. Their rows are lost, so check first whether a copy or `Table.restore` has them.
            If a file with columns of other files' rows is missing, these rows leave, too: scan
            their other columns before, if you want to keep them. It leaves alone if the table has
            dropped its columns.

        Returns
        -------
        pyarrow.Table
            A row for each repair: `action`, `path`, `rows` that are removed, `decision` (`do` or
            `skip`) and `reason`.

        Raises
        ------
        UnsupportedFeatureError
            txlog may not write the table, or it is append-only and rows would go.
        """
        require_flags(dry_run=dry_run, missing_files=missing_files)
        from txlog.verbs.repair import repair

        table = self._table
        done = repair(
            table._context,
            table._snapshot,
            dry_run=dry_run,
            lost_files=missing_files,
            user_metadata=user_metadata,
        )
        table._move(done.snapshot)
        return done.decided


class TablePins(Namespace):
    """Names of versions. A pinned version stays readable: vacuum and expire keep its files.

    Pins are part of the table: all readers see the same pins at each version. Other engines
    preserve pins, but their clean-ups ignore them. The first pin adds the writer feature
    `domainMetadata`: readers need no new feature, and delta-spark can still write the table, but
    deltalake 1.6 cannot.
    """

    _name = "pins"

    def create(
        self,
        name: str,
        version: int | None = None,
        reason: str | None = None,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Pin a version, so that `Table(uri, version="train-2026-11")` opens it by this name.

        Parameters
        ----------
        version
            Default: the version of this table.

        Raises
        ------
        AlreadyExistsError
            A pin with this name exists.
        NotFoundError, DataFileError
            The version can no longer be reconstructed, or its files are missing.
        """
        from txlog.verbs.references import SetPin

        operation = SetPin(name, self._version(version), reason)
        return self._table._run(operation, txn, user_metadata)

    def update(
        self,
        name: str,
        version: int | None = None,
        reason: str | None = None,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Move a pin to another version; `NotFoundError` if there is no such pin."""
        from txlog.verbs.references import SetPin

        operation = SetPin(name, self._version(version), reason, exists=True)
        return self._table._run(operation, txn, user_metadata)

    def delete(
        self,
        name: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Delete a pin; `NotFoundError` if there is no such pin."""
        from txlog.verbs.references import DropPin

        return self._table._run(DropPin(name), txn, user_metadata)

    def list(self) -> dict[str, Pin]:
        """Return the pins by their names: each has `version`, `reason` and `created_ms`."""
        from txlog.snapshot.references import pins_of

        return pins_of(self._table._latest_left()[0])

    def _version(self, version: int | None) -> int:
        return self._table._snapshot.version if version is None else version
