"""`_last_checkpoint`: a hint where to begin listing, which may be wrong or missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from txlog.base.errors import TxlogError, warn_caller
from txlog.log.names import log_path
from txlog.store.base import Store

HINT_PATH = log_path("_last_checkpoint")


@dataclass(frozen=True)
class Hint:
    """The content of `_last_checkpoint`: the last checkpoint at the time of writing."""

    version: int
    size: int  # The number of actions in the checkpoint.
    parts: int | None = None
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None


def read_hint(store: Store) -> Hint | None:
    """Return the hint, or None if it is absent, unreadable, or contradicts its own checksum.

    A hint that exists but cannot be used causes a `TxlogWarning`.
    """
    try:
        data = store.read(HINT_PATH)
    except TxlogError:
        return None  # If the store fails, reading the log will raise the error.
    found = decode_hint(data)
    if found is None:
        warn_caller(
            f"{HINT_PATH} is ignored: it is not JSON, or it contradicts its checksum. Write a new "
            "one with Table.maintenance.checkpoint"
        )
    return found


def hinted_version(store: Store) -> int:
    """Return the version of the hint, or -1 without a usable hint."""
    try:
        found = decode_hint(store.read(HINT_PATH))
    except TxlogError:
        return -1
    return -1 if found is None else found.version


@lru_cache(maxsize=16)  # Each commit reads it, and it is usually the same.
def decode_hint(data: bytes) -> Hint | None:
    """Return the hint that bytes encode, or None if they are invalid. This never raises."""
    try:
        node = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(node, dict) or type(node.get("version")) is not int or node["version"] < 0:
        return None
    stated = node.get("checksum")
    if stated is not None and stated != checksum(node):
        return None
    return Hint(
        node["version"],
        _integer(node.get("size")) or 0,
        _integer(node.get("parts")),
        _integer(node.get("sizeInBytes")),
        _integer(node.get("numOfAddFiles")),
    )


def encode_hint(hint: Hint) -> bytes:
    """Return the bytes of `_last_checkpoint`, including its checksum."""
    node = {
        "version": hint.version,
        "size": hint.size,
        "parts": hint.parts,
        "sizeInBytes": hint.size_in_bytes,
        "numOfAddFiles": hint.num_of_add_files,
    }
    present = {name: value for name, value in node.items() if value is not None}
    return orjson.dumps({**present, "checksum": checksum(present)})


def checksum(node: dict[str, Any]) -> str:
    """Return the MD5 (hex) of a JSON object's canonical form, without its own checksum.

    Source: the Delta protocol, "JSON checksum".
    """
    lines = [
        ("+".join(path), value)
        for name, child in node.items()
        if name != "checksum"
        for path, value in _leaves((_quoted(name),), child)
    ]
    lines.sort(key=lambda line: line[0].encode())
    text = ",".join(f"{path}={value}" for path, value in lines)
    import hashlib  # Only tables with checkpoints need this.

    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _leaves(path: tuple[str, ...], node: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(node, dict):
        for name, child in node.items():
            yield from _leaves((*path, _quoted(name)), child)
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from _leaves((*path, str(index)), child)
    elif isinstance(node, str):
        yield path, _quoted(node)
    else:
        yield path, orjson.dumps(node).decode()


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return f'"{quote(text.encode(), safe="-._~")}"'


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None
