"""The file actions of the commits after a checkpoint, made into columns when they are asked for.

A writer that only appends never asks, so its commits do not pay for earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from txlog.actions.fields import texts_of
from txlog.fragments.ids import ID_TAG, highest_id, valid_id
from txlog.log.paths import canonical_key, canonical_keys
from txlog.snapshot.commits import Commit, file_rows
from txlog.threads import cached_property

_UNFOLDED = 512  # Parts, before they are made one: each asking then costs little more.


@dataclass(eq=False)
class _Paths:
    """The first version of each path, shared by tails that grew from one another."""

    first: dict[str, int] = field(default_factory=dict)
    parts: int = 0  # Of the line, how many are in it.


class Tail:
    """`FILE_ROWS` of versions in ascending order. A value; it pickles.

    Parameters
    ----------
    rows
        Those that are columns already.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._folded = rows
        self._newer: tuple[Commit | pa.Table, ...] = ()
        self._count = 1  # Parts of the whole line, folded ones included.
        self._highest_id: int | None = None
        self._paths: _Paths | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Tail, (self.rows,)

    @cached_property
    def rows(self) -> pa.Table:
        """All file actions as columns."""
        if not self._newer:
            return self._folded
        tables = tuple(_tables(self._newer))
        self._newer = tables  # The same, in fewer parts: who comes after need not make them again.
        return pa.concat_tables([self._folded, *tables])

    @property
    def highest_id(self) -> int:
        """The highest fragment id in the tags of the files; -1 for none."""
        if self._highest_id is None:
            self._highest_id = highest_id(self.rows, None)
        return self._highest_id

    def first_version(self, path: str) -> int | None:
        """Return the first version that names a file, however its path is spelled, or None.

        It may be above those of this tail, if a later one was asked before.
        """
        if self._paths is None:
            self._paths = _Paths()
        known = self._paths
        for part in self._parts_after(known.parts):
            # Versions do not change, so whoever comes first puts what all others would.
            for key, version in _keys(part):
                known.first[key] = min(version, known.first.get(key, version))
        known.parts = max(known.parts, self._count)
        return known.first.get(canonical_key(path))

    def plus(self, part: Commit | pa.Table) -> Tail:
        """Return the tail with the next version: its commit, or `FILE_ROWS`."""
        after = Tail(self._folded)
        after._newer = (*self._newer, part)
        after._count = self._count + 1
        after._paths = self._paths
        if self._highest_id is not None:
            after._highest_id = max(self._highest_id, _highest_of(part))
        if len(after._newer) >= _UNFOLDED:
            newer = pa.concat_tables(_tables(after._newer)).combine_chunks()
            after._folded, after._newer = pa.concat_tables([self._folded, newer]), ()
        return after

    def _parts_after(self, known: int) -> Iterable[Commit | pa.Table]:
        new, newer = self._count - known, self._newer
        if new <= len(newer):  # Of those that became fewer, as many hold what is new, and more.
            return newer[len(newer) - max(new, 0) :]
        return (self._folded, *newer)


def _tables(parts: Iterable[Commit | pa.Table]) -> list[pa.Table]:
    """Return parts as tables. Commits that follow each other become one table."""
    tables: list[pa.Table] = []
    commits: list[Commit] = []
    for part in parts:
        if isinstance(part, Commit):
            commits.append(part)
            continue
        if commits:
            tables.append(file_rows(commits))
            commits = []
        tables.append(part)
    return [*tables, file_rows(commits)] if commits else tables


def _actions(commit: Commit) -> Iterable[Mapping[str, Any]]:
    for row in commit.rows:
        for kind in ("add", "remove"):
            if (body := row.get(kind)) is not None:
                yield body


def _highest_of(part: Commit | pa.Table) -> int:
    if not isinstance(part, Commit):
        return highest_id(part, None)
    texts = (_id_text(body.get("tags")) for body in _actions(part))
    return max((int(text) for text in texts if text and valid_id(text)), default=-1)


def _id_text(tags: Any) -> str | None:
    held = tags.get(ID_TAG) if isinstance(tags, dict) else None
    return texts_of({ID_TAG: held}).get(ID_TAG) if held is not None else None


def _keys(part: Commit | pa.Table) -> Iterable[tuple[str, int]]:
    if isinstance(part, Commit):
        return [(canonical_key(body["path"]), part.version) for body in _actions(part)]
    keys = canonical_keys(part["path"]).to_pylist()
    return zip(keys, part["version"].to_pylist(), strict=True)
