"""Pins and shallow clones, which keep versions and files beyond the retention.

Each is a domain of the table's metadata. Rules: spec/maintenance.md, MNT-10 to MNT-15.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from txlog.actions.table import DomainMetadata
from txlog.base.errors import InvalidInputError, InvalidTypeError, LogCorruptError, NotFoundError
from txlog.snapshot.branches import SEAL, Branch, is_registry, registry_of
from txlog.snapshot.snapshot import Snapshot

PIN_PREFIX = "txlog.pin."
CLONE_PREFIX = "txlog.clone."
ATTEMPT_HOLDS_MS = 24 * 3_600_000  # How long an attempt to make a clone keeps its version.
_NAME = re.compile(r"(?!\d+$)[^\s\x00-\x1f](?:[^\x00-\x1f]{0,198}[^\s\x00-\x1f])?")


@dataclass(frozen=True, slots=True)
class Held:
    """A version that vacuum and expire keep, and what keeps it."""

    version: int
    holder: str
    remedy: str  # What to do so that the version is not kept any more.
    onward: bool = False  # Whether the commits after it are kept, too.


@dataclass(frozen=True, slots=True)
class Pin:
    """A named version, which vacuum and expire keep."""

    name: str
    version: int
    reason: str | None = None
    created_ms: int | None = None  # Milliseconds since the epoch.

    @property
    def held(self) -> Held:
        """The version that the pin keeps."""
        return Held(
            self.version,
            f"the pin {self.name!r}",
            f"delete the pin with pins.delete({self.name!r})",
        )

    def to_domain(self) -> DomainMetadata:
        """Return the domain that holds the pin."""
        facts = {"version": self.version, "reason": self.reason, "createdTime": self.created_ms}
        return DomainMetadata(domain=PIN_PREFIX + self.name, configuration=_text(facts))


@dataclass(frozen=True, slots=True)
class CloneAttempt:
    """A clone that is being made: its commit may refer to all files of a version.

    It is recorded in the source before the commit of the clone. While it is young, vacuum and
    expire keep the version, even if the clone does not exist yet.
    """

    id: str
    version: int  # Of the source.
    started_ms: int  # Milliseconds since the epoch.
    txn: tuple[str, int] | None = None  # The application's version of the clone's commit.
    is_new: bool = False  # Whether there was no table in the clone's place.
    # The table that is cloned, and whose version it is, if that names files of this one.
    of: str | None = None

    def is_young(self, now_ms: int) -> bool:
        """Return whether the process that makes the clone may still commit it."""
        return now_ms - self.started_ms < ATTEMPT_HOLDS_MS

    def to_json(self) -> dict[str, Any]:
        """Return the attempt as it is in the domain of its clone."""
        facts = {"id": self.id, "version": self.version, "startedTime": self.started_ms}
        more: dict[str, Any] = {"isNew": True} if self.is_new else {}
        if self.of is not None:
            more["of"] = self.of
        return {**facts, **more} if self.txn is None else {**facts, **more, "txn": list(self.txn)}


@dataclass(frozen=True, slots=True)
class RegisteredClone:
    """A registered shallow clone: a vacuum keeps the files to which it refers."""

    id: str  # The table id in the clone's metadata.
    uri: str
    is_made: bool = True  # False: it is not known whether the commit of the clone exists.
    attempts: tuple[CloneAttempt, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether only an attempt to make it can have given a table its id."""
        return not self.is_made and any(one.is_new for one in self.attempts)

    def to_domain(self) -> DomainMetadata:
        """Return the domain that holds the clone."""
        facts: dict[str, Any] = {"location": self.uri}
        if not self.is_made:
            facts["isMade"] = False
        if self.attempts:
            facts["attempts"] = [one.to_json() for one in self.attempts]
        return DomainMetadata(domain=CLONE_PREFIX + self.id, configuration=_text(facts))

    def held(self, now_ms: int) -> Iterable[Held]:
        """Yield the versions that the young attempts to make the clone need."""
        remedy = self.remedy
        for attempt in self.attempts:
            if attempt.of is None and attempt.is_young(now_ms):
                yield Held(attempt.version, f"the clone {self.uri}, which is being made,", remedy)

    @property
    def remedy(self) -> str:
        """What to do so that the attempts do not count any more."""
        if self.is_made:  # To forget it would also give up the files that it has.
            hours = ATTEMPT_HOLDS_MS // 3_600_000
            return f"wait until the attempt to make it again is {hours} hours old"
        # By its id: another clone may be made in its place.
        return (
            f"call Table.maintenance.forget_clone({self.id!r}) if nobody is making this clone now"
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
        RegisteredClone(
            name,
            _field(snapshot, domain, "location", str),
            _field(snapshot, domain, "isMade", bool, optional=True) is not False,
            tuple(
                _attempt(snapshot, domain, one)
                for one in _field(snapshot, domain, "attempts", list, optional=True) or ()
            ),
        )
        for name, domain in _domains(snapshot, CLONE_PREFIX)
    ]


