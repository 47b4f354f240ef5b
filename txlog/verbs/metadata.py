"""Changes of a table's metadata that no row depends on: properties, constraints, columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txlog.actions.table import Metadata
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Operation
from txlog.data_files.constraints import CHECK_PREFIX, constraints_of
from txlog.data_files.incoming import require_columns
from txlog.data_files.write import require_storable
from txlog.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from txlog.expressions.bind import bind, columns_of
from txlog.expressions.sql import as_expression, parse_sql, to_sql
from txlog.expressions.tree import Expression, IsNull, Not, Or, col
from txlog.protocol.access import (
    needed_features,
    require_writable,
    upgraded,
)
from txlog.protocol.properties import RECORDED, Properties, split_features, validate_properties
from txlog.scan.plan import plan_scan
from txlog.scan.scan import Scan
from txlog.schema.edit import FieldPath, Place, find_field, moved, with_field, with_new_field
from txlog.schema.json import parse_schema, schema_json
from txlog.schema.types import TYPE_CHANGES, DataType, StructField, StructType, type_name
from txlog.schema.widening import is_widening
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.collect import require_stats_columns


@dataclass(frozen=True)
class Changed:
    """What an operation makes of the metadata, and what it says of it."""

    metadata: Metadata
    parameters: Mapping[str, Any]
    features: frozenset[str] = frozenset()  # That the protocol must list besides.
    checks: Expression | None = None  # Must be true of every row that is there.


class ChangeMetadata(Operation):
    """Change the metadata; the protocol gets the features that the change needs, and no others."""

    @abstractmethod
    def change(self, base: Snapshot) -> Changed:
        """Return the changed metadata."""

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the metadata and protocol, or None if nothing changes.

        Raises
        ------
        InvalidInputError
            The change does not fit the table.
        SchemaMismatchError
            Rows that are there break what is to hold from now on.
        UnsupportedFeatureError
            txlog could not write the table then.
        """
        changed = self.change(base)
        schema = parse_schema(changed.metadata.schema_string or "")
        needed = needed_features(schema, Properties(changed.metadata.configuration))
        protocol = upgraded(base.protocol, needed | changed.features)
        if changed.metadata == base.metadata and protocol == base.protocol:
            return None
        require_writable(protocol, changed.metadata, schema, path=base.root)
        if changed.checks is not None:
            _require_true(self.context, base, changed.checks)
        return Intent(
            operation=self.name,
            kind="metadata" if protocol == base.protocol else "protocol",
            read_version=base.version,
            metadata=None if changed.metadata == base.metadata else changed.metadata,
            protocol=None if protocol == base.protocol else protocol,
            reads=Reads(everything=changed.checks is not None),
            parameters=changed.parameters,
        )


def _require_true(context: Context, base: Snapshot, predicate: Expression) -> None:
    """Raise if a row breaks a predicate; files whose statistics show that none does are not read.

    Raises
    ------
    SchemaMismatchError
        Says how many rows do, and shows one.
    """
    broken = Or((Not(predicate), IsNull(predicate)))
    plan = plan_scan(base, load_files(context.store, base).live, where=broken)
    scan = Scan(context.store, plan, context.engine)
    count = scan.count()
    if not count:
        return
    row = scan.head(1).to_pylist()[0]
    raise SchemaMismatchError(
        argument="data",
        path=base.root,
        reason=f"{count} rows of the table do not satisfy {to_sql(predicate)}, for example {row}",
        remedy="Nothing was committed; change or delete these rows first",
    )


