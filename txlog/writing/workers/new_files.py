"""New fragments: are they what the table needs, and new?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from txlog.actions.columns import flat
from txlog.actions.file import Add
from txlog.arrow import arrow_array, pc
from txlog.commit.context import Context
from txlog.errors import InvalidInputError
from txlog.fragments.metadata import FragmentMetadata
from txlog.log.paths import canonical_keys
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.writing.options import WriteOptions
from txlog.writing.plan import plan_append, require_still_fits
from txlog.writing.workers.fragments import require_distinct


def new_files(fragments: Sequence[FragmentMetadata]) -> list[Add]:
    """Return the files of new fragments.

    Raises
    ------
    InvalidInputError
        One is there twice, or is not what `write_fragments` gave.
    """
    require_distinct(fragments)
    for held in fragments:
        if held.id is not None or held.written_for is None or len(held.adds) != 1:
            raise InvalidInputError(
                argument="fragments",
                field=held.adds[0].path,
                reason="it is a fragment of the table, not a new one",
                remedy="Pass what write_fragments gave",
            )
    return [held.adds[0] for held in fragments]


class Fit:
    """Refuses versions of a table that fragments were not written for, or that have them."""

    def __init__(self, context: Context, fragments: Sequence[FragmentMetadata]) -> None:
        self._context = context
        self._fragments = fragments
        self._seen: dict[int, Snapshot] = {}

    def __call__(self, base: Snapshot) -> None:
        """Refuse a version.

        Raises
        ------
        InvalidInputError
            It has one of the files, or had it, or is of another table.
        CommitConflictError
            Its columns, partitions or rules are others by now.
        """
        wanted = base.memo(_digest)
        for held in self._fragments:
            if held.written_for != wanted:
                self._require_harmless(held, base)
        for path in self._committed(base):
            raise InvalidInputError(
                argument="fragments",
                field=path,
                reason="the table has, or had, this file: the fragment was committed before",
                remedy="Leave it out; pass txn to make commits that are repeated do nothing",
            )

    def _committed(self, base: Snapshot) -> Iterator[str]:
        """Yield the files that a version has, or had."""
        paths = [held.adds[0].path for held in self._fragments]
        for path in paths:
            first = base.tail.first_version(path)
            if first is not None and first <= base.version:
                yield path
        # The checkpoint cannot know of a file that is newer: it got its name after that version.
        at = base.checkpoint[0].version if base.checkpoint else -1
        older = [held.adds[0].path for held in self._fragments if held.read_version < at]
        if not older:
            return
        state = load_files(self._context.store, base)
        ours = canonical_keys(arrow_array(older, pa.string()))
        live, gone = (
            pc.is_in(ours, value_set=flat(canonical_keys(rows["path"])))
            for rows in (state.live, state.tombstones)
        )
        for number in pc.indices_nonzero(pc.or_(live, gone)).to_pylist():
            yield older[number]

    def _require_harmless(self, held: FragmentMetadata, base: Snapshot) -> None:
        """The table has other columns or rules now: those of the time of writing decide."""
        version = held.read_version
        if version not in self._seen:
            found = None
            if 0 <= version <= base.version:
                found = load_snapshot(self._context.store, version=version)
            if found is None or _digest(found) != held.written_for:
                raise InvalidInputError(
                    argument="fragments",
                    field=held.adds[0].path,
                    reason="the fragment was written for another table",
                    remedy="Commit it to the table that write_fragments was called with",
                )
            self._seen[version] = found
        require_still_fits(base, self._seen[version])


def _digest(snapshot: Snapshot) -> str:
    plan = plan_append(snapshot, snapshot.schema, WriteOptions())
    return plan.written_for(snapshot.metadata.id)