def _attempt(snapshot: Snapshot, domain: DomainMetadata, one: Any) -> CloneAttempt:
    facts = one if isinstance(one, dict) else {}
    text, version, started_ms = (facts.get(name) for name in ("id", "version", "startedTime"))
    txn, of = facts.get("txn"), facts.get("of")
    known = txn is None or (isinstance(txn, list) and [type(value) for value in txn] == [str, int])
    known = known and (of is None or type(of) is str)
    if not (type(text) is str and type(version) is type(started_ms) is int and known):
        raise _not_contained(snapshot, domain, "attempts")
    pair = None if txn is None else (txn[0], txn[1])
    return CloneAttempt(text, version, started_ms, pair, facts.get("isNew") is True, of)


def held_versions(snapshot: Snapshot, now_ms: int) -> list[Held]:
    """Return the versions that pins, open branches, and clones that are being made keep.

    `now_ms` is the time in milliseconds since the epoch. Errors as for `pins_of`.
    """
    clones = (held for clone in clones_of(snapshot) for held in clone.held(now_ms))
    branches = (_held_by(branch) for branch in registry_of(snapshot).open)
    return [*(pin.held for pin in pins_of(snapshot).values()), *clones, *branches]


def _held_by(branch: Branch) -> Held:
    return Held(
        branch.base_version,
        f"the branch {branch.name!r}",
        f"discard the branch with branches.discard({branch.name!r})",
        onward=True,
    )


def reference_domain(snapshot: Snapshot, prefix: str, name: str) -> DomainMetadata | None:
    """Return the domain of one pin or clone, whatever it contains; None if there is none.

    A domain that contains nothing sensible can be removed nevertheless.
    """
    return next((one for known, one in _domains(snapshot, prefix) if known == name), None)


def is_reference(domain: str) -> bool:
    """Return whether a domain contains pins, clones or branches, which belong to one table only."""
    return domain.startswith((PIN_PREFIX, CLONE_PREFIX)) or domain == SEAL or is_registry(domain)


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
    raise _not_contained(snapshot, domain, name)


def _not_contained(snapshot: Snapshot, domain: DomainMetadata, name: str) -> LogCorruptError:
    return LogCorruptError(
        path=snapshot.root,
        version=snapshot.version,
        field=f"domainMetadata.{domain.domain}",
        reason=f"{domain.configuration!r} does not contain its {name}",
        remedy=f"Delete it with pins.delete({domain.domain.removeprefix(PIN_PREFIX)!r})"
        if domain.domain.startswith(PIN_PREFIX)
        else "Delete it with "
        f"maintenance.forget_clone({domain.domain.removeprefix(CLONE_PREFIX)!r})",
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
    raise no_pin(snapshot, name)


def no_pin(snapshot: Snapshot, name: str) -> NotFoundError:
    """Return the error for a pin that the latest version of a table does not have."""
    pins = ", ".join(pins_of(snapshot))
    return NotFoundError(
        path=snapshot.root,
        reason=f"the table has no pin {name!r}",
        remedy=f"Choose from {pins}" if pins else "It has none; see Table.pins.create",
    )