class SetProperties(ChangeMetadata):
    """Set properties of a table, and take others away."""

    def __init__(
        self,
        context: Context,
        properties: Mapping[str, str],
        *,
        unset: Sequence[str] = (),
        if_exists: bool = False,
    ) -> None:
        """Take the properties.

        Parameters
        ----------
        unset
            Names of properties that are taken away.
        if_exists
            Let properties be taken away that are not there.
        """
        super().__init__(context)
        self._properties = dict(properties)
        self._unset = tuple(unset)
        self._if_exists = if_exists

    @property
    def name(self) -> str:  # type: ignore[override]
        """The operation as Delta calls it."""
        return "UNSET TBLPROPERTIES" if self._unset else "SET TBLPROPERTIES"

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata with the properties."""
        _require_settable({**self._properties, **dict.fromkeys(self._unset, "")})
        validate_properties(self._properties)
        features, kept = split_features(self._properties)
        current = base.metadata.configuration
        missing = [name for name in self._unset if name not in current]
        if missing and not self._if_exists:
            raise InvalidInputError(
                argument="properties",
                field=missing[0],
                reason=f"the table has no property {missing[0]}",
                remedy="Pass if_exists=True to pass over it",
            )
        configuration = {
            name: text for name, text in current.items() if name not in self._unset
        } | kept
        _require_turned_on(base, configuration)
        require_stats_columns(base.schema, base.partition_columns, Properties(configuration))
        parameters: dict[str, Any] = {"properties": dict(self._properties)}
        if self._unset:
            parameters = {"properties": list(self._unset), "ifExists": self._if_exists}
        return Changed(
            base.metadata.model_copy(update={"configuration": configuration}),
            parameters,
            frozenset(features),
        )


def _require_settable(properties: Mapping[str, str]) -> None:
    for name in properties:
        if name in RECORDED:
            raise InvalidInputError(
                argument="properties",
                field=name,
                reason="writers of a table record this themselves",
                remedy="Leave it out",
            )
        if name.startswith(CHECK_PREFIX):
            raise InvalidInputError(
                argument="properties",
                field=name,
                reason="a constraint is not set as a property: the rows must be checked first",
                remedy="Call alter.add_constraint, or alter.drop_constraint",
            )


_LATER = {
    "delta.enableInCommitTimestamps": "the table has versions without in-commit timestamps",
    "delta.enableRowTracking": "rows that are there have no ids",
    "txlog.deletionFormat": "files that are there have deletions of the other form",
}


def _require_turned_on(base: Snapshot, configuration: Mapping[str, str | None]) -> None:
    """Refuse to turn on what older files or versions would need, too."""
    now = Properties(configuration)
    for name, reason in _LATER.items():
        if now.get(name) != base.properties.get(name) and now.get(name):
            raise UnsupportedFeatureError(
                path=base.root,
                features=(name,),
                reason=f"{name} cannot be turned on: {reason}",
                remedy="Set it when the table is created",
            )


class AddConstraints(ChangeMetadata):
    """Add CHECK constraints, which all rows must satisfy from now on."""

    name = "ADD CONSTRAINT"

    def __init__(self, context: Context, constraints: Mapping[str, str | Expression]) -> None:
        super().__init__(context)
        if not constraints:
            raise InvalidInputError(
                argument="constraints",
                reason="no constraint is given",
                remedy='Pass for example {"positive": "x > 0"}',
            )
        self._constraints = dict(constraints)

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata with the constraints, and what the rows must satisfy."""
        configuration = dict(base.metadata.configuration)
        known = {name.lower() for name in configuration}
        predicate: Expression | None = None
        texts: dict[str, str] = {}
        for name, given in self._constraints.items():
            key = f"{CHECK_PREFIX}{name}"
            if key.lower() in known:
                raise InvalidInputError(
                    argument="constraints",
                    field=name,
                    reason=f"the table has a constraint {name} already",
                    remedy="Drop it first, or choose another name",
                )
            bound = _bound(name, given, base.schema)
            texts[name] = given if isinstance(given, str) else to_sql(given)
            configuration[key] = texts[name]
            predicate = bound if predicate is None else predicate & bound
        return Changed(
            base.metadata.model_copy(update={"configuration": configuration}),
            {"name": next(iter(texts)), "expr": next(iter(texts.values()))}
            if len(texts) == 1
            else {"constraints": texts},
            checks=predicate,
        )


def _bound(name: str, given: str | Expression, schema: StructType) -> Expression:
    try:
        expression = parse_sql(given) if isinstance(given, str) else as_expression(given)
        assert expression is not None
        return bind(expression, schema)
    except InvalidInputError as error:
        error.argument, error.field = "constraints", name
        raise


class DropConstraint(ChangeMetadata):
    """Drop a CHECK constraint."""

    name = "DROP CONSTRAINT"

    def __init__(self, context: Context, constraint: str, *, if_exists: bool = False) -> None:
        super().__init__(context)
        self._constraint = constraint
        self._if_exists = if_exists

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata without the constraint."""
        wanted = f"{CHECK_PREFIX}{self._constraint}".lower()
        current = base.metadata.configuration
        kept = {name: text for name, text in current.items() if name.lower() != wanted}
        if len(kept) == len(current) and not self._if_exists:
            names = [
                name.removeprefix(CHECK_PREFIX) for name in current if name.startswith(CHECK_PREFIX)
            ]
            raise InvalidInputError(
                argument="name",
                field=self._constraint,
                reason=f"the table has no constraint {self._constraint}",
                remedy=f"Choose from {', '.join(names)}" if names else "It has none",
            )
        return Changed(
            base.metadata.model_copy(update={"configuration": kept}), {"name": self._constraint}
        )


class Describe(ChangeMetadata):
    """Give a table another name or description."""

    name = "UPDATE TABLE METADATA"

    def __init__(self, context: Context, **texts: str | None) -> None:
        super().__init__(context)
        self._texts = texts

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata with the texts."""
        for argument, text in self._texts.items():
            if text is not None and not isinstance(text, str):
                raise InvalidInputError(
                    argument=argument, reason=f"text was expected, not {type(text).__name__}"
                )
        return Changed(base.metadata.model_copy(update=dict(self._texts)), dict(self._texts))


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
        schema = self.schema(base)
        require_columns(schema)
        require_storable(schema, base.partition_columns)
        changes = {
            "schema_string": schema_json(schema),
            "configuration": dict(self.configuration(base)),
        }
        if schema == base.schema:
            del changes["schema_string"]
        return Changed(
            base.metadata.model_copy(update=changes),
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
        self._path = col(column).path
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
        schema = with_field(base.schema, self._path, lambda field: self._changed(base, field))
        return schema if self._place is None else moved(schema, self._path, self._place)

    def _changed(self, base: Snapshot, field: StructField) -> StructField:
        metadata = {**field.metadata, **self._metadata}
        field = replace(
            field, metadata={name: text for name, text in metadata.items() if text is not None}
        )
        if self._nullable is not None:
            field = replace(field, nullable=self._nullable)
        if self._kind is None or self._kind == field.type:
            return field
        _require_widening(base, field, self._kind, ".".join(self._path))
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
        path, field = find_field(base.schema, self._path)
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
        path, field = find_field(self.schema(base), self._path)
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
