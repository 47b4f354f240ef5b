"""Reading with Spark: one input partition for each fragment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from txlog.errors import InvalidInputError
from txlog.expressions import And, Expression, bind
from txlog.fragments import Fragment
from txlog.scan import ScanPlan, plan_scan, read_fragment
from txlog.schema import arrow_schema, parse_schema
from txlog.snapshot import Snapshot, load_files
from txlog.spark_ext.filters import as_predicate
from txlog.store import Store


@dataclass
class FragmentPartition(InputPartition):
    """A task's work: a fragment, and the plan that all of them share.

    Without a fragment there is nothing to read: Spark wants one partition even then.
    """

    plan: ScanPlan
    fragment: Fragment | None


class _OptionalPush:
    """`pushFilters`, in a form that Spark accepts while its filter push-down is off.

    Spark refuses a reader that overrides the method then, and asks the function which one it is.
    """

    def __init__(self, reader: FragmentsReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._reader.push(filters)


class FragmentsReader(DataSourceReader):
    """Reads one version of a table. Planning is on the driver; tasks never see the log."""

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        schema: SparkStruct,
        where: Expression | None,
    ) -> None:
        self._store = store
        self._snapshot: Snapshot | None = snapshot
        self._columns = schema.names
        self._arrow_schema = arrow_schema(parse_schema(schema.json()))
        self._where = [] if where is None else [where]
        self.pushFilters = _OptionalPush(self)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None, "pushFilters": None}

    def push(self, filters: list[Any]) -> Iterator[Any]:
        """Take the filters that txlog understands; Spark checks all of them again."""
        assert self._snapshot is not None
        for found in filters:
            predicate = as_predicate(found)
            if predicate is not None:
                try:
                    bind(predicate, self._snapshot.schema)
                    self._where.append(predicate)
                except InvalidInputError:
                    pass  # Of types that only Spark compares.
            yield found

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each fragment that the predicate does not rule out."""
        assert self._snapshot is not None
        where = None
        if self._where:
            where = reduce(lambda a, b: And((a, b)), self._where)
        files = load_files(self._store, self._snapshot).live
        plan = plan_scan(self._snapshot, files, columns=self._columns, where=where)
        shared = replace(plan, fragments=(), certain=())
        fragments: list[Fragment | None] = [*plan.fragments] or [None]
        return [FragmentPartition(shared, fragment) for fragment in fragments]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a fragment's rows, in exactly the types that Spark expects."""
        assert isinstance(partition, FragmentPartition)
        if partition.fragment is None:
            return
        for batch in read_fragment(self._store, partition.plan, partition.fragment):
            columns = [
                column if column.type == field.type else column.cast(field.type)
                for column, field in zip(batch.columns, self._arrow_schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._arrow_schema)
