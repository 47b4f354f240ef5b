"""The values that a predicate lists for columns. Pure."""

from __future__ import annotations

from txlog.expressions.tree import And, Column, Comparison, Expression, In, Literal, Or


def listed_values(where: Expression) -> dict[str, list[object]]:
    """Return values of columns: if a bound predicate is true for a row, it has one of each list."""
    match where:
        case Comparison("=" | "<=>", Column((name,)), Literal(value)) if value is not None:
            return {name: [value]}
        case Comparison("=", Column((name,)), Literal(None)):
            return {name: []}
        case In(Column((name,)), values):
            return {name: [one.value for one in values if one.value is not None]}
        case And(parts):
            found: dict[str, list[object]] = {}
            for part in parts:
                for name, given in listed_values(part).items():
                    if name not in found or len(given) < len(found[name]):
                        found[name] = given
            return found
        case Or(parts):
            either = [listed_values(part) for part in parts]
            return {
                name: [value for one in either for value in one[name]]
                for name in either[0]
                if all(name in one for one in either)
            }
    return {}
