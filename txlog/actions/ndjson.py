"""The text of a log file (NDJSON): one JSON object per line, one action per object; seals.

A seal is a checksum of a file inside the file, which shows whether the file is damaged. Commits and
checkpoints have one. Rules: spec/reconcile.md, REC-9. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from itertools import chain
from json import JSONDecoder
from typing import Any

import orjson

from txlog.actions.base import Action
from txlog.actions.file import Add, Cdc, CheckpointMetadata, Remove, Sidecar
from txlog.actions.table import CommitInfo, DomainMetadata, Metadata, Protocol, Txn
from txlog.errors import InvalidInputError, LogCorruptError

ACTIONS: dict[str, type[Action]] = {
    "add": Add,
    "remove": Remove,
    "cdc": Cdc,
    "metaData": Metadata,
    "protocol": Protocol,
    "txn": Txn,
    "commitInfo": CommitInfo,
    "domainMetadata": DomainMetadata,
    "sidecar": Sidecar,
    "checkpointMetadata": CheckpointMetadata,
}
_OBJECT = {dict}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NAMES: dict[type[Action], str] = {model: name for name, model in ACTIONS.items()}


def encode(actions: Iterable[Action]) -> bytes:
    """Return the text of a log file: one line per action, each with a newline at its end."""
    return encode_rows(as_rows(actions))


def as_rows(actions: Iterable[Action]) -> list[dict[str, Any]]:
    """Return actions as the JSON objects of a log file. The caller may change them."""
    return [{NAMES[type(action)]: action.to_json()} for action in actions]


def encode_rows(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the text of a log file: one line per object, each with a newline at its end."""
    return b"".join(json_of(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def json_of(value: Any, *, option: int | None = None) -> bytes:
    """Return the JSON of a value.

    Raises
    ------
    InvalidInputError
        It holds half of a pair of UTF-16, which has no bytes in UTF-8, a number of more than 64
        bits, or what is no JSON.
    """
    try:
        return orjson.dumps(value, option=option)
    except TypeError as error:
        raise InvalidInputError(
            reason=f"what is to be written to the log is no JSON: {error}",
            remedy="Pass text of whole characters, and numbers of 64 bits",
        ) from error


def decode(data: bytes, *, path: str) -> list[Action]:
    """Return the actions of a log file in order; unknown actions are left out.

    Raises
    ------
    LogCorruptError
        A line is no JSON object, or a field is missing or of a wrong type. `path` names the
        file in the error.
    """
    return [
        decode_action(name, body, path=path, line=line)
        for line, row in enumerate(rows(data, path=path), start=1)
        for name, body in row.items()
        if body is not None and name in ACTIONS
    ]


def decode_action(name: str, body: Any, *, path: str, line: int | None = None) -> Action:
    """Return one action as a model; `name` is its key in the log (`metaData`)."""
    try:
        return ACTIONS[name].model_validate(body)
    except ValueError as error:
        if not hasattr(error, "errors"):  # Pydantic's own error has it.
            raise
        first = error.errors()[0]
        raise LogCorruptError(
            path=path,
            line=line,
            field=".".join([name, *map(str, first["loc"])]),
            reason=first["msg"],
            remedy="Restore the file from a copy; other versions may still open",
        ) from error


def rows(data: bytes, *, path: str) -> list[dict[str, Any]]:
    """Return a log file's JSON objects in order, not yet read as actions.

    Objects that stretch over several lines, which some writers leave, are read as well.
    """
    data = data.removeprefix(_BYTE_ORDER_MARK)
    text = data.strip()
    try:
        # One call for all lines is far faster than one for each.
        array = b"[" + text.replace(b"\n", b",") + b"]"
        objects = orjson.loads(array)
        # Of a name that an object has twice, orjson keeps the last: then it is not what was read.
        if (
            len(objects) == _lines(text)
            and _OBJECT.issuperset(map(type, objects))
            and is_json_of(objects, array)
        ):
            return objects  # type: ignore[no-any-return]
    except orjson.JSONDecodeError:
        pass
    return _rows_slowly(data, path)


def rows_of_all(texts: Iterable[bytes]) -> list[list[dict[str, Any]]] | None:
    """Return the JSON objects of several log files; None if `rows` must read them one by one."""
    files: list[list[dict[str, Any]]] = []
    try:
        for data in texts:
            text = data.strip()
            array = b"[" + text.replace(b"\n", b",") + b"]"
            files.append(orjson.loads(array))
            if len(files[-1]) != _lines(text) or not is_json_of(files[-1], array):
                return None
    except orjson.JSONDecodeError:
        return None
    return files if _OBJECT.issuperset(map(type, chain.from_iterable(files))) else None


def is_json_of(value: Any, text: bytes) -> bool:
    """Return whether a text is just how a value is written: then no name is in an object twice."""
    try:
        return orjson.dumps(value) == text
    except TypeError:  # It nests deeper than can be written.
        return False


def _lines(text: bytes) -> int:
    """Return the number of lines of a text."""
    # In CPython 3.11, to leave bytes out takes a seventh of the time of counting them.
    return len(text) - len(text.replace(b"\n", b"")) + 1


def _rows_slowly(data: bytes, path: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a log file; an object may span lines, or share one."""
    objects: list[dict[str, Any]] = []
    decoder = JSONDecoder(object_pairs_hook=_named_once)
    position = 0
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _torn(path, line, f"byte {error.start} is not UTF-8") from error
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            return objects
        line = text.count("\n", 0, position) + 1
        try:
            row, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise _torn(path, line, f"not a whole JSON object: {error}") from error
        if not isinstance(row, dict):
            raise _torn(path, line, f"a JSON object was expected, not {type(row).__name__}")
        objects.append(row)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of names and values; `ValueError` if a name is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} is there twice in one object")
    return found


def _torn(path: str, line: int, reason: str) -> LogCorruptError:
    return LogCorruptError(
        path=path,
        line=line,
        reason=reason,
        remedy="Restore the file from a copy; versions before it may still open",
    )


BLANK = "00000000"  # What a file must hold behind its mark where the seal is to be.

COMMIT_MARK = b'"txlogCrc32":"'  # In the `commitInfo` of a commit, which is its first line.
FOOTER_MARK = b"txlog.crc32="  # In the footer of a checkpoint.

_BLANK = BLANK.encode()


def sealed(data: bytes, mark: bytes) -> bytes:
    """Return bytes with the blank behind a mark filled in: the CRC-32 of all, the blank included.

    Bytes that do not have the blank are returned as they are.
    """
    at = data.find(mark + _BLANK)
    if at < 0:
        return data
    at += len(mark)
    return data[:at] + b"%08x" % zlib.crc32(data) + data[at + len(_BLANK) :]


def seal_of(data: bytes, mark: bytes) -> str:
    """Return the seal behind a mark that bytes certainly have."""
    start = data.index(mark) + len(mark)
    return data[start : start + len(_BLANK)].decode()


def is_broken(data: bytes, mark: bytes, *, within: int | None = None) -> bool:
    """Return whether bytes have a seal that does not fit them. False without a seal.

    `within` is how far from the start to look for it, in bytes. The mark may stand elsewhere too,
    as part of a name: one seal that fits is enough.
    """
    end = len(data) if within is None else within
    found = False
    at = -1
    while (at := data.find(mark, at + 1, end)) >= 0:
        start = at + len(mark)
        seal = data[start : start + len(_BLANK)]
        if start + len(_BLANK) > end:
            break
        found = True
        rest = zlib.crc32(_BLANK, zlib.crc32(data[:start]))
        if seal == b"%08x" % zlib.crc32(data[start + len(_BLANK) :], rest):
            return False
    return found
