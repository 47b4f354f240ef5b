"""Constraints on the rows of a table: CHECK, and unique keys (spec/unique_keys.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Literal, get_args

from txlog.base.errors import InvalidInputError, InvalidTypeError, UnsupportedFeatureError
from txlog.commit.unique_keys import key_columns
from txlog.data_files.modes import SchemaMode, WriteModes
from txlog.data_files.options import WriteOptions
from txlog.data_files.sieve import Rejects
from txlog.expressions.bind import bind
from txlog.expressions.sql import parse_sql, required_expression, to_sql
from txlog.expressions.tree import Call, Column, Expression, quote_name
from txlog.lookup.keys import KEY_TYPES, can_be_key
from txlog.protocol.properties import (
    CHECK_PREFIX,
    INDEX_PREFIX,
    UNIQUE_PREFIX,
    IndexDefinition,
    UniqueKey,
    index_definitions,
)
from txlog.scan.read_plan import choose_columns
from txlog.schema.types import StructType, type_name
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.indexes import default_name
from txlog.verbs.merge.clauses import MergeRequest
from txlog.verbs.metadata import Changed, ChangeMetadata

_KEY_TEXT = re.compile(
    r"\s*(UNIQUE|PRIMARY\s+KEY)\s*(\(.*\))\s*((?:NOT\s+)?ENFORCED)?\s*", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True)
class Unique:
    """Columns whose values no two rows of a table may share."""

    columns: tuple[str, ...]
    primary: bool = False

    @property
    def text(self) -> str:
        """The key in SQL."""
        names = ", ".join(map(quote_name, self.columns))
        return f"{'PRIMARY KEY' if self.primary else 'UNIQUE'} ({names})"


def not_enforced() -> UnsupportedFeatureError:
    """Return the error for a key that its definition does not want to be enforced."""
    return UnsupportedFeatureError(
        features=("txlog.uniqueKeys",),
        reason="a key that is not enforced is a hint for a query optimizer, which txlog has no use "
        "for",
        remedy="Write ENFORCED behind the columns: then txlog checks every write",
    )


def unique(*columns: str) -> Unique:
    """Return the constraint that no two rows have the same values in some columns.

    It is given to `Table.alter.add_constraint`: `{"pk": txlog.unique("id")}`. A row with a null in
    one of the columns equals no other row.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        No column is given, one is no text, or one is given twice.
    """
    for column in columns:
        if not isinstance(column, str):
            raise InvalidTypeError(
                argument="columns",
                reason=f"{column!r} ({type(column).__name__}) is not the name of a column",
                remedy="Give the names of columns as separate arguments",
            )
    if not columns or len(set(columns)) < len(columns):
        raise InvalidInputError(
            argument="columns",
            reason="no column is given" if not columns else "a column is given twice",
            remedy="Give the name of at least one column, and each name once",
        )
    return Unique(columns)


def _as_unique(given: str | Expression | Unique) -> str | Expression | Unique:
    """Return the key that the SQL of a constraint states, or else the constraint itself."""
    found = _KEY_TEXT.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        return given
    if found[3] and found[3][0] in "nN":
        raise not_enforced()
    listed = parse_sql(f"coalesce{found[2]}")
    parts = listed.args if isinstance(listed, Call) else ()
    names = [part.path[0] for part in parts if isinstance(part, Column) and len(part.path) == 1]
    if not names or len(names) < len(parts):
        raise InvalidInputError(
            argument="constraints",
            reason=f"{given} does not name columns of the table",
            remedy="Write for example UNIQUE (country, id)",
        )
    return Unique(unique(*names).columns, primary=found[1][0] in "pP")


OnConflict = Literal["error", "ignore", "update"]
"""What an append does with rows whose unique key the table has already."""


def require_on_conflict(value: object) -> None:
    """Raise `InvalidInputError` unless it is one of `OnConflict`."""
    known = get_args(OnConflict)
    if value not in known:
        raise InvalidInputError(
            argument="on_conflict",
            reason=f"{value!r} is not one of {', '.join(map(repr, known))}",
        )


def over_conflicts(
    data: object,
    on_conflict: OnConflict,
    base: Snapshot,
    schema_mode: SchemaMode,
    options: WriteOptions | None,
    quarantine: Rejects | None = None,
) -> MergeRequest:
    """Return the merge that adds rows to a table which may have their keys already.

    Raises
    ------
    InvalidInputError
        `on_conflict` is unknown, the table has not exactly one unique key, or the schema would be
        replaced.
    """
    require_on_conflict(on_conflict)
    keys = key_columns(base)
    if len({frozenset(key.key.columns) for key in keys.values()}) != 1:
        raise InvalidInputError(
            argument="on_conflict",
            reason="it is for tables with one unique key, which says which rows are the same, and "
            f"the table has {len(keys) or 'none'}",
            remedy="Merge by the columns of the key, and only insert"
            if on_conflict == "ignore"
            else "Call Table.upsert, which takes the columns of the key",
        )
    WriteModes(schema_mode=schema_mode)  # Only an overwrite may replace the columns.
    return MergeRequest(
        data=data,
        on=next(iter(keys.values())).names,
        schema_mode="merge" if schema_mode == "merge" else None,
        options=options,
        inserts_once=on_conflict == "ignore",
        quarantine=quarantine,
    )


class AddConstraints(ChangeMetadata):
    """Add constraints, which all rows must satisfy from now on."""

    name = "ADD CONSTRAINT"

    def __init__(self, constraints: Mapping[str, str | Expression | Unique]) -> None:
        if not constraints:
            raise InvalidInputError(
                argument="constraints",
                reason="no constraint is given",
                remedy='Pass for example {"positive": "x > 0"}',
            )
        self._constraints = dict(constraints)
        self.indexes: tuple[str, ...] = ()  # The indexes that the last attempt defines.

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata with the constraints, and the predicates for the rows.

        The commit compares the keys of all rows (`UniqueCheck`).
        """
        configuration = dict(base.metadata.configuration)
        predicate: Expression | None = None
        texts: dict[str, str] = {}
        made = []
        for name, given in self._constraints.items():
            _require_free(base, configuration, name)
            rule = _as_unique(given)
            if isinstance(rule, Unique):
                texts[name] = rule.text
                defined = _definition(base, name, rule)
                configuration[f"{UNIQUE_PREFIX}{name}"] = defined.text
                columns = {
                    column.name_in_files(base.mapping_mode): column.name
                    for column in base.schema.fields
                    if column.name not in base.partition_columns
                }
                index = index_for(defined, columns, configuration)
                if index is not None:
                    configuration[f"{INDEX_PREFIX}{index.name}"] = index.text
                    made.append(index.name)
                continue
            bound = _bound(name, rule, base.schema)
            texts[name] = rule if isinstance(rule, str) else to_sql(rule)
            configuration[f"{CHECK_PREFIX}{name}"] = texts[name]
            predicate = bound if predicate is None else predicate & bound
        self.indexes = tuple(made)
        return Changed(
            base.metadata.model_copy(update={"configuration": configuration}),
            {"name": next(iter(texts)), "expr": next(iter(texts.values()))}
            if len(texts) == 1
            else {"constraints": texts},
            checks=predicate,
        )


