"""Joins of few rows in SQL: the keys of one table are looked up in the index of another.

`FROM a JOIN b ON a.x = b.y WHERE a.id IN (17, 4)` needs only the rows of `b` whose `y` is an `x` of
the few rows of `a`. An engine finds these by reading the column `y` of all rows. Here the rows of
`a` are read first, by an index; then those of `b`, by an index over `y` and the values of `x`. The
engine runs the whole query over the rows that were read. So the result is right if each row that is
left out is a part of no row of the join.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from txlog.base.arrow import pc
from txlog.base.columns import flat
from txlog.base.thresholds import Threshold
from txlog.lookup.indexed import bytes_named, rows_named
from txlog.scan.dataset import TableDataset
from txlog.scan.plan import ScanPlan

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

_MOST_ROWS: Threshold = 1 << 20  # Rows of one table that are read before the query.
_MOST_BYTES: Threshold = 1 << 28  # About so many bytes of files have them.
# Keys of one table that are looked up in another one. Of more keys the lists in filters cost more
# than a scan.
_MOST_KEYS: Threshold = 5_000


@dataclass
class _Source:
    """A table of a FROM clause.

    Parameters
    ----------
    relation
        The rows, or a dataset; None: not known here, as of a subquery.
    may_lack
        Whether a row of the others stays without a row of this one: it is the right side of a LEFT
        JOIN. Then only the conditions of that join leave rows out.
    """

    name: str  # In the relations of the query.
    label: str  # In the text of the query.
    relation: Any
    may_lack: bool
    values: dict[str, pa.Array] = field(default_factory=dict)  # Those that a column must have.
    keys: list[tuple[str, str, str]] = field(default_factory=list)  # Column, other table, column.


def narrow(parsed: exp.Query, relations: dict[str, Any]) -> dict[str, str]:
    """Read the rows that a query's joins need by indexes, where the rows on one side are few.

    Parameters
    ----------
    relations
        Datasets and Arrow tables by the names of the query's references, each named once. Those
        whose rows are read are replaced by these rows.

    Returns
    -------
    What was read, in words, by the same names.
    """
    from sqlglot.optimizer.scope import traverse_scope

    told: dict[str, str] = {}
    for scope in traverse_scope(parsed):
        sources = _sources(scope, relations)
        if len(sources) > 1:
            told |= _narrowed(parsed, sources, relations)
    return told


def _sources(scope: Scope, relations: Mapping[str, Any]) -> dict[str, _Source]:
    """Return the tables of a FROM clause by their aliases, with what its conditions say of them.

    It is empty if rows that match nothing may be in the result, but for those of LEFT JOIN.
    """
    from sqlglot import exp

    select = scope.expression
    begin = select.args.get("from_") if isinstance(select, exp.Select) else None
    # A sample is taken of all rows before WHERE.
    if begin is None or select.args.get("laterals") or select.args.get("sample"):
        return {}
    joins = select.args.get("joins") or []
    found: dict[str, _Source] = {}
    for one in (begin, *joins):
        side = (one.args.get("side") or "").upper()
        kind = (one.args.get("kind") or "").upper()
        if side not in ("", "LEFT") or kind not in ("", "INNER", "CROSS", "OUTER"):
            return {}
        if one.args.get("method"):
            return {}
        alias = one.this.alias_or_name.lower()
        if not alias or alias in found:
            return {}
        is_plain = isinstance(one.this, exp.Table) and not any(
            one.this.args.get(part) for part in ("sample", "joins", "pivots", "laterals")
        )
        renames = one.this.args.get("alias") and one.this.args["alias"].args.get("columns")
        relation = relations.get(one.this.name) if is_plain and not renames else None
        found[alias] = _Source(one.this.name, alias, relation, side == "LEFT")
    shared = _shared(joins, found)
    where = select.args.get("where")
    for condition in _parts(where.this if where is not None else None):
        _learn(condition, found, shared, None)
    for one in joins:
        alias = one.this.alias_or_name.lower()
        only = alias if found[alias].may_lack else None
        for condition in _parts(one.args.get("on")):
            _learn(condition, found, shared, only)
        for name in one.args.get("using") or ():
            columns = shared.get(name.name.lower(), {})
            if alias in columns:
                _learn_keys(found, (alias, columns[alias]), next(iter(columns.items())), only)
    _spread(found)
    return found


def _shared(joins: Sequence[exp.Join], sources: Mapping[str, _Source]) -> dict[str, dict[str, str]]:
    """Return the columns that USING joins, by their name in lower case: in which tables, in order.

    Behind them the name alone means the column of the first table. It is left out if a table has
    such a column that USING does not join, or perhaps has one.
    """
    using = {
        one.this.alias_or_name.lower(): {name.name.lower() for name in one.args.get("using") or ()}
        for one in joins
    }
    found: dict[str, dict[str, str]] = {}
    for name in set().union(*using.values()):
        columns: dict[str, str] = {}
        for alias, source in sources.items():
            own = _own(source, name)
            if own is not None and (not columns or name in using[alias]):
                columns[alias] = own
            elif _may_have(source, name):
                break
        else:
            found[name] = columns
    return found


def _may_have(source: _Source, name: str) -> bool:
    return source.relation is None or name in map(str.lower, source.relation.schema.names)


def _spread(sources: Mapping[str, _Source]) -> None:
    """Give the values that a column must have to the columns that must be equal to it."""
    more = True
    while more:
        more = False
        for source in sources.values():
            for column, other, its in source.keys:
                values = sources[other].values.get(its)
                # Rows without one of the other table are in the result, too.
                if values is None or sources[other].may_lack or column in source.values:
                    continue
                if values.type == source.relation.schema.field(column).type:
                    source.values[column] = values
                    more = True


def _parts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the parts of a condition that must all be true."""
    from sqlglot import exp

    if condition is None:
        return
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _parts(condition.this)
        yield from _parts(condition.expression)
    else:
        yield condition


