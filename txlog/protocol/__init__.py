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
    with_features,
)
from txlog.protocol.features import CATALOG_MANAGED, FEATURES, Feature
from txlog.protocol.properties import Properties, split_features, validate_properties

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
    "split_features",
    "supports",
    "validate_properties",
    "with_features",
]
