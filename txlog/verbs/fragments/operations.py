"""The operations for commits of fragments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.fragments.metadata import FragmentMetadata


class FragmentOperation:
    """An operation of a commit of fragments; the names are those of Lance."""

    class Base:
        """Any of the operations."""

    @dataclass(frozen=True)
    class Append(Base):
        """Add new fragments."""

        fragments: Sequence[FragmentMetadata]

    @dataclass(frozen=True)
    class Overwrite(Base):
        """Replace all fragments by new ones."""

        fragments: Sequence[FragmentMetadata]

    @dataclass(frozen=True)
    class Delete(Base):
        """Delete more rows of fragments, and remove fragments without remaining rows."""

        updated_fragments: Sequence[FragmentMetadata] = ()
        deleted_fragment_ids: Sequence[int] = ()
        predicate: str | None = None  # For the operation parameters of the commit.
        # The version of the fragments; required if only ids are given and the table is newer.
        read_version: int | None = None

    @dataclass(frozen=True)
    class Merge(Base):
        """Add columns to fragments; rows of other fragments get nulls."""

        fragments: Sequence[FragmentMetadata]
        schema: pa.Schema  # The table's columns, then the new ones.

    @dataclass(frozen=True)
    class Rewrite(Base):
        """Replace old fragments by new ones that have the same rows."""

        groups: Sequence[FragmentOperation.RewriteGroup]

    @dataclass(frozen=True)
    class RewriteGroup:
        """Old fragments, and the new ones with their rows."""

        old_fragments: Sequence[FragmentMetadata]
        new_fragments: Sequence[FragmentMetadata]


def require_operation(operation: object) -> None:
    """Raise unless a value is an operation whose fields have the right types.

    Raises
    ------
    InvalidInputError
        The error names the field.
    """
    if not isinstance(operation, FragmentOperation.Base):
        raise InvalidTypeError(
            argument="operation",
            reason=f"a FragmentOperation was expected, not {type(operation).__name__}",
            remedy="Pass txlog.FragmentOperation.Append(fragments), or another of these operations",
        )
    for name, value in vars(operation).items():
        if not isinstance(value, _KINDS.get(name, object)) or isinstance(value, bool):
            raise _wrong(name, value)
    for number in getattr(operation, "deleted_fragment_ids", ()):
        if type(number) is not int:
            raise _wrong("deleted_fragment_ids", number)
    for group in getattr(operation, "groups", ()):
        if not isinstance(group, FragmentOperation.RewriteGroup):
            raise _wrong("groups", group)
        for name in ("old_fragments", "new_fragments"):
            if not isinstance(getattr(group, name), _MANY):
                raise _wrong(name, getattr(group, name))


_MANY = (list, tuple)
_KINDS: dict[str, tuple[type, ...]] = {
    "fragments": _MANY,
    "updated_fragments": _MANY,
    "deleted_fragment_ids": _MANY,
    "groups": _MANY,
    "read_version": (int, type(None)),
    "predicate": (str, type(None)),
    "schema": (pa.Schema,),
}


def _wrong(name: str, value: object) -> InvalidInputError:
    return InvalidInputError(
        argument=name,
        reason=f"{value!r} is not valid for this field of an operation",
        remedy="See the operation's docstring",
    )
