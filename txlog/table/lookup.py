"""Look up rows by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txlog.base.observe import reading
from txlog.table.handle import Handle, OpenVersion

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.lookup.lookup import Lookup, Missing


class Lookups(Handle):
    """The part of `Table` that finds rows by key."""

    @reading("LOOKUP")
    def lookup(
        self,
        keys: Any,
        *,
        on: str | Sequence[str] | None = None,
        columns: list[str] | None = None,
        missing: Missing = "skip",
    ) -> pa.Table:
        """Return the rows with given keys, in the order of the keys.

        An index over the key columns (`indexes.create`) gives the positions of rows. For files that
        no index covers, the first look-up reads the key columns of the files that may contain the
        keys, and keeps them in memory for all versions. Each look-up then reads only the pages with
        the rows. Rows with the same key have the order of `to_arrow`. A key that is given twice
        returns its rows twice. A key with a null has no row.

        Parameters
        ----------
        keys
            A list or an Arrow array. For several columns, a table, record batch or frame (pandas,
            polars, …) with these columns, dicts or an array of structs with these names, or a list
            of tuples in the order of `on`. Keys are cast to the columns' types if the cast is
            lossless. NaN and NA of pandas are nulls.
        on
            The key column, or several. Floating point and nested columns are refused. Default: the
            columns of the table's only index.
        columns
            The columns to return: those of the table, metadata columns (`_rowaddr`, …), and `_key`
            (int64), the index in `keys` of the row's key, unless the table has a column of this
            name. Default: those of the table.
        missing
            What to do for a key without rows: `skip` omits it, `null` returns one row with the key
            and nulls, `error` raises.

        Raises
        ------
        InvalidInputError
            A column is unknown or cannot be a key, or the keys do not have its type.
        NotFoundError
            With `missing="error"`, some keys have no row. The error names five of them.
        """
        version = self._open
        schema = version.snapshot.schema
        chosen = schema.names()
        if columns is not None:  # As the table spells them.
            fields = [(name, schema.get(name)) for name in columns]
            chosen = [name if field is None else field.name for name, field in fields]
        return self._lookup(version, on).rows(keys, chosen, missing)

    def contains(self, keys: Any, *, on: str | Sequence[str] | None = None) -> pa.BooleanArray:
        """Return for each key whether any row has it; arguments and errors as for `lookup`."""
        from txlog.base.arrow import pc

        return pc.greater(self.lookup_counts(keys, on=on), 0)

    @reading("LOOKUP")
    def lookup_counts(self, keys: Any, *, on: str | Sequence[str] | None = None) -> pa.Int64Array:
        """Return the number of rows for each key; arguments and errors as for `lookup`."""
        return self._lookup(self._open, on).counts(keys)

    def _lookup(self, version: OpenVersion, on: str | Sequence[str] | None) -> Lookup:
        from txlog.lookup.lookup import KEY, Lookup
        from txlog.scan.read_plan import choose_columns
        from txlog.verbs.indexes import indexed_columns

        snapshot = version.snapshot
        asked = None if on is None else (on,) if isinstance(on, str) else tuple(on)
        kept = version.lookups.get(asked)
        if kept is None:
            names = indexed_columns(snapshot) if asked is None else asked
            kept = version.lookups[asked] = Lookup(
                self._context.store,
                self._context.engine,
                version.plan,
                self._cached(),
                choose_columns(snapshot.schema, _in_index_order(version, names)),
                choose_columns(snapshot.schema, names),
                version.indexes(),
                version.coverages,
                snapshot.schema.get(KEY) is not None,
                snapshot.metadata.id,
            )
        return kept


def _in_index_order(version: OpenVersion, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return key columns in the order of an index over them, if there is none in their own."""
    from txlog.verbs.indexes import logical_columns

    orders = [logical_columns(version.snapshot, one) or () for one in version.indexes()]
    same = [found for found in orders if sorted(found) == sorted(names)]
    return names if names in same or not same else same[0]


def lookup_of(table: Lookups, on: str | Sequence[str] | None) -> Lookup:
    """Return the look-up of a table's version by key columns; None: those of its only index."""
    return table._lookup(table._open, on)
