"""Pins and shallow clones, which keep versions and files beyond the retention.

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
    """A named version, which vacuum and expire keep."""

    name: str
    version: int
    reason: str | None = None
    created_ms: int | None = None  # Milliseconds since the epoch.

    def to_domain(self) -> DomainMetadata:
        """Return the domain that holds the pin."""
        facts = {"version": self.version, "reason": self.reason, "createdTime": self.created_ms}
        return DomainMetadata(domain=PIN_PREFIX + self.name, configuration=_text(facts))


@dataclass(frozen=True, slots=True)
class RegisteredClone:
    """A registered shallow clone: a vacuum keeps the files to which it refers."""

    id: str  # The table id in the clone's metadata.
    uri: str

    def to_domain(self) -> DomainMetadata:
        """Return the domain that holds the clone."""
        return DomainMetadata(
            domain=CLONE_PREFIX + self.id, configuration=_text({"location": self.uri})
        )


def _text(facts: dict[str, Any]) -> str:
    return orjson.dumps({k: v for k, v in facts.items() if v is not None}).decode()


def pins_of(snapshot: Snapshot) -> dict[str, Pin]:
    """Return the pins of a table by name, in the order of names.

    Raises
    ------
    LogCorruptError
        A pin does not contain its version.
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
    """Return the registered shallow clones of a table; errors as for `pins_of`."""
    return [
        RegisteredClone(name, _field(snapshot, domain, "location", str))
        for name, domain in _domains(snapshot, CLONE_PREFIX)
    ]


def is_reference(domain: str) -> bool:
    """Return whether a domain contains a pin or a clone, which belong to one table only."""
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
        reason=f"{domain.configuration!r} does not contain its {name}",
        remedy="Delete it with Table.pins.delete, or ask its writer",
    )


def require_pin_name(name: object) -> str:
    """Return a pin's name; raise if it is not valid.

    Raises
    ------
    InvalidInputError
        The name is not a string, is empty, too long or a number, or begins or ends with a space.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    kind = InvalidInputError if isinstance(name, str) else InvalidTypeError
    raise kind(
        argument="name",
        reason=f"{name!r} is not the name of a pin; a version is a whole number",
        remedy="Use text of at most 200 characters that is not a number",
    )


def pinned_version(snapshot: Snapshot, name: str) -> int:
    """Return the version of a pin, from the latest version of its table.

    Raises
    ------
    NotFoundError
        There is no such pin. The error lists the existing pins.
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
