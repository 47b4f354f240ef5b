"""The text of a log file (NDJSON): one JSON object per line, one action per object; and seals.

A seal is a checksum of a file inside the file, which shows whether the file is damaged. Commits and
checkpoints have one. Rules: spec/reconcile.md, REC-9. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from json import JSONDecoder
from typing import Any

import orjson

from txlog.actions.action import Action
from txlog.actions.file import Add, Cdc, CheckpointMetadata, Remove, Sidecar
from txlog.actions.table import (
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    TransactionGroup,
    Txn,
)
from txlog.base.errors import InvalidInputError, LogCorruptError

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
NAMES[TransactionGroup] = "transactionGroup"  # It is written only.


def encode(actions: Iterable[Action]) -> bytes:
    """Return the text of a log file: one line per action, each with a newline at its end."""
    return encode_rows(as_rows(actions))


def as_rows(actions: Iterable[Action]) -> Iterator[dict[str, Any]]:
    """Yield actions as the JSON objects of a log file. The caller may change them."""
    return ({NAMES[type(action)]: action.to_json()} for action in actions)


def encode_rows(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the text of a log file: one line per object, each with a newline at its end."""
    text = bytearray()
    # A list of the lines would need ten times the memory: orjson cuts each one from a kilobyte.
    for row in rows:
        text += json_of(row, option=orjson.OPT_APPEND_NEWLINE)
    return bytes(text)


def json_of(value: Any, *, option: int | None = None) -> bytes:
    """Return the JSON of a value.

    Raises
    ------
    InvalidInputError
        It contains a lone UTF-16 surrogate, which UTF-8 cannot encode, an integer of more than 64
        bits, or a value that is not JSON.
    """
    try:
        return orjson.dumps(value, option=option)
    except TypeError as error:
        raise InvalidInputError(
            reason=f"a value for the log cannot be written as JSON: {error}",
            remedy="Pass text without lone surrogates, and integers of at most 64 bits",
        ) from error


def decode(data: bytes, *, path: str) -> list[Action]:
    """Return the actions of a log file in order, without unknown actions.

    Raises
    ------
    LogCorruptError
        A line is not a JSON object, or a field is missing or has a wrong type. `path` names the
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
        if not hasattr(error, "errors"):  # Only Pydantic's own error has this method.
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
    """Return a log file's JSON objects in order.

    Objects that span several lines, which some writers write, are read as well.
    """
    data = data.removeprefix(_BYTE_ORDER_MARK)
    text = data.strip()
    try:
        # One call for all lines is much faster than one call for each line.
        array = b"[" + text.replace(b"\n", b",") + b"]"
        objects = orjson.loads(array)
        # If an object has a name twice, orjson keeps the last one, and the lengths differ.
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
    """Return the JSON objects of several log files; None if they must be read one by one."""
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
    """Return whether a text is what orjson writes for a value, so no object has a name twice."""
    try:
        return orjson.dumps(value) == text
    except TypeError:  # It is nested more deeply than orjson can write.
        return False


def _lines(text: bytes) -> int:
    """Return the number of lines of a text."""
    # In CPython 3.11, deleting bytes takes a seventh of the time of counting them.
    return len(text) - len(text.replace(b"\n", b"")) + 1


def _rows_slowly(data: bytes, path: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a log file; an object may span lines, or share a line."""
    objects: list[dict[str, Any]] = []
    decoder = JSONDecoder(object_pairs_hook=_named_once)
    position = 0
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _torn(path, line, f"the file is not UTF-8 at byte {error.start}") from error
    line, counted = 1, 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            return objects
        line, counted = line + text.count("\n", counted, position), position
        try:
            row, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise _torn(path, line, f"a complete JSON object was expected: {error}") from error
        if not isinstance(row, dict):
            raise _torn(path, line, f"a JSON object was expected, not {type(row).__name__}")
        objects.append(row)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of names and values; raise `ValueError` if a name occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} occurs twice in one object")
    return found


def _torn(path: str, line: int, reason: str) -> LogCorruptError:
    return LogCorruptError(
        path=path,
        line=line,
        reason=reason,
        remedy="Restore the file from a copy; versions before it may still open",
    )


BLANK = "00000000"  # The placeholder after the mark that the seal replaces.

COMMIT_MARK = b'"txlogCrc32":"'  # In the `commitInfo` of a commit, which is its first line.
FOOTER_MARK = b"txlog.crc32="  # In the footer of a checkpoint.

_BLANK = BLANK.encode()


def sealed(data: bytes, mark: bytes) -> bytes:
    """Return bytes in which the CRC-32 of all, blank included, replaces the blank after a mark.

    Bytes without the blank are returned unchanged.
    """
    at = data.find(mark + _BLANK)
    if at < 0:
        return data
    at += len(mark)
    return data[:at] + b"%08x" % zlib.crc32(data) + data[at + len(_BLANK) :]


def seal_of(data: bytes, mark: bytes) -> str:
    """Return the seal after a mark, which the bytes must contain."""
    start = data.index(mark) + len(mark)
    return data[start : start + len(_BLANK)].decode()


def is_broken(data: bytes, mark: bytes, *, within: int | None = None) -> bool:
    """Return whether bytes have a seal that does not match them; False if there is no seal.

    `within` is how many bytes from the start are searched. The mark may also occur as part of a
    name: one matching seal is enough.
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
