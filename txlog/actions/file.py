"""Actions on files: `add`, `remove`, `cdc`, deletion vectors, and the actions of V2 checkpoints."""

from __future__ import annotations

from pydantic import ConfigDict

from txlog.actions.action import Action, Integer, Long, ShortSize, Size, Texts
from txlog.actions.stats_text import StatsText


def vector_id(storage_type: str, path_or_inline_dv: str, offset: int | None) -> str:
    """Return the second part of a logical file's key; an offset of 0 differs from no offset."""
    suffix = "" if offset is None else f"@{offset}"
    return f"{storage_type}{path_or_inline_dv}{suffix}"


class _FileAction(Action):
    """An action that also becomes columns: a text that UTF-8 cannot encode is refused, as there."""

    model_config = ConfigDict(str_min_length=0)  # To compare a length, Pydantic reads the text.


class DeletionVectorDescriptor(_FileAction):
    """Where the deleted row positions of a data file are, and how many there are."""

    storage_type: str  # `u`: relative file, `p`: absolute file, `i`: inline.
    path_or_inline_dv: str
    offset: Integer | None = None  # Bytes from the file's start to the vector's length word.
    size_in_bytes: ShortSize  # The size of the vector alone, without its length word and checksum.
    cardinality: Size  # Rows deleted.

    @property
    def unique_id(self) -> str:
        """The vector's id, as `vector_id` makes it."""
        return vector_id(self.storage_type, self.path_or_inline_dv, self.offset)


class Add(_FileAction):
    """A logical file that is in the table from this version on."""

    path: str  # Percent-encoded. Relative to the table's root, or absolute.
    partition_values: Texts  # By physical column name.
    size: Size  # Bytes.
    modification_time: Long  # Milliseconds since the epoch, UTC.
    data_change: bool  # False when rows only moved: a stream then skips this action.
    stats: str | None = None  # JSON text.
    tags: Texts | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None

    @property
    def num_records(self) -> int | None:
        """The number of rows that the statistics state; None if they state none."""
        return StatsText(self.stats).num_records


class Remove(_FileAction):
    """A logical file that left the table, remembered until its bytes may be deleted."""

    path: str
    deletion_timestamp: Long | None = None  # Milliseconds since the epoch, UTC.
    data_change: bool = True
    extended_file_metadata: bool | None = None  # True: partition values and size are present.
    partition_values: Texts | None = None
    size: Long | None = None
    stats: str | None = None
    tags: Texts | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None


class Cdc(Action):
    """A file of change data. It is not part of a snapshot."""

    path: str
    partition_values: Texts
    size: Size
    data_change: bool = False
    tags: Texts | None = None


class CheckpointMetadata(Action):
    """The mark of a V2 checkpoint, which has exactly one."""

    version: Long
    tags: dict[str, str | None] | None = None


class Sidecar(Action):
    """A Parquet file beside a V2 checkpoint that holds its `add` and `remove` rows."""

    path: str  # Percent-encoded; a bare name is below `_delta_log/_sidecars`.
    size_in_bytes: Size
    modification_time: Long  # Milliseconds since the epoch, UTC.
    tags: dict[str, str | None] | None = None
