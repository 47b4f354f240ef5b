"""`Catalog`, with all kinds of it: of a database, and of Unity Catalog."""

from txlog.catalog.catalog import Catalog
from txlog.catalog.unity import UnityCatalog

__all__ = ["Catalog", "UnityCatalog"]
