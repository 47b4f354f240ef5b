"""Where a path or URI lies: the one answer to whether two texts mean the same place.

A table may be opened by one name while its log, or a clone, names its files by another: `s3a://`
beside `s3://`, a symbolic link, another mount of the folder, another case on a disk that ignores
it. Rules: spec/vacuum.md, VAC-10.

All texts are decoded and literal, as a store's root and as the keys of `canonical_keys` are. A
root is never decoded: `%41` in it is three characters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from posixpath import normpath
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.uris import file_path, is_file_uri, scheme_of
from txlog.reconcile.text_index import TextIndex
from txlog.store.base import kind_of

# Keys that may name files by another text than their path below the table.
_WHOLE = r"^(?:/|[a-zA-Z][a-zA-Z0-9+.-]*:)"
_IS_WHOLE = re.compile(_WHOLE)
_NOT_BELOW = r"^(?:/|[a-zA-Z][a-zA-Z0-9+.-]+(?:::[^/]*)?://)"  # Surely not relative.
_ODD_STEPS = r"[^:/]/\.{0,2}/"
_FOLDER_AND_NAME = r"^(?P<folder>(?s:.*)/)(?P<name>(?s:[^/]+))$"
# Other names of S3 buckets: ARNs, and the aliases of access points.
_ACCESS_POINT = re.compile(r":|-s3alias$|--ol-s3$|\.mrap$")
_ONELAKE = "onelake"  # Its containers and folders have two names each: a text and a UUID.


class Where(NamedTuple):
    """The names that a folder may have below a root.

    `certainty` says what is known. `known`: the name means the same folder, or, without names, the
    folder is elsewhere. `likely`: one of the names does if all engines resolve `..` in the same
    way, and if accounts are equal that the texts do not show. `unknown`: nothing shows that the
    folder is elsewhere, and its names are all ends of its path.
    """

    names: tuple[str, ...]  # Each is empty for the root itself, or ends with a slash.
    certainty: Literal["known", "likely", "unknown"]


_ELSEWHERE = Where((), "known")


def is_within(root: str, place: str) -> bool:
    """Return whether a path or URI is a root, or is known or likely to be below it."""
    found = _folder_in(root, _as_folder(place))
    return bool(found.names) and found.certainty != "unknown"


def same_place(one: str, other: str) -> bool:
    """Return whether two roots are known or likely to be the same folder."""
    found = _folder_in(one, _as_folder(other))
    return "" in found.names and found.certainty != "unknown"


def without_links(root: str) -> str:
    """Return a root by a name that remains if links in it are changed later; a local disk is asked.

    Other roots remain as they are.
    """
    return os.path.realpath(root) if scheme_of(root) == "file" else root


def name_in(root: str, path: str) -> str | None:
    """Return the path of a file below a root; None unless it is known to be there."""
    if not _IS_WHOLE.match(path):
        return path
    folder, slash, name = path.rpartition("/")
    found = _folder_in(root, folder + slash)
    return found.names[0] + name if found.names and found.certainty == "known" else None


def names_below(root: str, keys: pa.Array) -> pa.Array:
    """Return keys of files, relative to a root if they are known to be below it.

    All other keys remain as they are. A root and its folders may be looked up on a local disk, but
    no file is.
    """
    keys = _below_text(root, keys)
    whole = pc.match_substring_regex(keys, _WHOLE)
    if not pc.any(whole).as_py():
        return keys
    odd = keys.filter(whole)
    found = next(_names_of(odd, lambda folder: _known(_folder_in(root, folder))), None)
    if found is None:
        return keys
    return pc.replace_with_mask(keys, whole, pc.coalesce(found, odd))


class NamesNeeded:
    """Which names below a root some keys may mean; the keys come in parts, and are not kept.

    A name is left out only if it is known that no key means it. Keys that are added without need
    can only make more names needed.

    Parameters
    ----------
    root
        The root of a store.
    found
        The names of files below the root that matter.
    is_listing
        Whether `found` is from a listing, so that no name in it leads through a link.
    besides
        More names that matter, but are never looked up on a local disk.
    """

    def __init__(
        self,
        root: str,
        found: pa.Array,
        *,
        is_listing: bool = True,
        besides: pa.Array | None = None,
    ) -> None:
        self._root, self._is_listing = root, is_listing
        self._found = _Marked(found)
        self._besides = _Marked(arrow_array([], pa.string()) if besides is None else besides)
        self._odd: list[pa.Array] = []  # Keys that may mean a name by another text.

    def add(self, keys: pa.Array) -> None:
        """Add keys of files, as of `canonical_keys`, relative to the root or absolute."""
        below = names_below(self._root, keys)
        is_found = self._need(below)
        whole = keys.filter(pc.match_substring_regex(keys, _WHOLE))
        for part in _names_of(whole, lambda one: _folder_in(self._root, one).names):
            self._need(part.drop_null())
        if scheme_of(self._root) == "file" and len(self._found.names):
            # Most names are in the listing, so there is no question about them. Any other one may
            # be a link, or be spelled in another way.
            odd = keys.filter(pc.invert(is_found)) if self._is_listing else keys
            self._odd += [pc.unique(odd)] if len(odd) else []

    def needed(self) -> pa.Array:
        """Return the names that matter and that a key which was added may mean."""
        left = self._found.left().to_pylist() if self._odd else []
        marked = [(name, mark) for name in left if (mark := _mark(os.path.join(self._root, name)))]
        if marked:
            marks, ends = _marks_of(self._root, pc.unique(pa.concat_arrays(self._odd)))
            same = [name for name, mark in marked if mark in marks]
            self._need(arrow_array([*sorted(ends), *same], pa.string()))
        return pa.concat_arrays([self._found.marked(), self._besides.marked()])

    def _need(self, names: pa.Array) -> pa.Array:
        """Mark names; return which of them are names of found files."""
        self._besides.mark(names)
        return self._found.mark(names)


class _Marked:
    """Different names, some of which are marked."""

    def __init__(self, names: pa.Array) -> None:
        self.names = pc.unique(names)
        self._index = TextIndex(self.names)
        self._is_marked = np.zeros(len(self.names), np.bool_)

    def mark(self, names: pa.Array) -> pa.Array:
        """Mark those of some names that are here; return which of them are."""
        places = self._index.places(names)
        is_here = places >= 0
        self._is_marked[places[is_here]] = True
        return arrow_array(is_here, pa.bool_())

    def marked(self) -> pa.Array:
        return self.names.filter(arrow_array(self._is_marked, pa.bool_()))

    def left(self) -> pa.Array:
        return self.names.filter(arrow_array(~self._is_marked, pa.bool_()))


def absolute_keys(root: str, keys: pa.Array) -> pa.Array:
    """Return keys of a table's files as absolute keys, for another table.

    A key that may be relative and may be a URI, such as `a:/b`, is returned as both.
    """
    relative = keys.filter(pc.invert(pc.match_substring_regex(keys, _NOT_BELOW)))
    made = pc.binary_join_element_wise(_as_folder(root), relative, "")
    return pa.concat_arrays([keys.filter(pc.match_substring_regex(keys, _WHOLE)), made])


def _as_folder(place: str) -> str:
    return place if place.endswith("/") else f"{place}/"


def _known(where: Where) -> tuple[str, ...]:
    return where.names[:1] if where.certainty == "known" else ()


def _below_text(root: str, keys: pa.Array) -> pa.Array:
    """Return keys relative to a root if they begin with its text, or with that of its target."""
    roots = {root}
    if scheme_of(root) == "file":
        roots.add(os.path.realpath(root))
    for prefix in sorted(map(_as_folder, roots)):
        below = pc.starts_with(keys, prefix)
        if pc.any(below).as_py():
            below = pc.and_not(below, pc.match_substring_regex(keys, _ODD_STEPS))
            keys = pc.if_else(below, pc.utf8_slice_codeunits(keys, len(prefix)), keys)
    return keys


def _names_of(keys: pa.Array, names: Callable[[str], tuple[str, ...]]) -> Iterator[pa.Array]:
    """Yield arrays of names of the keys, null where there are none, with one call for each folder.

    Each folder may have several names, so there may be several arrays.
    """
    parts = pc.extract_regex(keys, _FOLDER_AND_NAME)
    folders = pc.struct_field(parts, "folder").dictionary_encode()
    each = [names(folder) for folder in folders.dictionary.to_pylist()]
    for place in range(max(map(len, each), default=0)):
        made = [one[place] if place < len(one) else None for one in each]
        befores = arrow_array(made, pa.string()).take(folders.indices)
        yield pc.binary_join_element_wise(befores, pc.struct_field(parts, "name"), "")


def _folder_in(root: str, folder: str) -> Where:
    """Return the names that a folder has below a root; its text ends with a slash."""
    if scheme_of(root) == scheme_of(folder) == "file":
        return _local(root, folder)
    return _remote(root, folder)


# Local disks -------------------------------------------------------------------------------------


def _local(root: str, folder: str) -> Where:
    """Return where a local folder is: links are resolved, and folders compared by their inodes."""
    path = _plain(folder)
    real, top = os.path.realpath(path), os.path.realpath(root)
    mark, at, steps = _mark(top), real, list[str]()
    while at != top and (mark is None or _mark(at) != mark):
        above = os.path.dirname(at)
        if above == at:
            # A folder that is not there may be there on another machine, under another name here.
            return _ELSEWHERE if os.path.isdir(real) else Where(_ends(path), "unknown")
        steps.append(os.path.basename(at))
        at = above
    return Where(("".join(f"{step}/" for step in reversed(steps)),), "known")


def _plain(path: str) -> str:
    return file_path(path, decode=False) if is_file_uri(path) else path


def _mark(path: str) -> tuple[int, int] | None:
    """Return the device and the inode of a file or folder; None if it does not exist."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _marks_of(root: str, keys: pa.Array) -> tuple[set[tuple[int, int]], set[str]]:
    """Return the identities of local files, and all ends of paths that have none here.

    Keys of other stores are left out.
    """
    marks, ends = set[tuple[int, int]](), set[str]()
    for key in keys.to_pylist():
        if scheme_of(key) not in (None, "file"):
            continue
        try:
            found = os.stat(os.path.join(root, key))
            marks.add((found.st_dev, found.st_ino))
            continue
        except (FileNotFoundError, NotADirectoryError):
            if not _IS_WHOLE.match(key):
                continue  # There is no such file, on any machine.
        except (OSError, ValueError):  # It cannot be looked at, so nothing is known about it.
            pass
        ends |= {end.removesuffix("/") for end in _ends(key)}
    return marks, ends


