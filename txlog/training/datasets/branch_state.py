"""Branches of data sets in the ledger: their state, and the events of their commands. Pure.

A commit on a branch is a commit of the data set's table that no training set picks until the branch
is published. Rules: spec/datasets.md, DST-80 to DST-83.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from txlog.base.errors import CommitConflictError, NotFoundError, OutcomeUnknownError
from txlog.training.datasets.values import Commit

End = Literal["branch_closed", "published", "discarded"]
BRANCH_EVENTS = frozenset({"branched", "branch_closed", "published", "discarded"})
BRANCH_RULE = "DST-82"


@dataclass(frozen=True)
class BranchState:
    """A branch of a data set."""

    branch_id: int  # 1, 2, 3 … in the order in which they were made.
    name: str
    # A closed branch takes no more commits; it is being published, or its publisher died.
    state: Literal["OPEN", "CLOSED", "PUBLISHED", "DISCARDED"] = "OPEN"
    commits: frozenset[int] = frozenset()  # Those that were published.


Branches = Mapping[int, BranchState]


@dataclass(frozen=True)
class MakeBranch:
    """Make a branch, unless one of this name is open."""

    dataset_id: int
    name: str


@dataclass(frozen=True)
class EndBranch:
    """Close a branch, publish some commits of it, or discard it."""

    dataset_id: int
    branch_id: int
    kind: End
    commits: tuple[int, ...] = ()


def next_branches(branches: Branches, kind: str, body: Mapping[str, Any]) -> Branches:
    """Return the branches of a data set after one more event of a kind in `BRANCH_EVENTS`."""
    number = body["branch"]
    if kind == "branched":
        return {**branches, number: BranchState(number, body["name"])}
    known = branches[number]
    match kind:
        case "branch_closed":
            known = replace(known, state="CLOSED")
        case "published":
            known = replace(known, state="PUBLISHED", commits=frozenset(body["commits"]))
        case _:
            known = replace(known, state="DISCARDED")
    return {**branches, number: known}


def decide_branch(
    branches: Branches, command: MakeBranch | EndBranch
) -> tuple[str, dict[str, Any]] | None:
    """Return the kind and body of a command's event; None if the branches need no change.

    Raises
    ------
    CommitConflictError
        The branch was ended in another way, or is closed.
    """
    body: dict[str, Any] = {"id": command.dataset_id}
    if isinstance(command, MakeBranch):
        known = live_branch(branches, command.name)
        if known is not None:
            _require_open(known)
            return None
        return "branched", {**body, "branch": len(branches) + 1, "name": command.name}
    known = branches[command.branch_id]
    body["branch"] = known.branch_id
    wanted = {"branch_closed": "CLOSED", "published": "PUBLISHED", "discarded": "DISCARDED"}
    if known.state == wanted[command.kind]:
        return None  # Somebody else did the same, or the store lost the answer.
    if known.state in ("PUBLISHED", "DISCARDED") or (
        command.kind == "published" and known.state == "OPEN"
    ):
        raise ended(known)
    if command.kind == "published":
        body["commits"] = sorted(command.commits)
    return command.kind, body


def live_branch(branches: Branches, name: str) -> BranchState | None:
    """Return the branch of a name that was neither published nor discarded, or None."""
    live = (one for one in branches.values() if one.state in ("OPEN", "CLOSED"))
    return next((one for one in live if one.name == name), None)


def open_branch(branches: Branches, name: str, *, closed: bool = False) -> BranchState:
    """Return the branch of a name that takes commits; `closed`: or that is being published.

    Raises
    ------
    NotFoundError
        There is no such branch; the error lists the existing ones.
    CommitConflictError
        It is being published.
    """
    found = live_branch(branches, name)
    if found is None:
        names = [one.name for one in branches.values() if one.state in ("OPEN", "CLOSED")]
        raise NotFoundError(
            reason=f"there is no open branch {name!r}",
            remedy=f"Choose from {', '.join(names)}" if names else "Make it first: branch",
        )
    if not closed:
        _require_open(found)
    return found


def _require_open(branch: BranchState) -> None:
    if branch.state != "OPEN":
        raise ended(branch)


def require_kept(branches: Branches, branch_id: int, commits: Iterable[int]) -> None:
    """Raise if a branch was discarded, or was published without some of its commits.

    Raises
    ------
    CommitConflictError
        They belong to no training set any more.
    """
    known = branches[branch_id]
    if known.state in ("OPEN", "CLOSED"):
        return
    if known.state == "DISCARDED" or not known.commits.issuperset(commits):
        raise ended(known)


def closed(path: str, branch: BranchState, made: Commit) -> OutcomeUnknownError:
    """Return the error for a commit of a branch that somebody has closed, and has not ended."""
    return OutcomeUnknownError(
        path=path,
        reason=f"the branch {branch.name!r} is being published, and it is not known yet whether "
        f"with commit {made.commit_id}",
        remedy="Publish or discard the branch. Then add the commit again if commit "
        f"{made.commit_id} is hidden",
    )


def ended(branch: BranchState, made: Commit | None = None) -> CommitConflictError:
    """Return the error for a branch that takes no more commits, or that ended without a commit."""
    if made is not None:
        return CommitConflictError(
            version=branch.branch_id,
            rule=BRANCH_RULE,
            reason=f"the branch {branch.name!r} was {branch.state.lower()} without commit "
            f"{made.commit_id}, which no training set picks",
            remedy="Make another branch, and add the rows to that one; a txn that was given "
            "belongs to this commit, so choose another one",
        )
    what = {"CLOSED": "is being published", "OPEN": "is open"}.get(
        branch.state, f"was {branch.state.lower()}"
    )
    return CommitConflictError(
        version=branch.branch_id,
        rule=BRANCH_RULE,
        reason=f"the branch {branch.name!r} {what}",
        remedy="Publish it again, or discard it"
        if branch.state == "CLOSED"
        else "Make another branch, and add the commit to that one",
    )


def on_branches(branches: Branches, commits: Iterable[Commit]) -> list[Commit]:
    """Return commits as they are now.

    Published ones are on no branch. Others of branches that were published or discarded are hidden.
    """
    found = []
    for one in commits:
        branch = branches.get(one.branch_id)
        if branch is not None:
            if one.commit_id in branch.commits:
                one = replace(one, branch=None, branch_id=0)
            elif branch.state in ("PUBLISHED", "DISCARDED"):
                one = replace(one, hidden=True)
        found.append(one)
    return found


def spared(commits: Sequence[Commit], upto: int, branch_id: int = 0) -> tuple[int, ...]:
    """Return the commits that a commit on a branch (0: none) does not replace.

    They are on other branches, so that who replaces commits does not see them.
    """
    return tuple(
        one.commit_id
        for one in commits
        if one.commit_id <= upto and one.branch_id not in (0, branch_id)
    )


def without_replaced(picked: Sequence[Commit]) -> list[Commit]:
    """Return commits without those that another one of them replaces."""
    plain = max((one.replaces for one in picked if not one.spares), default=0)
    sparing = [one for one in picked if one.spares]
    return [
        one
        for one in picked
        if one.commit_id > plain
        and not any(
            one.commit_id <= other.replaces and one.commit_id not in other.spares
            for other in sparing
        )
    ]
