"""`PARTITION (day = '2026-01-01', hour)` of an INSERT. Pure."""

from __future__ import annotations

from txlog.base.errors import InvalidInputError
from txlog.expressions.bind import bind_value
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import Cast, Literal, Zoned
from txlog.expressions.type_rules import DOUBLE, FLOAT
from txlog.schema.types import STRING, DataType, StructType, type_name
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.catalog import split_name
from txlog.spark_ext.statements.statement_text import Reader, tokens_of


def partition_of(reader: Reader, base: Snapshot, zone: str) -> dict[str, Literal | None]:
    """Return the columns in parentheses, each with its value in the column's type, or None.

    Raises
    ------
    InvalidInputError
        A name is no partition column or is there twice, or a value is no constant of the type.
    """
    known = {name.lower(): name for name in base.partition_columns}
    found: dict[str, Literal | None] = {}
    for item in reader.items():
        part = Reader(item, tokens_of(item))
        given = split_name(part.name())[0]
        name = known.get(given.lower())
        if name is None or name in found:
            wrong = "is no partition column of the table" if name is None else "is named twice"
            raise InvalidInputError(
                argument="text",
                field=given,
                reason=f"{given} {wrong}",
                remedy=f"Name each at most once: {', '.join(base.partition_columns)}"
                if known
                else "Omit PARTITION: the table has no partitions",
            )
        field = base.schema.get(name)
        assert field is not None
        found[name] = _value(name, part.until(), field.type, zone) if part.accepts("=") else None
        part.end()
    return found


def _value(name: str, text: str, kind: DataType, zone: str) -> Literal:
    """Return a constant in the type of its column.

    A text is cast as Spark casts it, and a float may be the nearest one. Others lose nothing.
    """
    try:
        value, have = bind_value(Zoned(parse_sql(text), zone), StructType())
        is_constant = isinstance(value, Literal)
        if is_constant and have != kind:
            before = value
            value, _ = bind_value(Zoned(Cast(value, kind), zone), StructType())
            if STRING not in (have, kind) and kind not in (FLOAT, DOUBLE):
                back, _ = bind_value(Zoned(Cast(value, have), zone), StructType())
                assert isinstance(before, Literal)
                is_constant = isinstance(back, Literal) and back.value == before.value
    except InvalidInputError:
        is_constant = False
    if not is_constant or not isinstance(value, Literal) or value.value == "":
        raise InvalidInputError(
            argument="text",
            field=name,
            reason=f"{text} is no constant for the partition column {name}, which is "
            f"{type_name(kind)}",
            remedy="Write a constant; NULL for rows without a value",
        )
    return value
