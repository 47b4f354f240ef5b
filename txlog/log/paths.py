"""Paths in actions: decode and encode their URIs, and the keys that compare them.

Rules: the Delta protocol, "Add File and Remove File" (paths are URIs by RFC 2396).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from posixpath import normpath

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.errors import LogCorruptError
from txlog.base.text_bytes import text_bytes
from txlog.base.thresholds import Threshold

_LOCAL = re.compile(r"(?i:file:)(?://(?i:localhost)(?=/)|/*(?=/))")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_WEB = re.compile(r"https?:", re.IGNORECASE)
# The UUID in the last step of a path.
_UUID = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}[^/]*$")
# Paths whose key differs from their text.
_SPECIAL = r"%|^/|^[a-zA-Z][a-zA-Z0-9+.-]*:|//|(?:^|/)\.\.?(?:/|$)"
_IS_SPECIAL = re.compile(_SPECIAL)

# A folder, and a name without encoded characters that is not a step such as `..`.
_FOLDER_AND_NAME = r"^(?P<folder>(?s:.*)/)(?P<name>[^/%.][^/%]*)$"

_SLASH, _DOT = b"/."
_FIRST = np.frombuffer(b"/.", np.uint8)  # The first characters of a step in a special path.
_BLOCK: Threshold = 1 << 16  # This many bytes stay in the processor's cache.


def decode_path(path: str) -> str:
    """Return a logged path in the store's form: decoded, relative or absolute.

    `file:` URIs become plain absolute paths. URIs of other schemes are decoded and stay URIs, but
    http and https URIs keep their encoding.

    Raises
    ------
    LogCorruptError
        A relative path leads out of the table.
    """
    if path.startswith("/") or _LOCAL.match(path):
        return normpath(_unquoted(_LOCAL.sub("", path)))
    if _SCHEME.match(path):
        return path if _WEB.match(path) else _unquoted(path)
    return normpath(require_inside(_unquoted(path)))


def is_elsewhere(path: str) -> bool:
    """Return whether a path, logged or decoded, is absolute, and so not relative to the table."""
    return path.startswith("/") or _SCHEME.match(path) is not None


def require_inside(path: str) -> str:
    """Return a decoded relative path; raise if it leads out of the table.

    Raises
    ------
    LogCorruptError
        The path leads out of the table.
    """
    depth = 0
    for step in path.split("/"):
        depth += -1 if step == ".." else 0 if step in ("", ".") else 1
        if depth < 0:
            raise LogCorruptError(
                path=path,
                reason="a relative path in the log leads out of the table",
                remedy="Only absolute paths may point outside. The writer of this log made an "
                "error: restore a version before it",
            )
    return path


def encode_path(path: str) -> str:
    """Return a path relative to the table in the log's form: percent-encoded."""
    from urllib.parse import quote

    return quote(path, safe="/=:!$&'()*+,;@~-._")


def is_unique(path: str) -> bool:
    """Return whether the name of a file contains a UUID, so that no other file has this name.

    All other names may be those of a user, who may use them again.
    """
    return _UUID.search(path) is not None


def canonical_key(path: str) -> str:
    """Return the key of one path, see `canonical_keys`."""
    return _key(path) if _IS_SPECIAL.search(path) else path


def canonical_keys(paths: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return for each logged path the key that identifies its file.

    Two spellings of one file (`file:/x` and `/x`, `%20` and a space) have the same key.
    """
    if isinstance(paths, pa.ChunkedArray):
        return pa.chunked_array([_keys(part) for part in paths.chunks], pa.string())
    return _keys(paths)


def _keys(paths: pa.Array) -> pa.Array:
    if _are_plain(paths):
        return paths
    special = pc.match_substring_regex(paths, _SPECIAL)
    if not pc.any(special).as_py():
        return paths
    return pc.replace_with_mask(paths, special, by_folder(paths.filter(special), _key))


def _are_plain(paths: pa.Array) -> bool:
    """Return whether the bytes show that no path needs decoding."""
    texts = text_bytes(paths)
    starts = texts.starts[texts.starts < texts.ends]
    if np.isin(texts.data[starts], _FIRST).any():
        return False
    used = texts.used
    for start in range(0, len(used), _BLOCK):
        block = used[start : start + _BLOCK + 1]
        after = block[1:]
        odd = (after == _SLASH) | (after == _DOT)
        odd &= block[:-1] == _SLASH
        text = block.tobytes()
        if b"%" in text or b":" in text or odd.any():
            return False
    return True


def by_folder(paths: pa.Array, function: Callable[[str], str]) -> pa.Array:
    """Apply a function to each path, with one call for all files of a folder.

    The function must not change a file's name in which nothing is encoded.
    """
    parts = pc.extract_regex(paths, _FOLDER_AND_NAME)
    folders = pc.struct_field(parts, "folder").dictionary_encode()
    if folders.null_count == len(paths):
        return arrow_array([function(path) for path in paths.to_pylist()], pa.string())
    made = [function(f"{folder}x").removesuffix("x") for folder in folders.dictionary.to_pylist()]
    whole = pc.binary_join_element_wise(
        arrow_array(made, pa.string()).take(folders.indices), pc.struct_field(parts, "name"), ""
    )
    rest = whole.is_null()
    if not pc.any(rest).as_py():
        return whole
    others = [function(path) for path in paths.filter(rest).to_pylist()]
    return pc.replace_with_mask(whole, rest, arrow_array(others, pa.string()))


def encoded_paths(paths: pa.Array) -> pa.Array | None:
    """Return which logged paths `decode_path` may change; None if it changes none."""
    ends = pc.or_(pc.ends_with(paths, "/"), pc.equal(paths, ""))
    if _are_plain(paths) and not pc.any(ends).as_py():
        return None
    odd = pc.match_substring_regex(paths, rf"{_SPECIAL}|/$|^$")
    return odd if pc.any(odd).as_py() else None


def _key(path: str) -> str:
    local = _LOCAL.sub("", path)
    if not local.startswith("/") and _SCHEME.match(local):
        return _unquoted(local)
    return normpath(_unquoted(local))


def _unquoted(path: str) -> str:
    if "%" not in path:
        return path
    from urllib.parse import unquote

    return unquote(path)