_PREFIXES = (CHECK_PREFIX, UNIQUE_PREFIX)


def _named(configuration: Mapping[str, str | None], name: str) -> list[str]:
    """Return the properties that define a constraint of this name, in any case."""
    wanted = {f"{prefix}{name}".lower() for prefix in _PREFIXES}
    return [key for key in configuration if key.lower() in wanted]


def _require_free(base: Snapshot, configuration: Mapping[str, str | None], name: str) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidInputError(
            argument="constraints",
            reason=f"a constraint is named by text that is not empty, not by {name!r}",
            remedy='Pass for example {"positive": "x > 0"}',
        )
    if _named(configuration, name):
        raise InvalidInputError(
            argument="constraints",
            field=name,
            reason=f"the table already has a constraint {name}, perhaps in other case"
            if _named(base.metadata.configuration, name)
            else f"{name} is given twice, in upper and lower case",
            remedy="Drop it first, or choose another name",
        )


def _definition(base: Snapshot, name: str, key: Unique) -> UniqueKey:
    """Return the property of a unique key.

    Raises
    ------
    InvalidInputError
        A column is unknown, is named twice or cannot be a key; or it is a part of a primary key
        and may be null.
    """
    columns = choose_columns(base.schema, key.columns, can_be_key)
    for column in columns:
        if not can_be_key(column):
            raise InvalidInputError(
                argument="constraints",
                field=column.name,
                reason=f"values of {type_name(column.type)} cannot be keys",
                remedy=KEY_TYPES,
            )
        if key.primary and column.nullable:
            raise InvalidInputError(
                argument="constraints",
                field=column.name,
                reason=f"{column.name} may be null, so it cannot be a part of a primary key",
                remedy=f"Call alter.set_nullable({column.name!r}, False) first, or make the key "
                "UNIQUE",
            )
    if len(set(columns)) < len(columns):
        raise InvalidInputError(
            argument="constraints", field=name, reason="a column is named twice"
        )
    physical = tuple(column.name_in_files(base.mapping_mode) for column in columns)
    return UniqueKey(name, physical, key.primary)


