"""Values of blob columns, as a column of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog import Table
from txlog.extend import Packs, blobs_of, context_of, is_arrow_blob
from txlog.training.loader.views import Rows


@dataclass(frozen=True)
class Blobs:
    """Values of a blob column: an array of objects (n,) of `txlog.Blob`, or None for null.

    No byte of a value in a pack is read before the caller asks for it.

    Parameters
    ----------
    read
        Read the values in the loader's threads: the objects are bytes, or None.
    """

    read: bool = False
    packs: Packs | None = field(default=None, compare=False, repr=False)  # Set by the loader.

    def of(self, table: Table) -> Blobs:
        """Return the view for the packs of a table."""
        return replace(self, packs=Packs(context_of(table).store, table.snapshot).settle())

    def require(self, kind: pa.DataType) -> None:
        """Raise if a column is no blob column."""
        if not is_arrow_blob(kind):
            raise TypeError("a blob column was expected")

    def prepare(self, values: pa.Array, fill: Any) -> Rows:
        """Return the structs. Null rows stay."""
        return values

    def finish(self, rows: Rows) -> Any:
        """Return objects, or the bytes of the values."""
        assert self.packs is not None
        made: NDArray[Any] = np.empty(len(rows), object)
        for at, blob in enumerate(blobs_of(self.packs, rows)):
            made[at] = blob.read() if self.read and blob is not None else blob
        return made
