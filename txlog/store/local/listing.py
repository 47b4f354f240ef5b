"""What is in a folder of a local disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from operator import attrgetter

from txlog.store.base import ObjectInfo

_NAME = attrgetter("name")


def list_files(folder: str, name: str) -> list[ObjectInfo]:
    """Return the files in a folder whose names are not below `name`, by name, ascending.

    A symbolic link to a file counts as the file. Raises `OSError`; a folder that is not there is
    empty.
    """
    found: list[ObjectInfo] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                at = entry.name
                if at >= name and _is_file(entry):
                    _add(found, entry, at, follow=True)
    except FileNotFoundError:
        return []
    found.sort(key=_NAME)
    return found


def list_names(folder: str, name: str) -> list[str]:
    """Return the names alone of what `list_files` returns: nothing is asked about each file."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                [at for entry in entries if (at := entry.name) >= name and _is_file(entry)]
            )
    except FileNotFoundError:
        return []


def list_below(folder: str) -> list[ObjectInfo]:
    """Return the files below a folder, by name, ascending; links to files or folders are left out.

    Raises `OSError`; a folder that is not there is empty.
    """
    found: list[ObjectInfo] = []
    for entry in _walk(folder):
        _add(found, entry, os.path.relpath(entry.path, folder).replace(os.sep, "/"), follow=False)
    found.sort(key=_NAME)
    return found


def _walk(folder: str) -> Iterator[os.DirEntry[str]]:
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        yield entry
        except FileNotFoundError:
            continue  # Removed meanwhile, or never there.


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno == errno.ELOOP:  # A link to itself is as much a file as one to nothing.
            return False
        raise


def _add(found: list[ObjectInfo], entry: os.DirEntry[str], name: str, *, follow: bool) -> None:
    try:
        stat = entry.stat(follow_symlinks=follow)
    except FileNotFoundError:
        return  # Deleted between the listing and the look; the others are still there.
    found.append(ObjectInfo(name, stat.st_size, stat.st_mtime_ns // 1_000_000))