def _learn(
    condition: exp.Expr,
    sources: dict[str, _Source],
    shared: Mapping[str, Mapping[str, str]],
    only: str | None,
) -> None:
    """Note what a condition says; with `only`, of the right side of a LEFT JOIN alone."""
    from sqlglot import exp

    if isinstance(condition, exp.EQ):
        left, right = condition.this.unnest(), condition.expression.unnest()
        columns = [_column(one, sources, shared) for one in (left, right)]
        if columns[0] is not None and columns[1] is not None:
            _learn_keys(sources, columns[0], columns[1], only)
            return
        for column, value in zip(columns, (right, left), strict=True):
            _learn_values(sources, column, [value], only)
    elif isinstance(condition, exp.In) and condition.expressions:
        column = _column(condition.this.unnest(), sources, shared)
        _learn_values(sources, column, condition.expressions, only)


def _learn_keys(
    sources: dict[str, _Source], a: tuple[str, str], b: tuple[str, str], only: str | None
) -> None:
    for (alias, column), (other, its) in ((a, b), (b, a)):
        narrows = not sources[alias].may_lack if only is None else alias == only
        if narrows and alias != other:
            sources[alias].keys.append((column, other, its))


def _learn_values(
    sources: dict[str, _Source],
    column: tuple[str, str] | None,
    nodes: list[exp.Expr],
    only: str | None,
) -> None:
    if column is None:
        return
    source = sources[column[0]]
    if source.may_lack if only is None else column[0] != only:
        return
    given = [_value(node) for node in nodes]
    if any(value is None for value in given):
        return
    values = _as_type(given, source.relation.schema.field(column[1]).type)
    if values is not None:
        source.values[column[1]] = values


def _column(
    node: exp.Expr, sources: Mapping[str, _Source], shared: Mapping[str, Mapping[str, str]]
) -> tuple[str, str] | None:
    """Return the alias and the name of a column; None if it is none, or perhaps another one."""
    from sqlglot import exp

    if not isinstance(node, exp.Column) or node.args.get("db"):
        return None
    if node.table:
        source = sources.get(node.table.lower())
        name = None if source is None else _own(source, node.name)
        return None if name is None else (node.table.lower(), name)
    if node.name.lower() in shared:
        return next(iter(shared[node.name.lower()].items()))
    if any(source.relation is None for source in sources.values()):
        return None
    found = [(alias, _own(source, node.name)) for alias, source in sources.items()]
    known = [(alias, name) for alias, name in found if name is not None]
    return known[0] if len(known) == 1 else None


