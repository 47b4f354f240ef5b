"""Columns of a file are found by the same rule, however many there are."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from txlog.scan.columns import find_columns
from txlog.schema.types import PrimitiveType, StructField

NAMES = st.sampled_from(["a", "A", "b", "B", "ab", "aB", "Ab", "straße"])
IDS = st.none() | st.integers(1, 4)
MAPPING_ID, PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"


def plain(fields: pa.Schema, want: StructField, mode: str) -> int | None:
    """Look at the columns of the file one by one."""
    have = list(fields)
    if mode == "id" and want.field_id is not None:
        own = str(want.field_id).encode()
        same = [
            at
            for at, one in enumerate(have)
            if (one.metadata or {}).get(b"PARQUET:field_id") == own
        ]
    else:
        name = want.name_in_files(mode)
        same = [at for at, one in enumerate(have) if one.name == name]
        same += [at for at, one in enumerate(have) if one.name.lower() == name.lower()]
    return same[0] if same else None


@given(
    stored=st.lists(st.tuples(NAMES, IDS), max_size=6),
    wanted=st.lists(st.tuples(NAMES, NAMES, IDS), max_size=6),
    mode=st.sampled_from(["none", "name", "id"]),
)
def test_many_columns_are_found_as_one_is(
    stored: list[tuple[str, int | None]],
    wanted: list[tuple[str, str, int | None]],
    mode: str,
) -> None:
    fields = [
        pa.field(name, pa.int64(), metadata=None if at is None else {"PARQUET:field_id": str(at)})
        for name, at in stored
    ]
    columns = [
        StructField(
            name,
            PrimitiveType("long"),
            metadata={PHYSICAL: physical} | ({} if at is None else {MAPPING_ID: at}),
        )
        for name, physical, at in wanted
    ]
    expected = [plain(pa.schema(fields), column, mode) for column in columns]
    assert find_columns(pa.schema(fields), columns, mode) == expected
    assert find_columns(pa.struct(fields), columns, mode) == expected
