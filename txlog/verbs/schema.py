"""Changes of a table's columns; data files do not change."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from txlog.base.arrow import pc
from txlog.base.errors import InvalidInputError
from txlog.data_files.constraints import (
    constraints_of,
    has_default,
    require_no_null,
    with_default,
)
from txlog.data_files.identity import (
    identities,
    identity_of,
    require_identities,
    with_marks,
)
from txlog.data_files.write_plan import settled
from txlog.expressions.bind import bind, column_path, columns_of
from txlog.expressions.tree import Expression, IsNull, Not, Or, col, quote_name
from txlog.protocol.mapping import with_schema
from txlog.scan.plan import plan_scan
from txlog.scan.scan import Scan
from txlog.schema.arrow import FIXED_SIZE, is_list_size
from txlog.schema.blobs import require_same_blobs
from txlog.schema.edit import (
    FieldPath,
    Place,
    find_field,
    moved,
    with_field,
    with_new_field,
)
from txlog.schema.storable import require_storable
from txlog.schema.types import (
    CURRENT_DEFAULT,
    TYPE_CHANGES,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    is_widening,
    require_columns,
    type_name,
)
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.metadata import Changed, ChangeMetadata


class ChangeSchema(ChangeMetadata):
    """Change the schema; data files do not change."""

    @abstractmethod
    def schema(self, base: Snapshot) -> StructType:
        """Return the changed schema."""

    def parameters(self, base: Snapshot) -> Mapping[str, Any]:
        """Return the operation parameters of the commit."""
        return {}

    def features(self, base: Snapshot) -> frozenset[str]:
        """Return the additional features that the change needs."""
        return frozenset()

    def checks(self, base: Snapshot) -> Expression | None:
        """Return the predicates that every existing row must satisfy."""
        return None

    def configuration(self, base: Snapshot) -> Mapping[str, str | None]:
        """Return the properties after the change."""
        return base.metadata.configuration

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata with the schema."""
        schema = settled(base, self.schema(base))
        require_columns(schema)
        require_same_blobs(base.schema, schema)
        require_storable(schema, base.partition_columns)
        require_identities(schema, base.partition_columns)
        configuration = dict(self.configuration(base))
        metadata = base.metadata.model_copy(update={"configuration": configuration})
        return Changed(
            metadata if schema == base.schema else with_schema(metadata, schema),
            self.parameters(base),
            self.features(base),
            self.checks(base),
        )


class AddFields(ChangeSchema):
    """Add nullable columns, and fields of structs; existing rows have nulls in them."""

    name = "ADD COLUMNS"

    def __init__(
        self,
        fields: Sequence[tuple[FieldPath, StructField]],
        places: Sequence[Place | None] | None = None,
    ) -> None:
        """Take the fields, each with the path of the struct that it is added to, and its place.

        A field without a place becomes the last one.
        """
        self._places = [None] * len(fields) if places is None else list(places)
        for path, field in fields:
            if has_default(field):
                raise InvalidInputError(
                    argument="columns",
                    field=".".join((*path, field.name)),
                    reason="a column with a default or generated values cannot be added to "
                    "existing rows",
                    remedy="Define it when the table is created",
                )
            if not field.nullable:
                raise InvalidInputError(
                    argument="columns",
                    field=".".join((*path, field.name)),
                    reason="a new column must be nullable, because existing rows have no value",
                    remedy="Add it as nullable, give all rows a value, and call "
                    f"alter.set_nullable({'.'.join((*path, field.name))!r}, False)",
                )
        self._fields = tuple(fields)

    def schema(self, base: Snapshot) -> StructType:
        """Return the schema with the fields."""
        schema = base.schema
        for (path, field), place in zip(self._fields, self._places, strict=True):
            schema = with_new_field(schema, path, field)
            if place is not None:
                schema = moved(schema, (*path, field.name), place)
        return schema

    def parameters(self, base: Snapshot) -> Mapping[str, Any]:
        """Return the columns in Delta's form."""
        columns = [
            {
                "column": {"name": ".".join((*path, field.name)), "type": type_name(field.type)},
                **_position(place),
            }
            for (path, field), place in zip(self._fields, self._places, strict=True)
        ]
        return {"columns": columns}


def _position(place: Place | None) -> dict[str, str]:
    """Return a place in Delta's form."""
    if place is None or place == "last":
        return {}
    return {"position": "FIRST" if place == "first" else f"AFTER {place[1]}"}