def _own(source: _Source, name: str) -> str | None:
    """Return the name of a table's only column that a query can mean by a name."""
    if source.relation is None:
        return None
    found = [one for one in source.relation.schema.names if one.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def _value(node: exp.Expr) -> Any:
    """Return the value of a constant; None: it is none, or one that engines may read otherwise."""
    from sqlglot import exp

    node = node.unnest()
    try:
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
            found = _value(node.this)
            return None if found is None or isinstance(found, str) else -found
        if isinstance(node, exp.Literal):
            if node.is_string:
                return node.name
            # Engines differ in others: `1.5` is a decimal or a double, `1e5` is a double.
            return int(node.name) if node.name.isdecimal() else None
        if isinstance(node, exp.Cast) and node.to.is_type("date"):
            return date.fromisoformat(node.this.name) if node.this.is_string else None
    except ValueError:
        return None
    return None


def _as_type(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """Return constants in the type of a column, if no engine casts the column to compare them."""
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    decimals = pa.types.is_decimal(kind)
    fits = (
        (texts and all(isinstance(one, str) for one in values))
        or (pa.types.is_integer(kind) and all(type(one) is int for one in values))
        or (decimals and all(type(one) is int for one in values))
        or (pa.types.is_date32(kind) and all(type(one) is date for one in values))
    )
    if not fits:
        return None
    try:
        given = [Decimal(one) for one in values] if decimals else values
        found = pa.array(given, kind)
    except (pa.ArrowException, OverflowError, ValueError):
        return None
    return found if found.to_pylist() == given else None


def _keys_of(rows: pa.Table, name: str, kind: pa.DataType) -> pa.Array | None:
    """Return the values of a column in another type; None: engines compare them otherwise."""
    given = flat(rows[name])
    if pa.types.is_dictionary(given.type):
        given = given.cast(given.type.value_type)
    if pa.types.is_nested(given.type) or pa.types.is_uint64(given.type):
        return None
    values = pc.drop_null(given.unique())
    if len(values) > _MOST_KEYS:
        return None
    if values.type == kind:
        return None if pa.types.is_floating(kind) else values
    if pa.types.is_integer(values.type) and pa.types.is_integer(kind):
        least, most = (pa.scalar(one, kind) for one in _ends(kind))
        inside = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
        return values.filter(inside).cast(kind)
    of_text = (pa.string(), pa.large_string(), pa.string_view())
    return values.cast(kind) if values.type in of_text and kind in of_text else None


def _ends(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    if pa.types.is_signed_integer(kind):
        return -(1 << bits - 1), (1 << bits - 1) - 1
    return 0, (1 << bits) - 1


@dataclass(frozen=True)
class _Way:
    """A way to read a table by an index."""

    alias: str
    filter: Any
    by: tuple[str, ...]  # The tables whose keys are looked up.
    plan: ScanPlan
    rows: int  # That the index names.


def _way(alias: str, source: _Source, few: Mapping[str, pa.Table]) -> _Way | None:
    """Return how an index reads a table; None if none does, or it names too many rows."""
    filter, by = _filter(source, few)
    plan = None if filter is None else source.relation.indexed(filter)
    rows = None if plan is None else rows_named(plan)
    if plan is None or rows is None or rows > _MOST_ROWS:
        return None
    if bytes_named(plan) > _MOST_BYTES:
        return None
    return _Way(alias, filter, by, plan, rows)


def _narrowed(
    parsed: exp.Query, sources: dict[str, _Source], relations: dict[str, Any]
) -> dict[str, str]:
    """Read tables by indexes, as long as one has values or keys that an index finds."""
    told: dict[str, str] = {}
    few = {
        alias: source.relation
        for alias, source in sources.items()
        if isinstance(source.relation, pa.Table) and source.relation.num_rows <= _MOST_ROWS
    }
    left = {alias: source for alias, source in sources.items() if _has_index(source)}
    ways: dict[str, _Way | None] = {}
    stale = set(left)  # Tables of which more keys are known than when their way was found.
    while True:
        ways |= {alias: _way(alias, left[alias], few) for alias in stale}
        known = [way for way in ways.values() if way is not None]
        if not known:
            return told
        best = min(known, key=lambda way: way.rows)
        alias, by = best.alias, best.by
        source = left.pop(alias)
        del ways[alias]
        names = _needed(parsed, source.relation.schema)
        few[alias] = source.relation.rows(best.plan, names, best.filter)
        keys = f", with the keys of {' and '.join(by)}" if by else ""
        index = best.plan.read_files.explanation.index
        told[source.name] = f"{few[alias].num_rows:,} rows are read before{keys}; index {index}"
        relations[source.name] = few[alias]
        stale = {
            name for name, one in left.items() if any(other == alias for _, other, _ in one.keys)
        }


def _has_index(source: _Source) -> bool:
    """Return whether an index of a table has a column of which values or keys are known."""
    if not isinstance(source.relation, TableDataset):
        return False
    indexed = source.relation.index_columns()
    return not indexed.isdisjoint({*source.values, *(name for name, _, _ in source.keys)})


def _filter(source: _Source, few: Mapping[str, pa.Table]) -> tuple[Any, tuple[str, ...]]:
    """Return a filter for all values and keys that are known of a table; None: there are none."""
    parts = [ds.field(name).isin(values) for name, values in source.values.items()]
    by: list[str] = []
    for name, other, its in source.keys:
        if other in few and its in few[other].column_names:
            keys = _keys_of(few[other], its, source.relation.schema.field(name).type)
            if keys is not None:
                parts.append(ds.field(name).isin(keys))
                by.append(other)
    found = None
    for part in parts:
        found = part if found is None else found & part
    return found, tuple(dict.fromkeys(by))


def _needed(parsed: exp.Query, schema: pa.Schema) -> list[str]:
    """Return the columns of a table that a query may name."""
    from sqlglot import exp

    names = {one.name.lower() for one in parsed.find_all(exp.Identifier)}
    stars = (one for one in parsed.find_all(exp.Star) if not isinstance(one.parent, exp.Count))
    others = (exp.Parameter, exp.Placeholder, exp.Columns, exp.Anonymous)
    rows = {one.alias_or_name.lower() for one in parsed.find_all(exp.Table)}
    of_rows = (one for one in parsed.find_all(exp.Column) if one.name.lower() in rows)
    if any(True for _ in stars) or any(True for _ in of_rows) or parsed.find(*others) is not None:
        return list(schema.names)
    return [name for name in schema.names if name.lower() in names]
