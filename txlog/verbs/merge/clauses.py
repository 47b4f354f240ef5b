"""The clauses of a merge: the actions for rows that match, and for rows that do not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any
from typing import Literal as OneOf

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import numpy_array
from txlog.base.errors import (
    InvalidInputError,
    InvalidTypeError,
    UnsupportedFeatureError,
    of_argument,
)
from txlog.data_files.assignments import Assignments, assignments
from txlog.data_files.constraints import has_default, is_generated
from txlog.expressions.bind import bind, columns_of
from txlog.expressions.evaluate import is_true
from txlog.expressions.sql import as_expression, required_expression
from txlog.expressions.tree import (
    Column,
    Expression,
    col,
    quote_name,
)
from txlog.schema.types import StructType
from txlog.verbs.merge.condition import Seen, Sides, equal_columns

if TYPE_CHECKING:
    from txlog.data_files.options import WriteOptions
    from txlog.data_files.sieve import Rejects

Kind = OneOf["matched", "not_matched", "not_matched_by_source"]
Action = OneOf["update", "delete", "insert", "fail"]


@dataclass(frozen=True)
class Clause:
    """One clause from the caller.

    Whoever executes merges states what it understands with `Understood`, so that a new field, kind
    or action is refused wherever nobody has thought of it.
    """

    kind: Kind
    action: Action
    predicate: Any = None  # SQL text or an expression; of a merge on Spark, a Column too.
    updates: Mapping[str, Any] | None = None  # None: all columns, of an update or insert.
    except_cols: Sequence[str] = ()
    partial: bool = False  # All columns that the source has, of an update or insert of all.
    keeps_fields: bool = False  # Whether structs may lack fields: `may_lack_fields`.

    def __str__(self) -> str:
        return f"when {self.kind.replace('_', ' ')} {self.action}"


UPSERT = (Clause("matched", "update", keeps_fields=True), Clause("not_matched", "insert"))
"""The clauses that update the rows with a key of the source, and insert its other rows."""


@dataclass(frozen=True)
class MergeRequest:
    """A merge from the caller, without its clauses.

    Parameters
    ----------
    data
        The source: anything that supports Arrow, or a Spark frame. It is read once.
    predicate
        The condition for matching rows, as in `Clause`.
    on
        In its place, the key columns, which must be equal.
    schema_mode
        `merge` adds the columns that only the source has.
    inserts_once
        Whether of new source rows with the same key only the first is inserted.
    quarantine
        Takes the source rows that make rows which do not fit. Default: they are an error.
    """

    data: Any
    predicate: Any = None
    source_alias: str = "source"
    target_alias: str = "target"
    schema_mode: OneOf["merge"] | None = None
    options: WriteOptions | None = None
    on: Sequence[str] | None = None
    inserts_once: bool = False
    quarantine: Rejects | None = None

    def __post_init__(self) -> None:
        if self.schema_mode not in (None, "merge"):
            raise InvalidInputError(
                argument="schema_mode",
                reason=f"None or 'merge' was expected, not {self.schema_mode!r}",
            )
        if self.on is not None:
            self._require_only_key()
            return
        # Without a condition, each row would match each row.
        is_column = hasattr(self.data, "mapInArrow") and type(self.predicate).__name__ == "Column"
        if not (is_column or isinstance(self.predicate, str | Expression)):
            raise InvalidTypeError(
                argument="predicate",
                reason="a condition was expected, not "
                + ("None" if self.predicate is None else type(self.predicate).__name__),
                remedy='Pass SQL text such as "target.id = source.id", an expression, or on="id"',
            )

    def _require_only_key(self) -> None:
        if self.predicate is not None:
            raise InvalidInputError(
                argument="on",
                reason="rows match by a predicate or by key columns, and both were given",
                remedy="Omit one of them",
            )
        if not self.on:
            raise InvalidInputError(
                argument="on", reason="no column is named", remedy='Pass for example on=["id"]'
            )

    @property
    def condition(self) -> Any:
        """The predicate, or that the key columns are equal."""
        if self.on is None:
            return self.predicate
        return equal_columns(self.on, target=self.target_alias, source=self.source_alias)


@dataclass(frozen=True)
class Understood:
    """What an executor of merges carries out; all else is refused before it reads a row.

    Parameters
    ----------
    executor
        Its name, for errors.
    fields
        The fields of `Clause`, `MergeRequest` and `WriteOptions` whose values it carries out. It
        accepts other fields only with their defaults.
    actions
        The kinds of clauses with their actions.
    """

    executor: str
    fields: frozenset[str]
    actions: frozenset[tuple[Kind, Action]]

    def require(self, *parts: MergeRequest | WriteOptions | Clause) -> None:
        """Raise if a request or a clause has a value that the executor does not carry out.

        Raises
        ------
        UnsupportedFeatureError
            The error names the field and its value.
        """
        for part in parts:
            for one in fields(part):
                value, default = getattr(part, one.name), one.default
                is_default = type(value) is type(default) and value == default
                if one.name not in self.fields and not is_default:
                    is_plain = isinstance(value, str | int | float | tuple | list | dict)
                    raise self._refused(f"{one.name}={value!r}" if is_plain else one.name)
            if isinstance(part, Clause) and (part.kind, part.action) not in self.actions:
                raise self._refused(f"{part.action} for rows that are {part.kind}")

    def _refused(self, what: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            features=(what,),
            reason=f"merges by {self.executor} do not support {what}",
            remedy="Nothing was committed. Omit it, or merge rows in Arrow's form",
        )


ACTIONS: frozenset[tuple[Kind, Action]] = frozenset(
    {
        ("matched", "update"), ("matched", "delete"), ("matched", "fail"),
        ("not_matched", "insert"),
        ("not_matched_by_source", "update"), ("not_matched_by_source", "delete"),
    }
)  # fmt: skip
"""The kinds of clauses with the actions that have a meaning."""
REMOVING = frozenset({"update", "delete"})
"""The actions that take rows of the target from their places."""

CORE = Understood(
    "txlog",
    frozenset({"kind", "action", "predicate", "updates", "except_cols", "partial", "keeps_fields",
               "data", "on", "source_alias", "target_alias", "schema_mode", "inserts_once",
               "options", "target_file_bytes", "max_rows_per_file", "writer_properties",
               "error_on_type_mismatch", "use_index", "quarantine"}),
    ACTIONS,
)  # fmt: skip


@dataclass(frozen=True)
class BoundClause:
    """One clause, bound to the columns of both sides. It pickles."""

    kind: Kind
    action: Action
    condition: Expression | None
    values: Assignments | None

    @property
    def reads(self) -> frozenset[str]:
        """The columns that the clause reads, by their flat names."""
        names = set() if self.values is None else set(self.values.reads)
        if self.condition is not None:
            names |= {path[0] for path in columns_of(self.condition)}
        return frozenset(names)


def bound_clauses(
    clauses: Sequence[Clause],
    sides: Sides,
    schema: StructType,
    *,
    merges_schema: bool,
    error_on_type_mismatch: bool = True,
    zone: str | None = None,
) -> tuple[BoundClause, ...]:
    """Return clauses bound to the columns of both sides.

    Parameters
    ----------
    schema
        The target's after the merge.
    merges_schema
        Whether it has the columns that only the source had.
    error_on_type_mismatch
        If false, a value becomes null if its column cannot store it.
    zone
        The time zone of conditions and values. Default: UTC.

    Raises
    ------
    InvalidInputError
        There is no clause, one can never apply, or one does not fit the columns.
    """
    if not clauses:
        raise InvalidInputError(
            reason="the merge has no clause",
            remedy="State what it does, for example .when_matched_update_all()",
        )
    require_reachable(clauses)
    return tuple(
        _bound(clause, sides, schema, merges_schema, error_on_type_mismatch, zone)
        for clause in clauses
    )


def require_reachable(clauses: Sequence[Clause]) -> None:
    """Raise if a clause follows one of its kind that applies to all rows."""
    ended: set[Kind] = set()
    for clause in clauses:
        if clause.kind in ended:
            raise InvalidInputError(
                reason=f"a clause without a predicate takes all rows that are {clause.kind}, so "
                "the one after it can never apply",
                remedy="Give the earlier clause a predicate, or put it last",
            )
        if clause.predicate is None:
            ended.add(clause.kind)


SIDES_OF: dict[Kind, Seen] = {
    "matched": "both",
    "not_matched": "source",
    "not_matched_by_source": "target",
}


def _bound(
    clause: Clause,
    sides: Sides,
    schema: StructType,
    merges_schema: bool,
    error_on_type_mismatch: bool,
    zone: str | None,
) -> BoundClause:
    seen = SIDES_OF[clause.kind]
    visible = {
        "both": sides.schema,
        "source": sides.of_source,
        "target": sides.of_target,
    }[seen]
    condition = as_expression(clause.predicate, zone)
    if condition is not None:
        with of_argument("predicate"):
            condition = bind(sides.resolved(condition, seen), visible)
    if clause.action in ("delete", "fail"):
        return BoundClause(clause.kind, clause.action, condition, None)
    if clause.updates is None:
        given = _all_columns(clause, sides, schema, merges_schema)
    else:
        with of_argument("updates"):
            given = {
                _target_name(name, sides): sides.resolved(_expression(name, value, zone), seen)
                for name, value in clause.updates.items()
            }
    if clause.action == "insert":
        require_insertable([col(name).path for name in given], schema)
    values = assignments(
        given,
        None,
        schema,
        source=visible,
        error_on_type_mismatch=error_on_type_mismatch,
        formats=clause.updates is not None,
        keeps_fields=may_lack_fields(clause, merges_schema=merges_schema),
        argument="source" if clause.updates is None else "updates",
        zone=zone,
    )
    return BoundClause(clause.kind, clause.action, condition, values)


def _expression(name: str, value: Any, zone: str | None) -> Expression:
    if not isinstance(value, str | Expression):
        raise InvalidInputError(
            argument="updates",
            field=str(name),
            reason=f"SQL text or an expression was expected, not {type(value).__name__}",
            remedy='Write it as SQL, for example "5" or "\'text\'"',
        )
    return required_expression(value, argument="updates", field=name, zone=zone)


def _target_name(name: str, sides: Sides) -> str:
    """Return the column that a key of `updates` names; the target's alias may stand before it."""
    return ".".join(map(quote_name, own_path(name, sides.target_alias, sides.target)))


