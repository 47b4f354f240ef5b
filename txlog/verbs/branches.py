"""Create, publish and discard branches of a table.

Rules: spec/branches.md. `txlog.verbs.published` decides what a publish commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from txlog.base.effects import is_rehearsing
from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    LogCorruptError,
    NotFoundError,
    RetriesExhaustedError,
    UnsupportedFeatureError,
    require_whole,
    tidied,
)
from txlog.base.thresholds import Threshold
from txlog.commit.intent import Intent
from txlog.commit.loop import Committed, commit
from txlog.commit.operation import Operation, execute
from txlog.protocol.access import upgraded
from txlog.snapshot.branches import (
    BRANCHING,
    PAGES,
    Branch,
    Registry,
    registry_of,
    require_branch,
    seal,
    sealed_by,
)
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.branches import BranchStore, require_branch_name, require_main
from txlog.verbs.published import Publication
from txlog.verbs.references import require_whole_version

# A winner that changed the registry or the protocol: the change is decided again.
_REDO_ON = frozenset({"CON-1", "CON-16"})
# Lost races before a publish closes the branch after commits that it has not loaded.
_PATIENCE: Threshold = 2


class CreateBranch(Operation):
    """Register a branch, whose log begins after a version of the table."""

    name = "CREATE BRANCH"
    redo_on = _REDO_ON

    def __init__(self, branch: str, version: int | None = None) -> None:
        """Take the name of the branch, and its base; None: the latest version.

        Raises
        ------
        InvalidInputError
            The name or the version is not valid.
        """
        self._branch = require_branch_name(branch)
        if version is not None:
            require_whole("version", version)
        self._version = version
        self._id: str | None = None
        self.made: Branch | None = None  # The entry of the last attempt.

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the registry with the new branch.

        Raises
        ------
        AlreadyExistsError
            There is an open branch of this name, or of one that differs only in case.
        NotFoundError, DataFileError
            The version can no longer be rebuilt, or files of it are missing.
        CommitConflictError
            A vacuum may be deleting files of the version.
        UnsupportedFeatureError
            This is a branch, or only a catalog knows the commits of the table.
        """
        require_main(self.context.store, "a branch of a branch")
        if base.catalog is not None:
            raise UnsupportedFeatureError(
                path=base.root,
                features=("catalogManaged",),
                reason="only a catalog knows the commits of this table, and it knows no branches",
                remedy="Make a clone of the table, and write to it",
            )
        registry = registry_of(base)
        alike = registry.like(self._branch)
        if alike is not None:
            raise AlreadyExistsError(
                path=base.root,
                reason=f"the table already has an open branch {alike.name!r}, of version "
                f"{alike.base_version}",
                remedy="Choose another name, also in another case, or discard that branch",
            )
        version = base.version if self._version is None else self._version
        require_whole_version(
            self.context, base, version, "Nothing was committed; branch from a later version"
        )
        self._id = self._id or self.context.effects.uuid()
        self.made = Branch(self._id, self._branch, version, base.version + 1)
        parameters = {"name": self._branch, "branchId": self._id, "version": version}
        return _registered(base, self.name, registry, self.made, parameters)


