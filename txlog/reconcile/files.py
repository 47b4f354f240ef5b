"""Reconciliation of `add` and `remove`: of every logical file, the newest action counts.

A logical file is a path together with a deletion vector's id, so that the same path can be live
with one vector and a tombstone with another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.arrow import arrow_array, numpy_array, pc
from txlog.errors import LogCorruptError
from txlog.log.names import commit_name
from txlog.reconcile.distinct import are_different, file_keys


@dataclass(frozen=True)
class FileState:
    """The files of one version, as `FILE_ROWS` of undefined order."""

    live: pa.Table
    tombstones: pa.Table


def newest(rows: pa.Table) -> pa.Table:
    """Keep, of every logical file, the row of its highest version.

    Pure; the order of `rows` has no meaning.

    Raises
    ------
    LogCorruptError
        One version both adds and removes a logical file, or names it twice (rule REC-5).
    """
    if rows.num_rows < 2:
        return rows
    keys = file_keys(rows)
    if are_different(keys):
        return rows
    keyed = pa.table(
        {"key": keys, "version": rows["version"], "row": pa.arange(0, rows.num_rows)}
    ).sort_by([("version", "descending")])
    # `group_by` would load `pyarrow.acero`, and with it pandas.
    coded = pc.dictionary_encode(keyed["key"])
    codes = np.concatenate([numpy_array(chunk.indices) for chunk in coded.chunks])
    different = coded.chunk(0).dictionary
    if len(different) == rows.num_rows:
        return rows
    twice = _twice(codes, np.concatenate([numpy_array(part) for part in keyed["version"].chunks]))
    if len(twice):
        _require_copies(rows, keyed, different.take(arrow_array(twice)))
    first = np.empty(len(different), np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # The first place of each is put last.
    return rows.take(keyed["row"].take(arrow_array(first)))


def _twice(codes: NDArray[np.int32], versions: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the codes that one version has twice, ascending."""
    order = np.lexsort((versions, codes))
    codes, versions = codes[order], versions[order]
    same = (codes[1:] == codes[:-1]) & (versions[1:] == versions[:-1])
    repeated: NDArray[np.int32] = np.unique(codes[1:][same])
    return repeated


def _require_copies(rows: pa.Table, keyed: pa.Table, keys: pa.Array) -> None:
    """Raise if a commit names a file twice with different content."""
    named = keyed.filter(pc.is_in(keyed["key"], value_set=keys))
    said: dict[tuple[str, int], dict[str, Any]] = {}
    contents = _contents(rows.take(named["row"]))
    for key, version, row, content in zip(
        named["key"].to_pylist(),
        named["version"].to_pylist(),
        named["row"].to_pylist(),
        contents,
        strict=True,
    ):
        if said.setdefault((key, version), content) != content:
            raise _named_twice(rows, row)


def distinct_rows(rows: pa.Table, *, path: str) -> pa.Table:
    """Return the `FILE_ROWS` of a checkpoint with each live logical file once.

    A file that is added several times with the same content counts once.

    Raises
    ------
    LogCorruptError
        A file is there with different content; `path` names the checkpoint.
    """
    keyed = rows.select(["path", "dv_id"]).filter(rows["is_add"])  # No other column is copied.
    keys = file_keys(keyed)
    if are_different(keys):
        return rows
    live = state_of(rows).live
    first: dict[str, dict[str, Any]] = {}
    kept = []
    for row_number, (key, row) in enumerate(zip(keys.to_pylist(), _contents(live), strict=True)):
        if first.setdefault(key, row) is row:
            kept.append(row_number)
        elif first[key] != row:
            raise LogCorruptError(
                path=path,
                field=live["path"][row_number].as_py(),
                reason="the checkpoint adds the same file twice, with different content",
                remedy="Delete the checkpoint if the commits that it covers are still there",
            )
    return pa.concat_tables([live.take(arrow_array(kept, pa.int64())), state_of(rows).tombstones])


def _contents(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as dictionaries without their paths, which may be spelled differently."""
    names = [name for name in rows.column_names if name not in ("path", "stats_parsed")]
    return rows.select(names).to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]


def _named_twice(rows: pa.Table, row: int) -> LogCorruptError:
    version = rows["version"][row].as_py()
    return LogCorruptError(
        path=commit_name(version),
        version=version,
        field=rows["path"][row].as_py(),
        reason="one commit names the same file twice, so its fate is undefined",
        remedy="Open a version before it; the writer of this commit is at fault",
    )


def state_of(rows: pa.Table) -> FileState:
    """Split `FILE_ROWS`, which have each logical file once, into live files and tombstones."""
    if pc.all(rows["is_add"]).as_py() is not False:
        return FileState(rows, rows.slice(0, 0))
    return FileState(rows.filter(rows["is_add"]), rows.filter(pc.invert(rows["is_add"])))


def reconcile_files(rows: pa.Table) -> FileState:
    """Return the files of the newest version, from `FILE_ROWS` of any number of versions."""
    return state_of(newest(rows))
