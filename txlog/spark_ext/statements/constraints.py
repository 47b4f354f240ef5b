"""Constraints of tables in SQL: `CONSTRAINT pk PRIMARY KEY (id) ENFORCED`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from txlog.base.errors import InvalidInputError
from txlog.protocol.properties import (
    CHECK_PREFIX,
    INDEX_PREFIX,
    UNIQUE_PREFIX,
    UniqueKey,
)
from txlog.spark_ext.catalog import split_name
from txlog.spark_ext.statements.statement_text import Reader, tokens_of
from txlog.verbs.constraints import Unique, index_for, not_enforced, unique

_NAME = re.compile(r"\w+|`([^`]|``)+`")
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

    def properties(
        self,
        names: Iterable[str],
        partition_by: Collection[str],
        configuration: Mapping[str, str | None],
    ) -> Mapping[str, str]:
        """Return the properties by which a new table has the constraint.

        Parameters
        ----------
        names, partition_by
            The columns of the table, and those by which it is partitioned, which no index is over.
        configuration
            The other properties of the table.

        Raises
        ------
        InvalidInputError
            The table has no column of a key.
        """
        if isinstance(self.rule, str):
            return {f"{CHECK_PREFIX}{self.name}": self.rule}
        known = {name.lower(): name for name in names}
        lost = [name for name in self.rule.columns if name.lower() not in known]
        if lost:
            raise InvalidInputError(
                argument="text",
                field=lost[0],
                reason=f"the key {self.name} names {lost[0]}, and the table has no such column",
                remedy=f"Choose from {', '.join(known.values())}",
            )
        columns = tuple(known[name.lower()] for name in self.rule.columns)
        key = UniqueKey(self.name, columns, self.rule.primary)
        found = {f"{UNIQUE_PREFIX}{self.name}": key.text}
        stored = {name: name for name in known.values() if name not in partition_by}
        index = index_for(key, stored, configuration)
        if index is not None:
            found[f"{INDEX_PREFIX}{index.name}"] = index.text
        return found


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
    items = reader.items()
    paths = [split_name(item) for item in items]
    if any(
        len(path) != 1 or not _NAME.fullmatch(item.strip())
        for path, item in zip(paths, items, strict=True)
    ):
        raise InvalidInputError(
            argument="text",
            reason=f"a key is over columns of the table, and ({', '.join(items)}) is more than "
            "their names",
            remedy="Write names that commas separate; put a name with other characters than "
            "letters, digits and _ in backquotes",
        )
    columns = unique(*(path[0] for path in paths)).columns
    if not reader.accepts("ENFORCED"):
        raise not_enforced()
    return Unique(columns, primary)