class _Closing(Operation):
    """What closes a branch: first its log, so that no commit can follow, then its entry."""

    keeps_files = True  # The log of the branch stays closed between attempts.
    redo_on = _REDO_ON

    def __init__(self, branch: str, *, branch_id: str | None = None) -> None:
        """Take the name of the branch, and its id; None: the branch that has the name now."""
        self._branch = require_branch_name(branch)
        self._branch_id = branch_id
        self._closed: Branch | None = None  # The branch whose log this operation closed.
        self._began_s: float | None = None  # The time of the first attempt to close it.

    def _entry(self, base: Snapshot) -> Branch:
        require_main(self.context.store, self.name)
        if self._branch_id is None:
            return require_branch(base, self._branch)
        found = registry_of(base).find(self._branch)
        if found is None or found.id != self._branch_id:
            another = "" if found is None else ", and made another one of this name"
            raise CommitConflictError(
                version=base.version,
                rule="BRA-61",
                path=base.root,
                reason=f"another writer closed the branch {self._branch!r}{another}",
                remedy="Nothing was changed. Give each run a name of its own, or let one end "
                "before the next one begins",
            )
        return found

    def _close(self, branch: Branch, tip: Snapshot, *, exact: bool) -> int | None:
        """Close the log of a branch, and return its last version before that; None: try again.

        `exact`: close it after this version, or not at all.
        """
        if is_rehearsing():
            return tip.version
        if sealed_by(tip) == branch.generation:
            self._closed = branch
            return tip.version
        self._require_time(branch, tip)
        view = BranchStore.of(self.context.store, branch.chain)
        intent = _of_log(tip, "CLOSE BRANCH", branch)
        try:
            done = commit(view, tip, replace(intent, revives=exact), effects=self.context.effects)
        except RetriesExhaustedError:
            raise
        except CommitConflictError:  # Another process has closed it, too.
            return None
        if not isinstance(done, Committed):
            return None
        self._closed = branch
        return done.snapshot.version - 1

    def _require_time(self, branch: Branch, tip: Snapshot) -> None:
        """Raise `RetriesExhaustedError` if others have changed the branch for too long."""
        now_s = self.context.effects.monotonic_s()
        self._began_s = now_s if self._began_s is None else self._began_s
        if now_s - self._began_s > self.deadline_s:
            raise RetriesExhaustedError(
                version=tip.version,
                rule="BRA-15",
                reason=f"other writers continued to change the branch {branch.name!r}, so its log "
                "could not be closed",
                remedy="The branch is open. Try again when the other writers are done",
            )

    def discard(self) -> None:
        """Open the log of the branch again, if it is not published or discarded."""
        branch, self._closed = self._closed, None
        if branch is not None:
            tidied(lambda: self._reopen(branch))

    def _reopen(self, branch: Branch) -> None:
        """Open a branch again: first no other process may still publish it (BRA-16)."""
        latest = load_snapshot(self.context.store)
        if registry_of(latest).find(branch.name) != branch:
            return
        execute(ReopenBranch(branch), self.context, latest)
        view = BranchStore.of(self.context.store, branch.chain)
        tip = load_snapshot(view)
        if sealed_by(tip) == branch.generation:
            intent = _of_log(tip, "REOPEN BRANCH", branch, removed=True)
            commit(view, tip, intent, effects=self.context.effects)


class ReopenBranch(Operation):
    """Record that an attempt to close a branch was given up."""

    name = "REOPEN BRANCH"
    redo_on = _REDO_ON

    def __init__(self, branch: Branch) -> None:
        self._of = branch

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the registry with another generation; None if the branch is closed or has it."""
        registry = registry_of(base)
        if registry.find(self._of.name) != self._of:
            return None
        again = replace(self._of, generation=self._of.generation + 1)
        return _registered(base, self.name, registry, again, {"name": again.name})


class DiscardBranch(_Closing):
    """Close a branch, and forget its commits. Its own files become garbage."""

    name = "DISCARD BRANCH"

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the registry in which the branch is discarded.

        Raises
        ------
        NotFoundError
            The table has no open branch of this name.
        CommitConflictError
            The branch with the id is closed.
        """
        branch = self._entry(base)
        view = BranchStore.of(self.context.store, branch.chain)
        try:
            while self._close(branch, load_snapshot(view), exact=False) is None:
                pass
        except (LogCorruptError, NotFoundError):
            pass  # Nobody can open the branch, so nobody can write to it.
        discarded = replace(branch, status="discarded")
        parameters = {"name": branch.name, "branchId": branch.id}
        return _registered(base, self.name, registry_of(base), discarded, parameters)


