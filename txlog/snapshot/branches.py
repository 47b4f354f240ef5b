"""The registry of a table's branches: a domain of its metadata. Pure, but for the look-up by name.

Rules: spec/branches.md, BRA-10 to BRA-17.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from typing import Any, Literal

import orjson

from txlog.actions.table import DomainMetadata
from txlog.base.errors import LogCorruptError, NotFoundError
from txlog.snapshot.snapshot import Snapshot
from txlog.store.branches import Chain, is_branch_id

REGISTRY = "delta.tableBranching"
"""The domain of the registry."""
BRANCHING = "tableBranching-dev"
"""The feature of tables that have branches; the proposal is not accepted, so it is a draft's."""
SEAL = "txlog.branchSeal"
"""The domain by which the last commit of a branch says that no other one follows (BRA-15)."""

PAGE_PREFIX = "txlog.branches."
"""Domains with further branches of a large registry: the prefix and a number from 1 on."""
PAGES = "txlog.branchPages"
"""The feature of tables whose registry has such domains."""

CLOSED_KEPT = 20  # How many closed branches the registry remembers.
PAGE_BRANCHES = 64
"""How many open branches a domain of the registry holds: each change writes up to two domains."""

Status = Literal["open", "published", "discarded"]


@dataclass(frozen=True, slots=True)
class Branch:
    """An entry of the registry."""

    id: str  # A UUID, which names the folder of the branch's log.
    name: str
    base_version: int
    created_version: int  # The version of the table that registered it.
    status: Status = "open"
    published_version: int | None = None
    generation: int = 0  # How many attempts to close it were given up (BRA-16).
    # Fields of other writers.
    others: dict[str, Any] = field(default_factory=dict, compare=False)
    # The domain that holds the entry: 0 is the registry's own.
    page: int = field(default=0, compare=False)

    @property
    def is_open(self) -> bool:
        """Whether it can be written, published and discarded."""
        return self.status == "open"

    @property
    def chain(self) -> Chain:
        """The log of the branch."""
        return Chain(self.name, self.id, self.base_version)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as it is in the registry."""
        facts: dict[str, Any] = {
            **self.others,
            "branchId": self.id,
            "name": self.name,
            "baseVersion": self.base_version,
            "createdVersion": self.created_version,
            "status": self.status,
        }
        if self.published_version is not None:
            facts["publishedVersion"] = self.published_version
        if self.generation:
            facts["txlog.generation"] = self.generation
        return facts


_KNOWN = frozenset(
    {
        "branchId", "name", "baseVersion", "createdVersion", "status", "publishedVersion",
        "txlog.generation",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Registry:
    """The branches of a table, in the order in which they were created."""

    branches: tuple[Branch, ...] = ()
    others: dict[str, Any] = field(default_factory=dict)  # Fields of other writers.

    @property
    def open(self) -> list[Branch]:
        """The branches that are neither published nor discarded."""
        return [one for one in self.branches if one.is_open]

    def find(self, name: str) -> Branch | None:
        """Return the open branch of a name, or None."""
        return next((one for one in self.branches if one.is_open and one.name == name), None)

    def like(self, name: str) -> Branch | None:
        """Return the open branch whose name differs from another at most in case, or None."""
        folded = name.casefold()
        alike = (one for one in self.branches if one.is_open and one.name.casefold() == folded)
        return next(alike, None)

    def with_branch(self, branch: Branch) -> Registry:
        """Return the registry with an entry added or changed. Old closed entries are forgotten."""
        others = [one for one in self.branches if one.id != branch.id]
        if not branch.is_open:  # Closed entries are in the order in which they were closed.
            changed = [*others, replace(branch, page=0)]
        elif len(others) == len(self.branches):
            changed = [*others, replace(branch, page=self._free_page())]
        else:
            changed = [branch if one.id == branch.id else one for one in self.branches]
        closed = [one.id for one in changed if not one.is_open]
        forgotten = frozenset(closed[: max(0, len(closed) - CLOSED_KEPT)])
        return replace(self, branches=tuple(one for one in changed if one.id not in forgotten))

    def _free_page(self) -> int:
        """Return the first domain that has room for another open branch."""
        held = Counter(one.page for one in self.open)
        return next(page for page in count() if held[page] < PAGE_BRANCHES)

    @property
    def has_pages(self) -> bool:
        """Whether it has more domains than its own."""
        return any(one.page for one in self.branches)

    def to_domains(self, before: Registry) -> tuple[DomainMetadata, ...]:
        """Return the domains that differ from those of an earlier registry.

        The registry's own is always one of them, so two changes of the registry conflict.
        """
        old, new = _by_page(before.branches), _by_page(self.branches)
        return tuple(
            self._domain(page, new.get(page, ()))
            for page in sorted({0, *old, *new})
            if page == 0 or old.get(page) != new.get(page)
        )

    def _domain(self, page: int, branches: Sequence[Branch]) -> DomainMetadata:
        facts = {"branches": [one.to_json() for one in branches]}
        if page == 0:
            facts = {**self.others, **facts}
        return DomainMetadata(
            domain=f"{PAGE_PREFIX}{page}" if page else REGISTRY,
            configuration=orjson.dumps(facts).decode(),
            removed=bool(page) and not branches,
        )


def _by_page(branches: Iterable[Branch]) -> dict[int, list[Branch]]:
    found: dict[int, list[Branch]] = {}
    for one in branches:
        found.setdefault(one.page, []).append(one)
    return found


def is_registry(domain: str) -> bool:
    """Return whether a domain holds branches of the table."""
    return domain == REGISTRY or domain.startswith(PAGE_PREFIX)


def registry_domains(snapshot: Snapshot) -> dict[int, DomainMetadata]:
    """Return the domains of the registry, by the number of their page, ascending."""
    found = {}
    for name, domain in snapshot.controls.domains.items():
        if not domain.removed and is_registry(name):
            text = name.removeprefix(PAGE_PREFIX)
            found[0 if name == REGISTRY else int(text) if text.isdecimal() else -1] = domain
    return dict(sorted(found.items()))


def registry_of(snapshot: Snapshot) -> Registry:
    """Return the registry of a table.

    Raises
    ------
    LogCorruptError
        The domain does not contain a registry.
    """
    pages = registry_domains(snapshot)
    found = _joined(tuple((page, domain.configuration) for page, domain in pages.items()))
    if found is None:
        raise LogCorruptError(
            path=snapshot.root,
            version=snapshot.version,
            field=f"domainMetadata.{REGISTRY}",
            reason="the registry of branches is not as its rules say",
            remedy="Restore an older version of the table, or the registry with the engine that "
            "wrote it",
        )
    return found


@lru_cache(maxsize=4)  # Each step of a verb reads it, and it is usually the same.
def _joined(pages: tuple[tuple[int, str], ...]) -> Registry | None:
    """Return the registry of several domains, or None if one of them is not valid."""
    found = [_parsed(page, text) for page, text in pages]
    if any(page < 0 for page, _ in pages) or None in found:
        return None
    parts = [one for one in found if one is not None]
    branches = tuple(branch for one in parts for branch in one.branches)
    own = parts[0].others if pages and pages[0][0] == 0 else {}
    return Registry(branches, own)


@lru_cache(maxsize=1024)  # Of many domains, a commit changes one or two.
def _parsed(page: int, text: str) -> Registry | None:
    try:
        node = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    listed = node.get("branches") if isinstance(node, dict) else None
    entries = [_entry(one, page) for one in listed] if isinstance(listed, list) else [None]
    if None in entries:
        return None
    others = {name: value for name, value in node.items() if name != "branches"}
    return Registry(tuple(one for one in entries if one is not None), others)


def _entry(one: Any, page: int) -> Branch | None:
    """Return a branch of the registry, or None if the entry is not valid."""
    if not isinstance(one, dict):
        return None
    branch = Branch(
        id=one.get("branchId", ""),
        name=one.get("name", ""),
        base_version=one.get("baseVersion", -1),
        created_version=one.get("createdVersion", -1),
        status=one.get("status", ""),
        published_version=one.get("publishedVersion"),
        generation=one.get("txlog.generation", 0),
        others={name: value for name, value in one.items() if name not in _KNOWN},
        page=page,
    )
    versions = (branch.base_version, branch.created_version, branch.generation)
    valid = (
        all(type(text) is str for text in (branch.id, branch.name, branch.status))
        and is_branch_id(branch.id)
        and all(type(number) is int and number >= 0 for number in versions)
        and branch.status in ("open", "published", "discarded")
        and (branch.published_version is None or type(branch.published_version) is int)
    )
    return branch if valid else None


def require_branch(snapshot: Snapshot, name: str) -> Branch:
    """Return the open branch of a name, from the latest version of its table.

    Raises
    ------
    NotFoundError
        There is none. The error says what became of it, or lists some open branches.
    """
    registry = registry_of(snapshot)
    found = registry.find(name)
    if found is not None:
        return found
    closed = [one for one in registry.branches if one.name == name]
    alike = registry.like(name)
    if alike is not None:
        remedy = f"Do you mean {alike.name!r}?"
    elif registry.open:
        remedy = f"Choose from {some_of(registry.open)}"
    else:
        remedy = "It has no open branch; see Table.branches.create"
    reason = f"the table has no open branch {name!r}"
    if closed and closed[-1].status == "published":
        reason = f"the branch {name!r} was published as version {closed[-1].published_version}"
    elif closed:
        reason = f"the branch {name!r} was discarded"
    raise NotFoundError(path=snapshot.root, reason=reason, remedy=remedy)


_SHOWN = 10


def some_of(branches: Sequence[Branch]) -> str:
    """Return the names of the first branches, and how many more there are."""
    names = ", ".join(one.name for one in branches[:_SHOWN])
    more = len(branches) - _SHOWN
    return f"{names} and {more} more" if more > 0 else names


def seal(generation: int) -> DomainMetadata:
    """Return the domain that closes a branch's log."""
    text = orjson.dumps({"generation": generation}).decode()
    return DomainMetadata(domain=SEAL, configuration=text)


def sealed_by(snapshot: Snapshot) -> int | None:
    """Return the generation that closed a branch's log; None if it is not closed."""
    domain = snapshot.controls.domains.get(SEAL)
    if domain is None or domain.removed:
        return None
    try:
        node = orjson.loads(domain.configuration)
    except orjson.JSONDecodeError:
        return -1
    found = node.get("generation") if isinstance(node, dict) else None
    return found if type(found) is int else -1
