"""Changes of a table's columns; data files stay as they are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from txlog.commit.context import Context
from txlog.data_files.constraints import (
    constraints_of,
    has_default,
)
from txlog.data_files.incoming import require_columns
from txlog.data_files.plan import settled
from txlog.data_files.write import require_storable
from txlog.errors import InvalidInputError, UnsupportedFeatureError
from txlog.expressions.bind import bind, columns_of
from txlog.expressions.tree import Expression, IsNull, Not, col
from txlog.protocol.mapping import with_schema
from txlog.schema.edit import (
    FieldPath,
    Place,
    find_field,
    moved,
    with_field,
    with_new_field,
)
from txlog.schema.types import (
    TYPE_CHANGES,
    DataType,
    StructField,
    StructType,
    is_widening,
    type_name,
)
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.metadata import Changed, ChangeMetadata


class ChangeSchema(ChangeMetadata):
    """Change the schema; data files stay as they are."""

    @abstractmethod
    def schema(self, base: Snapshot) -> StructType:
        """Return the changed schema."""

    def parameters(self, base: Snapshot) -> Mapping[str, Any]:
        """Return what the commit says."""
        return {}

    def features(self) -> frozenset[str]:
        """Return the features that the change needs besides."""
        return frozenset()

    def checks(self, base: Snapshot) -> Expression | None:
        """Return what must be true of every row that is there."""
        return None

    def configuration(self, base: Snapshot) -> Mapping[str, str | None]:
        """Return the properties after the change."""
        return base.metadata.configuration

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata with the schema."""
        schema = settled(base, self.schema(base))
        require_columns(schema)
        require_storable(schema, base.partition_columns)
        configuration = dict(self.configuration(base))
        metadata = base.metadata.model_copy(update={"configuration": configuration})
        return Changed(
            metadata if schema == base.schema else with_schema(metadata, schema),
            self.parameters(base),
            self.features(),
            self.checks(base),
        )


class AddFields(ChangeSchema):
    """Add nullable columns, and fields of structs; rows that are there have nulls in them."""

    name = "ADD COLUMNS"

    def __init__(self, context: Context, fields: Sequence[tuple[FieldPath, StructField]]) -> None:
        """Take the fields, each with the path of the struct that it is added to."""
        super().__init__(context)
        for path, field in fields:
            if has_default(field):
                raise InvalidInputError(
                    argument="columns",
                    field=".".join((*path, field.name)),
                    reason="a default or generated column cannot be added to rows that are there",
                    remedy="Define it when the table is created",
                )
            if not field.nullable:
                raise InvalidInputError(
                    argument="columns",
                    field=".".join((*path, field.name)),
                    reason="a new column must be nullable: rows that are there have no value",
                    remedy="Add it as nullable, give all rows a value, and call set_nullable",
                )
        self._fields = tuple(fields)

    def schema(self, base: Snapshot) -> StructType:
        """Return the schema with the fields."""
        schema = base.schema
        for path, field in self._fields:
            schema = with_new_field(schema, path, field)
        return schema

    def parameters(self, base: Snapshot) -> Mapping[str, Any]:
        """Return the columns as Delta lists them."""
        columns = [
            {"column": {"name": ".".join((*path, field.name)), "type": type_name(field.type)}}
            for path, field in self._fields
        ]
        return {"columns": columns}


def path_of(schema: StructType, column: str) -> FieldPath:
    """Return the path that a column's name means: a name with dots may be a column's own."""
    return (column,) if schema.get(column) is not None else col(column).path


