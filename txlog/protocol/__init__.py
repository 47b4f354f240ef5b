"""Table features, properties, and who may read or write. Pure.

Rules: the Delta protocol, "Protocol Evolution", "Table Features" and "Valid Feature Names".
"""

from txlog.protocol.access import (
    features_of,
    is_active,
    new_protocol,
    require_readable,
    require_writable,
    supports,
)
from txlog.protocol.features import CATALOG_MANAGED, FEATURES, Feature
from txlog.protocol.properties import Properties, validate_properties

__all__ = [
    "CATALOG_MANAGED",
    "FEATURES",
    "Feature",
    "Properties",
    "features_of",
    "is_active",
    "new_protocol",
    "require_readable",
    "require_writable",
    "supports",
    "validate_properties",
]
