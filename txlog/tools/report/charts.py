"""The charts of a report, as Vega-Lite: values of its grammar, with the data in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from txlog.base.moments import moment_text
from txlog.extend import ColumnFacts, TableFacts
from txlog.tools.report.time_axis import LATEST_MS, time_axis

Chart = dict[str, Any]

_WIDE: Chart = {"width": "container"}
_FEW = 6


def charts_of(facts: TableFacts) -> dict[str, Chart]:
    """Return the charts by the ids of their places on the page; empty charts are left out."""
    found = {}
    if any(map(_is_drawn, facts.versions)):
        found["versions"] = versions(facts.versions)
    if facts.sizes:
        found["sizes"] = sizes(facts.sizes)
    if facts.partitions:
        found["partitions"] = partitions(facts.partitions)
    if any(column.depth is not None for column in facts.columns):
        found["skipping"] = skipping(facts.columns, facts.files)
    return found


def versions(entries: list[dict[str, Any]]) -> Chart:
    """Return the written and deleted rows over time, by operation."""
    known = [{**entry, "made": moment_text(entry["time"])} for entry in entries if _is_drawn(entry)]
    rows = [{**entry, "change": "rows written", "rows": entry["added"] or 0} for entry in known] + [
        {**entry, "change": "rows deleted", "rows": -entry["deleted"]}
        for entry in known
        if entry["deleted"]
    ]
    along = time_axis([entry["time"] for entry in known])
    ends = along.ticks[0], along.ticks[-1]
    return {
        **_WIDE,
        "height": 240,
        "data": {"values": rows},
        "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.8},
        "encoding": {
            "x": {
                "field": "time", "type": "temporal", "title": "time (UTC)",
                # Expressions: of plain numbers Vega makes dates, and its interpreter, with which
                # pages without eval draw, takes a date of one number for a year.
                "scale": {"type": "utc", "domain": [{"expr": str(end)} for end in ends]},
                "axis": {"values": {"expr": str([*along.ticks])}, "labelExpr": along.label,
                         "labelOverlap": "parity"},
            },
            "y": {
                "field": "rows", "type": "quantitative", "scale": {"type": "symlog"},
                "title": "rows written (up) and deleted (down)",
                "axis": counted(row["rows"] for row in rows),
            },
            "color": {"field": "operation", "type": "nominal", "title": None,
                      "legend": {"orient": "bottom", "columns": 2, "labelLimit": 0}},
            "tooltip": [
                {"field": "version", "type": "quantitative"},
                {"field": "made", "title": "time (UTC)"},
                {"field": "operation"}, {"field": "by"},
                {"field": "added", "title": "rows written", "format": ","},
                {"field": "deleted", "title": "rows deleted", "format": ","},
                {"field": "bytes", "format": ".3~s"},
            ],
        },
    }  # fmt: skip


def _is_drawn(entry: dict[str, Any]) -> bool:
    """Return whether a version has a time that a chart can show."""
    time = entry["time"]
    return isinstance(time, int) and abs(time) < LATEST_MS


def counted(values: Iterable[int]) -> Chart:
    """Return an axis from 0 over whole numbers, with whole ticks: 0, 500k, 1M."""
    shown = [0, *values]
    first, last = min(shown), max(shown)
    axis: Chart = {"tickMinStep": 1, "labelExpr": "format(datum.value, '~s')"}
    # A scale of logarithms does not know the smallest step.
    return {**axis, "values": [*range(first, last + 1)]} if last - first < _FEW else axis


def sizes(bins: list[dict[str, Any]]) -> Chart:
    """Return the number of files by size."""
    rows = [{**one, "size": f"{size_text(one['from'])} to {size_text(one['to'])}"} for one in bins]
    return {
        **_WIDE,
        "height": 200,
        "data": {"values": rows},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "size", "type": "ordinal", "sort": None, "title": "size of a file",
                  "axis": {"labelAngle": -30}},
            "y": {"field": "files", "type": "quantitative",
                  "axis": counted(one["files"] for one in bins)},
            "tooltip": [{"field": "size"}, {"field": "files", "format": ","},
                        {"field": "bytes", "format": ".3~s"}],
        },
    }  # fmt: skip


def partitions(rows: list[dict[str, Any]]) -> Chart:
    """Return the bytes of the largest partitions."""
    return {
        **_WIDE,
        "height": 30 + 22 * len(rows),
        "data": {"values": rows},
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "partition", "type": "nominal", "sort": None, "title": None},
            "x": {"field": "bytes", "type": "quantitative",
                  "axis": counted(row["bytes"] or 0 for row in rows)},
            "tooltip": [{"field": "partition"}, {"field": "files", "format": ","},
                        {"field": "bytes", "format": ".3~s"}, {"field": "rows", "format": ","}],
        },
    }  # fmt: skip


def skipping(columns: list[ColumnFacts], files: int) -> Chart:
    """Return the share of files that a look-up of one value must read, by column."""
    rows = [
        {
            "column": column.name,
            "share": column.depth * column.known / files + (1 - column.known),
            "depth": column.depth,
        }
        for column in columns
        if column.depth is not None
    ]
    return {
        **_WIDE,
        "height": 30 + 22 * len(rows),
        "data": {"values": rows},
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "column", "type": "nominal", "sort": None, "title": None},
            "x": {
                "field": "share", "type": "quantitative",
                "axis": {"format": "%", "titleAnchor": "end"},  # It may be wider than the plot.
                "scale": {"domain": [0, 1]},
                "title": "files that a scan for one value reads (less is better)",
            },
            "tooltip": [{"field": "column"}, {"field": "share", "format": ".1%"},
                        {"field": "depth", "title": "files that overlap", "format": ".1f"}],
        },
    }  # fmt: skip


def size_text(count: int | None) -> str:
    """Return a number of bytes as short text."""
    if count is None:
        return "unknown"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"
