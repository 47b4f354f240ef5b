"""The door through which properties come to a table, and what each verb does with them.

Every verb that takes properties from a caller makes an `Asked` of them, and every verb that gives
a table another definition takes its properties from `carried`. Rules: spec/commit.md, CON-28.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.data_files.bloom_columns import require_bloom_columns
from txlog.data_files.sort_order import require_sort_columns
from txlog.protocol.properties import (
    CHECK_PREFIX,
    UNIQUE_PREFIX,
    Properties,
    asked_versions,
    definitions_of_columns,
    is_of_writers,
    split_features,
    validate_properties,
)
from txlog.schema.types import StructType
from txlog.stats.collect import require_stats_columns


@dataclass(frozen=True)
class Asked:
    """What a caller asks for with properties. All of it is valid for some table.

    `features` and `versions` raise the protocol, `stored` is kept by the table, and `unset` has the
    names of properties that it is to lose.
    """

    features: frozenset[str]
    versions: tuple[int, int]
    stored: Mapping[str, str | None]
    unset: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        properties: Mapping[str, str],
        *,
        has_rows: bool,
        unset: Sequence[str] = (),
        warns: bool = True,
    ) -> Asked:
        """Check the properties that a caller gives.

        Parameters
        ----------
        has_rows
            The table may have rows already, so constraints are refused: nobody checks the rows.
        warns
            Warn of properties that txlog does not use.

        Raises
        ------
        InvalidInputError
            A property is unknown, is not the caller's to set or unset, or has a wrong value.
        """
        recorded = sorted(filter(is_of_writers, (*properties, *unset)))
        if recorded:
            raise _refused(
                recorded[0],
                f"{', '.join(recorded)}: the writers of a table set this property themselves",
            )
        validate_properties(properties, warns=warns)
        for name in (*properties, *unset) if has_rows else ():
            if name.startswith((CHECK_PREFIX, UNIQUE_PREFIX)):
                raise _refused(
                    name,
                    "a constraint is not set as a property: the rows must be checked first",
                    "Call alter.add_constraint, or alter.drop_constraint",
                )
        features, stored = split_features(properties)
        return cls(features, asked_versions(properties), stored, tuple(unset))

    def require_columns(
        self,
        configuration: Mapping[str, str | None],
        schema: StructType,
        partition_by: Sequence[str],
        mode: str,
    ) -> None:
        """Raise if properties of a table with these columns name others.

        Parameters
        ----------
        configuration
            All properties that the table will have.
        mode
            The table's column mapping.

        Raises
        ------
        InvalidInputError
            The columns with statistics, or those of an index that the caller gives, are not there.
        """
        require_stats_columns(schema, partition_by, Properties(configuration))
        require_sort_columns(schema, partition_by, Properties(configuration))
        require_bloom_columns(schema, partition_by, Properties(configuration))
        there = {
            column.name_in_files(mode)
            for column in schema.fields
            if column.name not in partition_by
        }
        for prefix, definition in definitions_of_columns(self.stored):
            is_key = prefix == UNIQUE_PREFIX  # It may be over partition columns, too.
            known = {column.name_in_files(mode) for column in schema.fields} if is_key else there
            lost = [one for one in definition.columns if one not in known]
            if lost:
                raise _refused(
                    f"{prefix}{definition.name}",
                    f"data files have no column {', '.join(lost)}",
                    "Call alter.add_constraint, which takes the names of columns"
                    if is_key
                    else "Call indexes.create, which takes the names of columns",
                )


def _refused(name: str, reason: str, remedy: str = "Omit it") -> InvalidInputError:
    return InvalidInputError(argument="properties", field=name, reason=reason, remedy=remedy)


def require_kept_form(
    now: Mapping[str, str | None], then: Mapping[str, str | None], *, path: str
) -> None:
    """Raise if the form of deletions would change: existing files keep theirs.

    Raises
    ------
    UnsupportedFeatureError
        The error names the property.
    """
    name = "txlog.deletionFormat"
    wanted = Properties(then).get(name)
    if wanted != Properties(now).get(name) and wanted != "delta":
        raise UnsupportedFeatureError(
            path=path,
            features=(name,),
            reason=f"{name} cannot be turned on: existing files have deletions in the other form",
            remedy="Set it when the table is created",
        )
