"""`History`: the commits of a table, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txlog.actions.told import json_of, told_pairs, told_text

if TYPE_CHECKING:
    import pyarrow as pa


class History(list[dict[str, Any]]):
    """The commits of a table, newest first: a list of dicts, because each writer has own fields."""

    def to_arrow(self) -> pa.Table:
        """Return a row for each commit.

        Columns: `version`, `timestamp` (milliseconds since the epoch, UTC), `operation`,
        `operationParameters` and `operationMetrics` (maps of texts), `readVersion`,
        `isolationLevel`, `isBlindAppend`, `userMetadata`, `engineInfo`, and then the other fields
        that a commit has, by name. These are texts: values that are no text are JSON. A value of a
        known field is null if it has another type.
        """
        import pyarrow as pa

        from txlog.base.arrow import table_of_rows

        texts = pa.map_(pa.string(), pa.string())
        known = {
            "version": pa.int64(),
            "timestamp": pa.int64(),
            "operation": pa.string(),
            "operationParameters": texts,
            "operationMetrics": texts,
            "readVersion": pa.int64(),
            "isolationLevel": pa.string(),
            "isBlindAppend": pa.bool_(),
            "userMetadata": pa.string(),
            "engineInfo": pa.string(),
        }
        others = sorted({name for entry in self for name in entry} - known.keys())
        schema = pa.schema({**known, **dict.fromkeys(others, pa.string())})
        rows = [
            {field.name: fitting(entry.get(field.name), field.type) for field in schema}
            for entry in self
        ]
        return table_of_rows(rows, schema)

    def _repr_html_(self) -> str:
        from txlog.base.html import rows_html

        names = ("version", "time (UTC)", "operation", "what it did", "note", "engine")
        return rows_html(names, map(_shown, self))


def _shown(entry: Mapping[str, Any]) -> list[Any]:
    from txlog.base.moments import format_moment

    metrics = told_pairs(entry, "operationMetrics").items()
    made_ms = entry.get("timestamp")
    return [
        entry.get("version"),
        None if made_ms is None else format_moment(made_ms * 1000, digits=3, separator=" "),
        told_text(entry, "operation"),
        ", ".join(f"{name} {value}" for name, value in metrics if value != "0"),
        told_text(entry, "userMetadata"),
        told_text(entry, "engineInfo"),
    ]


def fitting(value: Any, kind: pa.DataType) -> Any:
    """Return a JSON value as Arrow takes it for a type, or None if it does not have the type. Pure.

    For a type of text, a value that is no text is written as JSON.
    """
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_string(kind):
        return json_of(value)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        return value if type(value) is int else None
    if not isinstance(value, Mapping):
        return None
    if pa.types.is_map(kind):
        return [(name, fitting(text, pa.string())) for name, text in value.items()]
    return {field.name: fitting(value.get(field.name), field.type) for field in kind}
