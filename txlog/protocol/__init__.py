"""Table features, properties, and who may read or write. Pure.

Rules: the Delta protocol, "Protocol Evolution", "Table Features" and "Valid Feature Names".
"""

from txlog.protocol.access import (
    features_of,
    is_active,
    is_stamped,
    merged_protocol,
    new_protocol,
    require_readable,
    require_writable,
    supports,
    with_features,
)
from txlog.protocol.features import CATALOG_MANAGED, FEATURES, Feature
from txlog.protocol.properties import (
    FEATURE_PREFIX,
    Properties,
    property_name,
    split_features,
    validate_properties,
)
from txlog.protocol.row_tracking import (
    PRESERVED_TAG,
    ROW_ID_COLUMN,
    ROW_TRACKING_DOMAIN,
    ROW_VERSION_COLUMN,
    gives_row_ids,
    mark_domain,
    row_id_mark,
)

__all__ = [
    "CATALOG_MANAGED",
    "FEATURES",
    "FEATURE_PREFIX",
    "PRESERVED_TAG",
    "ROW_ID_COLUMN",
    "ROW_TRACKING_DOMAIN",
    "ROW_VERSION_COLUMN",
    "Feature",
    "Properties",
    "features_of",
    "gives_row_ids",
    "is_active",
    "is_stamped",
    "mark_domain",
    "merged_protocol",
    "new_protocol",
    "property_name",
    "require_readable",
    "require_writable",
    "row_id_mark",
    "split_features",
    "supports",
    "validate_properties",
    "with_features",
]
