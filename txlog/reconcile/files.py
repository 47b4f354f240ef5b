"""Reconciliation: the newest action counts for each logical file and each key of table state.

A logical file is a path together with a deletion vector's id, so a path can be live with one vector
and a tombstone with another. Hashes of the ends of the paths show quickly that all keys are
different; the texts are compared only if two hashes are equal.

The files of a checkpoint are already reconciled, and newer commits touch few of them. `overlay`
applies the newer commits; eight bytes near the end of each path show that most files are untouched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from txlog.actions.action import Action
from txlog.actions.table import DomainMetadata, Metadata, Protocol, Txn
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError
from txlog.base.text_bytes import WORD_BYTES, TextBytes, text_bytes, words_of
from txlog.base.thresholds import Threshold
from txlog.log.names import commit_name
from txlog.log.paths import canonical_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORDS = 8
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)

Hashes: TypeAlias = "NDArray[np.uint64]"


def text_hashes(texts: pa.Array) -> Hashes:
    """Return a hash of each text's length and its last 64 bytes.

    Names of files differ there: Spark's have a number, which comes first, then a UUID that all
    files of a job share, 20 bytes before the end. For a shorter text, only whole groups of eight
    bytes count. A null counts as the empty text.

    Parameters
    ----------
    texts
        A `string` array, of any offset.
    """
    places = text_bytes(texts)
    hashes = (places.ends - places.starts).astype(np.uint64) * _PRIME
    for word in _last_words(places):
        hashes = (hashes ^ word) * _PRIME
        hashes ^= hashes >> _SHIFT
    return hashes


def _last_words(texts: TextBytes) -> Iterator[NDArray[np.uint64]]:
    """Yield groups of eight bytes of each text, the last group first; 0 if a text is shorter."""
    starts, ends = texts.starts, texts.ends
    if (ends - starts >= WORD_BYTES * _WORDS).all():
        pairs = words_of(texts.data, "<c16")
        for back in range(2, _WORDS + 1, 2):
            pair = pairs[ends - WORD_BYTES * back].view("<u8").reshape(-1, 2)
            yield from (pair[:, 1], pair[:, 0])
        return
    words = words_of(texts.data)
    for back in range(1, _WORDS + 1):
        places = ends - WORD_BYTES * back
        yield np.where(places >= starts, words[np.maximum(places, 0)], 0)


def are_distinct(hashes: Hashes) -> bool:
    """Return whether all hashes are different."""
    return are_all_distinct([hashes])


def are_all_distinct(parts: list[Hashes]) -> bool:
    """Return whether all hashes of all parts are different. The list is emptied, to free memory."""
    ordered = np.concatenate([_NOTHING, *parts])
    parts.clear()
    ordered.sort()
    return not bool((ordered[1:] == ordered[:-1]).any())


_NOTHING = np.zeros(0, np.uint64)


_VECTOR_SHIFT = np.uint64(7)


def file_keys(rows: pa.Table) -> pa.ChunkedArray:
    """Return the key of each row's logical file as one text. `rows` are `FILE_ROWS`."""
    paths = canonical_keys(rows["path"])
    if rows["dv_id"].null_count == rows.num_rows:
        return paths
    # No store allows a NUL in a path, so no path can look like a path with a vector.
    with_vector = pc.binary_join_element_wise(paths, rows["dv_id"], "\0")
    return pc.coalesce(with_vector, paths)


def key_hashes(rows: pa.Table) -> Hashes:
    """Return a hash of each row's logical file. `rows` are `FILE_ROWS`.

    Only the columns `path` and `dv_id` are needed.
    """
    hashes = _hashes(canonical_keys(rows["path"]))
    if rows["dv_id"].null_count < rows.num_rows:
        hashes ^= _hashes(rows["dv_id"]) << _VECTOR_SHIFT
    return hashes


