"""A scan of one version, as people use it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from txlog.fragments import Fragment
from txlog.scan.engine import Engine, Threads
from txlog.scan.plan import Explanation, ScanPlan
from txlog.scan.read import BATCH_ROWS, FragmentReader, read_fragment
from txlog.store import Store


def _read_all(store: Store, plan: ScanPlan, threads: bool, fragment: Fragment) -> list[Any]:
    return list(read_fragment(store, plan, fragment, threads=threads))


def _count(store: Store, plan: ScanPlan, fragment: Fragment) -> int:
    if plan.where is None:
        reader = FragmentReader(store, plan, fragment)
        return reader.count_rows() - len(reader.deletions() or ())
    return sum(batch.num_rows for batch in read_fragment(store, plan, fragment))


@dataclass(frozen=True)
class Scan:
    """Rows of one version, planned but not yet read; reading twice gives the same rows.

    Anything that takes the Arrow C stream (pyarrow, polars, duckdb, pandas) takes a scan.
    """

    store: Store
    plan: ScanPlan
    engine: Engine = field(default_factory=Threads)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return self.plan.schema

    def fragments(self) -> list[Fragment]:
        """Return the fragments that will be read, ordered by id."""
        return list(self.plan.fragments)

    def to_batches(self, *, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows, fragment by fragment, none of the batches empty or over `batch_rows`.

        One batch is held at a time; `to_arrow` reads fragments in parallel instead.
        """
        for fragment in self.plan.fragments:
            yield from read_fragment(
                self.store, self.plan, fragment, batch_rows=batch_rows, threads=True
            )

    def to_arrow(self) -> pa.Table:
        """Return the rows as one table, ordered by fragment and position."""
        fragments = self.plan.fragments
        single = len(fragments) == 1
        parts = self.engine.map(partial(_read_all, self.store, self.plan, single), fragments)
        return pa.Table.from_batches(
            [batch for batches in parts for batch in batches], schema=self.schema
        )

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def count(self) -> int:
        """Return the number of rows, from the log alone where it knows."""
        total = 0
        unknown = []
        for fragment, certain in zip(self.plan.fragments, self.plan.certain, strict=True):
            if certain and fragment.num_rows is not None:
                total += fragment.num_rows
            else:
                unknown.append(fragment)
        return total + sum(self.engine.map(partial(_count, self.store, self.plan), unknown))

    def explain(self) -> Explanation:
        """Return what is read and what is left out, and why; `print` it."""
        return self.plan.explanation

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)