def index_for(
    key: UniqueKey, columns: Mapping[str, str], configuration: Mapping[str, str | None]
) -> IndexDefinition | None:
    """Return an index to find the rows of a key; None: there is one, or files lack the columns.

    Parameters
    ----------
    columns
        The columns that data files have: their names there, and in the schema.
    configuration
        The properties of the table.
    """
    indexed = tuple(one for one in key.columns if one in columns)
    known = index_definitions(configuration)
    if not indexed or any(set(indexed).issuperset(one.columns) for one in known.values()):
        return None
    plain = default_name([columns[one] for one in indexed])
    free = (f"{plain[:58]}_{number}" for number in count(2))
    name = plain if plain not in known else next(one for one in free if one not in known)
    return IndexDefinition(name, indexed)


def _bound(name: str, given: str | Expression, schema: StructType) -> Expression:
    try:
        expression = (
            parse_sql(given)
            if isinstance(given, str)
            else required_expression(given, argument="constraints", field=name)
        )
        return bind(expression, schema)
    except InvalidInputError as error:
        error.argument, error.field = "constraints", name
        raise


class DropConstraint(ChangeMetadata):
    """Drop a constraint."""

    name = "DROP CONSTRAINT"

    def __init__(self, constraint: str, *, if_exists: bool = False) -> None:
        self._constraint = constraint
        self._if_exists = if_exists

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata without the constraint.

        Raises
        ------
        InvalidInputError
            There is none, or several have this name in other case.
        """
        current = base.metadata.configuration
        alike = _named(current, self._constraint)
        exact = [f"{prefix}{self._constraint}" for prefix in _PREFIXES]
        if len(alike) > 1:
            alike = [key for key in alike if key in exact] or alike
        if len(alike) > 1:
            names = [_name_in(key) for key in alike]
            raise InvalidInputError(
                argument="name",
                field=self._constraint,
                reason=f"the constraints {', '.join(names)} differ only in case",
                remedy="Give the name of one of them",
            )
        kept = {name: text for name, text in current.items() if name not in alike}
        if not alike and not self._if_exists:
            names = [_name_in(key) for key in current if key.startswith(_PREFIXES)]
            raise InvalidInputError(
                argument="name",
                field=self._constraint,
                reason=f"the table has no constraint {self._constraint}",
                remedy=f"Choose from {', '.join(names)}"
                if names
                else "Leave the table as it is: it has none",
            )
        return Changed(
            base.metadata.model_copy(update={"configuration": kept}), {"name": self._constraint}
        )


def _name_in(key: str) -> str:
    """Return the name of a constraint from the name of its property."""
    return next(key.removeprefix(prefix) for prefix in _PREFIXES if key.startswith(prefix))