# Other stores ------------------------------------------------------------------------------------


class _Bucket(NamedTuple):
    """A bucket, container or other volume of a store, and what follows its name."""

    kind: str
    name: str
    account: str | None  # For Azure, if the URI names it.
    key: str  # Literal, with a slash at its end.


def _remote(root: str, folder: str) -> Where:
    """Return where a folder of any store is. Pure."""
    one, other = _bucket_of(root), _bucket_of(folder)
    if one is None or other is None or one.kind != other.kind:
        return Where(_ends(folder), "unknown")
    if not _same_account(one, other):
        return Where(_ends(folder), "unknown")
    if one.name != other.name:
        return _ELSEWHERE if _are_plain(one, other) else Where(_ends(folder), "unknown")
    names = tuple(dict.fromkeys(_names_below(one.key, other.key)))
    if names:
        odd = {"", ".", ".."} & {*other.key.split("/")[:-1]}
        is_known = one.account == other.account and not odd
        return Where(names, "known" if is_known else "likely")
    is_object_store = one.kind in ("s3", "gs", "az", "memory") and _are_plain(one, other)
    return _ELSEWHERE if is_object_store else Where(_ends(folder), "unknown")


def _bucket_of(uri: str) -> _Bucket | None:
    """Return the parts of a URI; None for a local path."""
    scheme = scheme_of(uri)
    if scheme is None or scheme == "file" or "://" not in uri:
        return None
    authority, _, key = uri.partition("://")[2].partition("/")
    kind, account = kind_of(scheme), None
    key = _as_folder(key) if key else ""
    if scheme == "memory":
        return _Bucket(scheme, "", None, f"{authority}/{key}".lstrip("/") if authority else key)
    if kind is not None and "@" in authority:
        user, _, host = authority.rpartition("@")
        authority = user if kind == "az" else host  # Credentials in a URI are ignored.
        if kind == "az":
            account = host.partition(".")[0].lower().removesuffix("-secondary")
    # Names of buckets and hosts are the same in every case.
    return _Bucket(kind or scheme, authority.lower(), account, key)


