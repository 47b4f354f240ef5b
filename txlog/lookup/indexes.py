"""Map the runs of an index to the fragments of a version, and look up keys in them."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.effects import REAL
from txlog.base.errors import NotFoundError, TxlogError, warn_caller
from txlog.base.texts import without_secrets
from txlog.base.threads import cached_property
from txlog.base.thresholds import Threshold
from txlog.fragments.fragment import DataFile, Fragment
from txlog.log.paths import decode_path
from txlog.lookup.blocks import BLOCK_BYTES, ReadParts, RunError
from txlog.lookup.composite import Window, are_within, combined, span
from txlog.lookup.keys import AskedKeys, Encodings, KeyRanges, Numbers, key_type
from txlog.lookup.runs import Run
from txlog.lookup.segments import (
    FIRST_BYTES,
    FOLDER,
    SUFFIX,
    CoveredFile,
    CoveredRun,
    Segment,
    list_segments,
    open_segment,
    parse_segment,
)
from txlog.parquet.miniature import merge_ranges
from txlog.schema.types import StructField
from txlog.stats.files import num_records
from txlog.store.base import Store, is_far, map_many
from txlog.store.ranged import FileRanges, read_concurrently

# A segment of a remote store is read whole up to this size: that takes as long as the five or six
# requests, one after the other, that a search in its blocks needs.
_WHOLE_BYTES: Threshold = 16 << 20
_FAR_GAP: Threshold = 1 << 20  # Blocks with at most this gap are one request to a remote store.
_HELD_BYTES: Threshold = 512 << 20  # The size of the blocks that a table keeps after a search.
_KEY_BLOCKS = 5  # About as many blocks are read for one key.
_FAR_BEHIND: Threshold = 64 << 20  # So many bytes of files without an index are worth a warning.
_State = Literal["read", "gone", "failed"]
Parts = list[tuple[Fragment, Numbers]]
"""Fragments, and the positions of rows in each."""

_PART_MS = 3_600_000  # A part of a segment that is older is no longer written.


def files_giving(fragment: Fragment, columns: Sequence[str]) -> tuple[DataFile, ...]:
    """Return for each column (by its physical name) the file that determines its values.

    It is the uppermost one: the files below it do not change while it is there (FRG-49).
    """
    if len(fragment.files) == 1:
        return (fragment.files[0],) * len(columns)
    return tuple(fragment.files_giving(name)[-1] for name in columns)


@dataclass(frozen=True)
class LiveRun:
    """A run, and the fragments of a version that contain its rows.

    Parameters
    ----------
    starts
        The first row of each of its files, and the row after the last.
    owners
        For each file the place of its fragment; -1 if the version does not have the file.
    segment
        The segment that has it.
    """

    run: Run
    starts: Numbers
    owners: NDArray[np.int64]
    segment: Segment


@dataclass(frozen=True)
class Coverage:
    """The runs that cover fragments, and the indexes of the fragments that no run covers."""

    fragments: Sequence[Fragment]
    runs: tuple[LiveRun, ...]
    uncovered: tuple[int, ...]
    segments: frozenset[str] = frozenset()  # The paths of segments that cover a fragment.
    # Whether the store failed when segments were read: the next attempt may find more of them.
    is_passing: bool = False

    @cached_property
    def paths(self) -> pa.Array:
        """The paths of the primary files of the fragments that a run covers."""
        uncovered = set(self.uncovered)
        covered = (one for place, one in enumerate(self.fragments) if place not in uncovered)
        return arrow_array([one.path for one in covered], pa.string())

    @cached_property
    def ordered(self) -> Coverage:
        """The coverage by runs in the order of the keys alone, which can find ranges of keys."""
        runs = tuple(live for live in self.runs if live.run.is_in_order)
        others = [live.owners for live in self.runs if not live.run.is_in_order]
        places = np.concatenate([*others, np.array(self.uncovered, np.int64)])
        uncovered = tuple(sorted(places[places >= 0].tolist()))
        return Coverage(self.fragments, runs, uncovered, self.segments)


def cover(
    fragments: Sequence[Fragment],
    segments: Iterable[Segment],
    columns: Sequence[str],
    types: Sequence[str],
    table: str | None = None,
) -> Coverage:
    """Return the coverage of fragments by segments. Pure. Rule: LKP-8.

    Parameters
    ----------
    columns, types
        The key columns: their physical names, and their types as `key_type` returns them.
    table
        The id of the table.
    """
    given = [files_giving(fragment, columns) for fragment in fragments]
    keys = [_file_key([one.path for one in files], [one.size for one in files]) for files in given]
    rows = [fragment.physical_rows for fragment in fragments]
    covered = covered_files(segments, columns, types, table)
    owners = covered.owners(arrow_array(keys, pa.string()), arrow_array(rows, pa.int64()))
    runs: list[LiveRun] = []
    used = set()
    start = 0
    for segment, one in covered.runs:
        of_run = owners[start : start + len(one.files)]
        start += len(one.files)
        if (of_run >= 0).any():
            runs.append(LiveRun(one.run, one.starts, of_run, segment))
            used.add(segment.name)
    left = np.ones(len(fragments), bool)
    left[owners[owners >= 0]] = False
    uncovered = tuple(np.flatnonzero(left).tolist())
    return Coverage(fragments, tuple(runs), uncovered, frozenset(used))


@dataclass(frozen=True)
class CoveredFiles:
    """The files whose keys the runs of some segments have.

    Parameters
    ----------
    runs
        The runs with their segments.
    keys, rows
        For each file of them, in their order: a text that says which files give the key columns
        (null: nobody knows, because other files may have the same names), and its number of rows.
    """

    runs: Sequence[tuple[Segment, CoveredRun]]
    keys: pa.Array
    rows: NDArray[np.int64]

    def owners(self, keys: pa.Array, rows: pa.Array) -> NDArray[np.int64]:
        """Return for each file the place of the live one that it is, or -1. Pure. Rule: LKP-8.

        Parameters
        ----------
        keys, rows
            As above, of different live files; a number of rows that the log does not state is null.
        """
        at = pc.index_in(self.keys, value_set=keys, skip_nulls=True)
        found: NDArray[np.int64] = numpy_array(pc.fill_null(at, -1)).astype(np.int64)
        if not len(keys):
            return found
        stated = numpy_array(pc.fill_null(rows, -1))[found]
        found[(stated >= 0) & (stated != self.rows)] = -1
        first = np.unique(found, return_index=True)[1]  # At most one run covers a file.
        again = np.ones(len(found), bool)
        again[first] = False
        found[again] = -1
        return found

    def uncovered(self, files: pa.Table) -> pa.Array:
        """Return of which `FILE_ROWS` no run has the keys: bool. Pure.

        They are those of fragments without column files, with `path`, `size` and `stats`.
        """
        sizes = flat(files["size"]).cast(pa.string())
        keys = pc.binary_join_element_wise(sizes, flat(files["path"]), " ")
        owners = self.owners(keys, num_records(files))
        left = np.ones(files.num_rows, bool)
        left[owners[owners >= 0]] = False
        return arrow_array(left)


def covered_files(
    segments: Iterable[Segment], columns: Sequence[str], types: Sequence[str], table: str | None
) -> CoveredFiles:
    """Return the files that segments cover; the arguments are those of `cover`. Pure."""
    runs = [
        (segment, covered)
        # Runs with the most keys come first, so that few of the runs that cover the same files are
        # searched.
        for segment in sorted(segments, key=lambda one: (-one.keys, one.name))
        if segment.columns == tuple(columns) and segment.types == tuple(types)
        for covered in segment.runs
    ]
    files = [(segment, file) for segment, covered in runs for file in covered.files]
    keys = [
        _file_key(file.paths, file.sizes) if segment.knows(file, table) else None
        for segment, file in files
    ]
    rows = np.array([file.rows for _, file in files], np.int64)
    return CoveredFiles(runs, arrow_array(keys, pa.string()), rows)


def _file_key(paths: Sequence[str], sizes: Sequence[int]) -> str:
    """Return a text that is equal for equal files which give the key columns, in their order."""
    files = [f"{size} {path}" for path, size in zip(paths, sizes, strict=True)]
    return files[0] if len({*files}) == 1 else "\0".join(files)


class LostSegmentError(Exception):
    """A part of a segment is damaged or could not be read; the cause says why."""

    def __init__(self, segment: Segment, cause: Exception) -> None:
        super().__init__(segment.name)
        self.segment, self.cause = segment, cause


class Finder:
    """Finds the rows that may have the given keys, in the runs of a coverage.

    Of a segment in a file it reads the blocks that it needs and that are not in memory.
    """

    def __init__(self, coverage: Coverage, asked: AskedKeys | KeyRanges) -> None:
        self._coverage = coverage.ordered if isinstance(asked, KeyRanges) else coverage
        self._asked = asked
        self._encodings: dict[tuple[str, tuple[Window, ...]], Encodings] = {}

    def _rows_of(self, run: Run) -> Numbers:
        """Return the rows of a run that may have one of the keys."""
        if isinstance(self._asked, AskedKeys):
            return run.find(self._wanted(self._asked, run))
        spans = [span(run.windows, box) if run.windows else box[0] for box in self._asked.boxes]
        found = [run.within(*one) for one in spans if one is not None]
        if not found:
            return np.empty(0, np.int64)
        return found[0] if len(found) == 1 else np.unique(np.concatenate(found))

    def _wanted(self, asked: AskedKeys, run: Run) -> Encodings:
        found = self._encodings.get((run.form, run.windows))
        if found is None:
            if run.windows:
                columns = asked.ordered_columns()
                inside = are_within(run.windows, columns)
                found = np.unique(combined(run.windows, [one[inside] for one in columns]))
            else:
                found = asked.encodings(run.form)
            self._encodings[run.form, run.windows] = found
        return found

    def parts(self) -> Parts:
        """Return the positions of these rows, ascending, by the ids of their fragments.

        Raises
        ------
        LostSegmentError
            A block that it needs is damaged, or cannot be read.
        """
        owners, positions = [], []
        for live in self._coverage.runs:
            try:
                rows = self._rows_of(live.run)
                if len(rows) and rows.max() >= live.starts[-1]:
                    raise RunError("a run names a row behind the end of its files")
            except (RunError, TxlogError, OSError) as error:
                raise LostSegmentError(live.segment, error) from error
            if not len(rows):
                continue
            file = np.searchsorted(live.starts, rows, "right") - 1
            owner = live.owners[file]
            kept = owner >= 0
            owners.append(owner[kept])
            positions.append((rows - live.starts[file])[kept])
        if not owners:
            return []
        owner, at = np.concatenate(owners), np.concatenate(positions)
        if len(owner) == 1:
            return [(self._coverage.fragments[owner.item()], at)]
        order = np.lexsort((at, owner))
        owner, at = owner[order], at[order]
        borders = np.flatnonzero(np.diff(owner)) + 1
        begins = owner[np.append(0, borders)] if len(owner) else owner
        return [
            (self._coverage.fragments[place], part)
            for place, part in zip(begins.tolist(), np.split(at, borders), strict=False)
        ]


def _parts_of(
    store: Store, path: str, size: int, ranges: Sequence[tuple[int, int]]
) -> Sequence[bytes]:
    """Return ranges of a segment's bytes; fewer bytes if the file ends before."""
    if not is_far(store):
        return read_concurrently([FileRanges(store, path, ranges, size)])[0]
    merged = merge_ranges(ranges, gap=_FAR_GAP)
    (parts,) = read_concurrently([FileRanges(store, path, merged, size)])
    found = []
    for start, stop in ranges:
        place = bisect_right(merged, (start, size)) - 1
        begin = start - merged[place][0]
        found.append(parts[place][begin : begin + stop - start])
    return found


