"""What a plan says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Explanation:
    """What a plan reads and what it leaves out, and why."""

    version: int
    predicate: str | None
    columns: tuple[str, ...]
    files: int  # In the snapshot.
    pruned_by_partition: int
    pruned_by_statistics: int  # Or by the ids and addresses that their rows have.
    files_to_read: int
    files_with_deletions: int  # Of those to read.
    bytes_to_read: int  # At most: row groups and columns are left out as well.

    def __str__(self) -> str:
        return "\n".join(
            [
                f"Scan of version {self.version}",
                f"  columns: {', '.join(self.columns)}",
                f"  where: {self.predicate or 'all rows'}",
                f"  files: {self.files_to_read} of {self.files}",
                f"    bytes at most: {self.bytes_to_read:,}",
                f"    left out by partition values: {self.pruned_by_partition}",
                f"    left out by statistics: {self.pruned_by_statistics}",
                f"    with deleted rows: {self.files_with_deletions}",
            ]
        )