def _same_account(one: _Bucket, other: _Bucket) -> bool:
    """Return whether two accounts may be the same; a URI without one means the table's."""
    return one.account == other.account or None in (one.account, other.account)


def _are_plain(one: _Bucket, other: _Bucket) -> bool:
    """Return whether no bucket has a second name, so that other names are other buckets."""
    if one.kind == "az":
        return one.account is not None and _ONELAKE != one.account == other.account
    if one.kind == "s3":
        return not (_ACCESS_POINT.search(one.name) or _ACCESS_POINT.search(other.name))
    return one.kind in ("gs", "memory")


def _names_below(root: str, key: str) -> Iterator[str]:
    """Yield the names of a folder below a root, in the store's form and without odd steps.

    An object store takes `//` and `..` literally, but some engines resolve them.
    """
    for above, own in ((root, key), (_resolved(root), _resolved(key))):
        if own.startswith(above):
            yield own[len(above) :]


def _resolved(key: str) -> str:
    steps = normpath(f"/{key}").lstrip("/")
    return f"{steps}/" if steps else ""


def _ends(path: str) -> tuple[str, ...]:
    """Return all ends of a folder's path, and of its form without odd steps, from the shortest."""
    rest = path.partition("://")[2] or path.partition(":")[2] if _has_scheme(path) else path
    forms = dict.fromkeys((rest, normpath(f"/{rest}")))
    found = dict[str, None]()
    for form in forms:
        steps = [step for step in form.split("/") if step]
        for start in range(len(steps), -1, -1):
            found["".join(f"{step}/" for step in steps[start:])] = None
    return tuple(found)


def _has_scheme(path: str) -> bool:
    return not path.startswith("/") and _IS_WHOLE.match(path) is not None
