"""Pins and shallow clones: what refers to versions and files of a table besides its retention.

Each is a domain of the table's metadata. Rules: spec/maintenance.md, MNT-10 to MNT-14.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from txlog.actions.table import DomainMetadata
from txlog.errors import InvalidInputError, InvalidTypeError, LogCorruptError, NotFoundError
from txlog.snapshot.snapshot import Snapshot

PIN_PREFIX = "txlog.pin."
CLONE_PREFIX = "txlog.clone."
_NAME = re.compile(r"(?!\d+$)[^\s\x00-\x1f](?:[^\x00-\x1f]{0,198}[^\s\x00-\x1f])?")


@dataclass(frozen=True, slots=True)
class Pin:
    """A version that has a name, and that vacuum and expire keep."""

    name: str
    version: int
    reason: str | None = None
    created_ms: int | None = None  # Milliseconds since the epoch.

    def to_domain(self) -> DomainMetadata:
        """Return the domain that holds the pin."""
        told = {"version": self.version, "reason": self.reason, "createdTime": self.created_ms}
        return DomainMetadata(domain=PIN_PREFIX + self.name, configuration=_text(told))


@dataclass(frozen=True, slots=True)
class RegisteredClone:
    """A shallow clone that a table was told of: a vacuum keeps the files that it refers to."""

    id: str  # Of the clone, as its metadata has it.
    uri: str

    def to_domain(self) -> DomainMetadata:
        """Return the domain that holds the clone."""
        return DomainMetadata(
            domain=CLONE_PREFIX + self.id, configuration=_text({"location": self.uri})
        )


def _text(told: dict[str, Any]) -> str:
    return orjson.dumps({k: v for k, v in told.items() if v is not None}).decode()


def pins_of(snapshot: Snapshot) -> dict[str, Pin]:
    """Return the pins of a table, by their names, in their order.

    Raises
    ------
    LogCorruptError
        A pin does not say which version it is of.
    """
    return {
        name: Pin(
            name,
            _field(snapshot, domain, "version", int),
            _field(snapshot, domain, "reason", str, optional=True),
            _field(snapshot, domain, "createdTime", int, optional=True),
        )
        for name, domain in _domains(snapshot, PIN_PREFIX)
    }


def clones_of(snapshot: Snapshot) -> list[RegisteredClone]:
    """Return the shallow clones that a table was told of; errors as `pins_of`."""
    return [
        RegisteredClone(name, _field(snapshot, domain, "location", str))
        for name, domain in _domains(snapshot, CLONE_PREFIX)
    ]


def is_reference(domain: str) -> bool:
    """Return whether a domain holds a pin or a clone, which belong to one table alone."""
    return domain.startswith((PIN_PREFIX, CLONE_PREFIX))


def _domains(snapshot: Snapshot, prefix: str) -> list[tuple[str, DomainMetadata]]:
    return [
        (name.removeprefix(prefix), domain)
        for name, domain in sorted(snapshot.controls.domains.items())
        if name.startswith(prefix) and not domain.removed
    ]


def _field(
    snapshot: Snapshot, domain: DomainMetadata, name: str, kind: type, *, optional: bool = False
) -> Any:
    try:
        value: Any = orjson.loads(domain.configuration).get(name)
    except (orjson.JSONDecodeError, AttributeError):
        value = None
    if type(value) is kind or (optional and value is None):
        return value
    raise LogCorruptError(
        path=snapshot.root,
        version=snapshot.version,
        field=f"domainMetadata.{domain.domain}",
        reason=f"{domain.configuration!r} does not say its {name}",
        remedy="Delete it with Table.pins.delete, or ask who wrote it",
    )


def require_pin_name(name: object) -> str:
    """Return the name of a pin, if it can be one.

    Raises
    ------
    InvalidInputError
        It is no text, is empty, too long or a number, or begins or ends with a space.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    kind = InvalidInputError if isinstance(name, str) else InvalidTypeError
    raise kind(
        argument="name",
        reason=f"{name!r} is no name of a pin; a version is a whole number",
        remedy="Use text of at most 200 characters that is no number",
    )


def pinned_version(snapshot: Snapshot, name: str) -> int:
    """Return the version of a pin, as the latest version of its table has it.

    Raises
    ------
    NotFoundError
        There is no such pin; those that there are, are named.
    InvalidInputError
        No pin can have such a name.
    """
    pins = pins_of(snapshot)
    require_pin_name(name)
    if name in pins:
        return pins[name].version
    raise NotFoundError(
        path=snapshot.root,
        reason=f"the table has no pin {name!r}",
        remedy=f"Choose from {', '.join(pins)}" if pins else "It has none; see Table.pins.create",
    )
