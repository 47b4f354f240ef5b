"""Differences between two picks of commits. Commits in both are not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from txlog import Table
from txlog.base.arrow import arrow_array, arrow_scalar, pc
from txlog.base.errors import InvalidInputError
from txlog.base.row_codes import row_codes
from txlog.training.datasets.commits import COMMIT_ID, read_rows
from txlog.training.datasets.values import Commit

_LABELS = ("labels", "label")


@dataclass(frozen=True)
class Diff:
    """The differences between the picks `a` and `b`: rows that only one of them has.

    A pick is the set of commits for a training set: for a commit, all commits up to it that are not
    hidden.
    """

    a: tuple[Commit, ...]
    b: tuple[Commit, ...]
    key: tuple[str, ...]
    _open: Callable[[], Table] = field(repr=False, compare=False)

    @property
    def commits_added(self) -> tuple[Commit, ...]:
        """The commits that only `b` has."""
        return _without(self.b, self.a)

    @property
    def commits_removed(self) -> tuple[Commit, ...]:
        """The commits that only `a` has."""
        return _without(self.a, self.b)

    @property
    def rows_added(self) -> int:
        """The number of rows of the added commits."""
        return sum(commit.rows for commit in self.commits_added)

    @property
    def rows_removed(self) -> int:
        """The number of rows of the removed commits."""
        return sum(commit.rows for commit in self.commits_removed)

    @property
    def statistics(self) -> dict[str, tuple[int, int]]:
        """The statistics that differ, as sums over the commits of `a` and of `b`.

        A label counts once in each commit that has it. `labels_added` returns distinct labels.
        """
        before, after = _summed(self.a), _summed(self.b)
        names = sorted(before.keys() | after.keys())
        both = {name: (before.get(name, 0), after.get(name, 0)) for name in names}
        return {name: pair for name, pair in both.items() if pair[0] != pair[1]}

    def labels_added(self) -> list[str]:
        """Return the labels that only `b` has, in alphabetic order. This reads the rows' labels."""
        return sorted(self._labels(self.b) - self._labels(self.a))

    def labels_removed(self) -> list[str]:
        """Return the labels that only `a` has, in alphabetic order."""
        return sorted(self._labels(self.a) - self._labels(self.b))

    def added(self) -> pa.RecordBatchReader:
        """Return a stream of the rows that only `b` has, with the number of their commit.

        With a key, rows that are in both picks with other commits are omitted, and also rows that
        differ only in other columns: these are `changed`.
        """
        return self._stream(self.commits_added, self.commits_removed)

    def removed(self) -> pa.RecordBatchReader:
        """Return a stream of the rows that only `a` has, in the same way as `added`."""
        return self._stream(self.commits_removed, self.commits_added)

    def changed(self) -> pa.Table:
        """Return the rows of `b` whose key is also in `a` with other values.

        Only the commits that differ are compared, in memory.

        Raises
        ------
        InvalidInputError
            The difference was made without a key.
        """
        if not self.key:
            raise InvalidInputError(
                argument="key",
                reason="without a key no row is known to be another one's new state",
                remedy='Ask with a key: diff(a, b, key="id")',
            )
        before, after = self._rows(self.commits_removed), self._rows(self.commits_added)
        if not before.num_rows or not after.num_rows:
            return after.slice(0, 0)
        old_keys, new_keys = row_codes(before, after, self.key)
        values = [name for name in after.schema.names if name != COMMIT_ID]
        old_rows, new_rows = row_codes(before, after, values)
        has_key = pc.is_in(arrow_array(new_keys), value_set=arrow_array(old_keys))
        is_same = pc.is_in(arrow_array(new_rows), value_set=arrow_array(old_rows))
        return after.filter(pc.and_not(has_key, is_same))

    def to_json(self) -> dict[str, Any]:
        """Return the differences without the rows."""
        return {
            "commits_added": [commit.commit_id for commit in self.commits_added],
            "commits_removed": [commit.commit_id for commit in self.commits_removed],
            "labels_added": self.labels_added(),
            "labels_removed": self.labels_removed(),
            "rows_added": self.rows_added,
            "rows_removed": self.rows_removed,
            "statistics": {name: list(pair) for name, pair in self.statistics.items()},
        }

    def _stream(self, commits: Sequence[Commit], others: Sequence[Commit]) -> pa.RecordBatchReader:
        table = self._open()
        schema = pa.schema([*(f for f in table.schema if f.name != COMMIT_ID), _NUMBER])
        if self.key and others:
            return self._unmatched(commits, others).to_reader()
        return pa.RecordBatchReader.from_batches(schema, _numbered(table, commits, schema))

    def _unmatched(self, commits: Sequence[Commit], others: Sequence[Commit]) -> pa.Table:
        rows, theirs = self._rows(commits), self._rows(others)
        if not rows.num_rows or not theirs.num_rows:
            return rows
        own, other = row_codes(rows, theirs, self.key)
        return rows.filter(pc.invert(pc.is_in(arrow_array(own), value_set=arrow_array(other))))

    def _rows(self, commits: Sequence[Commit]) -> pa.Table:
        table = self._open()
        schema = pa.schema([*(f for f in table.schema if f.name != COMMIT_ID), _NUMBER])
        unknown = [name for name in self.key if name not in schema.names]
        if unknown:
            raise InvalidInputError(
                argument="key",
                field=unknown[0],
                reason=f"the data set has no column {unknown[0]!r}",
                remedy=f"Choose from {', '.join(schema.names)}",
            )
        return pa.Table.from_batches(_numbered(table, commits, schema), schema=schema)

    def _labels(self, commits: Sequence[Commit]) -> set[str]:
        table = self._open()
        name = next((name for name in _LABELS if name in table.schema.names), None)
        if name is None or not _are_labels(table.schema.field(name).type):
            return set()
        found: set[str] = set()
        for batch in read_rows(table, [commit.commit_id for commit in commits], [name]):
            column = batch.column(0)
            values = column.flatten() if pa.types.is_list(column.type) else column
            found.update(values.unique().to_pylist())
        return found - {None}


def _are_labels(kind: pa.DataType) -> bool:
    one = kind.value_type if pa.types.is_list(kind) else kind
    return bool(pa.types.is_string(one) or pa.types.is_integer(one))


_NUMBER = pa.field(COMMIT_ID, pa.int32())


def _numbered(
    table: Table, commits: Sequence[Commit], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    names = [name for name in schema.names if name != COMMIT_ID]
    for commit in commits:
        number = arrow_scalar(commit.commit_id, pa.int32())
        for batch in read_rows(table, [commit.commit_id], names):
            numbers = pa.repeat(number, batch.num_rows)
            yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=schema)


def _without(commits: Sequence[Commit], others: Sequence[Commit]) -> tuple[Commit, ...]:
    known = {commit.commit_id for commit in others}
    return tuple(commit for commit in commits if commit.commit_id not in known)


def _summed(commits: Sequence[Commit]) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for commit in commits:
        for name, count in commit.statistics.items():
            total[name] = total.get(name, 0) + count
    return total
