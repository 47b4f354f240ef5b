"""Indexes over key columns: define, build, merge, drop. Rules: spec/lookup.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from txlog.actions.table import Metadata
from txlog.base.effects import is_rehearsing
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    TxlogError,
    warn_committed,
)
from txlog.base.thresholds import Threshold
from txlog.commit.context import Context
from txlog.fragments.fragment import Fragment
from txlog.lookup.indexed import logical_columns
from txlog.lookup.indexes import Coverage, SegmentCache, cover, covered_files, covering_file
from txlog.lookup.keys import key_type, require_key_columns
from txlog.lookup.runs import RunBuilder
from txlog.lookup.segments import (
    FOLDER,
    MERGED_AT_ONCE,
    CoveredFile,
    CoveredRun,
    Segment,
    covered_file,
    encode_segment,
    list_segments,
    merged,
    read_tail,
    segment_path,
)
from txlog.protocol.properties import INDEX_PREFIX, IndexDefinition, index_definitions
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.plan import ScanPlan, plan_scan
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan, choose_columns
from txlog.schema.types import StructField
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store, is_older
from txlog.store.file_times import ahead_ms
from txlog.verbs.metadata import Changed, ChangeMetadata

_TAIL_LEVEL = 15  # The zstd level when an index is built. Appends use a faster level.
MOST_SEGMENTS: Threshold = 32  # From this number of segments on, a write merges the small ones.
_SEGMENT_KEYS: Threshold = 64 << 20  # The approximate maximum of keys in a new segment.
_YOUNG_MS = 86_400_000  # A younger segment may belong to a commit that is not finished.


@dataclass(frozen=True)
class IndexInfo:
    """An index of a version of a table.

    Parameters
    ----------
    files, files_covered
        The number of fragments of the version, and of those whose keys the index has.
    keys, bytes
        Sums over all segments of the index.
    runs
        The number of runs that a look-up searches.
    forms
        The forms of the runs: `ordered` if rows are in the order of their keys, otherwise `hashed`.
    """

    name: str
    columns: tuple[str, ...]
    files: int
    files_covered: int
    segments: int
    runs: int
    keys: int
    bytes: int
    forms: tuple[str, ...]

    @property
    def bits_per_key(self) -> float:
        """The number of bits for each key."""
        return 8 * self.bytes / self.keys if self.keys else 0.0


@dataclass(frozen=True)
class IndexReport:
    """The result of building or merging an index.

    Parameters
    ----------
    files_built, files_left
        The number of fragments whose keys were read, and of those that the index does not cover
        now.
    keys, bytes
        Sums over all segments of the index, after the call.
    """

    name: str
    files_built: int
    files_left: int
    keys: int
    bytes: int
    segments_before: int
    segments_after: int


def indexed_columns(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the columns of the only index of a table.

    Raises
    ------
    InvalidInputError
        The table has no index, or several over different columns.
    """
    definitions = index_definitions(snapshot.metadata.configuration).values()
    columns = {found: one.name for one in definitions if (found := logical_columns(snapshot, one))}
    if len(columns) == 1:
        return next(iter(columns))
    raise InvalidInputError(
        argument="on",
        reason="the table has no index"
        if not columns
        else "the table has several indexes: "
        + ", ".join(f"{name} ({', '.join(on)})" for on, name in columns.items()),
        remedy="Name the key columns: on=…"
        + ("" if columns else ", or make an index: t.indexes.create(…)"),
    )


def definition_of(snapshot: Snapshot, name: str | None) -> IndexDefinition:
    """Return an index by its name; None: the only one.

    Raises
    ------
    NotFoundError, InvalidInputError
        There is no index with this name; or, without a name, there is not exactly one index.
    """
    known = index_definitions(snapshot.metadata.configuration)
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name is None:
        raise InvalidInputError(
            argument="name",
            reason=f"the table has {len(known)} indexes",
            remedy=f"Choose from {', '.join(known)}" if known else "Make one: t.indexes.create(…)",
        )
    if name not in known:
        raise NotFoundError(
            path=snapshot.root,
            reason=f"the table has no index {name!r}",
            remedy=f"Choose from {', '.join(known)}" if known else "Make one: t.indexes.create(…)",
        )
    return known[name]


