"""Deleting on a local disk, within one folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from functools import lru_cache

from txlog.errors import InvalidInputError, TxlogError
from txlog.store.disk import Disk
from txlog.store.oserrors import os_errors


def delete_below(root: str, paths: Sequence[tuple[str, str]], disk: Disk) -> None:
    """Delete files below a folder; those that are not there are passed over.

    Parameters
    ----------
    paths
        Each as the caller gave it, for messages, and absolute.

    Raises
    ------
    InvalidInputError
        A path is not below `root`, or a symbolic link leads out of it; nothing was deleted.
    StoreError
        Files could not be deleted: the first of them. All the others were.
    """
    top = os.path.realpath(root)

    @lru_cache(maxsize=1024)
    def is_inside(folder: str) -> bool:
        # Only the folders matter: of a link as the last step, the link itself is removed.
        real = os.path.realpath(folder)
        return real == top or real.startswith(top.rstrip("/") + "/")

    for path, target in paths:
        with os_errors("delete", path, root):
            inside = is_inside(os.path.dirname(target))
        if not path or path.endswith(("/", "/.", "/..")) or not inside:
            raise InvalidInputError(
                argument="paths", reason=f"{path!r} is not a file below the table's root"
            )
    failed: TxlogError | None = None
    for path, target in paths:
        try:
            with os_errors("delete", path, root), contextlib.suppress(FileNotFoundError):
                disk.unlink(target)
        except TxlogError as error:
            failed = failed or error
    if failed is not None:
        raise failed
