"""What commits of fragments stand on: the version that they were made from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from txlog.actions.columns import files_at
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation, require_table_writable
from txlog.errors import InvalidInputError
from txlog.fragments.fragment import Fragment
from txlog.fragments.metadata import FragmentMetadata
from txlog.scan.files import live_sequence
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.fragments.workers import require_distinct


@dataclass(frozen=True)
class Base:
    """The version that changed fragments were made from, and its fragments."""

    snapshot: Snapshot
    live: pa.Table
    fragments: dict[int, Fragment]

    def changed(self, held: FragmentMetadata) -> Fragment:
        """Return the fragment that metadata is of."""
        found = None if held.id is None else self.fragments.get(held.id)
        if found is None or found.path != held.adds[0].path:
            raise InvalidInputError(
                argument="fragments",
                field=held.adds[0].path,
                reason=f"version {self.snapshot.version} has no fragment {held.id} of this file",
                remedy="Pass metadata of fragments of this table",
            )
        return found

    def rows(self, fragments: Sequence[Fragment]) -> pa.Table:
        """Return the `FILE_ROWS` of all files of fragments."""
        return files_at(self.live, (f.path for held in fragments for f in held.files))


class FragmentsOperation(Operation):
    """A commit of fragments that workers changed: what they did cannot be done again here.

    Files of fragments are never deleted, whatever comes of the commit.
    """

    may_redo = False

    def __init__(
        self,
        context: Context,
        opened: Snapshot,
        fragments: Sequence[FragmentMetadata],
        read_version: int | None = None,
    ) -> None:
        """Take the fragments that change.

        Parameters
        ----------
        opened
            The version that they were read from if neither they nor `read_version` tell.
        """
        super().__init__(context)
        require_distinct(fragments)
        self._versions = {fragment.read_version for fragment in fragments}
        self._versions |= set() if read_version is None else {read_version}
        self._opened = opened
        self._base: Base | None = None

    def base(self, latest: Snapshot) -> Snapshot:
        """Return the one version that the fragments were read from."""
        versions = self._versions or {self._opened.version}
        if len(versions) > 1:
            raise InvalidInputError(
                argument="fragments",
                reason=f"they were read from the versions {', '.join(map(str, sorted(versions)))}",
                remedy="Make them all from one version of the table",
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
        """Return what the fragments change; errors as for `commit_fragments`."""
        assert self._base is not None
        return self.changes(self._base)

    @abstractmethod
    def changes(self, base: Base) -> Intent | None:
        """Return what the fragments change in the version that they were read from."""


def read_by(fragments: Sequence[FragmentMetadata]) -> frozenset[str]:
    """Return the columns whose values decided what was done to fragments."""
    return frozenset(name for held in fragments for name in held.reads)