def default_name(columns: Sequence[str]) -> str:
    """Return the default name of an index over columns."""
    plain = re.sub("[^a-z0-9]+", "_", "_".join(columns).lower()).strip("_")
    return (plain if plain[:1].isalpha() else f"index_{plain}".rstrip("_"))[:63]


class CreateIndex(ChangeMetadata):
    """Define an index: from now on every write of txlog adds its runs."""

    name = "SET TBLPROPERTIES"

    def __init__(self, columns: Sequence[str], name: str | None) -> None:
        self._columns = tuple(columns)
        self.index = default_name(columns) if name is None else name

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata with the index.

        Raises
        ------
        InvalidInputError
            A column is unknown, cannot be a key, is a partition column, or is named twice.
        AlreadyExistsError
            There is another index with this name.
        """
        columns = choose_columns(base.schema, self._columns, partial(_is_indexable, base))
        _require_indexable(base, columns)
        physical = tuple(column.name_in_files(base.mapping_mode) for column in columns)
        definition = IndexDefinition(self.index, physical)
        try:
            IndexDefinition.parse(self.index, definition.text)
        except ValueError as error:
            raise InvalidInputError(
                argument="name", reason=f"{self.index!r}: {error}", remedy="Choose another name"
            ) from error
        key = f"{INDEX_PREFIX}{self.index}"
        known = index_definitions(base.metadata.configuration).get(self.index)
        if known is not None and known.columns != physical:
            raise AlreadyExistsError(
                path=base.root,
                reason=f"the table has an index {self.index} over {', '.join(known.columns)}",
                remedy="Choose another name, or drop it first",
            )
        text = (known or definition).text
        return Changed(_with_property(base, key, text), {"properties": {key: text}})


def _is_indexable(base: Snapshot, column: StructField) -> bool:
    try:
        require_key_columns([column])
    except InvalidInputError:
        return False
    return column.name not in base.partition_columns


def _require_indexable(base: Snapshot, columns: Sequence[StructField]) -> None:
    require_key_columns(columns, "columns")
    names = [column.name for column in columns]
    for name in names:
        odd = "is a partition column" if name in base.partition_columns else ""
        if odd or names.count(name) > 1:
            raise InvalidInputError(
                argument="columns",
                field=name,
                reason=f"{name} {odd or 'is named twice'}",
                remedy="Files do not contain partition columns: index other columns; a look-up may "
                "name both"
                if odd
                else "Name each column once",
            )


class DropIndex(ChangeMetadata):
    """Remove the definition of an index from the table."""

    name = "UNSET TBLPROPERTIES"

    def __init__(self, name: str) -> None:
        self._index = name

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata without the index; errors as for `definition_of`."""
        key = f"{INDEX_PREFIX}{definition_of(base, self._index).name}"
        return Changed(_with_property(base, key, None), {"properties": [key], "ifExists": False})


def _with_property(base: Snapshot, key: str, text: str | None) -> Metadata:
    configuration = {k: v for k, v in base.metadata.configuration.items() if k != key}
    if text is not None:
        configuration[key] = text
    return base.metadata.model_copy(update={"configuration": configuration})


def delete_index(context: Context, name: str) -> None:
    """Delete all segments of an index, as `delete_segments` does."""

    def paths() -> Iterator[str]:  # `delete_segments` lists them, and handles errors of listing.
        yield from (path for path, _ in list_segments(context.store, name))

    delete_segments(context, paths())


def delete_segments(context: Context, paths: Iterable[str]) -> None:
    """Delete segments; a segment that cannot be deleted only takes space. Not in a rehearsal."""
    if is_rehearsing():
        return
    try:
        context.store.delete(list(paths))
    except (TxlogError, OSError) as error:
        warn_committed(
            f"segments of an index could not be deleted; vacuum will delete them: {error}"
        )