class ChangeColumn(ChangeSchema):
    """Change one field: its comment and metadata, nullability, position or type."""

    name = "CHANGE COLUMN"

    def __init__(
        self,
        column: str,
        *,
        metadata: Mapping[str, str | None] | None = None,
        nullable: bool | None = None,
        place: Place | None = None,
        kind: DataType | None = None,
    ) -> None:
        """Take the changes of the field.

        Parameters
        ----------
        metadata
            Texts of the field's metadata, such as `comment`; None removes one.
        kind
            A wider type; any type for a field of type void.
        """
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
                    reason="Delta itself uses this name",
                    remedy="Choose another name",
                )
            size = self._metadata[name]
            if name.startswith(FIXED_SIZE) and size is not None and not is_list_size(size):
                raise InvalidInputError(
                    argument="metadata",
                    field=name,
                    reason=f"{size!r} is not a valid size of a list",
                    remedy="Give a positive number as text",
                )

    def schema(self, base: Snapshot) -> StructType:
        """Return the schema with the changed field."""
        path = column_path(base.schema, self._column)
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
        if field.type == VOID:
            return replace(field, type=self._kind)
        recorded = [
            *(field.metadata.get(TYPE_CHANGES) or ()),
            {"fromType": type_name(field.type), "toType": type_name(self._kind)},
        ]
        metadata = {**field.metadata, TYPE_CHANGES: recorded}
        return replace(field, type=self._kind, metadata=metadata)

    def features(self, base: Snapshot) -> frozenset[str]:
        """Return the feature of type widening, if a type becomes wider."""
        return frozenset({"typeWidening"}) if self._widens(base) else frozenset()

    def configuration(self, base: Snapshot) -> Mapping[str, str | None]:
        """Return the properties; one of them allows type widening, if a type becomes wider."""
        current = base.metadata.configuration
        return {**current, "delta.enableTypeWidening": "true"} if self._widens(base) else current

    def _widens(self, base: Snapshot) -> bool:
        """Return whether a type changes; one that is given to a void column does not."""
        if self._kind is None:
            return False
        return find_field(base.schema, column_path(base.schema, self._column))[1].type != VOID

    def checks(self, base: Snapshot) -> Expression | None:
        """Return a predicate that the column is not null, if the change forbids null."""
        path, field = find_field(base.schema, column_path(base.schema, self._column))
        if self._nullable is not False or not field.nullable:
            return None
        steps = [col(".".join(map(quote_name, path[: end + 1]))) for end in range(len(path))]
        there: Expression = Not(IsNull(steps[-1]))
        if self._in_struct(base, path):  # A field of a null struct may be null.
            return bind(Or((*map(IsNull, steps[:-1]), there)) if steps[1:] else there, base.schema)
        self._check_nested(base, path[0])
        return bind(Or((IsNull(steps[0]), Not(IsNull(steps[0])))), base.schema)

    @staticmethod
    def _in_struct(base: Snapshot, path: FieldPath) -> bool:
        """Return whether a path leads only through structs, not through lists and maps."""
        return len(base.schema.along(path)) == len(path)

    def _check_nested(self, base: Snapshot, column: str) -> None:
        """Raise if a field in lists or maps of a column is null in an existing row."""
        field = self.schema(base).get(column)
        assert field is not None
        plan = plan_scan(base, load_files(self.context.store, base).live, columns=[column])
        for batch in Scan(self.context.store, plan, self.context.engine).to_batches():
            require_no_null(batch.column(0), field, column)

    def parameters(self, base: Snapshot) -> Mapping[str, Any]:
        """Return the column in Delta's form."""
        path, field = find_field(self.schema(base), column_path(base.schema, self._column))
        described = {
            "name": path[-1],
            "type": type_name(field.type),
            "nullable": field.nullable,
            "metadata": dict(field.metadata),
        }
        above = {"path": ".".join(path[:-1])} if path[1:] else {}
        return {"column": described, **above}


class ReplaceFields(ChangeSchema):
    """Put the columns into another order, comment on them, and add nullable ones.

    Each existing column is in the new list, with its type, and keeps its metadata but the comments:
    those of the list replace them, also within structs.
    """

    name = "REPLACE COLUMNS"

    def __init__(self, fields: Sequence[StructField]) -> None:
        self._fields = tuple(fields)

    def schema(self, base: Snapshot) -> StructType:
        """Return the columns in their new order.

        Raises
        ------
        InvalidInputError
            A column is missing or there twice, or has another type, or a new one is not nullable.
            Or a column or field that may be null would become NOT NULL.
        """
        names = [field.name.lower() for field in self._fields]
        lost = [one for one in base.schema.names() if one.lower() not in names]
        if lost:
            raise InvalidInputError(
                argument="columns",
                field=lost[0],
                reason=f"the new list lacks the columns {', '.join(lost)}",
                remedy="Name all columns, and drop the others by a statement of their own",
            )
        return StructType(tuple(self._replaced(base, field) for field in self._fields))

    def _replaced(self, base: Snapshot, given: StructField) -> StructField:
        field = base.schema.get(given.name)
        if field is None:
            AddFields([((), given)])  # It raises if the column cannot be added.
            return given
        if type_name(field.type) != type_name(given.type):
            raise InvalidInputError(
                argument="columns",
                field=field.name,
                reason=f"{field.name} is {type_name(field.type)}, not {type_name(given.type)}",
                remedy="Repeat its type, and widen it by a statement of its own",
            )
        return _described(field, given, field.name)

    def parameters(self, base: Snapshot) -> Mapping[str, Any]:
        """Return the columns in Delta's form."""
        return {
            "columns": [
                {"column": {"name": field.name, "type": type_name(field.type)}}
                for field in self._fields
            ]
        }