class PublishBranch(_Closing):
    """Make the net changes of a branch in one commit of the table, and close the branch."""

    name = "PUBLISH BRANCH"

    def __init__(
        self, branch: str, *, tip: int | None = None, branch_id: str | None = None
    ) -> None:
        """Take the branch, and its version that is published; default: its latest one."""
        super().__init__(branch, branch_id=branch_id)
        self._tip = tip
        self._publication: Publication | None = None

    @property
    def removes_rows(self) -> bool:  # type: ignore[override]
        """Whether the branch removed rows; false until it is loaded, which checks it, too."""
        return self._publication is not None and self._publication.removes_rows

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the net changes, with the registry in which the branch is published.

        Raises
        ------
        NotFoundError
            The table has no open branch of this name, or the base of the branch is lost.
        CommitConflictError
            A commit of the table after the base conflicts with the branch, or the branch has
            another version or id than the one to publish. Nothing was committed.
        UnsupportedFeatureError
            The changes of the branch cannot be published; the error says why.
        """
        branch = self._entry(base)
        for losses in count():
            publication = self._loaded(branch)
            if not is_rehearsing() and sealed_by(publication.tip) == branch.generation:
                self._closed = branch  # Its publisher died. Whoever gives up opens it again.
            self._require_tip(publication)
            publication.require_publishable(base)
            # A commit takes less time than to load the branch again, so its writers always win.
            exact = losses < _PATIENCE or self._tip is not None
            if self._close(branch, publication.tip, exact=exact) == publication.tip.version:
                break
            self._publication = None
        intent = publication.intent(base)
        published = replace(branch, status="published", published_version=base.version + 1)
        parameters = {
            "name": branch.name,
            "branchId": branch.id,
            "baseVersion": branch.base_version,
            "branchVersion": publication.last_version,
        }
        registry = registry_of(base)
        registered = _registered(base, self.name, registry, published, parameters)
        return publication.joined(intent, registered)

    def _require_tip(self, publication: Publication) -> None:
        if self._tip not in (None, publication.last_version):
            raise CommitConflictError(
                version=publication.last_version,
                rule="BRA-61",
                reason=f"version {self._tip} of the branch {publication.branch.name!r} was to be "
                f"published, but another writer has made version {publication.last_version} of it",
                remedy="Nothing was published. Check the branch again",
            )

    def _loaded(self, branch: Branch) -> Publication:
        known = self._publication
        if known is None or known.branch != branch:
            if known is not None:
                known.discard()
            known = self._publication = Publication.of(self.context, branch)
        return known

    def discard(self) -> None:
        """Delete the files that were written for the publish, and open the branch again."""
        if self._publication is not None:
            self._publication.discard()
        super().discard()

    def landed(self, intent: Intent) -> None:
        """Delete files that were written for earlier attempts."""
        if self._publication is not None:
            self._publication.landed(intent)


def _registered(
    base: Snapshot,
    operation: str,
    registry: Registry,
    branch: Branch,
    parameters: Mapping[str, Any],
) -> Intent:
    """Return the intent that changes an entry of the registry; any other commit decides again."""
    changed = registry.with_branch(branch)
    pages = [PAGES] if changed.has_pages else []
    protocol = upgraded(base.protocol, ["domainMetadata", BRANCHING, *pages])
    changes = protocol != base.protocol
    return Intent(
        operation=operation,
        kind="protocol" if changes else "append",  # It adds no rows.
        read_version=base.version,
        protocol=protocol if changes else None,
        domains=changed.to_domains(registry),
        parameters=parameters,
        revives=True,
    )


def _of_log(tip: Snapshot, operation: str, branch: Branch, *, removed: bool = False) -> Intent:
    """Return the intent of a commit that closes or opens the log of a branch."""
    protocol = upgraded(tip.protocol, ["domainMetadata"])
    changes = protocol != tip.protocol
    return Intent(
        operation=operation,
        kind="protocol" if changes else "append",
        read_version=tip.version,
        protocol=protocol if changes else None,
        domains=(seal(branch.generation).model_copy(update={"removed": removed}),),
        parameters={"name": branch.name},
    )
