"""Take a table into a catalog, through which all commits go from then on, and let it out.

Rules: spec/catalog.md, CAT-3 and CAT-4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from txlog.actions.table import Protocol
from txlog.base.errors import UnsupportedFeatureError
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation
from txlog.protocol.access import features_of, lowest_protocol, merged_protocol
from txlog.protocol.features import FEATURES, THROUGH_CATALOG
from txlog.protocol.properties import STAMPED_SINCE, STAMPS
from txlog.snapshot.branches import registry_of, some_of
from txlog.snapshot.snapshot import Snapshot
from txlog.store.catalog_database import Managed

CATALOG_ID = "txlog.catalog"
"""The property with the id of the catalog that manages the table."""
STAMPED = "txlog.catalog.stamped"
"""The property that says that the table had in-commit timestamps before."""
GROUPS = "multiTableTransaction-dev"
_FEATURES: dict[Managed, str] = {"all": "catalogManaged", "writes": "txlog.catalogWrites-dev"}


def managed_kind(snapshot: Snapshot) -> Managed | None:
    """Return how a version says that a catalog manages it, or None."""
    features = features_of(snapshot.protocol)
    return next((kind for kind, name in _FEATURES.items() if name in features), None)


def catalog_of(snapshot: Snapshot) -> str | None:
    """Return the id of the catalog that manages a version, or None."""
    found: str | None = snapshot.properties.get(CATALOG_ID)
    return found


class TakeIn(Operation):
    """Add the features and properties of a managed table; the last commit without the catalog."""

    name = "MANAGE TABLE"

    def __init__(self, kind: Managed, catalog_id: str) -> None:
        self._kind = kind
        self._catalog_id = catalog_id

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the protocol and the properties; None if the catalog manages the table already.

        Raises
        ------
        UnsupportedFeatureError
            Another catalog manages the table.
        """
        if (kind := managed_kind(base)) is not None:
            if catalog_of(base) == self._catalog_id and kind == self._kind:
                return None
            raise UnsupportedFeatureError(
                path=base.root,
                features=(_FEATURES[kind],),
                reason="a catalog manages the table already",
                remedy="Let it out of that catalog first, with the catalog's method release",
            )
        names = {_FEATURES[self._kind], "inCommitTimestamp", GROUPS}
        stamped = {STAMPED: "true"} if base.is_active("inCommitTimestamp") else {}
        own = {STAMPS: "true", CATALOG_ID: self._catalog_id, **stamped}
        configuration = {**base.metadata.configuration, **own}
        return Intent(
            operation=self.name,
            kind="protocol",
            read_version=base.version,
            protocol=_with(base.protocol, names),
            metadata=base.metadata.model_copy(update={"configuration": configuration}),
            parameters={"managed": self._kind},
        )


class LetOut(Operation):
    """Remove what `TakeIn` added; the last commit through the catalog."""

    name = "RELEASE TABLE"

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the protocol without the features; None if there are none.

        Raises
        ------
        UnsupportedFeatureError
            A branch is open. Its log says that the catalog manages the table, so it could neither
            be published afterwards, nor, of a table that is read through the catalog, be read.
        """
        if managed_kind(base) is None:
            return None
        if opened := registry_of(base).open:
            raise UnsupportedFeatureError(
                path=base.root,
                features=("branches",),
                reason=f"the table has open branches ({some_of(opened)}), which could not be "
                "published after the catalog let the table out",
                remedy="Publish or discard them first",
            )
        kept = features_of(base.protocol) - THROUGH_CATALOG
        dropped = [CATALOG_ID, STAMPED]
        if not base.properties.get(STAMPED):
            kept -= {"inCommitTimestamp"}
            dropped += [STAMPS, *STAMPED_SINCE]
        before = base.metadata.configuration
        configuration = {name: value for name, value in before.items() if name not in dropped}
        return Intent(
            operation=self.name,
            kind="protocol",
            read_version=base.version,
            protocol=lowest_protocol(kept),
            metadata=base.metadata.model_copy(update={"configuration": configuration}),
            revives=True,  # A winner may have made a branch.
        )


def through_catalog(creation: Intent) -> Intent:
    """Return the intent of version 0 of a table that a catalog manages from the beginning."""
    assert creation.protocol is not None
    names = {_FEATURES["all"], "inCommitTimestamp"}
    return replace(creation, protocol=_with(creation.protocol, names))


def _with(protocol: Protocol, names: Iterable[str]) -> Protocol:
    """Return a protocol with further features, also those that only a catalog adds."""
    added = sorted(names)
    readers = [name for name in added if FEATURES[name].kind == "reader-writer"]
    wanted = Protocol(
        min_reader_version=3 if readers else 1,
        min_writer_version=7,
        reader_features=readers or None,
        writer_features=added,
    )
    return merged_protocol(protocol, wanted)