def own_path(name: str, alias: str | None, target: StructType) -> tuple[str, ...]:
    """Return the path of a column that a key of `updates` names, without the target's alias.

    If a column has the name of the alias, `s.v` is a column `v`, and else a field of `s`, as in
    Spark. `target` is the schema before the merge: a column that the merge adds comes last.
    """
    path = col(name).path
    if alias is None or len(path) == 1 or path[0].lower() != alias.lower():
        return path
    is_field = target.get(path[1]) is None and len(target.along(path[:2])) > 1
    return path if is_field else path[1:]


def _all_columns(
    clause: Clause, sides: Sides, schema: StructType, merges_schema: bool
) -> dict[str, Expression]:
    """Return each column of the target with the source column of the same name."""
    found = columns_of_same_name(clause, schema, sides.source, merges_schema=merges_schema)
    return {
        quote_name(name): Column((f"{sides.source_alias}.{source}",))
        for name, source in found.items()
    }


def may_lack_fields(clause: Clause, *, merges_schema: bool) -> bool:
    """Return whether structs that a clause gives may lack fields of their columns.

    Then updated rows keep them, and they are null in new rows and in elements of arrays and maps.
    In new rows no stored value is lost, so an insert may lack fields, as an append may.
    """
    return merges_schema or clause.keeps_fields or clause.action == "insert"


