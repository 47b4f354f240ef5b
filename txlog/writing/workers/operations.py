"""What a commit of fragments can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from txlog.fragments import FragmentMetadata


class Operation:
    """What a commit of fragments does; the names are those of Lance."""

    class Base:
        """Any of the operations."""

    @dataclass(frozen=True)
    class Append(Base):
        """Add new fragments."""

        fragments: Sequence[FragmentMetadata]

    @dataclass(frozen=True)
    class Overwrite(Base):
        """Put new fragments in the place of all others."""

        fragments: Sequence[FragmentMetadata]

    @dataclass(frozen=True)
    class Delete(Base):
        """Give fragments more deleted rows, and take out those of which none is left."""

        updated_fragments: Sequence[FragmentMetadata] = ()
        deleted_fragment_ids: Sequence[int] = ()
        predicate: str | None = None  # To be noted in the commit.
        # That the fragments were read from; needed with ids alone if the table has moved on.
        read_version: int | None = None

    @dataclass(frozen=True)
    class Merge(Base):
        """Give fragments further columns; rows of other fragments have nulls in them."""

        fragments: Sequence[FragmentMetadata]
        schema: pa.Schema  # The table's columns, then the new ones.

    @dataclass(frozen=True)
    class Rewrite(Base):
        """Put new fragments in the place of old ones that have the same rows."""

        groups: Sequence[Operation.RewriteGroup]

    @dataclass(frozen=True)
    class RewriteGroup:
        """Old fragments, and the new ones that hold their rows."""

        old_fragments: Sequence[FragmentMetadata]
        new_fragments: Sequence[FragmentMetadata]
