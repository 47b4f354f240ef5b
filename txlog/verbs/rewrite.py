"""The base of all operations that write rows again without changing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import pyarrow as pa

from txlog.actions.file import Add
from txlog.base.arrow import pc
from txlog.base.threads import cached_property
from txlog.commit.intent import Intent, Kind, Reads
from txlog.commit.operation import Operation
from txlog.data_files.deletions import removes_of
from txlog.data_files.write import discard_files
from txlog.snapshot.snapshot import Snapshot


class Rewrite(Operation):
    """Write rows of files again; a subclass chooses the files, and collects the new ones."""

    @cached_property
    def _written(self) -> list[Add]:
        """The new files of the last attempt."""
        return []

    @final
    def _moved(
        self, base: Snapshot, rows: pa.Table, kind: Kind, change: Mapping[str, Any] | None = None
    ) -> Intent:
        """Return the intent that replaces files by the new ones; no row changes.

        Parameters
        ----------
        rows
            The live `FILE_ROWS` of the replaced files.
        change
            Other values of fields of the new files' actions.
        """
        now_ms = self.context.effects.now_ms()
        fields = {"data_change": False, **(change or {})}
        return Intent(
            operation=self.name,
            kind=kind,
            read_version=base.version,
            removes=tuple(removes_of(rows, now_ms, data_change=False)),
            adds=tuple(add.model_copy(update=fields) for add in self._written),
            own_files=frozenset(add.path for add in self._written),
        )

    def read(self) -> Reads:
        """Return no rows: no row depends on how many files a rewrite finds."""
        return Reads()

    @final
    def discard(self) -> None:
        """Delete the files of the last attempt."""
        discard_files(self.context.store, self._written)
        self._written.clear()


def optimize_metrics(removed: pa.Table, added: Sequence[Add]) -> dict[str, int]:
    """Return Delta's metrics of OPTIMIZE."""
    sizes = sorted(add.size for add in added)

    def quantile(share: float) -> int:
        return sizes[int(share * (len(sizes) - 1))] if sizes else 0

    return {
        "numRemovedFiles": removed.num_rows,
        "numRemovedBytes": pc.sum(removed["size"]).as_py() or 0,
        "numAddedFiles": len(added),
        "numAddedBytes": sum(sizes),
        "partitionsOptimized": len({tuple(sorted(a.partition_values.items())) for a in added}),
        "numDeletionVectorsRemoved": removed.num_rows - removed["dv_id"].null_count,
        "minFileSize": quantile(0),
        "p25FileSize": quantile(0.25),
        "p50FileSize": quantile(0.5),
        "p75FileSize": quantile(0.75),
        "maxFileSize": quantile(1),
    }
