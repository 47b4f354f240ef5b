"""Type changes, compared with the list in the protocol's "Type Widening"."""

from itertools import product

import pytest

from txlog.base.errors import UnsupportedFeatureError
from txlog.schema.types import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    is_widening,
    require_known_changes,
)

PLAIN = (
    "byte", "short", "integer", "long", "float", "double", "string", "boolean", "binary", "date",
    "timestamp", "timestamp_ntz",
)  # fmt: skip
LISTED = {
    ("byte", "short"), ("byte", "integer"), ("byte", "long"),
    ("short", "integer"), ("short", "long"), ("integer", "long"),
    ("float", "double"),
    ("byte", "double"), ("short", "double"), ("integer", "double"),
    ("date", "timestamp_ntz"),
}  # fmt: skip


def test_types_without_parameters() -> None:
    assert {pair for pair in product(PLAIN, PLAIN) if is_widening(*pair)} == LISTED


@pytest.mark.parametrize("more", [0, 1, 14])
@pytest.mark.parametrize("scale", [0, 1, 4])
def test_integers_become_decimals_with_room_for_their_digits(more: int, scale: int) -> None:
    for name in ("byte", "short", "integer"):
        assert is_widening(name, f"decimal({10 + scale + more},{scale})")
    if 20 + scale + more <= 38:
        assert is_widening("long", f"decimal({20 + scale + more},{scale})")


def test_integers_do_not_become_decimals_without_room() -> None:
    assert not is_widening("integer", "decimal(9,0)")
    assert not is_widening("integer", "decimal(10,1)")
    assert not is_widening("long", "decimal(18,0)")
    assert not is_widening("long", "decimal(20,2)")
    assert not is_widening("short", "decimal(4,0)")
    assert not is_widening("byte", "decimal(2,0)")
    assert not is_widening("float", "decimal(38,10)")


def test_decimals_grow_by_no_more_scale_than_precision() -> None:
    sizes = [(p, s) for p in range(1, 9) for s in range(p + 1)]
    for (p, s), (q, t) in product(sizes, sizes):
        more, more_scale = q - p, t - s
        expected = more >= more_scale >= 0
        assert is_widening(f"decimal({p},{s})", f"decimal({q},{t})") == expected


def changed(old: str, new: str, name: str = "a") -> StructField:
    change = {"fromType": old, "toType": new, "tableVersion": 2}
    return StructField(name, PrimitiveType("long"), metadata={"delta.typeChanges": [change]})


def test_known_changes_pass() -> None:
    require_known_changes(StructType((changed("short", "long"),)), path="t")


def test_unknown_changes_are_all_named() -> None:
    inner = StructType((changed("string", "integer", "x"),))
    schema = StructType(
        (
            changed("long", "byte"),
            StructField("list", ArrayType(inner)),
            StructField("map", MapType(inner, StructType((changed("date", "string", "y"),)))),
        )
    )
    with pytest.raises(UnsupportedFeatureError) as caught:
        require_known_changes(schema, path="t")
    for text in (
        "a: long to byte",
        "list.element.x: string to integer",
        "map.key.x: string to integer",
        "map.value.y: date to string",
    ):
        assert text in str(caught.value)
    assert caught.value.features == ("typeWidening",)
