"""What the protocol says of row tracking besides its fields of `add`. Pure.

Rules: the Delta protocol, "Row Tracking".
"""

from __future__ import annotations

from typing import Any

import orjson

from txlog.actions.table import DomainMetadata, Protocol
from txlog.errors import LogCorruptError
from txlog.protocol.access import supports
from txlog.protocol.properties import Properties

ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
ROW_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
ROW_TRACKING_DOMAIN = "delta.rowTracking"
PRESERVED_TAG = "delta.rowTracking.preserved"  # Of `commitInfo`.

_MARK = "rowIdHighWaterMark"


def gives_row_ids(protocol: Protocol, properties: Properties) -> bool:
    """Return whether files that are committed get row ids, enabled or not."""
    suspended = bool(properties.get("delta.rowTrackingSuspended"))
    return supports(protocol, "rowTracking") and not suspended


def row_id_mark(domain: DomainMetadata | None, *, path: str) -> int | None:
    """Return the highest row id that was ever given, as recorded; None if nothing is recorded.

    Raises
    ------
    LogCorruptError
        There is a record that cannot be read.
    """
    if domain is None or domain.removed:
        return None
    try:
        found: Any = orjson.loads(domain.configuration)[_MARK]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        found = None
    if type(found) is not int:
        raise LogCorruptError(
            path=path,
            field=f"domainMetadata.{ROW_TRACKING_DOMAIN}",
            reason=f"{domain.configuration!r} tells no {_MARK}, so no row can be given an id",
            remedy="The writer of this log is at fault",
        )
    return found


def mark_domain(mark: int) -> DomainMetadata:
    """Return the action that records the highest row id given."""
    return DomainMetadata(
        domain=ROW_TRACKING_DOMAIN, configuration=orjson.dumps({_MARK: mark}).decode()
    )
