"""List the files of a table's folder that a vacuum may delete.

From an object store, a large table is listed in many ranges of names at once, by the engine. The
names between which they lie come from the log: they only divide the work, and whatever they are,
each file is in one range. Rules: spec/vacuum.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat
from txlog.base.threads import map_all, tracked
from txlog.base.thresholds import Threshold
from txlog.checkpoint.file_rows import Wanted
from txlog.checkpoint.read import Source
from txlog.commit.context import Context
from txlog.data_files.change_files import FOLDER as CHANGES_FOLDER
from txlog.fragments.deletion_file import DELETIONS_FOLDER, is_deletion_file
from txlog.fragments.packs import is_pack
from txlog.fragments.rows import FEATURE
from txlog.log.paths import canonical_keys
from txlog.snapshot.live_files import about_files, fold_files
from txlog.snapshot.process import collector_paused
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import ObjectInfo, Store
from txlog.store.branches import BRANCHES_FOLDER
from txlog.store.places import names_below

DECISIONS = pa.schema(
    [
        pa.field("file", pa.string(), False),
        pa.field("bytes", pa.int64(), False),
        pa.field("modified_ms", pa.int64(), True),
        pa.field("decision", pa.string(), False),
        pa.field("reason", pa.string(), False),
    ]
)
"""A row for each file: its path below the table, its size, when it was written or removed (null:
unknown), `keep` or `delete`, and the reason."""

_FOUND = pa.schema([DECISIONS.field(place) for place in range(3)])

# Temporary files that dead writers left beside log files, manifests and segments of indexes.
_TEMPORARY = re.compile(
    r"(_delta_log|_symlink_format_manifest|_txlog_index)/(.+/)?\.[^/]+"
    r"\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp"
)

# Files elsewhere, as those of a shallow clone, and names at which some stores cannot begin.
_NO_BOUND = r"^$|^/|^\w[\w+.-]*:|//|(^|/)\.{1,2}(/|$)|[[:cntrl:]]"

_RANGE: Threshold = 20_000  # About how many files one range of names has.
_SAMPLED: Threshold = 500  # Of so many files of the log, one may begin a range.
_FOLDER: Threshold = 1_000  # Folders of about so many files or more are listed apart.
_DEEPEST = 10  # More levels of folders are not looked at.
_LISTED: Threshold = 1_000  # The number of listed files after which progress is shown.
_PAGE: Threshold = 10_000  # The number of files that are Python objects at a time.


@dataclass(frozen=True)
class Listing:
    """The files below a table's root."""

    files: pa.Table  # Those that a vacuum may delete, as the first three columns of `DECISIONS`.
    chains: tuple[ObjectInfo, ...]  # Those of the logs of branches.


@dataclass(frozen=True)
class _Kinds:
    """Which kinds of hidden files may be deleted: other tables have others in their folders."""

    folders: frozenset[str]
    has_packs: bool

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Kinds:
        deletions = {DELETIONS_FOLDER} if snapshot.supports(FEATURE) else set()
        return cls(frozenset({CHANGES_FOLDER, *deletions}), snapshot.supports("txlog.blobs-dev"))


def list_files(context: Context, snapshot: Snapshot) -> Listing:
    """List the files below a table's root: data, change and deletion files.

    Temporary files of its log are among them, and deletion files from before `txlog.fragments` was
    dropped. Packs are among them if the table has `txlog.blobs-dev`: in other tables the folder of
    packs belongs to others.
    """
    bounds = _bounds(context.store, snapshot)
    ranges = list(zip(["", *bounds], [*bounds, None], strict=True))
    listed = partial(_listed, context.store, _Kinds.of(snapshot))
    if len(ranges) == 1:
        return listed(ranges[0])
    parts = map_all(context.engine, listed, ranges, undo=lambda _: None)
    chains = tuple(chain.from_iterable(part.chains for part in parts))
    return Listing(pa.concat_tables([part.files for part in parts]), chains)


