"""Simple values of a stream, which become texts where the table's columns are texts.

Delta's streaming sink assigns values to columns as SQL does. Numbers need nothing here, because the
rule of all verbs stores them in any type of number that has exactly this value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from txlog.schema.types import STRING, PrimitiveType, StructType

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkStruct

_MOMENT = PrimitiveType("timestamp")


@dataclass(frozen=True)
class TextValues:
    """The columns of a stream whose values become texts. It pickles.

    Parameters
    ----------
    names
        These columns.
    rows
        The columns of the stream.
    zone
        The time zone of moments as texts. None: that of the session, which tasks know.
    """

    names: tuple[str, ...]
    rows: StructType
    zone: str | None

    def of(
        self, batches: Iterable[pa.RecordBatch], session: str | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches with texts in these columns; runs on an executor.

        Parameters
        ----------
        session
            The session's time zone, if the task knows it.

        Raises
        ------
        InvalidInputError
            A moment becomes a text, and no time zone is known.
        """
        from txlog.base.columns import flat
        from txlog.base.errors import InvalidInputError
        from txlog.expressions.bind import bind_value
        from txlog.expressions.evaluate import evaluate
        from txlog.expressions.tree import Cast, Column, in_zone

        zone = self.zone or session
        kinds = {field.name: field.type for field in self.rows.fields}
        if zone is None and any(kinds[name] == _MOMENT for name in self.names):
            raise InvalidInputError(
                argument="timeZone",
                reason="a timestamp as text depends on the time zone, and no task knows that of "
                "the session",
                remedy="Pass the option timeZone, or cast the column to string",
            )
        texts = {
            name: bind_value(in_zone(Cast(Column((name,)), STRING), zone or "UTC"), self.rows)[0]
            for name in self.names
        }
        for batch in batches:
            changed = batch
            for name, text in texts.items():
                place = batch.schema.names.index(name)
                changed = changed.set_column(place, name, flat(evaluate(text, batch)))
            yield changed


def with_texts(
    schema: SparkStruct, table: StructType, zone: str | None
) -> tuple[SparkStruct, TextValues | None]:
    """Return a stream's columns as they fit a table, and the values that become texts for that."""
    from pyspark.sql.types import StringType, StructField
    from pyspark.sql.types import StructType as SparkStruct

    from txlog.data_files.incoming import is_storable
    from txlog.expressions.type_rules import is_castable
    from txlog.spark_ext.spark_types import frame_schema

    rows = frame_schema(schema)
    names = []
    for field in rows.fields:
        column = table.get(field.name)
        if column is None or column.type != STRING or is_storable(field.type, STRING):
            continue
        if is_castable(field.type, STRING):
            names.append(field.name)
    if not names:
        return schema, None
    fields = [
        StructField(one.name, StringType(), one.nullable) if one.name in names else one
        for one in schema.fields
    ]
    return SparkStruct(fields), TextValues(tuple(names), rows, zone)
