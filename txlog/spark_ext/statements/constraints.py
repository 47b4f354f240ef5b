"""Constraints of tables in SQL: `CONSTRAINT pk PRIMARY KEY (id) ENFORCED`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.protocol.properties import (
    CHECK_PREFIX,
    INDEX_PREFIX,
    UNIQUE_PREFIX,
    IndexDefinition,
    UniqueKey,
)
from txlog.spark_ext.catalog import split_name
from txlog.spark_ext.statements.statement_text import Reader, tokens_of
from txlog.verbs.constraints import Unique
from txlog.verbs.indexes import default_name

_KINDS = (("CHECK", "("), ("PRIMARY", "KEY"), ("UNIQUE", "("))


@dataclass(frozen=True)
class TableConstraint:
    """A constraint as SQL defines it: a condition, or a unique key."""

    name: str
    rule: str | Unique

    @property
    def required(self) -> frozenset[str]:
        """The columns that may not be null, in lower case: those of a primary key."""
        if isinstance(self.rule, str) or not self.rule.primary:
            return frozenset()
        return frozenset(name.lower() for name in self.rule.columns)

    def properties(self) -> Mapping[str, str]:
        """Return the properties by which a new table has the constraint.

        They name columns as the table does, so tables with column mapping refuse them.
        """
        if isinstance(self.rule, str):
            return {f"{CHECK_PREFIX}{self.name}": self.rule}
        columns = self.rule.columns
        index = default_name(columns)
        return {
            f"{UNIQUE_PREFIX}{self.name}": UniqueKey(self.name, columns, self.rule.primary).text,
            f"{INDEX_PREFIX}{index}": IndexDefinition(index, columns).text,
        }


def is_constraint(text: str) -> bool:
    """Return whether a part of a table's definition is a constraint, and no column."""
    reader = Reader(text, tokens_of(text))
    if reader.accepts("CONSTRAINT") and reader.token is not None:
        reader.taken("a name")
    return any(reader.sees(*kind) for kind in _KINDS)


def constraint_in(text: str) -> TableConstraint:
    """Return the constraint of a part of a table's definition; a key needs no name.

    Raises
    ------
    InvalidInputError, UnsupportedFeatureError
        It is no constraint, or a key that nobody would enforce.
    """
    reader = Reader(text, tokens_of(text))
    name = reader.taken("a name").value if reader.accepts("CONSTRAINT") else None
    rule = read_rule(reader)
    reader.end()
    if name is None:
        if isinstance(rule, str):
            raise InvalidInputError(
                argument="text",
                reason=f"the constraint CHECK ({rule}) has no name",
                remedy=f"Write CONSTRAINT NAME CHECK ({rule})",
            )
        name = "primary_key" if rule.primary else f"unique_{'_'.join(rule.columns)}"
    return TableConstraint(name, rule)


def read_rule(reader: Reader) -> str | Unique:
    """Read a condition or a key, after the constraint's name; errors as for `constraint_in`."""
    if reader.accepts("CHECK"):
        return ", ".join(reader.items())
    primary = reader.accepts("PRIMARY", "KEY")
    if not primary and not reader.accepts("UNIQUE"):
        raise reader.unexpected("CHECK, PRIMARY KEY or UNIQUE")
    columns = tuple(split_name(item)[0] for item in reader.items())
    if not reader.accepts("ENFORCED"):
        raise UnsupportedFeatureError(
            features=("txlog.uniqueKeys",),
            reason="a key that is not enforced is a hint for a query optimizer, which txlog has "
            "no use for",
            remedy="Write ENFORCED behind the columns: then txlog checks every write",
        )
    return Unique(columns, primary)
