"""Predicates over some columns, for Hypothesis."""

from collections.abc import Collection, Mapping
from typing import Any

from hypothesis import strategies as st

from txlog import Expression, col

KINDS = ("<", "<=", ">", ">=", "=", "<>", "<=>", "in", "null")


def predicates_over(
    columns: Mapping[str, st.SearchStrategy[Any]], texts: Collection[str] = ()
) -> st.SearchStrategy[Expression]:
    """Return up to four comparisons, joined and negated.

    Parameters
    ----------
    columns
        The values with which each column is compared.
    texts
        The columns that patterns are compared with, too.
    """
    return st.recursive(
        _comparisons(columns, texts),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a: ~a, inner),
        ),
        max_leaves=4,
    )


@st.composite
def _comparisons(
    draw: st.DrawFn, columns: Mapping[str, st.SearchStrategy[Any]], texts: Collection[str]
) -> Expression:
    name = draw(st.sampled_from([*columns]))
    column, value = col(name), draw(columns[name])
    match draw(st.sampled_from([*KINDS, *(["like"] if name in texts else [])])):
        case "<":
            return column < value
        case "<=":
            return column <= value
        case ">":
            return column > value
        case ">=":
            return column >= value
        case "=":
            return column == value
        case "<>":
            return column != value
        case "<=>":
            return column.eq_null_safe(draw(st.sampled_from([value, None])))
        case "in":
            return column.isin([value, *draw(st.lists(st.none() | columns[name], max_size=2))])
        case "like":
            return column.like(draw(st.sampled_from(["a%", "%b", "ü", "a_", "%"])))
    return column.is_null()