def _hashes(texts: pa.ChunkedArray) -> Hashes:
    parts = [text_hashes(part) for part in texts.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([_NOTHING, *parts])


def are_different(keys: pa.ChunkedArray) -> bool:
    """Return whether all keys are different."""
    if are_distinct(_hashes(keys)):
        return True
    return bool(pc.count_distinct(keys, mode="all").as_py() == len(keys))


@dataclass(frozen=True)
class FileState:
    """The files of one version as `FILE_ROWS` in undefined order."""

    live: pa.Table
    tombstones: pa.Table


def newest(rows: pa.Table) -> pa.Table:
    """Return the row with the highest version of each logical file.

    Pure; the order of `rows` has no meaning.

    Raises
    ------
    LogCorruptError
        The newest version of a logical file adds and removes it, or names it twice (rule REC-5).
    """
    found, doubts = _newest(rows)
    if doubts:
        raise _named_twice(rows, doubts[0])
    return found


def newly_named(before: pa.Table, now: pa.Table) -> pa.Table | None:
    """Return the newest rows of the files that only `now` names; None if it changes another one.

    Both are the `FILE_ROWS` of the commits above one checkpoint, by ascending version. A row id
    that another attempt gave a file is a change, too. Files that both name first in the same way
    are not compared with those that they name later. Pure.
    """
    old, new = (rows.select(_NAMING).combine_chunks() for rows in (before, now))
    shared = _same_start(old, new)
    named, others = _named(old.slice(shared)), _named(new.slice(shared))
    if named is None or others is None:
        return None
    for key, (_, *state) in named.items():
        if key not in others or others[key][1:] != tuple(state):
            return None
    places = [row for key, (row, *_) in others.items() if key not in named]
    return now.slice(shared).take(arrow_array(places, pa.int64()))


_NAMING = ["path", "dv_id", "is_add", "version", "base_row_id"]


def _same_start(one: pa.Table, other: pa.Table) -> int:
    """Return the number of first rows that are equal."""
    count: int = min(one.num_rows, other.num_rows)
    for name in ("path", "dv_id", "is_add", "version"):
        ours, theirs = one[name].slice(0, count), other[name].slice(0, count)
        equal = pc.fill_null(pc.equal(ours, theirs), False)
        both = pc.or_(equal, pc.and_(pc.is_null(ours), pc.is_null(theirs)))
        different: int = pc.index(both, False).as_py()
        count = count if different < 0 else different
    return count


def _named(rows: pa.Table) -> dict[str, tuple[int, bool, int | None]] | None:
    """Return the last row of each logical file, whether it adds it, and its row id.

    None if a version names one twice.
    """
    found: dict[str, tuple[int, bool, int | None]] = {}
    versions: dict[str, int] = {}
    columns = (file_keys(rows), rows["version"], rows["is_add"], rows["base_row_id"])
    lists = (column.to_pylist() for column in columns)
    for row, (key, version, is_add, row_id) in enumerate(zip(*lists, strict=True)):
        if versions.get(key) == version:
            return None
        found[key], versions[key] = (row, is_add, row_id), version
    return found


def in_doubt(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the newest rows of logical files as `newest` does, and those that are in doubt, apart.

    The latter are the `add`s of files that their newest version names twice. Pure.
    """
    found, doubts = _newest(rows)
    if not doubts:
        return found, found.slice(0, 0)
    keys = pc.unique(file_keys(rows.take(arrow_array(doubts, pa.int64()))))
    doubted = pc.is_in(file_keys(rows), value_set=keys)
    adds = rows.filter(pc.and_(doubted, rows["is_add"]))
    codes = numpy_array(flat(file_keys(adds)).dictionary_encode().indices)
    _, first = np.unique(codes, return_index=True)
    settled = found.filter(pc.invert(pc.is_in(file_keys(found), value_set=keys)))
    return settled, adds.take(arrow_array(first))


def _newest(rows: pa.Table) -> tuple[pa.Table, list[int]]:
    """Return the result of `newest`, and the row numbers of files that are in doubt."""
    if rows.num_rows < 2:
        return rows, []
    keys = file_keys(rows)
    if are_different(keys):
        return rows, []
    keyed = pa.table({"key": keys, "version": rows["version"], "row": pa.arange(0, rows.num_rows)})
    keyed = pc.take(keyed, pc.sort_indices(keyed, sort_keys=[("version", "descending")]))
    # `group_by` would import `pyarrow.acero`, and with it pandas.
    coded = pc.dictionary_encode(keyed["key"])
    codes = np.concatenate([numpy_array(chunk.indices) for chunk in coded.chunks])
    different = coded.chunk(0).dictionary
    if len(different) == rows.num_rows:
        return rows, []
    twice = _twice(codes, np.concatenate([numpy_array(part) for part in keyed["version"].chunks]))
    doubts = _doubts(rows, keyed, different.take(arrow_array(twice))) if len(twice) else []
    first = np.empty(len(different), np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # The first row of each key is written last.
    return pc.take(rows, pc.take(keyed["row"], arrow_array(first))), doubts


def _twice(codes: NDArray[np.int32], versions: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the codes that occur twice in one version, ascending."""
    order = np.lexsort((versions, codes))
    codes, versions = codes[order], versions[order]
    same = (codes[1:] == codes[:-1]) & (versions[1:] == versions[:-1])
    repeated: NDArray[np.int32] = np.unique(codes[1:][same])
    return repeated


def _doubts(rows: pa.Table, keyed: pa.Table, keys: pa.Array) -> list[int]:
    """Return the rows that name a file again, with other contents, in its newest commit.

    A later commit that names the file ends the doubt: then the file's state is known.
    """
    named = keyed.filter(pc.is_in(keyed["key"], value_set=keys))
    first_contents: dict[str, tuple[int, dict[str, Any]]] = {}
    doubts = []
    contents = _contents(rows.take(named["row"]))
    for key, version, row, content in zip(
        named["key"].to_pylist(),
        named["version"].to_pylist(),
        named["row"].to_pylist(),
        contents,
        strict=True,
    ):
        newest_version, first = first_contents.setdefault(key, (version, content))
        if version == newest_version and first != content:
            doubts.append(row)
    return doubts


def distinct_rows(rows: pa.Table, *, path: str) -> pa.Table:
    """Return the `FILE_ROWS` of a checkpoint with each live logical file once.

    A file that occurs several times with the same content counts once.

    Raises
    ------
    LogCorruptError
        A file occurs twice with different contents; `path` names the checkpoint.
    """
    # This copies no other column.
    keyed = pc.filter(rows.select(["path", "dv_id"]), rows["is_add"])
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
                reason="the checkpoint adds the same file twice with different contents",
                remedy="Delete the checkpoint if the commits that it covers still exist",
            )
    return pa.concat_tables([live.take(arrow_array(kept, pa.int64())), state_of(rows).tombstones])


def _contents(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as dictionaries without the paths, whose spelling may differ."""
    names = [name for name in rows.column_names if name not in ("path", "stats_parsed")]
    return rows.select(names).to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]


def _named_twice(rows: pa.Table, row: int) -> LogCorruptError:
    version = rows["version"][row].as_py()
    return LogCorruptError(
        path=commit_name(version),
        version=version,
        field=rows["path"][row].as_py(),
        reason="one commit names the same file twice, so the file's state is undefined",
        remedy="The writer of this commit made an error. Open a version before it",
    )


def state_of(rows: pa.Table) -> FileState:
    """Split `FILE_ROWS` with distinct logical files into live files and tombstones."""
    if pc.all(rows["is_add"]).as_py() is not False:
        return FileState(rows, rows.slice(0, 0))
    is_add = rows["is_add"]
    return FileState(pc.filter(rows, is_add), pc.filter(rows, pc.invert(is_add)))


def reconcile_files(rows: pa.Table) -> FileState:
    """Return the files of the newest version from `FILE_ROWS` of any number of versions."""
    return state_of(newest(rows))


_ODD_ENDS = np.frombuffer(b"/.", np.uint8)
_MOST_WORDS: Threshold = 64  # With more of them, searching takes longer than comparing all paths.

Mask: TypeAlias = "NDArray[np.bool_]"


@dataclass(frozen=True)
class Newer:
    """The logical files that newer commits touch."""

    keys: pa.Array
    # Eight bytes of each path. None if they do not distinguish paths.
    words: NDArray[np.uint64] | None
    back: int  # The number of bytes between those and the end of the path.

    def __len__(self) -> int:
        return len(self.keys)


def newer_of(rows: pa.Table) -> Newer:
    """Return the logical files of `FILE_ROWS`; only the columns `path` and `dv_id` are needed."""
    keys = flat(file_keys(rows))
    if rows.num_rows > _MOST_WORDS:
        return Newer(keys, None, 0)
    paths = canonical_keys(rows["path"]).to_pylist()
    return Newer(keys, *_words({path.rpartition("/")[2].encode() for path in paths}))


def _words(names: Collection[bytes]) -> tuple[NDArray[np.uint64] | None, int]:
    """Return eight bytes of each name in which the names differ, and their distance from the end.

    None if a name is too short.
    """
    backwards = [name[::-1] for name in names]
    shortest = min(map(len, names), default=0)
    if shortest < WORD_BYTES:
        return None, 0
    least, greatest = min(backwards), max(backwards)
    alike = next((place for place in range(shortest) if least[place] != greatest[place]), shortest)
    back = min(alike, shortest - WORD_BYTES)
    chosen = {name[len(name) - back - WORD_BYTES : len(name) - back] for name in names}
    return np.array([int.from_bytes(word, "little") for word in chosen], np.uint64), back


def untouched(rows: pa.Table, newer: Newer) -> pa.Table:
    """Return the `FILE_ROWS` whose logical files no newer commit touches."""
    if not len(newer) or not rows.num_rows:
        return rows
    maybe = np.flatnonzero(_maybe_touched(rows["path"], newer))
    if not len(maybe):
        return rows
    some = rows.select(["path", "dv_id"]).take(arrow_array(maybe))
    touched = pc.is_in(flat(file_keys(some)), value_set=newer.keys)
    if not pc.any(touched).as_py():
        return rows
    left = np.ones(rows.num_rows, np.bool_)
    left[maybe[numpy_array(touched)]] = False
    return rows.filter(arrow_array(left))


def _maybe_touched(paths: pa.ChunkedArray, newer: Newer) -> Mask:
    masks = [_maybe_one_of(part, newer) for part in paths.chunks]
    return masks[0] if len(masks) == 1 else np.concatenate([np.zeros(0, np.bool_), *masks])


def _maybe_one_of(paths: pa.Array, newer: Newer) -> Mask:
    """Return which paths may be those of newer files, in any spelling.

    Without percent signs, all spellings of a path end with its last name, except those that end
    with `/` or `/.`.
    """
    texts = text_bytes(paths)
    everything = np.ones(len(paths), np.bool_)
    if newer.words is None or b"%" in texts.used.tobytes():
        return everything
    words = words_of(texts.data)
    places = texts.ends - newer.back - WORD_BYTES
    inside = places >= texts.starts
    mask: Mask = np.isin(words[np.maximum(places, 0)], newer.words) & inside
    ends = texts.data[np.maximum(texts.ends - 1, 0)]
    mask |= np.isin(ends, _ODD_ENDS) & (texts.ends > texts.starts)
    return mask


def overlay(base: pa.Table, tail: pa.Table) -> FileState:
    """Return the state after the newer rows of `tail` are applied to a reconciled base.

    The result equals `reconcile_files` of both, but costs a look-up instead of a grouping: a
    checkpoint has each logical file once, and its versions are below those of the tail.
    """
    tail = newest(tail)
    if tail.num_rows == 0:
        return state_of(base)
    rows = [untouched(base, newer_of(tail)), tail]
    return state_of(pa.concat_tables(rows, promote_options="default"))


def left_of(base: pa.Table, newer: Newer) -> FileState:
    """Return the part of a base, or of some of its rows, that newer commits leave."""
    return state_of(untouched(base, newer))


@dataclass(frozen=True)
class Touched:
    """The file actions of a commit beside the files of the version before it, as `FILE_ROWS`.

    An `add` of a file that is live already brings no rows: it changes facts about the file, such as
    its statistics, tags or row ids.
    """

    new: pa.Table  # Adds of files that were not live.
    again: pa.Table  # Adds of files that were live.
    before: pa.Table  # The live files that the commit adds again or removes, as they were.
    gone: pa.Table  # Those of them that are not live after the commit.


def touched(actions: pa.Table, live: pa.Table) -> Touched:
    """Separate the file actions of a commit by the files that were live before it. Pure.

    Parameters
    ----------
    actions, live
        `FILE_ROWS`; `live` must contain the live files that the actions name, and may have others.
    """
    keys, known = flat(file_keys(actions)), flat(file_keys(live))
    is_add = flat(actions["is_add"])
    was_live = pc.is_in(keys, value_set=known)
    stays = keys.filter(is_add)
    before = live.filter(pc.is_in(known, value_set=keys))
    return Touched(
        new=actions.filter(pc.and_not(is_add, was_live)),
        again=actions.filter(pc.and_(is_add, was_live)),
        before=before,
        gone=before.filter(pc.invert(pc.is_in(file_keys(before), value_set=stays))),
    )


@dataclass(frozen=True)
class Controls:
    """Table state: the newest protocol, metadata, and `txn` and domain of each name."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: Mapping[str, Txn] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)  # Includes removed domains.


def controls_of(actions: Iterable[tuple[int, Action]], base: Controls | None = None) -> Controls:
    """Return the table state from actions with their versions and a base.

    The order of `actions` has no meaning; all are newer than the base. Other kinds of actions are
    ignored.

    Raises
    ------
    LogCorruptError
        The newest version of one of them has two protocols, two metadata, or the same `txn` or
        domain twice (rule REC-6).
    """
    base = base or Controls()
    newest: dict[tuple[str, str], tuple[int, Action]] = {}
    doubts: dict[tuple[str, str], int] = {}
    for version, action in actions:
        key = _control_key(action)
        if key is None:
            continue
        known = newest.get(key)
        if known is not None and known[0] == version and known[1] != action:
            doubts[key] = max(version, doubts.get(key, version))
        if known is None or known[0] < version:
            newest[key] = (version, action)
    for key, version in doubts.items():
        if newest[key][0] == version:  # No later commit says it again.
            raise LogCorruptError(
                path=commit_name(version),
                version=version,
                field=" ".join(key).strip(),
                reason="one commit contains this action twice with different contents",
                remedy="The writer of this commit made an error. Open a version before it",
            )
    protocol, metadata = base.protocol, base.metadata
    txns, domains = dict(base.txns), dict(base.domains)
    for _, action in newest.values():
        match action:
            case Protocol():
                protocol = action
            case Metadata():
                metadata = action
            case Txn():
                txns[action.app_id] = action
            case DomainMetadata():
                domains[action.domain] = action
    return Controls(protocol, metadata, txns, domains)


def _control_key(action: Action) -> tuple[str, str] | None:
    match action:
        case Protocol():
            return ("protocol", "")
        case Metadata():
            return ("metaData", "")
        case Txn():
            return ("txn", action.app_id)
        case DomainMetadata():
            return ("domainMetadata", action.domain)
    return None