@dataclass
class IndexFiles:
    """The segments of an index at a version, and the fragments that they cover."""

    context: Context
    snapshot: Snapshot
    definition: IndexDefinition
    cache: SegmentCache

    def _columns(self) -> tuple[StructField, ...]:
        names = logical_columns(self.snapshot, self.definition)
        if names is None:
            raise InvalidInputError(
                argument="name",
                reason=f"the table no longer has the columns {', '.join(self.definition.columns)} "
                f"of the index {self.definition.name}",
                remedy="Drop the index",
            )
        columns = choose_columns(self.snapshot.schema, names)
        require_key_columns(columns, None)
        return columns

    @property
    def _table(self) -> str | None:
        return self.snapshot.metadata.id

    def segments(self) -> list[Segment]:
        """Return the segments whose heads can be read."""
        return self.cache.segments(self.context.store, self.definition.name)

    def info(self) -> IndexInfo:
        """Return the description of the index."""
        segments = self.segments()
        names = logical_columns(self.snapshot, self.definition)
        fragments = self._plan(names or ()).fragments
        found = self._coverage(fragments, segments)
        return IndexInfo(
            self.definition.name,
            names or self.definition.columns,
            len(fragments),
            len(fragments) - len(found.uncovered),
            len(segments),
            len(found.runs),
            sum(one.keys for one in segments),
            sum(one.size for one in segments),
            tuple(sorted({live.run.form for live in found.runs})),
        )

    def _coverage(self, fragments: Sequence[Fragment], segments: Sequence[Segment]) -> Coverage:
        return cover(fragments, segments, self.definition.columns, self._types, self._table)

    @property
    def _types(self) -> tuple[str, ...]:
        """The types of the key columns that the table has."""
        names = logical_columns(self.snapshot, self.definition) or ()
        return tuple(map(key_type, choose_columns(self.snapshot.schema, names)))

    def uncovered(self, fragments: Sequence[Fragment]) -> list[Fragment]:
        """Return those of some fragments that no run covers."""
        found = self._coverage(fragments, self.segments())
        return [fragments[place] for place in found.uncovered]

    def uncovered_files(self) -> Callable[[pa.Table], pa.Array]:
        """Return a function that says of which live files no run has the keys.

        It takes `FILE_ROWS` of fragments without column files, with `path`, `size` and `stats`.
        """
        columns = self.definition.columns
        return covered_files(self.segments(), columns, self._types, self._table).uncovered

    def _plan(self, names: Sequence[str]) -> ScanPlan:
        files = load_files(self.context.store, self.snapshot)
        return plan_scan(self.snapshot, files.live, columns=list(names))

    def build(self, *, rebuild: bool) -> IndexReport:
        """Read the keys of uncovered fragments, and write their runs."""
        columns = self._columns()
        self.context.store.require_writable()
        # They are listed first, so that segments that another writer adds later are kept.
        listed = [path for path, _ in list_segments(self.context.store, self.definition.name)]
        before = [] if rebuild else self._sound(self.segments(), keep=False)
        plan = self._plan([column.name for column in columns])
        types = [key_type(column) for column in columns]
        fragments = plan.fragments
        if not rebuild:
            found = self._coverage(fragments, before)
            fragments = tuple(fragments[place] for place in found.uncovered)
        build = partial(
            read_run, self.context.store, plan.reading, columns,
            self.definition.columns, self.definition.bits,
        )  # fmt: skip
        if is_rehearsing():
            return self._report(len(fragments), len(listed))
        made = self.context.engine.map(build, fragments)
        for runs in _by_keys(made, _SEGMENT_KEYS):
            self._write(types, merged(runs))
        if rebuild:
            delete_segments(self.context, listed)
        else:  # The new segments replace those that cannot be read.
            readable = {segment.name for segment in before}
            delete_segments(self.context, [path for path in listed if path not in readable])
        return self._report(len(fragments), len(listed))

    def _sound(self, segments: Sequence[Segment], *, keep: bool) -> list[Segment]:
        return self.cache.sound(self.context.store, segments, keep=keep)

    def _write(self, types: Sequence[str], runs: Sequence[CoveredRun]) -> None:
        if runs and not is_rehearsing():
            data = encode_segment(self.definition.columns, types, runs, table=self._table)
            path = segment_path(self.definition.name, self.context.effects)
            self.context.store.replace(path, data)  # Whole, or not there.

    def _report(self, built: int, before: int) -> IndexReport:
        now = self.info()
        return IndexReport(
            now.name,
            built,
            now.files - now.files_covered,
            now.keys,
            now.bytes,
            before,
            now.segments,
        )

    def merge(self, most_keys: int | None = None) -> IndexReport:
        """Merge the existing segments into one, without the keys of files that no longer exist.

        Parameters
        ----------
        most_keys
            Leave larger segments as they are.
        """
        self.context.store.require_writable()
        now_ms = self.context.effects.now_ms()
        folder = f"{FOLDER}/{self.definition.name}"
        listed = self.context.store.list_after(folder, "")
        times = {f"{folder}/{info.name}": info.modified_ms for info in listed}
        before = self.segments()
        is_known = self._known()
        if before:  # By the store's clock, which gave the segments their times.
            now_ms -= ahead_ms(self.context.store, self.context.effects)
        types = [key_type(column) for column in self._columns()]
        chosen, dead = [], []
        for segment in before:
            alive = any(is_known(file) for covered in segment.runs for file in covered.files)
            fits = segment.columns == self.definition.columns and segment.types == tuple(types)
            files = (file for covered in segment.runs for file in covered.files)
            fits = fits and all(segment.knows(file, self._table) for file in files)
            if not alive and not is_older(times.get(segment.name), now_ms - _YOUNG_MS):
                continue
            if not alive or not fits:
                dead.append(segment.name)
            elif most_keys is None or segment.keys < most_keys:
                chosen.append(segment)
        if len(chosen) > 1 or any(_is_loose(segment, is_known) for segment in chosen):
            # They are read before another process that merges them, too, deletes them.
            chosen = self._sound(chosen, keep=True)
            # If segments cover the same files, the segment with more files counts.
            chosen.sort(key=lambda segment: -segment.keys)
            every = [covered for segment in chosen for covered in segment.runs]
            self._write(types, merged(every, is_known))
            dead += [segment.name for segment in chosen]
        if dead:
            delete_segments(self.context, dead)
        return self._report(0, len(before))

    def _known(self) -> Callable[[CoveredFile], bool]:
        """Return a function that tells whether any readable version has a file."""
        files = load_files(self.context.store, self.snapshot)
        paths = set(files.live["path"].to_pylist()) | set(files.tombstones["path"].to_pylist())
        return lambda file: paths.issuperset(file.paths)


