"""What commits of fragments stand on: the version that they were made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txlog.commit.intent import Intent
from txlog.commit.loop import Committed, commit
from txlog.errors import CommitConflictError, InvalidInputError
from txlog.fragments.fragment import Fragment
from txlog.fragments.metadata import FragmentMetadata
from txlog.scan.listing import files_at, live_fragments
from txlog.snapshot.files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.newer import refresh
from txlog.snapshot.snapshot import Snapshot
from txlog.writing.operation import (
    AppTransaction,
    Done,
    Place,
    done,
    is_recorded,
    require_table_writable,
)
from txlog.writing.workers.fragments import require_distinct


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


def base_of(
    place: Place,
    snapshot: Snapshot,
    fragments: Sequence[FragmentMetadata],
    read_version: int | None = None,
) -> Base:
    """Return the one version that fragments were read from; the table's if nothing says."""
    require_distinct(fragments)
    versions = {held.read_version for held in fragments}
    versions |= set() if read_version is None else {read_version}
    versions = versions or {snapshot.version}
    if len(versions) > 1:
        raise InvalidInputError(
            argument="fragments",
            reason=f"they were read from the versions {', '.join(map(str, sorted(versions)))}",
            remedy="Make them all from one version of the table",
        )
    (version,) = versions
    at = snapshot
    if version != snapshot.version:
        at = load_snapshot(place.store, version=version)
    require_table_writable(at, removes_rows=False)
    live = load_files(place.store, at).live
    return Base(at, live, {fragment.id: fragment for fragment in live_fragments(at, live)})


def put(
    place: Place, base: Base, intent: Intent, txn: AppTransaction | None, rebase: Any = None
) -> Done:
    """Commit, or say what stands in the way: what workers did cannot be done again here."""
    if is_recorded(base.snapshot, txn):
        return done(intent.operation, base.snapshot, None, skipped=True)
    try:
        outcome = commit(place.store, base.snapshot, intent, effects=place.effects, rebase=rebase)
    except CommitConflictError:
        latest = refresh(place.store, base.snapshot)
        if is_recorded(latest, txn):  # Another driver made this very commit meanwhile.
            return done(intent.operation, latest, None, skipped=True)
        raise
    if isinstance(outcome, Committed):
        return done(intent.operation, outcome.snapshot, outcome, skipped=False)
    if is_recorded(outcome.snapshot, txn):
        return done(intent.operation, outcome.snapshot, None, skipped=True)
    raise CommitConflictError(
        version=outcome.version,
        rule=outcome.verdict.rule,
        path=outcome.verdict.path,
        reason="another writer changed what the fragments were made from",
        remedy="Nothing was committed; make them again from the latest version",
    )


def read_by(fragments: Sequence[FragmentMetadata]) -> frozenset[str]:
    """Return the columns whose values decided what was done to fragments."""
    return frozenset(name for held in fragments for name in held.reads)
