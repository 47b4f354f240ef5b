"""Which Arrow types may be read as which others, and what happens to the values. Pure.

Arrow casts more than a reader may accept: it reads numbers from texts, and booleans as numbers. So
each reader names the readings that it allows.
"""

from __future__ import annotations

from enum import Enum, auto

import pyarrow as pa


class Reading(Enum):
    """What happens to values of one type that are read as another."""

    SAME = auto()  # The types are equal.
    NULLS = auto()  # There are no values.
    LAYOUT = auto()  # Equal values in another layout: views, 64-bit offsets.
    CHECKED = auto()  # Values of one kind: a cast keeps each value, or fails.
    CUT = auto()  # Nanoseconds become a coarser unit: a cast fails, or cuts values off.
    NEAREST = auto()  # Values of another kind in the same order, such as whole numbers as floats.
    BYTES = auto()  # Texts as their UTF-8 bytes, and such bytes as texts.
    OTHER = auto()  # Values of another kind, which a cast might convert, such as numbers as dates.
    NEVER = auto()  # Arrow would parse or format texts, or take booleans for numbers: refused.


def reading(have: pa.DataType, want: pa.DataType) -> Reading:
    """Return how values of an Arrow type `have` are converted if they are read as `want`.

    A member of `Reading` says whether a cast keeps the values, and whether it may be made.
    """
    if have == want:
        return Reading.SAME
    if pa.types.is_null(have):
        return Reading.NULLS
    if pa.types.is_timestamp(have) and pa.types.is_timestamp(want):
        return _of_moments(have, want)
    old, new = _kind(have), _kind(want)
    if old == new and old is not None:
        if old in ("text", "bytes"):
            fixed = pa.types.is_fixed_size_binary(have) or pa.types.is_fixed_size_binary(want)
            return Reading.CHECKED if fixed else Reading.LAYOUT
        return Reading.NEAREST if old == "float" else Reading.CHECKED
    if {old, new} == {"text", "bytes"}:
        return Reading.BYTES
    if {old, new} & {"text", "bytes", "boolean"}:
        return Reading.NEVER
    ordered = (old, new) in (("exact", "float"), ("date", "timestamp"))
    return Reading.NEAREST if ordered and not pa.types.is_decimal(have) else Reading.OTHER


def cuts_nanos(have: pa.DataType, want: pa.DataType) -> bool:
    """Return whether both are timestamps, and nanoseconds become a coarser unit."""
    return bool(
        pa.types.is_timestamp(have)
        and pa.types.is_timestamp(want)
        and have.unit == "ns" != want.unit
    )


def _of_moments(have: pa.TimestampType, want: pa.TimestampType) -> Reading:
    cuts = cuts_nanos(have, want)
    if (have.tz is None) != (want.tz is None):
        return Reading.OTHER if cuts else Reading.NEAREST
    return Reading.CUT if cuts else Reading.CHECKED


def _kind(kind: pa.DataType) -> str | None:
    """Return the name of the kind of a type's values; None for nested and all other types."""
    types = pa.types
    if types.is_integer(kind) or types.is_decimal(kind):
        return "exact"
    if types.is_floating(kind):
        return "float"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    ):
        return "bytes"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_date(kind):
        return "date"
    return "timestamp" if types.is_timestamp(kind) else None