class ChangeColumn(ChangeSchema):
    """Change one field: its comment and metadata, whether it may be null, its place, its type."""

    name = "CHANGE COLUMN"

    def __init__(
        self,
        context: Context,
        column: str,
        *,
        metadata: Mapping[str, str | None] | None = None,
        nullable: bool | None = None,
        place: Place | None = None,
        kind: DataType | None = None,
    ) -> None:
        """Take what changes of the field.

        Parameters
        ----------
        metadata
            Texts of the field's metadata, such as `comment`; None takes one away.
        kind
            A wider type.
        """
        super().__init__(context)
        self._column = column
        self._metadata = dict(metadata or {})
        self._nullable = nullable
        self._place = place
        self._kind = kind
        for name in self._metadata:
            if name.startswith("delta.") or name in ("CURRENT_DEFAULT", "EXISTS_DEFAULT"):
                raise InvalidInputError(
                    argument="metadata",
                    field=name,
                    reason="this name has a meaning of its own in Delta",
                    remedy="Choose another name",
                )

    def schema(self, base: Snapshot) -> StructType:
        """Return the schema with the changed field."""
        path = path_of(base.schema, self._column)
        schema = with_field(base.schema, path, lambda field: self._changed(base, field))
        return schema if self._place is None else moved(schema, path, self._place)

    def _changed(self, base: Snapshot, field: StructField) -> StructField:
        metadata = {**field.metadata, **self._metadata}
        field = replace(
            field, metadata={name: text for name, text in metadata.items() if text is not None}
        )
        if self._nullable is not None:
            field = replace(field, nullable=self._nullable)
        if self._kind is None or self._kind == field.type:
            return field
        _require_widening(base, field, self._kind, self._column)
        recorded = [
            *(field.metadata.get(TYPE_CHANGES) or ()),
            {"fromType": type_name(field.type), "toType": type_name(self._kind)},
        ]
        metadata = {**field.metadata, TYPE_CHANGES: recorded}
        return replace(field, type=self._kind, metadata=metadata)

    def features(self) -> frozenset[str]:
        """Return the feature of wider types."""
        return frozenset() if self._kind is None else frozenset({"typeWidening"})

    def configuration(self, base: Snapshot) -> Mapping[str, str | None]:
        """Return the properties, of which one lets types be widened."""
        current = base.metadata.configuration
        return current if self._kind is None else {**current, "delta.enableTypeWidening": "true"}

    def checks(self, base: Snapshot) -> Expression | None:
        """Return that the column is not null, if it must not be from now on."""
        path, field = find_field(base.schema, path_of(base.schema, self._column))
        if self._nullable is not False or not field.nullable:
            return None
        if len(path) > 1:
            raise UnsupportedFeatureError(
                path=base.root,
                features=("NOT NULL",),
                reason=f"{'.'.join(path)} is nested, and only columns are checked for nulls",
                remedy="Set NOT NULL on a column of the table",
            )
        return bind(Not(IsNull(col("`" + path[0].replace("`", "``") + "`"))), base.schema)

    def parameters(self, base: Snapshot) -> Mapping[str, Any]:
        """Return the column as Delta describes it."""
        path, field = find_field(self.schema(base), path_of(base.schema, self._column))
        described = {
            "name": path[-1],
            "type": type_name(field.type),
            "nullable": field.nullable,
            "metadata": dict(field.metadata),
        }
        above = {"path": ".".join(path[:-1])} if path[1:] else {}
        return {"column": described, **above}


def _require_widening(base: Snapshot, field: StructField, kind: DataType, name: str) -> None:
    """Raise unless the protocol lets a type be changed to another one, and nothing needs the old.

    Raises
    ------
    InvalidInputError
        It does not.
    """
    if not is_widening(type_name(field.type), type_name(kind)):
        raise InvalidInputError(
            argument="type",
            field=name,
            reason=f"{type_name(field.type)} cannot become {type_name(kind)}: values could be lost",
            remedy="Widen it to a larger type of its kind, or add another column",
        )
    needing = [
        rule.name
        for rule in constraints_of(base.metadata, base.schema)
        if any(".".join(path) == name for path in columns_of(rule.predicate))
    ]
    if needing:
        raise InvalidInputError(
            argument="type",
            field=name,
            reason=f"the constraint {needing[0]} needs it",
            remedy="Drop the constraint first, and add it again",
        )