def _parts_of_copy(path: Path, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
    found = []
    with path.open("rb", buffering=0) as source:
        for start, stop in ranges:
            source.seek(start)
            found.append(source.read(stop - start))
    return found


class SegmentCache:
    """A cache of the segments of a table.

    Parameters
    ----------
    folder
        A folder of this machine in which segments of remote stores are kept for other processes.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        # None: the segment is damaged, and a warning was given. A segment that could not be read is
        # tried again.
        self._read: dict[str, Segment | None] = {}
        self._tails: dict[tuple[str, int], tuple[Segment, CoveredFile]] = {}
        # How many segments of an index there were when they were listed, and own writes since.
        self.counted: dict[str, int] = {}
        self._failing: set[str] = set()  # Indexes with segments that could not be read.
        self._table: str | None = None  # The id of the table, when it was last used.
        self._told: set[str] = set()  # The indexes of which it was said that they are far behind.

    def coverage(
        self,
        store: Store,
        indexes: Sequence[str],
        fragments: Sequence[Fragment],
        columns: Sequence[str],
        key_columns: Sequence[StructField],
        defined: Collection[str],
        table: str | None = None,
        may_read: Callable[[int], bool] = lambda _: True,
        *,
        keys: int | None = None,
        without: Collection[str] = (),
    ) -> Coverage:
        """Return the coverage of fragments by indexes; segments are listed if more are needed.

        Parameters
        ----------
        defined
            The names of all indexes of the table: of others nothing is kept.
        table
            The id of the table.
        may_read, keys
            A function that is asked with the approximate number of bytes that a search for so many
            keys reads of segments that were not opened yet; if it says no, only those that were
            opened are used. None: whole segments.
        without
            Paths of segments that are not used.
        """
        self._table = table
        self._sweep_dropped(store, defined)
        types = [key_type(column) for column in key_columns]
        known = [one for path, one in list(self._read.items()) if path.split("/")[1] in indexes]
        kept = [one for one in known if one is not None and one.name not in without]
        found = cover(fragments, kept, columns, types, table)
        if found.uncovered and indexes:
            answers: list[bool] = []

            def may(unread: int) -> bool:
                answers.append(may_read(unread))
                return answers[-1]

            segments = [
                one
                for name in indexes
                for one in self.segments(store, name, may, keys)
                if one.name not in without
            ]
            found = cover(fragments, segments, columns, types, table)
            found = replace(found, is_passing=not self._failing.isdisjoint(indexes))
            # Otherwise there are segments that are not used.
            if all(answers) and not without and not found.is_passing:
                self._tell_far_behind(indexes[0], found)
        return found

    def is_failing(self, index: str) -> bool:
        """Return whether the store failed when segments of an index were last listed or read."""
        return index in self._failing

    def _tell_far_behind(self, index: str, found: Coverage) -> None:
        """Warn once of an index that covers less than half of the bytes. Rule: LKP-16."""
        if index in self._told or not found.uncovered:
            return
        sizes = [sum(file.size for file in one.files) for one in found.fragments]
        size = sum(sizes[place] for place in found.uncovered)
        if size < _FAR_BEHIND or 2 * size < sum(sizes):
            return
        self._told.add(index)
        _warn(
            f"the index {index} does not cover {len(found.uncovered):,} of {len(sizes):,} files "
            f"({size:,} bytes), which are read without it; indexes.build({index!r}) covers them"
        )

    def search(
        self,
        cover: Callable[[Collection[str]], Coverage],
        asked: AskedKeys | KeyRanges | None,
    ) -> tuple[Coverage, Parts]:
        """Return a coverage without segments that a search cannot read, and what it finds.

        Parameters
        ----------
        cover
            Returns the coverage, without the segments of some paths.
        asked
            What is searched. None: nothing.
        """
        lost: set[str] = set()
        while True:
            coverage = cover(lost)
            try:
                parts = [] if asked is None else Finder(coverage, asked).parts()
            except LostSegmentError as error:
                lost.add(error.segment.name)
                self._lose(error.segment, error.cause)
                continue
            held = [one.blocks for one in list(self._read.values()) if one is not None]
            if sum(one.held_bytes for one in held) > _HELD_BYTES:
                for one in held:
                    one.release()
            return coverage, parts

    def _lose(self, segment: Segment, error: Exception) -> None:
        """Stop using a segment of which a part is damaged, or could not be read."""
        path = segment.name
        if self._read.get(path) is not segment:  # Another thread has met the same.
            return
        if segment.copy is not None:  # The next search reads the segment itself.
            with suppress(OSError):
                segment.copy.unlink(missing_ok=True)
        elif isinstance(error, RunError):
            _warn_of_damage(path, error)
        elif not isinstance(error, NotFoundError):
            _warn_of_failure(path, error)
            return
        self._forget([path])
        if segment.copy is None and isinstance(error, RunError):
            self._keep(path, None)

    def sound(self, store: Store, segments: Sequence[Segment], *, keep: bool) -> list[Segment]:
        """Return segments without those of which a block cannot be read; these are no longer used.

        Nor without those of which a run names rows behind its files. The files of the table count,
        not the copies. With `keep`, all blocks are in memory then.
        """
        found = []
        for segment in segments:
            was_held = keep or segment.blocks.held_bytes > 0
            if segment.copy is not None:
                own, state = self._load_own(store, segment.name, segment.size)
                if own is None:
                    if state == "read":
                        self._keep(segment.name, None)
                    continue
                segment = own
                self._keep(segment.name, own)
            try:
                if keep:
                    segment.blocks.between(0, segment.blocks.size)
                else:
                    segment.blocks.verify()
                for covered in segment.runs:
                    covered.run.require_rows(int(covered.starts[-1]))
            except (RunError, TxlogError, OSError) as error:
                self._lose(segment, error)
            else:
                found.append(segment)
                if not was_held:
                    segment.blocks.release()
        return found

    def segments(
        self,
        store: Store,
        index: str,
        may_read: Callable[[int], bool] = lambda _: True,
        keys: int | None = None,
    ) -> list[Segment]:
        """Return the current segments of an index, without those whose heads cannot be read.

        `may_read` and `keys` are those of `coverage`.
        """
        try:
            return self._segments(store, index, may_read, keys)
        except (TxlogError, OSError) as error:
            _warn(f"the segments of the index {index} cannot be listed: {error}")
            self._failing.add(index)
            return []

    def _segments(
        self, store: Store, index: str, may_read: Callable[[int], bool], keys: int | None
    ) -> list[Segment]:
        self._failing.discard(index)
        for attempt in (1, 2):
            listed = list_segments(store, index)
            self.counted[index] = len(listed)
            new = [one for one in listed if one[0] not in self._read]
            gone = False
            if new and not may_read(sum(self._needed(store, size, keys) for _, size in new)):
                new = []
            load = partial(self._load, store)
            for (path, _), (segment, state) in zip(
                new, map_many(store, load, new, size=lambda one: one[1]), strict=True
            ):
                gone = gone or state == "gone"
                if state == "read":
                    self._keep(path, segment)
                elif state == "failed":
                    self._failing.add(index)
            if not gone or attempt == 2:
                break
        paths = {path for path, _ in listed}
        self._sweep(store, index, paths)
        gone_paths = [
            path for path in list(self._read) if path.split("/")[1] == index and path not in paths
        ]
        if gone_paths:
            self._forget(gone_paths)
        return [one for path in sorted(paths) if (one := self._read.get(path)) is not None]

    def _forget(self, paths: Sequence[str]) -> None:
        """Remove segments from the cache, and tails that no other segment has."""
        for path in paths:
            self._read.pop(path, None)
        self._tails = {}
        for path, segment in list(self._read.items()):
            self._keep(path, segment)

    def _keep(self, path: str, segment: Segment | None) -> None:
        self._read[path] = segment
        for covered in segment.runs if segment is not None else ():
            for file in covered.files:
                if file.tail is not None and segment is not None:
                    self._tails[decode_path(file.paths[0]), file.sizes[0]] = segment, file

    def tail(self, name: str, size: int) -> tuple[int, bytes] | None:
        """Return the last bytes of a data file and their position, if a segment has them."""
        segment, file = self._tails.get((name, size), (None, None))
        if segment is None or file is None or file.tail is None:
            return None
        if not segment.knows(file, self._table):
            return None
        try:
            data = file.tail.unpacked(size)
        except (RunError, TxlogError, OSError) as error:
            self._lose(segment, error)
            return None
        return None if data is None else (file.tail.start, data)

    def _load(self, store: Store, listed: tuple[str, int]) -> tuple[Segment | None, _State]:
        """Return a segment (None if it is damaged), and whether its file was read."""
        path, size = listed
        place = self._place(store, path)
        if place is not None:
            with suppress(RunError, OSError):
                if place.stat().st_size == size:
                    segment = open_segment(partial(_parts_of_copy, place), size, path)
                    return replace(segment, copy=place), "read"
        return self._load_own(store, path, size)

    def _load_own(self, store: Store, path: str, size: int) -> tuple[Segment | None, _State]:
        """Return the same of the segment's own file, whether or not there is a copy."""
        read: ReadParts = partial(_parts_of, store, path, size)
        try:
            if not self._is_read_whole(store, size):
                return open_segment(read, size, path), "read"
            data = store.read(path)
            segment = parse_segment(data, path, read)
        except NotFoundError:
            return None, "gone"
        except RunError as error:
            _warn_of_damage(path, error)
            return None, "read"
        except (TxlogError, OSError) as error:
            _warn_of_failure(path, error)
            return None, "failed"
        self._keep_for_others(store, path, data)
        return segment, "read"

    def _is_read_whole(self, store: Store, size: int) -> bool:
        """Return whether a segment of this size is read by one request."""
        if not is_far(store):
            return size <= FIRST_BYTES
        return size <= _WHOLE_BYTES or self._folder is not None

    def _needed(self, store: Store, size: int, keys: int | None) -> int:
        """Return about how many bytes of a segment are read to find so many keys."""
        if keys is None or self._is_read_whole(store, size):
            return size
        checks = 4 * -(-size // BLOCK_BYTES)  # In the head, behind the first bytes.
        return min(size, FIRST_BYTES + checks + _KEY_BLOCKS * BLOCK_BYTES * keys)

    def _place(self, store: Store, path: str) -> Path | None:
        if self._folder is None or store.local_path(path) is not None:
            return None
        table = hashlib.sha256(without_secrets(store.root).encode()).hexdigest()[:32]
        return Path(self._folder, table, *path.split("/")[1:])  # The index, and its name.

    def _sweep(self, store: Store, index: str, paths: Collection[str]) -> None:
        """Delete local copies of segments that no longer exist."""
        place = self._place(store, f"{FOLDER}/{index}/{SUFFIX}")
        if place is not None:
            _delete_kept(place.parent, {path.rpartition("/")[2] for path in paths})

    def _sweep_dropped(self, store: Store, defined: Collection[str]) -> None:
        """Delete what is kept for other processes of indexes that the table no longer has."""
        place = self._place(store, f"{FOLDER}/index/{SUFFIX}")
        with suppress(OSError):
            for folder in place.parent.parent.iterdir() if place is not None else ():
                if folder.name not in defined:
                    _delete_kept(folder, ())
                    folder.rmdir()

    def _keep_for_others(self, store: Store, path: str, data: bytes) -> None:
        place = self._place(store, path)
        if place is None:
            return
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            part = place.with_name(f"{place.name}.{REAL.uuid()}")
            part.write_bytes(data)
            part.replace(place)
        except OSError as error:
            _warn(f"a segment of an index cannot be kept in {self._folder}: {error}")


def _delete_kept(folder: Path, names: Collection[str]) -> None:
    """Delete the kept segments in a folder but those of some names, and parts of segments.

    A part is left by a process that ended while it wrote. A young one may still be written.
    """
    with suppress(OSError):
        for kept in folder.glob(f"*{SUFFIX}"):
            if kept.name not in names:
                kept.unlink(missing_ok=True)
        for part in folder.glob(f"*{SUFFIX}.*"):
            if REAL.now_ms() - part.stat().st_mtime * 1000 > _PART_MS:
                part.unlink(missing_ok=True)


def _warn_of_damage(path: str, error: RunError) -> None:
    _warn(
        f"the segment {path} of an index cannot be used, so look-ups are slower: {error}; "
        "indexes.build replaces it"
    )


def _warn_of_failure(path: str, error: Exception) -> None:
    _warn(f"the segment {path} of an index could not be read, so this look-up is slower: {error}")


def _warn(text: str) -> None:
    warn_caller(text)


def covering_file(fragment: Fragment, columns: Sequence[str]) -> list[tuple[str, int]]:
    """Return the paths and sizes of the files that give the key columns of a fragment."""
    return [(file.path, file.size) for file in files_giving(fragment, columns)]