def _bounds(store: Store, snapshot: Snapshot) -> list[str]:
    """Return ascending names that divide the files into ranges; none if one listing is enough."""
    by = store.ranges_by()
    if by == "nothing" or about_files(store, snapshot) < 2 * _RANGE:
        return []

    def sampled(batches: Iterator[tuple[Source | None, pa.Table]]) -> list[pa.Array]:
        found, seen = [], 0
        for _, batch in batches:
            places = np.arange(-seen % _SAMPLED, batch.num_rows, _SAMPLED)
            seen += batch.num_rows
            found.append(flat(canonical_keys(batch["path"].take(arrow_array(places, pa.int64())))))
        return found

    keys = fold_files(store, snapshot, Wanted(("path",)), sampled, distinct=False)
    texts = [part.cast(pa.string()) for part in keys]
    names = names_below(snapshot.root, pa.concat_arrays([*texts, arrow_array([], pa.string())]))
    plain = names.filter(pc.invert(pc.match_substring_regex(names, _NO_BOUND)))
    plain = plain.drop_null()
    ascending = (_folders(plain) if by == "folders" else plain).sort()
    step = max(1, _RANGE // _SAMPLED)
    return list(pc.unique(ascending[step::step]).to_pylist())


def _folders(names: pa.Array) -> pa.Array:
    """Return the folders of sampled names, with a slash at the end, of the deepest good level.

    A folder that is listed alone is a request at least, so folders of few files are not.
    """
    found = names.slice(0, 0)
    for depth in range(1, _DEEPEST):
        inside = names.filter(pc.match_substring_regex(names, f"^([^/]*/){{{depth}}}"))
        folders = pc.replace_substring_regex(inside, f"^(([^/]*/){{{depth}}}).*", r"\1")
        is_many = len(folders) * _SAMPLED >= _FOLDER * pc.count_distinct(folders).as_py()
        if not len(folders) or not is_many:
            break
        found = folders
    return found


def _listed(store: Store, kinds: _Kinds, between: tuple[str, str | None]) -> Listing:
    """List the files whose names are above one name, and not above another one."""
    names = chain.from_iterable(store.list_pages(*between))
    infos = tracked(names, None, about="files listed", step=_LISTED)
    chains: list[ObjectInfo] = []
    parts = [found_table([])]
    with collector_paused():
        while page := list(islice(infos, _PAGE)):
            chains += [info for info in page if info.name.startswith(BRANCHES_FOLDER)]
            parts.append(_as_found(kinds, page))
    return Listing(pa.concat_tables(parts), tuple(chains))


def _as_found(kinds: _Kinds, infos: Iterable[ObjectInfo]) -> pa.Table:
    """Return the files among some that a vacuum may delete."""
    kept = [
        info
        for info in infos
        # Most names are plain. For a million names, a call for each takes half a second.
        if ("/_" not in (name := info.name) and "/." not in name and name[0] not in "_.")
        or _is_visible(name, kinds.folders)
        or _TEMPORARY.fullmatch(name)
        or is_deletion_file(name)
        or (kinds.has_packs and is_pack(name))
    ]
    return found_table(kept)


def found_table(files: Iterable[tuple[str, int, int | None]]) -> pa.Table:
    """Return names, sizes and times of files as the first three columns of `DECISIONS`."""
    columns = list(zip(*files, strict=True)) or [()] * len(_FOUND)
    arrays = [arrow_array(list(c), f.type) for c, f in zip(columns, _FOUND, strict=True)]
    return pa.table(arrays, schema=_FOUND)


def _is_visible(name: str, ours: frozenset[str]) -> bool:
    """Return whether a vacuum may check a file: it ignores hidden files of others.

    Names that begin with `_` or `.` are hidden, except for folders of partitions.
    """
    steps = name.split("/")
    return all(
        step[0] not in "_."
        or ("=" in step and place < len(steps) - 1)
        or (not place and step in ours)
        for place, step in enumerate(steps)
    )