def _is_loose(segment: Segment, is_known: Callable[[CoveredFile], bool]) -> bool:
    """Return whether a segment could be smaller: several runs of one form, or lost files."""
    forms = [covered.run.form for covered in segment.runs]
    files = [file for covered in segment.runs for file in covered.files]
    return len(forms) > len(set(forms)) or not all(map(is_known, files))


def _by_keys(runs: Iterable[CoveredRun], most: int) -> Iterator[list[CoveredRun]]:
    """Yield groups of runs with at most `most` keys in total, or with one run."""
    some: list[CoveredRun] = []
    for covered in runs:
        if some and sum(one.run.keys for one in some) + covered.run.keys > most:
            yield some
            some = []
        some.append(covered)
    if some:
        yield some


def read_run(
    store: Store,
    plan: ReadPlan,
    columns: Sequence[StructField],
    physical: Sequence[str],
    bits: int,
    fragment: Fragment,
) -> CoveredRun:
    """Read the key columns of a fragment, including deleted rows, and return their run."""
    builder = RunBuilder(columns)
    reader = FragmentReader(store, plan, fragment)
    for _, batch in reader.batches(
        tuple(columns), prune=False, batch_rows=BATCH_ROWS, threads=False
    ):
        builder.add([batch.column(place) for place in range(len(columns))])
    files = covering_file(fragment, physical)
    tail = read_tail(store, *files[0], _TAIL_LEVEL) if len(set(files)) == 1 else None
    return CoveredRun(builder.finish(bits), (covered_file(files, builder, tail),))


def merge_if_due(context: Context, snapshot: Snapshot, cache: SegmentCache) -> None:
    """Merge small segments of indexes that have many; a failure is only a warning."""
    for definition in index_definitions(snapshot.metadata.configuration).values():
        try:
            name = definition.name
            # Each commit adds one at most, and other writers count theirs.
            known = cache.counted.get(name, MOST_SEGMENTS) + 1
            if known >= MOST_SEGMENTS:
                known = len(list_segments(context.store, name))
            cache.counted[name] = known
            if known >= MOST_SEGMENTS:
                del cache.counted[name]
                IndexFiles(context, snapshot, definition, cache).merge(MERGED_AT_ONCE)
        except Exception as error:  # Lack of memory, too: the commit has landed.
            warn_committed(f"segments of the index {definition.name} could not be merged: {error}")
