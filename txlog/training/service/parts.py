"""Responses with the bytes of a part of a training set, or with a signed URL of the store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from starlette.responses import RedirectResponse, Response, StreamingResponse

from txlog.base.thresholds import Threshold
from txlog.extend import open_store
from txlog.training.datasets.aside import is_object, missing_of, place_of
from txlog.training.datasets.values import Part

_CHUNK_BYTES: Threshold = 1 << 20
SIGNED_FOR_S = 3600
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})\s*", re.ASCII)


def part_answer(
    part: Part,
    storage_options: Mapping[str, Any] | None,
    wanted: str | None,
    known: str | None = None,
) -> Response:
    """Return the response with a part, or a redirection to its signed URL.

    Parameters
    ----------
    wanted
        The header Range. For several ranges or other units, the response has the whole part.
    known
        The header If-None-Match: the digests that the sender has.
    """
    headers = {
        "ETag": f'"{part.sha256}"',
        "Accept-Ranges": "bytes",
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, max-age=31536000, immutable",
    }
    if known is not None and f'"{part.sha256}"' in known:
        return Response(status_code=304, headers=headers)
    place, name = place_of(part.uri)
    store = open_store(place, storage_options)
    if is_object(name):
        missing_of(store, [name])  # A file that was set aside is put back.
    sign = getattr(store, "signed_url", None)
    if sign is not None and (signed := sign(name, SIGNED_FOR_S)) is not None:
        # The client must not cache the redirection longer than the URL is valid.
        return RedirectResponse(signed, 307, {"Cache-Control": "no-store"})
    span = None if wanted is None else range_of(wanted, part.bytes)
    if span == (0, 0):
        return Response(status_code=416, headers={"Content-Range": f"bytes */{part.bytes}"})
    start, end = span or (0, part.bytes)
    file = store.open_input(name, size=part.bytes)  # A missing file raises here.
    headers["Content-Length"] = str(end - start)
    if span is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{part.bytes}"
    return StreamingResponse(
        _chunks(file, start, end),
        206 if span is not None else 200,
        headers,
        media_type="application/octet-stream",
    )


def range_of(wanted: str, size: int) -> tuple[int, int] | None:
    """Return the start and the end of a range of bytes; None for a header to ignore.

    (0, 0) means that the range cannot be satisfied. Source: RFC 9110, section 14. Pure.
    """
    found = _RANGE.fullmatch(wanted.strip())
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        length = min(int(last), size)
        return (size - length, size) if length else (0, 0)
    start, end = int(first), min(int(last) + 1, size) if last else size
    if last and int(last) < int(first):
        return None
    return (start, end) if start < size else (0, 0)


def _chunks(file: Any, start: int, end: int) -> Iterator[bytes]:
    with closing(file):
        file.seek(start)
        while start < end:
            chunk = file.read(min(_CHUNK_BYTES, end - start))
            if not chunk:
                return  # The file is shorter; the receiver notices it by the length.
            start += len(chunk)
            yield bytes(chunk)
