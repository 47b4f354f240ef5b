"""Reconciliation of protocol, metadata, transactions and domains. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from txlog.actions.base import Action
from txlog.actions.table import DomainMetadata, Metadata, Protocol, Txn
from txlog.errors import LogCorruptError
from txlog.lazy import dataclass
from txlog.log.names import commit_name


@dataclass(frozen=True)
class Controls:
    """The newest protocol and metadata, and the newest `txn` and domain of each name."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: Mapping[str, Txn] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)  # Removed ones included.


def controls_of(actions: Iterable[tuple[int, Action]], base: Controls | None = None) -> Controls:
    """Return the newest action of each key, out of actions with their versions and a base.

    The order of `actions` has no meaning; all are newer than the base. Actions of other kinds
    are passed over.

    Raises
    ------
    LogCorruptError
        One version has two protocols, two metadata, or one `txn` or domain twice (rule REC-6).
    """
    base = base or Controls()
    newest: dict[tuple[str, str], tuple[int, Action]] = {}
    for version, action in actions:
        key = _key(action)
        if key is None:
            continue
        known = newest.get(key)
        if known is not None and known[0] == version and known[1] != action:
            raise LogCorruptError(
                path=commit_name(version),
                version=version,
                field=" ".join(key).strip(),
                reason="one commit holds this action twice, with different content",
                remedy="Open a version before it; the writer of this commit is at fault",
            )
        if known is None or known[0] < version:
            newest[key] = (version, action)
    protocol, metadata = base.protocol, base.metadata
    txns, domains = dict(base.txns), dict(base.domains)
    for _, action in newest.values():
        match action:
            case Protocol():
                protocol = action
            case Metadata():
                metadata = action
            case Txn():
                txns[action.app_id] = action
            case DomainMetadata():
                domains[action.domain] = action
    return Controls(protocol, metadata, txns, domains)


def _key(action: Action) -> tuple[str, str] | None:
    match action:
        case Protocol():
            return ("protocol", "")
        case Metadata():
            return ("metaData", "")
        case Txn():
            return ("txn", action.app_id)
        case DomainMetadata():
            return ("domainMetadata", action.domain)
    return None
