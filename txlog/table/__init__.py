"""`Table`: a table at a version, and one call for each verb."""

from txlog.table.reading import Where
from txlog.table.table import Table

__all__ = ["Table", "Where"]