def columns_of_same_name(
    clause: Clause, schema: StructType, source: StructType, *, merges_schema: bool
) -> dict[str, str]:
    """Return the columns that an update or insert of all columns gives, with the source's.

    Parameters
    ----------
    schema
        The target's after the merge.

    Raises
    ------
    InvalidInputError
        The source lacks a column that it must give.
    """
    left_out = {name.lower() for name in clause.except_cols}
    unknown = left_out - {name.lower() for name in (*schema.names(), *source.names())}
    if unknown:
        raise InvalidInputError(
            argument="except_cols",
            field=min(unknown),
            reason="neither side has this column",
            remedy=f"Choose from {', '.join(schema.names())}",
        )
    if clause.partial:
        more = [name for name in source.names() if schema.get(name) is None]
        if more:  # Perhaps a misspelt name, whose values would be lost.
            raise InvalidInputError(
                argument="source",
                field=more[0],
                reason=f"the table has no column {more[0]}",
                remedy='Pass schema_mode="merge", which adds the column, or correct its name. '
                f"Choose from {', '.join(schema.names())}",
            )
    given: dict[str, str] = {}
    for field in schema.fields:
        if field.name.lower() in left_out:
            continue
        source_field = source.get(field.name)
        if source_field is not None:
            given[field.name] = source_field.name
        elif not (
            merges_schema
            or clause.partial
            or is_generated(field)
            or field.is_identity
            or (clause.action == "insert" and has_default(field))
        ):
            raise InvalidInputError(
                argument="source",
                field=field.name,
                reason=f"the source has no column {field.name} to "
                f"{'insert' if clause.action == 'insert' else 'update'}",
                remedy="List the columns to set, exclude this one with "
                f'except_cols=["{field.name}"], or pass schema_mode="merge"',
            )
    return given


def require_insertable(given: Sequence[tuple[str, ...]], schema: StructType) -> None:
    """Raise unless an insert gives whole columns, and all columns that are not nullable."""
    for path in given:
        if len(path) > 1:
            raise InvalidInputError(
                argument="updates",
                field=".".join(path),
                reason="an inserted row gets whole columns, not fields nested in them",
                remedy="Give the column a struct",
            )
    named = {path[0].lower() for path in given}
    for field in schema.fields:
        if not (field.nullable or field.name.lower() in named or has_default(field)):
            raise InvalidInputError(
                argument="updates",
                field=field.name,
                reason=f"inserted rows get no value in {field.name}, which must not be null",
                remedy="Give it a value",
            )


Actions = NDArray[np.int8]


def decide(clauses: Sequence[BoundClause], kind: Kind, rows: pa.RecordBatch) -> Actions:
    """Return for each row the place of the first clause of a kind that applies; -1: none does."""
    chosen = np.full(rows.num_rows, -1, np.int8)
    for place, clause in enumerate(clauses):
        if clause.kind != kind:
            continue
        open_ = chosen == -1
        if clause.condition is not None:
            open_ &= numpy_array(is_true(clause.condition, rows))
        chosen[open_] = place
    return chosen
