"""File statistics, and which files a predicate cannot skip. Pure."""

from txlog.stats.bounds import EVERYTHING, Bounds, ColumnBounds, Known, merged
from txlog.stats.collect import Extent, StatsCollector, leaf_types, stats_json
from txlog.stats.document import lacking, with_columns
from txlog.stats.files import (
    file_bounds,
    num_records,
    partition_texts,
    partition_values,
    physical_path,
)
from txlog.stats.footer import footer_extents
from txlog.stats.fragments import (
    fragment_bounds,
    physical_rows,
    require_same_counts,
    require_same_partitions,
)
from txlog.stats.json_bounds import json_bounds, parsed_bounds
from txlog.stats.partition import (
    code_partition_values,
    format_partition_values,
    parse_partition_values,
)
from txlog.stats.read import row_group_bounds, struct_bounds
from txlog.stats.skip import always, keep
from txlog.stats.struct_texts import with_json_stats
from txlog.stats.typed import stats_type, typed_partition_values, typed_stats

__all__ = [
    "EVERYTHING",
    "Bounds",
    "ColumnBounds",
    "Extent",
    "Known",
    "StatsCollector",
    "always",
    "code_partition_values",
    "file_bounds",
    "footer_extents",
    "format_partition_values",
    "fragment_bounds",
    "json_bounds",
    "keep",
    "lacking",
    "leaf_types",
    "merged",
    "num_records",
    "parse_partition_values",
    "parsed_bounds",
    "partition_texts",
    "partition_values",
    "physical_path",
    "physical_rows",
    "require_same_counts",
    "require_same_partitions",
    "row_group_bounds",
    "stats_json",
    "stats_type",
    "struct_bounds",
    "typed_partition_values",
    "typed_stats",
    "with_columns",
    "with_json_stats",
]
