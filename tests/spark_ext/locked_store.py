"""Stores that refuse calls without a token.

`lock` changes the process that it is called in. That of a driver, and all that Spark starts for it,
call it when they begin: they find a `sitecustomize` on their path.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from pyspark import TaskContext

from txlog.base.errors import StoreError
from txlog.store.local.local import LocalStore

NONE = {"txlog.backend": "fsspec"}  # Otherwise obstore would open `s3://`.
RIGHT = NONE | {"token": "open-sesame-everywhere"}
OF_DRIVER = NONE | {"token": "open-sesame-of-the-driver"}  # Tasks are refused.
REFUSAL = "403: no entry without the right token"

_TOUCHING = (
    "read", "read_many", "open_input", "info", "list_after", "list_briefly", "list_tree",
    "open_output", "new_files", "write_new", "put_if_absent", "attempts", "replace", "delete",
)  # fmt: skip


def is_right(token: object) -> bool:
    return token == RIGHT["token"] or (token == OF_DRIVER["token"] and TaskContext.get() is None)


class LockedFiles(LocalFileSystem):
    """Local files by the name of a store that Spark has no jar for: `s3://tmp/t` is `/tmp/t`."""

    protocol = "s3"

    def __init__(self, token: str = "", **options: Any) -> None:
        if not is_right(token):
            raise PermissionError(REFUSAL)
        super().__init__(**options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("s3://").strip("/")


def s3_uri(path: Path) -> str:
    return f"s3:/{path}"


def lock() -> None:
    """Ask for the token wherever this process opens `s3://`, or a table on its disk."""
    fsspec.register_implementation("s3", LockedFiles, clobber=True)
    for name in _TOUCHING:
        setattr(LocalStore, name, _locked(getattr(LocalStore, name)))


def _locked(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def checked(self: LocalStore, *arguments: Any, **more: Any) -> Any:
        if not is_right(self.options.get("token")):
            raise StoreError(path=self.root, operation=method.__name__, reason=REFUSAL)
        return method(self, *arguments, **more)

    return checked
