"""The base of commits of fragments: the version from which the fragments were made."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from txlog.actions.columns import files_at
from txlog.base.errors import InvalidInputError
from txlog.commit.intent import Intent, Reads
from txlog.commit.operation import Operation, require_table_writable
from txlog.fragments.fragment import Fragment
from txlog.fragments.metadata import FragmentMetadata
from txlog.scan.files import live_sequence
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.fragments.workers import require_distinct


@dataclass(frozen=True)
class Base:
    """The version from which changed fragments were made, and its fragments."""

    snapshot: Snapshot
    live: pa.Table
    fragments: dict[int, Fragment]

    def changed(self, metadata: FragmentMetadata) -> Fragment:
        """Return the fragment of this version for given metadata."""
        found = None if metadata.id is None else self.fragments.get(metadata.id)
        if found is None or found.path != metadata.adds[0].path:
            raise InvalidInputError(
                argument="fragments",
                field=metadata.adds[0].path,
                reason=f"version {self.snapshot.version} has no fragment {metadata.id} of the file",
                remedy="Pass metadata of fragments of this table",
            )
        return found

    def rows(self, fragments: Sequence[Fragment]) -> pa.Table:
        """Return the `FILE_ROWS` of all files of fragments."""
        return files_at(self.live, (f.path for one in fragments for f in one.files))


class FragmentsOperation(Operation):
    """A commit of fragments that workers changed; their work cannot be repeated here.

    Files of fragments are never deleted, even if the commit fails.
    """

    may_redo = False

    def __init__(
        self,
        opened: Snapshot,
        fragments: Sequence[FragmentMetadata],
        read_version: int | None = None,
    ) -> None:
        """Take the fragments that change.

        Parameters
        ----------
        opened
            The version from which they were read, if neither they nor `read_version` have it.
        """
        require_distinct(fragments)
        self._versions = {fragment.read_version for fragment in fragments}
        self._versions |= set() if read_version is None else {read_version}
        self._opened = opened
        self._base: Base | None = None

    def base(self, latest: Snapshot) -> Snapshot:
        """Return the one version from which the fragments were read."""
        versions = self._versions or {self._opened.version}
        if len(versions) > 1:
            raise InvalidInputError(
                argument="fragments",
                reason=f"they were read from the versions {', '.join(map(str, sorted(versions)))}",
                remedy="Make all of them from one version of the table",
            )
        (version,) = versions
        snapshot = self._opened
        if version != snapshot.version:
            snapshot = load_snapshot(self.context.store, version=version)
        require_table_writable(snapshot, removes_rows=self.removes_rows)
        live = load_files(self.context.store, snapshot).live
        fragments = {fragment.id: fragment for fragment in live_sequence(snapshot, live)}
        self._base = Base(snapshot, live, fragments)
        return snapshot

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the changes of the fragments; errors as for `commit_fragments`."""
        assert self._base is not None
        return self.changes(self._base)

    def read(self) -> Reads:
        """Return no rows: the workers read their fragments only."""
        return Reads()

    @abstractmethod
    def changes(self, base: Base) -> Intent | None:
        """Return the changes of the fragments to the version from which they were read."""


def read_by(fragments: Sequence[FragmentMetadata]) -> frozenset[str]:
    """Return the columns on whose values the changes of fragments depend."""
    return frozenset(name for one in fragments for name in one.reads)
