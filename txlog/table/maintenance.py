"""`Table.maintenance`: the files of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txlog.snapshot.checksum import ChecksumReport
    from txlog.table.handle import Handle


class TableMaintenance:
    """Work on the files of a table's log; none of it makes a version."""

    def __init__(self, table: Handle) -> None:
        self._table = table

    def checkpoint(self) -> int:
        """Write a checkpoint of this version, and return the version."""
        from txlog.verbs.checkpoint import checkpoint

        snapshot = self._table._snapshot
        checkpoint(self._table._context, snapshot)
        return snapshot.version

    def verify_checksum(self) -> ChecksumReport:
        """Hold this version against its checksum (`.crc`), if its writer left one.

        The report says which fields were compared and which differ; print it to read it. A
        checksum that is wrong or cannot be read is a problem of the report, not an error: the
        log decides, and the table reads the same either way.

        Raises
        ------
        LogCorruptError
            The files of this version cannot be read from the log.
        StoreError
            The store failed.
        """
        from txlog.snapshot.checksum import verify_checksum

        version = self._table._open
        return verify_checksum(self._table._context.store, version.snapshot, version.files())
