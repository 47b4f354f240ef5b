"""Row tracking: its properties, and the domain with the highest row id. Pure.

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
    """Return whether committed files get row ids: the feature is supported, and not suspended."""
    suspended = bool(properties.get("delta.rowTrackingSuspended"))
    return supports(protocol, "rowTracking") and not suspended


def row_id_mark(domain: DomainMetadata | None, *, path: str) -> int | None:
    """Return the recorded high water mark of row ids, None if there is no record.

    Raises
    ------
    LogCorruptError
        There is a record that cannot be read.
    """
    if domain is None or domain.removed:
        return None
    try:
        mark: Any = orjson.loads(domain.configuration)[_MARK]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        mark = None
    if type(mark) is not int:
        raise LogCorruptError(
            path=path,
            field=f"domainMetadata.{ROW_TRACKING_DOMAIN}",
            reason=f"{domain.configuration!r} holds no {_MARK}, so new rows cannot get ids",
            remedy="The writer of this log is at fault",
        )
    return mark


def mark_domain(mark: int) -> DomainMetadata:
    """Return the action that records the high water mark of row ids."""
    return DomainMetadata(
        domain=ROW_TRACKING_DOMAIN, configuration=orjson.dumps({_MARK: mark}).decode()
    )