def _described(field: StructField, given: StructField, path: str) -> StructField:
    """Return a field of a table with the comments of its new description, at any depth."""
    if field.nullable and not given.nullable:
        raise InvalidInputError(
            argument="columns",
            field=path,
            reason=f"{path} may be null, and the list says NOT NULL: its rows would have to be "
            "read first",
            remedy="Omit NOT NULL here, and set it by a statement of its own: "
            f"ALTER COLUMN {path} SET NOT NULL",
        )
    kept = {name: text for name, text in field.metadata.items() if name != "comment"}
    comment = given.metadata.get("comment")
    metadata = kept if comment is None else {**kept, "comment": comment}
    kind = _described_type(field.type, given.type, path)
    return replace(field, type=kind, metadata=metadata)


def _described_type(kind: DataType, given: DataType, path: str) -> DataType:
    match kind, given:
        case StructType(fields), StructType(others):
            pairs = zip(fields, others, strict=True)
            return StructType(
                tuple(_described(one, other, f"{path}.{one.name}") for one, other in pairs)
            )
        case ArrayType(element), ArrayType(other):
            return replace(kind, element=_described_type(element, other, f"{path}.element"))
        case MapType(key, value), MapType(other_key, other):
            return replace(
                kind,
                key=_described_type(key, other_key, f"{path}.key"),
                value=_described_type(value, other, f"{path}.value"),
            )
    return kind


class SetDefault(ChangeSchema):
    """Set the default of a column, for rows that are written without it; None removes it."""

    name = "CHANGE COLUMN"

    def __init__(self, column: str, default: str | None) -> None:
        self._column = column
        self._default = default

    def schema(self, base: Snapshot) -> StructType:
        """Return the schema with the default.

        Raises
        ------
        InvalidInputError
            There is no such column, its values are generated, or the default cannot be evaluated as
            its type.
        """
        path, field = find_field(base.schema, column_path(base.schema, self._column))
        kept = {name: text for name, text in field.metadata.items() if name != CURRENT_DEFAULT}
        if self._default is None:
            return with_field(base.schema, path, lambda one: replace(one, metadata=kept))
        if len(path) > 1:
            raise InvalidInputError(
                argument="column",
                field=".".join(path),
                reason=f"{'.'.join(path)} is nested, and only columns of the table have defaults",
                remedy="Choose another column",
            )
        new = with_default(field, self._default)
        return with_field(base.schema, path, lambda _: new)

    def parameters(self, base: Snapshot) -> Mapping[str, Any]:
        """Return the column and its default."""
        return {"column": self._column, "default": self._default}


class SyncIdentity(ChangeSchema):
    """Continue the counter of an identity column after the existing values."""

    name = "SYNC IDENTITY"

    def __init__(self, column: str) -> None:
        self._column = column

    def schema(self, base: Snapshot) -> StructType:
        """Return the schema with the new high-water mark.

        Raises
        ------
        InvalidInputError
            There is no such column, or it is not an identity column.
        """
        others = ", ".join(identities(base.schema))
        remedy = f"Choose from {others}" if others else "Choose a table with an identity column"
        try:
            (name,), field = find_field(base.schema, (self._column,))
        except InvalidInputError as error:
            error.remedy = remedy
            raise
        if not field.is_identity:
            raise InvalidInputError(
                argument="column",
                field=name,
                reason=f"column {name} is not an identity column",
                remedy=remedy,
            )
        found = identity_of(field)
        plan = plan_scan(base, load_files(self.context.store, base).live, columns=[name])
        ends = [
            pc.min_max(batch.column(0))["max" if found.step > 0 else "min"].as_py()
            for batch in Scan(self.context.store, plan, self.context.engine).to_batches()
        ]
        known = [end for end in ends if end is not None]
        if not known:
            return base.schema
        furthest = max(known) if found.step > 0 else min(known)
        if (furthest - found.start) * found.step < 0:
            return base.schema
        return with_marks(base.schema, {field.physical_name: found.reaching(furthest)})

    def parameters(self, base: Snapshot) -> Mapping[str, Any]:
        """Return the column."""
        return {"column": self._column}


def _require_widening(base: Snapshot, field: StructField, kind: DataType, name: str) -> None:
    """Raise unless the protocol allows a change of a type, and nothing needs the old type.

    Raises
    ------
    InvalidInputError
        The change is not allowed.
    """
    if field.type != VOID and not is_widening(type_name(field.type), type_name(kind)):
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
